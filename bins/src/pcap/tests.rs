use super::*;

fn args(line: &[&str]) -> Result<PcapArgs, clap::Error> {
    use clap::Parser;
    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        pcap: PcapArgs,
    }
    let words = std::iter::once("pcap").chain(line.iter().copied());
    Cli::try_parse_from(words).map(|cli| cli.pcap)
}

#[test]
fn pcap_args__queue_pairs_are_decimal_or_hex() {
    assert_eq!(args(&["--qp", "17", "--qp", "0x12", "-"]).unwrap().qp, [17, 0x12]);
    for bad in ["0x1000000", "-1", "x", ""] {
        assert!(args(&["--qp", bad, "-"]).is_err(), "{bad}");
    }
    assert!(args(&[]).is_err(), "a file is wanted");
}

#[test]
fn file_report_exit__the_worst_counts() {
    let good = FileReport { roce_packets: 1, icrc_good: 1, ..FileReport::default() };
    assert_eq!(good.exit().code(), 0);
    assert_eq!(FileReport { truncated: 1, icrc_unchecked: 1, ..good.clone() }.exit().code(), 0);
    assert_eq!(FileReport { icrc_bad: 1, ..good.clone() }.exit().code(), 1);
    assert_eq!(FileReport { parse_errors: 1, ..good.clone() }.exit().code(), 1);
    assert_eq!(FileReport { icrc_bad: 1, error: Some(String::new()), ..good }.exit().code(), 2);
}

#[test]
fn file_report_to_text__lists_nonzero_counts() {
    let mut report = FileReport {
        frames: 9,
        roce_packets: 8,
        icrc_good: 5,
        icrc_bad: 1,
        ..FileReport::default()
    };
    assert_eq!(report.to_text(), "9 frames, 8 RoCE packets: ICRC good 5, bad 1; parse errors 0");
    (report.icrc_unchecked, report.truncated, report.parse_errors) = (2, 1, 3);
    report.parse_error_reasons = [("bad_pad", 2), ("bad_tver", 1)].into();
    assert_eq!(
        report.to_text(),
        "9 frames, 8 RoCE packets: ICRC good 5, bad 1, not checked 2 (1 truncated); \
         parse errors 3: 2 bad_pad, 1 bad_tver"
    );
}
