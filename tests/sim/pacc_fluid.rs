//! PACC's steady state beside a fluid model of its law and of DCQCN's senders, which shares no code
//! with the switch or the engine.

use spanwire_sim::{MetricReport, Scenario, Watch};

/// A step of the model is a microsecond, in which the line carries this many bytes.
const LINE: f64 = 25e9 / 8.0 / 1e6;
/// Bytes of a packet, of which a flow is counted in N_i.
const PACKET: f64 = 1_000.0;

/// The rate of one sender, in bytes per step, as adapters control it (DCQCN, SIGCOMM 2015, with
/// their timers): alpha each microsecond with g = 1/256, a decrease at most each 4 us, increases
/// each 300 us, additive ones of 5 and then 50 Mbit/s.
struct Sender {
    rate: f64,
    target: f64,
    alpha: f64,
    /// When the first notification came.
    since: Option<u32>,
    has_cnp: [bool; 2],
    increased: u32,
    increase_at: u32,
}

impl Sender {
    fn new() -> Self {
        let (rate, alpha) = (LINE, 1.0);
        let (since, has_cnp, increased, increase_at) = (None, [false; 2], 0, u32::MAX);
        Self { rate, target: rate, alpha, since, has_cnp, increased, increase_at }
    }

    fn notify(&mut self, now: u32) {
        // The first sets alpha to 1 and begins the periods; it counts for the first decrease.
        self.has_cnp[0] = self.since.is_some();
        self.has_cnp[1] = true;
        self.since.get_or_insert(now);
    }

    fn step(&mut self, now: u32) {
        let Some(since) = self.since.filter(|since| *since < now) else { return };
        let marked = if std::mem::take(&mut self.has_cnp[0]) { 1.0 } else { 0.0 };
        self.alpha += (marked - self.alpha) / 256.0;
        if (now - since).is_multiple_of(4) && std::mem::take(&mut self.has_cnp[1]) {
            if self.increased > 0 {
                self.target = self.rate;
            }
            self.rate = (self.rate * (1.0 - self.alpha / 2.0)).max(LINE / 250.0);
            (self.increased, self.increase_at) = (0, now + 300);
        }
        if now >= self.increase_at {
            let mbps = [0.0, 5.0, 50.0][self.increased.min(2) as usize];
            self.target = (self.target + mbps / 8.0).min(LINE);
            self.rate = f64::midpoint(self.rate, self.target);
            (self.increased, self.increase_at) = (self.increased + 1, now + 300);
        }
    }
}

/// The mean and the greatest queue in bytes, in the second half of 60 ms, of the law each 80 us. It
/// has gains of 0.05 and 0.1 per kilobyte and a reference of 125 kB. A sender gets at most 20 CNPs
/// in a period, 4 us apart; the fraction of its share is carried on. All senders have the same
/// rate, and so the same share.
fn model(senders: usize) -> [f64; 2] {
    let mut all: Vec<Sender> = (0..senders).map(|_| Sender::new()).collect();
    let (mut queue, mut before, mut counted, mut share) = (0.0_f64, 0.0, 0.0, 0.0);
    let mut cnps_at: Vec<u32> = Vec::new();
    let (mut sum, mut most) = (0.0, 0.0_f64);
    for now in 0..60_000 {
        let arrived: f64 = all.iter().map(|sender| sender.rate).sum();
        queue = (queue + arrived - LINE).max(0.0);
        counted += if queue > 125e3 { arrived / PACKET } else { 0.0 };
        if cnps_at.contains(&now) {
            all.iter_mut().for_each(|sender| sender.notify(now));
        }
        if now % 80 == 0 {
            let n = 0.05 * (queue - 125e3) / 1e3 + 0.1 * (queue - before) / 1e3;
            if n > 0.0 && counted > 0.0 {
                share += n / senders as f64;
                let whole = share.floor();
                share -= whole;
                // They leave from now on, 4 us apart, and arrive 3 us later.
                let cnps = (0..20).filter(|i| f64::from(*i) < whole);
                cnps_at = cnps.map(|i| now + 3 + 4 * i).collect();
            }
            (before, counted) = (queue, 0.0);
        }
        all.iter_mut().for_each(|sender| sender.step(now));
        if now >= 30_000 {
            sum += queue;
            most = most.max(queue);
        }
    }
    [sum / 30_000.0, most]
}

/// The mean queue of the simulation.
fn simulated(senders: usize) -> f64 {
    let scenario = Scenario::find("pacc-steady").expect("it is in the catalogue");
    let set = [("scheme", "pacc"), ("senders", &*senders.to_string())];
    let plan = scenario.plan(1, set).expect("parameters that it has");
    let report = plan.run(Watch::default(), &mut ()).expect("it can be built");
    assert_eq!(report.violations, [] as [&str; 0]);
    let Some(MetricReport::Steady(steady)) = report.metric else { panic!("{:?}", report.metric) };
    steady.queue_bytes_mean as f64
}

#[test]
fn pacc_steady__agrees_with_a_fluid_model() {
    for senders in [2, 4, 10, 20] {
        let ([mean, most], simulated) = (model(senders), simulated(senders));
        let error = simulated / mean - 1.0;
        assert!(error.abs() <= 0.2, "{senders} senders: {simulated} bytes, the model {mean}");
        // Of few senders the queue stays within a quarter of the threshold; of more it does not.
        assert_eq!(most - mean <= 31_250.0, senders < 10, "{senders} senders: {mean} to {most}");
    }
}
