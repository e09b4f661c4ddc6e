//! Draws of host models.

use super::draw::Draw;
use crate::host_model::{HostModel, Lateness, Sockets};
use spanwire_base::{Dur, usize_from};
use spanwire_progress::Polling;

impl Draw {
    /// The timing of drivers: ideal in three of eight seeds, as measured in two, else far worse. Of
    /// the sixteen cases those beside each other were one when drivers had fixed spins only.
    pub(super) fn host(&mut self) -> Option<HostModel> {
        let model = match self.below(16) {
            0..=5 => return None,
            6 => HostModel::veth(),
            7 => HostModel::adaptive(),
            8 => HostModel::busy(),
            9 => HostModel::busy_poll(),
            _ => self.late_host(),
        };
        Some(HostModel { timestamps: !self.one_in(3), ..model })
    }

    /// `drawn`, but over UDP sockets in one of three seeds: as measured, or any drivers with calls
    /// that take up to 20 us, runs of any length and small buffers.
    pub(super) fn sockets(&mut self, drawn: HostModel) -> HostModel {
        if !self.one_in(3) {
            return drawn;
        }
        if self.one_in(3) {
            return HostModel { timestamps: drawn.timestamps, ..HostModel::udp() };
        }
        let [rx_call, tx_call] = [(); 2].map(|()| Dur::from_ns(self.pick(&[0, 500, 20_000])));
        let run_frames = self.count(&[1, 2, 8, 64]);
        let mut bytes = || self.pick(&[4_608, 16_384, 65_536, 425_984]);
        let (rx_bytes, tx_bytes) = (bytes(), bytes());
        let sockets = Sockets { rx_call, tx_call, run_frames, rx_bytes, tx_bytes };
        HostModel { sockets: Some(sockets), ..drawn }
    }

    /// Drivers that are slow, wake up to 50 ms late, stall for up to 100 ms, and have short rings.
    fn late_host(&mut self) -> HostModel {
        let mut ns = |of: &[u64]| Dur::from_ns(self.pick(of));
        let (step, kibibyte) = (ns(&[100, 1_000, 10_000]), ns(&[0, 100, 2_000]));
        let [rx_frame, tx_frame] = [(); 2].map(|()| ns(&[50, 1_000, 5_000]));
        let wakeup = self.lateness(&[100, 1_000, 5_000, 50_000]);
        let stall = self.lateness(&[1_000, 10_000, 100_000]);
        let batch = usize_from(self.pick(&[1, 2, 8, 64]));
        let [rx_ring, tx_ring] = [(); 2].map(|()| usize_from(self.pick(&[2, 4, 16, 64])));
        let spin = |us| Polling::Spin(Dur::from_us(us));
        let [at_once, short, long] = [0, 5, 1_000].map(spin);
        let adaptive = Polling::Adaptive;
        let polling =
            self.pick(&[at_once, adaptive, short, short, spin(50), adaptive, long, Polling::Busy]);
        HostModel {
            step,
            rx_frame,
            tx_frame,
            kibibyte,
            batch,
            rx_ring,
            tx_ring,
            polling,
            wakeup,
            stall_interval: Dur::from_ms(self.pick(&[0, 10, 100])),
            stall,
            timestamps: true,
            sockets: None,
        }
    }

    /// Times up to one of `max_us`, with a median and a 99th percentile below.
    fn lateness(&mut self, max_us: &[u64]) -> Lateness {
        let max = Dur::from_us(self.pick(max_us));
        let p99 = max / self.pick(&[1, 2, 10]);
        let p50 = p99 / self.pick(&[1, 3, 20]);
        Lateness::new(&[(0, p50 / 10), (500_000, p50), (990_000, p99), (1_000_000, max)])
    }
}
