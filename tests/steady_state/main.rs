//! The engine does not allocate in steady state: requests, responses, acknowledgements, loss
//! recovery and RNR; nor do workers that hand frames over.
#![forbid(unsafe_code)]
#![expect(non_snake_case, reason = "tests are named function__case")]

mod pair;
mod steered;

use pair::{Loss, Op, Pair, Plan};
use spanwire_transport::{ErasureCoding, WireMode};
use steered::Workers;

/// Calls of the warm-up, and of the measurement with the same losses. After the warm-up queues and
/// rings have their final size.
const CALLS: u32 = 3_000;

/// Allocations of the engine in calls after a warm-up.
fn allocations(plan: Plan) -> u64 {
    let mut pair = Pair::new(plan);
    pair.run(CALLS);
    let counted = allocation_counter::measure(|| pair.run(CALLS));
    assert_eq!(pair.completed(), 2 * CALLS, "{plan:?}");
    pair.check(plan);
    counted.count_total
}

#[track_caller]
fn allocates_nothing(plan: Plan) {
    assert_eq!(allocations(plan), 0, "{plan:?}");
}

fn plans(loss: Loss) -> impl Iterator<Item = Plan> {
    let modes = [WireMode::Rc, WireMode::Sr];
    let ops = [Op::Send, Op::Write, Op::Read];
    modes.into_iter().flat_map(move |mode| {
        ops.into_iter().flat_map(move |op| {
            [64, 5_000, 50_000].map(|bytes| Plan {
                mode,
                op,
                bytes,
                loss,
                late_receives: false,
                code: None,
            })
        })
    })
}

#[test]
fn measure__detects_an_allocation_of_the_pair() {
    let plan = plans(Loss::None).next().expect("there is one");
    let counted = allocation_counter::measure(|| drop(Pair::new(plan)));
    assert!(counted.count_total > 10, "{counted:?}");
}

#[test]
fn engine__without_loss_allocates_nothing() {
    plans(Loss::None).for_each(allocates_nothing);
}

/// One packet in 37, or in 8, is lost: data, acknowledgements and retransmissions. Later packets
/// reveal the first kind; the second also costs probes and timeouts.
#[test]
fn engine__loss_recovery_allocates_nothing() {
    plans(Loss::OneIn(37)).chain(plans(Loss::OneIn(8))).for_each(allocates_nothing);
}

/// The receive request is posted after its message got an RNR NAK.
#[test]
fn engine__a_receiver_that_is_not_ready_allocates_nothing() {
    for mode in [WireMode::Rc, WireMode::Sr] {
        for bytes in [64, 5_000] {
            let op = Op::Send;
            let loss = Loss::None;
            allocates_nothing(Plan { mode, op, bytes, loss, late_receives: true, code: None });
        }
    }
}

/// Messages that wait for their data, as SENDs do, have few open blocks. WRITEs run ahead of lost
/// parity: the trees that index blocks then allocate and free a node occasionally. That is the
/// price of bounded cost for a hostile order.
#[test]
fn engine__erasure_coding_allocates_nothing() {
    let ops = [Op::Send, Op::Write, Op::Read].map(|op| (op, Loss::None));
    for (op, loss) in ops.into_iter().chain([(Op::Send, Loss::OneIn(37))]) {
        let code = Some(ErasureCoding::new(8, 2));
        let (mode, bytes) = (WireMode::Sr, 20_000);
        allocates_nothing(Plan { mode, op, bytes, loss, late_receives: false, code });
    }
}

#[test]
fn steered_port__handing_frames_over_allocates_nothing() {
    let mut workers = Workers::new();
    assert_eq!(workers.run(CALLS), 8 * u64::from(CALLS));
    let counted = allocation_counter::measure(|| {
        workers.run(CALLS);
    });
    assert_eq!(workers.handed(), 8 * u64::from(CALLS), "half of all frames");
    assert_eq!(counted.count_total, 0, "{counted:?}");
}
