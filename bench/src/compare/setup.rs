//! The configuration of each side, for the report.

use super::lab::PROCESS_TIMES;
use super::plan::Plan;
use super::writer::DEPTH;
use crate::engine;
use crate::raw::{ACK_EVERY, BATCH, HEADERS_BYTES, ICRC_BYTES};

/// The configuration of each side, one fact a line.
pub(super) fn facts(plan: &Plan) -> Vec<String> {
    let [a, b] = plan.cores();
    let overhead = HEADERS_BYTES + ICRC_BYTES;
    let (size, depth) = (engine::MESSAGE_BYTES >> 10, engine::DEPTH);
    let limits = plan.limits;
    vec![
        format!(
            "one thread a side, sender on core {a}, receiver on core {b}; all spin, except bulk \
             TCP and the blocking ping-pong"
        ),
        "a veth pair of one queue between two namespaces for AF_XDP, with pfifo 1000 in front of \
         it; another one without XDP and without a qdisc for kernel TCP and UDP, because attaching \
         XDP switches the peer's segmentation offload off"
            .to_owned(),
        "AF_XDP: native copy mode, rings of 256, 4 KiB chunks, side poll on both ends; a packet is \
         at most one buffer, whatever the MTU"
            .to_owned(),
        format!(
            "raw AF_XDP: frames of the path MTU + {overhead} bytes (Ethernet, IPv4, UDP, BTH, \
             ICRC), as WRITE's middle packets; batch {BATCH}, cumulative ACK every {ACK_EVERY}; no \
             ICRC computed"
        ),
        "raw UDP: UDP_SEGMENT and UDP_GRO, packets as long as the link's MTU, a number in each, \
         payload copied to its place in a region of 16 MiB at the receiver; up to 1 MiB in flight"
            .to_owned(),
        format!(
            "spanwire WRITE: one queue pair, {DEPTH} outstanding; none: a static window, auto: the \
             default, with the window and the rings that perf gives it; the last message of each \
             slot is compared byte for byte; packets/s = completed payload / payload of a packet"
        ),
        "spanwire UDP: UDP_SEGMENT and UDP_GRO, a socket each way on the same veth pair as raw \
         UDP; the window follows the receive buffer that the kernel grants"
            .to_owned(),
        format!("spanwire READ and SEND: RC, {size} KiB messages, {depth} outstanding"),
        "TCP: 128 KiB writes and reads; over TCP: the median of the ratios to kernel TCP with \
         offloads in the same round"
            .to_owned(),
        format!(
            "cpu rows: spanwire perf with its defaults, each end a process, of the middle of a run \
             {PROCESS_TIMES} times as long; TCP with writes of 64 KiB and SO_MAX_PACING_RATE; \
             --line-rate includes headers; cores are those of the ends' threads; interrupts that come \
             while a core is idle are only in cores not idle, with all other programs"
        ),
        "CPU s/GB: processor time of both threads, user and system, for 10^9 bytes of payload; \
         without the time of the kernel's own threads"
            .to_owned(),
        format!(
            "dropped and taken again (at most {} times): core to core above {:.0} ns after the \
             sample, or before it and for {} ms more (a); a thread waited for its core more than \
             {:.0} % of the time (s)",
            plan.repeats,
            limits.distance_ns,
            plan.wait_ms,
            limits.stolen * 100.0
        ),
    ]
}
