//! The bars of SR, in difficult cells of the sweep.

use spanwire_sim::{Bar, Cell, LossSweep, SweepRow};

/// Runs the cells of a sweep with parameters set.
#[track_caller]
fn rows(set: &[(&str, &str)]) -> Vec<SweepRow> {
    let sweep = LossSweep::new(1, set.iter().copied()).expect("parameters that it has");
    let run = |cell: &Cell| {
        let outcome = sweep.run(cell).expect("it can be built");
        assert_eq!(outcome.violations, [] as [&str; 0], "{cell:?}");
        outcome.row
    };
    sweep.cells().iter().map(run).collect()
}

#[track_caller]
fn check(rows: &[SweepRow], about: [usize; 3]) {
    let bars = Bar::all(rows);
    assert!(bars.iter().all(|bar| bar.ok), "{bars:#?}\n{rows:#?}");
    assert_eq!(bars.iter().map(|bar| bar.rows).collect::<Vec<_>>(), about);
}

#[test]
fn loss_sweep__a_window_of_15000_packets_at_5_percent_loss_loses_little_more() {
    let rows = rows(&[("rtt", "40ms"), ("loss", "5%"), ("trips", "20"), ("late", "")]);
    check(&rows, [1, 0, 1]);
    assert!(rows[1].window_pkts > 15_000);
}

#[test]
fn loss_sweep__a_window_of_ten_packets_needs_no_timeout() {
    let rows = rows(&[("rtt", "20us"), ("loss", "1%,5%"), ("late", ""), ("time", "100ms")]);
    check(&rows, [2, 0, 2]);
    let sr: Vec<_> = rows.iter().filter(|r| r.mode == "sr").collect();
    assert!(sr.iter().all(|r| r.window_pkts < 16));
    assert!(sr.iter().all(|r| r.timeouts * 1_000 < r.sent_pkts), "{sr:?}");
}

#[test]
fn loss_sweep__packets_reordered_by_fifty_round_trips_are_not_lost() {
    let rows = rows(&[("rtt", "20us"), ("loss", ""), ("late", "10us,1ms"), ("time", "200ms")]);
    check(&rows, [0, 2, 2]);
}

/// Packets of a port with 1500-byte frames. SR's headers cost 0.6 % of the link more than RC's,
/// which is visible without loss.
#[test]
fn loss_sweep__in_packets_of_1500_byte_ethernet() {
    let frames = [("segment", "1408"), ("mtu", "1024"), ("rtt", "20us"), ("time", "20ms")];
    let rows = rows(&[&frames[..], &[("loss", "0,1%,5%"), ("late", "10us")]].concat());
    let bars = Bar::all(&rows);
    assert!(bars[..2].iter().all(|bar| bar.ok), "{bars:#?}\n{rows:#?}");
    assert_eq!(bars[2].missed, ["sr, 20 us, 0 % lost"], "{rows:#?}");
    assert!(rows[1].goodput_fraction > 0.99 * rows[0].goodput_fraction, "{rows:#?}");
}

#[test]
fn loss_sweep__a_metro_path_with_everything() {
    let set =
        [("rtt", "2ms"), ("loss", "0,1%,20%"), ("late", "100us"), ("trips", "20"), ("time", "1us")];
    check(&rows(&set), [2, 1, 4]);
}
