//! The engine of each end of a flow.

use crate::workload::Flow;
use spanwire_base::{Rng, usize_from};

/// The engines of the requester and of the responder of each flow: places in a list of `workers`
/// engines of each host, host by host. The worker is drawn.
///
/// Flows that share queue pairs, and a flow that another one awaits, are of one worker, because an
/// application knows its own engine only.
pub(super) fn place(flows: &[Flow], workers: u8, seed: u64) -> Vec<[usize; 2]> {
    // Ends 2 i and 2 i + 1 are those of flow i. A root is the first of all that have its worker.
    let mut roots: Vec<usize> = (0..2 * flows.len()).collect();
    for (i, flow) in flows.iter().enumerate() {
        let [requester, responder] = [2 * i, 2 * i + 1];
        if let Some(other) = flow.reverse_of {
            let other = 2 * usize_from(other.into());
            unite(&mut roots, requester, other + 1);
            unite(&mut roots, responder, other);
        }
        if let Some(before) = flow.after {
            unite(&mut roots, requester, 2 * usize_from(before.into()) + 1);
        }
    }
    let mut rng = Rng::new(seed ^ PLACEMENT);
    let mut drawn: Vec<usize> = Vec::with_capacity(roots.len());
    for end in 0..roots.len() {
        let root = root_of(&roots, end);
        drawn.push(if root == end { usize_from(rng.below(workers.into())) } else { drawn[root] });
    }
    let engine = |host: u32, worker: usize| usize_from(host.into()) * usize::from(workers) + worker;
    let ends = flows.iter().zip(drawn.chunks(2));
    ends.map(|(f, of)| [engine(f.requester(), of[0]), engine(f.responder(), of[1])]).collect()
}

fn root_of(roots: &[usize], mut end: usize) -> usize {
    while roots[end] != end {
        end = roots[end];
    }
    end
}

fn unite(roots: &mut [usize], a: usize, b: usize) {
    let [a, b] = [a, b].map(|end| root_of(roots, end));
    roots[a.max(b)] = a.min(b);
}

/// Separates the draws of this module from others.
const PLACEMENT: u64 = 0x706c_6163_656d_656e;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::FlowOp;
    use spanwire_base::Time;

    #[test]
    fn place__shared_queue_pairs_and_awaited_flows_are_of_one_worker() {
        let flow = |src, dst| Flow::new(src, dst, Time::ZERO, 1);
        let flows = [
            flow(0, 1),
            flow(2, 1),
            // It joins ends of both.
            Flow { reverse_of: Some(0), after: Some(1), ..flow(1, 0) },
            Flow { after: Some(2), ..flow(0, 2) },
            Flow { op: FlowOp::Read, ..flow(0, 1) },
        ];
        let mut differing = 0;
        for seed in 0..50 {
            let ends = place(&flows, 4, seed);
            for ([requester, responder], flow) in ends.iter().zip(&flows) {
                let hosts = [requester / 4, responder / 4].map(|host| u32::try_from(host).unwrap());
                assert_eq!(hosts, [flow.requester(), flow.responder()]);
            }
            assert_eq!(ends[2], [ends[0][1], ends[0][0]]);
            assert_eq!((ends[2][0], ends[3][0]), (ends[1][1], ends[2][1]));
            differing += usize::from(ends[4] != ends[2]);
        }
        assert!(differing > 30, "{differing} of 50");
        assert_eq!(place(&flows, 1, 7), [[0, 1], [2, 1], [1, 0], [0, 2], [1, 0]]);
    }
}
