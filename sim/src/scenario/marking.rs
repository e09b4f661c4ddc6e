//! ECN marking and telemetry of switches, as the authors of each congestion control configured
//! them, scaled by the link's rate.

use crate::setup::Setup;
use spanwire_base::Rate;
use spanwire_cc::Algorithm;
use spanwire_switch::{EcnConfig, PhantomConfig, Prob, Ratio};

/// The congestion signal of a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Marks {
    /// No signal.
    None,
    /// ECN marks between 4 and 16 KB per Gbit/s, with probability up to one in five.
    ///
    /// # Source
    /// HPCC (SIGCOMM'19), run.py of its artifact for DCQCN: 100 and 400 KB at 25 Gbit/s, 20 %.
    Dcqcn,
    /// ECN marks above 3 KB per Gbit/s.
    ///
    /// # Source
    /// HPCC, run.py of its artifact for DCTCP: 30 KB at 10 Gbit/s.
    Dctcp,
    /// ECN marks between 2.5 and 7.5 KB per Gbit/s, with probability up to one.
    ///
    /// # Source
    /// Uno 5 (SC'25) and its artifact, for Gemini and MP-RDMA: 25 and 75 % of 1 MB at
    /// 100 Gbit/s.
    Half,
    /// ECN marks of a phantom queue that drains at nine tenths of the rate.
    ///
    /// # Source
    /// Uno 5: the drain; its artifact: size 22.4 MB at 100 Gbit/s, marks between 2 % and
    /// 60 % of it, up to all.
    Phantom,
    /// In-band telemetry, in packets that request it.
    Telemetry,
}

impl Marks {
    /// The words of the parameter.
    pub(super) const WORDS: &'static [&'static str] =
        &["fit", "none", "dcqcn", "dctcp", "half", "phantom", "int"];

    /// The signal of a parameter's word; `fit` selects the one that the algorithm uses.
    pub(super) fn of(word: &str, algorithm: Option<Algorithm>) -> Self {
        match word {
            "dcqcn" => Self::Dcqcn,
            "dctcp" => Self::Dctcp,
            "half" => Self::Half,
            "phantom" => Self::Phantom,
            "int" => Self::Telemetry,
            "fit" => algorithm.map_or(Self::None, |algorithm| Self::fit(&algorithm)),
            _ => Self::None,
        }
    }

    fn fit(algorithm: &Algorithm) -> Self {
        match algorithm {
            Algorithm::UnoCc(_) => Self::Phantom,
            Algorithm::Dcqcn(_) | Algorithm::DcqcnRnic(_) => Self::Dcqcn,
            Algorithm::Dctcp(_) => Self::Dctcp,
            Algorithm::Gemini(_) | Algorithm::MpRdma(_) => Self::Half,
            Algorithm::Hpcc(_) | Algorithm::Mlcc(_) => Self::Telemetry,
            Algorithm::PowerTcp(params) if !params.theta => Self::Telemetry,
            Algorithm::PowerTcp(_)
            | Algorithm::Swift(_)
            | Algorithm::Timely(_)
            | Algorithm::Bbr(_)
            | Algorithm::Auto(_)
            | Algorithm::Fixed(_) => Self::None,
        }
    }
}

/// Configures the signal on every port.
pub(super) fn mark(setup: &mut Setup, marks: Marks, rate: Rate) {
    // Bytes for each Gbit/s.
    let scaled = |bytes: u64| {
        let all = u128::from(bytes) * u128::from(rate.as_bps()) / 1_000_000_000;
        u64::try_from(all).unwrap_or(u64::MAX).max(1)
    };
    let red = |kmin, kmax, pmax| Some(EcnConfig::red(scaled(kmin), scaled(kmax), pmax));
    let mut queue = setup.port.queues[0];
    match marks {
        Marks::None => {}
        Marks::Dcqcn => queue.ecn = red(4_000, 16_000, Prob::from_ppm(200_000)),
        Marks::Dctcp => queue.ecn = Some(EcnConfig::step(scaled(3_000))),
        Marks::Half => queue.ecn = red(2_500, 7_500, Prob::ONE),
        Marks::Phantom => {
            let size_bytes = scaled(224_000);
            queue.phantom = Some(PhantomConfig {
                drain: Ratio::new(9, 10).expect("a ratio"),
                size_bytes,
                kmin_bytes: size_bytes / 50,
                kmax_bytes: size_bytes / 5 * 3,
                pmax: Prob::ONE,
                with_physical: false,
            });
        }
        Marks::Telemetry => setup.port.int = true,
    }
    setup.port.queues[0] = queue;
}

/// Configures ECN marks on every port: none up to `kmin` bytes, and every packet from `kmax` on.
pub(super) fn ramp(setup: &mut Setup, kmin: u64, kmax: u64) {
    setup.port.queues[0].ecn = Some(EcnConfig::red(kmin.clamp(1, kmax), kmax, Prob::ONE));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(word: &str, cc: &str) -> Setup {
        let mut setup = Setup::default();
        mark(&mut setup, Marks::of(word, Algorithm::named(cc).ok()), Rate::from_gbps(100));
        setup
    }

    #[test]
    fn mark__fit_is_the_signal_of_the_algorithm() {
        let ecn = |cc| marked("fit", cc).port.queues[0].ecn.map(|e| (e.kmin_bytes, e.kmax_bytes));
        assert_eq!(ecn("dcqcn"), Some((400_000, 1_600_000)));
        assert_eq!(ecn("dcqcn-rnic"), ecn("dcqcn"));
        assert_eq!(ecn("dctcp"), Some((300_000, 300_000)));
        assert_eq!(ecn("gemini-paper"), Some((250_000, 750_000)));
        let phantom = marked("fit", "unocc").port.queues[0].phantom.unwrap();
        assert_eq!(
            (phantom.size_bytes, phantom.kmin_bytes, phantom.kmax_bytes),
            (22_400_000, 448_000, 13_440_000)
        );
        let int =
            ["hpcc", "powertcp", "theta-powertcp", "bbr"].map(|cc| marked("fit", cc).port.int);
        assert_eq!(int, [true, true, false, false]);
    }

    #[test]
    fn mark__a_word_overrides_fit_and_every_word_is_known() {
        assert!(marked("phantom", "dctcp").port.queues[0].phantom.is_some());
        assert_eq!(marked("none", "dctcp").port, Setup::default().port);
        let all = Marks::WORDS.iter().map(|word| Marks::of(word, Algorithm::named("unocc").ok()));
        let none = all.filter(|marks| *marks == Marks::None).count();
        assert_eq!(none, 1, "only `none` has no signal");
    }
}
