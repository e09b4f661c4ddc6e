//! Linux rxe as the peer of a switch that sends CNPs (PACC): rxe ignores them, and its transfers
//! are as right as ever.

use crate::case;
use crate::guest::Guest;
use crate::session::{Ours, Tally, Terms};

/// PACC at both ports, with so low a threshold that every burst is above it.
const PACC: &str = "[[agent]]\nkind = 'pacc'\nports = ['near', 'far']\nperiod = '10ms'\n\
                    spacing = '500us'\nthreshold_bytes = '5kB'\nburst_bytes = '0B'\n";

#[test]
fn rxe__is_unharmed_by_cnps_of_a_switch() {
    let Some(mut guest) = Guest::boot() else { return };
    guest.insert_switch("100Mbit", PACC);
    let _here = guest.ours.enter().expect("privileged: there is a guest");
    let mut tally = Tally::default();
    for ours in [Ours::Requester, Ours::Responder] {
        let cases = [
            case::write(1 << 20, 1, 201),
            case::read(1 << 20, 1, 202),
            case::message("sendimm", 65_536, 8, 203),
        ];
        tally.run(&guest, &Terms::new(ours), &cases);
    }
    tally.finish();
    let cnps = guest.cnps_of_switch();
    println!("CNPs to our host and to rxe: {cnps:?}");
    assert!(cnps.iter().all(|sent| *sent > 0), "CNPs went to both: {cnps:?}");
}
