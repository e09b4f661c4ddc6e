//! Pause frames: sent, obeyed, and without loss.

use super::*;
use crate::config::PfcConfig;
use crate::link::{Fate, Line, LineConfig};
use spanwire_base::{Dur, Rate};
use spanwire_wire::set_dscp;
use std::collections::VecDeque;

const RATE: Rate = Rate::from_gbps(100);

fn lossless(dst: u8) -> Vec<u8> {
    let mut frame = roce_frame(dst, 1_000);
    set_dscp(&mut frame, 24);
    frame
}

/// Ports with PFC on priority 3 and a small buffer.
fn config(ports: usize, headroom_bytes: u64) -> SwitchConfig {
    let pfc = PfcConfig { headroom_bytes, ..PfcConfig::default() };
    let port = PortConfig { pfc: Some(pfc), ..PortConfig::new(RATE) };
    SwitchConfig { buffer_bytes: 1_000_000, ..routed(vec![port; ports]) }
}

fn pause_frame(s: &mut Switch, from: u8) -> Option<PfcFrame> {
    pull(s, from).and_then(|f| PfcFrame::parse(&f))
}

fn pause(s: &mut Switch, now: Time, at: u8, quanta: u16) {
    let mut out = [0; PfcFrame::LEN];
    PfcFrame { enabled: 0b1000, quanta: [quanta; 8] }.emit(MacAddr::default(), &mut out);
    s.handle_packet(now, port(at), &out, &RxMeta::whole(now));
}

#[test]
fn handle_packet__pauses_and_resumes_the_sender() {
    let mut s = Switch::new(config(2, 50_000)).unwrap();
    let mut sent = 0;
    while pause_frame(&mut s, 0).is_none() {
        push(&mut s, 0, &lossless(1));
        sent += 1;
    }
    // (x - 4096) = (891808 - (x - 4096)) / 8 at x = 103 kB: 97 frames.
    assert!((95..=99).contains(&sent), "{sent}");
    assert_eq!(s.snapshot(Time::ZERO).ports[0].pausing, 0b1000);
    let resumed = loop {
        pull(&mut s, 1).expect("there are frames until the sender resumes");
        sent -= 1;
        if let Some(pause) = pause_frame(&mut s, 0) {
            break pause;
        }
    };
    assert_eq!((resumed.enabled, resumed.quanta[3]), (0b1000, 0));
    assert!((88..=97).contains(&sent), "{sent}");
    let c = s.counters().ports[0].pfc;
    assert_eq!((c.pause_tx, c.resume_tx), (1, 1));
}

#[test]
fn handle_packet__loses_only_frames_beyond_the_headroom() {
    let mut s = Switch::new(config(2, 50_000)).unwrap();
    for _ in 0..300 {
        push(&mut s, 0, &lossless(1));
    }
    let c = s.counters();
    let lost = c.ports[0].drop_headroom_full;
    assert_eq!(c.dropped(), lost);
    // 103 kB to the threshold and 50 kB of headroom.
    assert!((300 - lost).abs_diff(142) <= 3, "{lost}");
}

#[test]
fn poll_transmit__renews_a_pause_before_it_ends() {
    let mut s = Switch::new(config(2, 50_000)).unwrap();
    for _ in 0..100 {
        push(&mut s, 0, &lossless(1));
    }
    assert!(s.take_ready().has(port(0)));
    let pause = pause_frame(&mut s, 0).unwrap();
    let lasts = RATE.time_for(64) * u64::from(pause.quanta[3]);
    let at = s.poll_timeout().unwrap();
    assert_eq!(at, Time::ZERO + lasts / 2);
    s.handle_timeout(at);
    assert!(s.take_ready().has(port(0)));
    let mut out = [0; 100];
    let tx = s.poll_transmit(at, port(0), &mut out).unwrap();
    assert_eq!(PfcFrame::parse(&out[..tx.len]), Some(pause));
    assert_eq!(s.poll_timeout(), Some(at + lasts / 2));
}

#[test]
fn handle_packet__obeys_for_one_priority_and_one_port() {
    let mut s = Switch::new(two_classes()).unwrap();
    push(&mut s, 0, &lossless(1));
    push(&mut s, 0, &roce_frame(1, 10));
    push(&mut s, 1, &lossless(0));
    pause(&mut s, Time::ZERO, 1, 100);
    assert_eq!(pull(&mut s, 1).unwrap().len(), 86, "the other class is not paused");
    assert_eq!(pull(&mut s, 1), None);
    assert!(pull(&mut s, 0).is_some(), "the other port is not paused");
    assert_eq!(s.snapshot(Time::ZERO).ports[1].paused, 0b1000);
    // 100 quanta of 5.12 ns.
    let end = Time::from_ns(512);
    assert_eq!(s.poll_timeout(), Some(end));
    s.take_ready();
    s.handle_timeout(end);
    assert!(s.take_ready().has(port(1)));
    assert!(s.poll_transmit(end, port(1), &mut [0; 2_000]).is_some());
    let c = s.counters().ports[1].pfc;
    assert_eq!((c.pause_rx, c.pauses[3], c.paused_ps[3]), (1, 1, 512_000));
}

fn two_classes() -> SwitchConfig {
    let mut config = config(2, 50_000);
    for p in &mut config.ports {
        p.queues = vec![QueueConfig::default(); 2];
        p.class_to_queue[3] = 1;
    }
    config
}

#[test]
fn handle_packet__resumes_on_a_resume_frame() {
    let mut s = Switch::new(config(2, 50_000)).unwrap();
    push(&mut s, 0, &lossless(1));
    pause(&mut s, Time::ZERO, 1, u16::MAX);
    assert_eq!(pull(&mut s, 1), None);
    s.take_ready();
    pause(&mut s, Time::ZERO, 1, 0);
    assert!(s.take_ready().has(port(1)));
    assert!(pull(&mut s, 1).is_some());
}

#[test]
fn handle_packet__without_pfc_counts_pause_frames_as_link_local() {
    let mut s = Switch::new(routed(vec![PortConfig::default(); 2])).unwrap();
    pause(&mut s, Time::ZERO, 1, 9);
    assert_eq!(s.counters().ports[1].drop_link_local, 1);
}

/// Two senders at full rate into one port from `opens` on for 400 us, over links of this delay and
/// this headroom, each obeying pause frames. Returns the frames lost and delivered, and the number
/// of pauses.
fn two_into_one(delay: Dur, headroom_bytes: u64, opens: Dur) -> (u64, u64, u64) {
    let mut s = Switch::new(config(3, headroom_bytes)).unwrap();
    let line = || Line::new(LineConfig::new(RATE, delay), 0).unwrap();
    let mut gates: Vec<_> = (0..2).map(|_| crate::PfcGate::new(Source, RATE, 0b1000)).collect();
    let (mut up, mut down): (Vec<_>, Vec<_>) =
        ((0..2).map(|_| line()).collect(), (0..3).map(|_| line()).collect());
    // Frames in flight to the switch, and pause frames to the senders.
    let mut to_switch: Vec<VecDeque<(Time, Vec<u8>)>> = vec![VecDeque::new(); 2];
    let mut to_host: Vec<VecDeque<(Time, Vec<u8>)>> = vec![VecDeque::new(); 2];
    let mut delivered = 0;
    let mut buffer = [0; 2_000];
    let end = Time::ZERO + Dur::from_us(400);
    let mut now = Time::ZERO;
    while now < end {
        s.handle_timeout(now);
        for i in 0..2 {
            let id = port(u8::try_from(i).unwrap());
            while let Some((_, frame)) = to_host[i].pop_front_if(|(at, _)| *at <= now) {
                gates[i].handle_packet(now, PortId::HOST, &frame, &RxMeta::whole(now));
            }
            while let Some((_, frame)) = to_switch[i].pop_front_if(|(at, _)| *at <= now) {
                s.handle_packet(now, id, &frame, &RxMeta::whole(now));
            }
            while up[i].free_at() <= now
                && let Some(tx) = gates[i].poll_transmit(now, PortId::HOST, &mut buffer)
            {
                let sent = up[i].send(now, &mut buffer[..tx.len], 0);
                let Fate::Arrives(at) = sent.fates[0] else { panic!("a line without impairments") };
                to_switch[i].push_back((at, buffer[..tx.len].to_vec()));
            }
            while down[i].free_at() <= now
                && let Some(tx) = s.poll_transmit(now, id, &mut buffer)
            {
                let sent = down[i].send(now, &mut buffer[..tx.len], 0);
                let Fate::Arrives(at) = sent.fates[0] else { panic!("a line without impairments") };
                to_host[i].push_back((at, buffer[..tx.len].to_vec()));
            }
        }
        let is_open = now >= Time::ZERO + opens;
        while is_open
            && down[2].free_at() <= now
            && s.poll_transmit(now, port(2), &mut buffer).is_some()
        {
            down[2].send(now, &mut buffer[..1_074], 0);
            delivered += 1;
        }
        now += Dur::from_ns(10);
    }
    let pauses = gates.iter().map(|g| g.counters().pfc.pauses[3]).sum();
    (s.counters().dropped(), delivered, pauses)
}

/// A host that always has a frame to host 2.
struct Source;

impl Node for Source {
    fn handle_packet(&mut self, _: Time, _: PortId, _: &[u8], _: &RxMeta) {}

    fn handle_timeout(&mut self, _: Time) {}

    fn poll_transmit(&mut self, _: Time, _: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        let next = lossless(2);
        frame[..next.len()].copy_from_slice(&next);
        Some(TxMeta::whole(next.len()))
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }

    fn take_ready(&mut self) -> PortMask {
        PortMask::EMPTY
    }
}

#[test]
fn pfc__loses_nothing_and_keeps_the_bottleneck_busy() {
    for us in [1, 5] {
        let delay = Dur::from_us(us);
        let headroom = PfcConfig::headroom_for(RATE, delay, 1_074);
        let (lost, delivered, pauses) = two_into_one(delay, headroom, Dur::ZERO);
        assert_eq!(lost, 0, "delay {us} us, headroom {headroom}");
        assert!(pauses > 2, "{pauses}");
        // 400 us at 87.84 ns a frame, less the propagation. The frames queued when a sender resumes
        // last about until its next frames arrive, so the bottleneck hardly idles.
        let capacity = (400_000 - us * 1_000) * 1_000 / 87_840;
        assert!(delivered * 100 > capacity * 96, "{delivered} of {capacity}");
    }
}

#[test]
fn pfc__needs_the_headroom_of_the_link_when_nothing_leaves() {
    for us in [1, 5] {
        let delay = Dur::from_us(us);
        let headroom = PfcConfig::headroom_for(RATE, delay, 1_074);
        let opens = Dur::from_us(200);
        let (lost, delivered, _) = two_into_one(delay, headroom, opens);
        assert_eq!(lost, 0, "delay {us} us, headroom {headroom}");
        assert!(delivered > 2_000, "it resumes: {delivered}");
        let (lost, _, _) = two_into_one(delay, headroom * 8 / 10, opens);
        assert!(lost > 0, "a fifth less than {headroom} is not enough for {us} us");
    }
}
