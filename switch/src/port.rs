//! One port: queues, scheduler, pauses.

mod write;

use crate::buffer::Buffer;
use crate::config::{CLASSES, Hop, MAX_QUEUES, PortConfig};
use crate::counters::{Drop, Mark, PortCounters, QueueDrop};
use crate::parse::ParsedFrame;
use crate::pfc::{Pauses, Pausing, Signal};
use crate::queue::Queue;
use crate::scheduler::{QueueMask, Scheduler, bit};
use crate::store::{CHUNK_BYTES, FrameId, Meta, Store};
use spanwire_base::{Rate, Rng, Time, TxMeta, u32_from, u64_from};
use spanwire_wire::{MacAddr, PfcFrame, trim};

/// A port of a switch.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) queues: Vec<Queue>,
    scheduler: Scheduler,
    /// Queues with frames.
    filled: QueueMask,
    /// Queues with shapers.
    shaped: QueueMask,
    /// Queues that an agent holds.
    held: QueueMask,
    class_to_queue: [u8; CLASSES],
    /// The classes of each queue, as a bit mask.
    classes: [u8; MAX_QUEUES],
    mac: MacAddr,
    rate: Option<Rate>,
    has_int: bool,
    pfc: Option<Pfc>,
    pub(crate) counters: PortCounters,
    /// When a frame that may not be sent now can be.
    pub(crate) wake_at: Option<Time>,
}

#[derive(Debug)]
struct Pfc {
    pauses: Pauses,
    pausing: Pausing,
    /// The priorities whose pauses are obeyed.
    obeyed: u8,
}

/// A frame before its queue.
pub(crate) struct Arriving<'a> {
    pub(crate) frame: &'a [u8],
    pub(crate) meta: Meta,
    pub(crate) seen: ParsedFrame,
    /// The router's next hop, if the frame is routed.
    pub(crate) hop: Option<Hop>,
    /// The queue that an agent chose instead of that of the class.
    pub(crate) queue: Option<u8>,
    /// Its flow in queues by flow, if an agent chose it.
    pub(crate) flow: Option<u64>,
    pub(crate) hash_seed: u64,
}

impl Arriving<'_> {
    /// Its flow in queues by flow.
    fn flow_key(&self) -> u64 {
        self.flow.unwrap_or_else(|| self.seen.flow_hash(self.hash_seed))
    }
}

/// The result of [`Port::enqueue`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The frame is in its queue; the PFC signal for its ingress port, if any.
    Queued(Option<Signal>),
    /// Its headers are in the queue of trimmed frames.
    Trimmed,
    /// It was dropped, and counted at its queue.
    Dropped(QueueDrop),
    /// It is lossless, and there was no headroom: to be counted at its ingress port.
    Refused(Drop),
}

/// A frame after its queue.
pub(crate) struct Leaving {
    pub(crate) id: FrameId,
    pub(crate) queue: usize,
    mark: Option<Mark>,
}

impl Port {
    /// Builds a port of a validated configuration.
    pub(crate) fn new(config: &PortConfig, rng: &mut Rng) -> Self {
        let queue = |q: &crate::QueueConfig| Queue::new(*q, config.rate, rng.fork());
        let queues: Vec<Queue> = config.queues.iter().map(queue).collect();
        let with_flows = |(_, q): &(usize, &Queue)| q.flows().is_some();
        let shaped = queues.iter().enumerate().filter(with_flows).fold(0, |m, (i, _)| m | bit(i));
        let mut classes = [0; MAX_QUEUES];
        for (class, queue) in config.class_to_queue.iter().enumerate() {
            classes[usize::from(*queue)] |= 1 << class;
        }
        let pfc = config.pfc.as_ref().zip(config.rate).map(|(pfc, rate)| Pfc {
            pauses: Pauses::new(rate),
            pausing: Pausing::new(pfc, rate),
            obeyed: pfc.mask(),
        });
        Self {
            queues,
            scheduler: Scheduler::new(config),
            filled: 0,
            shaped,
            held: 0,
            class_to_queue: config.class_to_queue,
            classes,
            mac: config.mac,
            rate: config.rate,
            has_int: config.int,
            pfc,
            counters: PortCounters::default(),
            wake_at: None,
        }
    }

    /// Changes limits, thresholds, weights and rate; queues and pauses keep their state.
    pub(crate) fn set(&mut self, now: Time, config: &PortConfig) {
        for (queue, config_of_queue) in self.queues.iter_mut().zip(&config.queues) {
            queue.set(now, *config_of_queue, config.rate);
        }
        self.scheduler.set(config);
        self.rate = config.rate;
        if let (Some(pfc), Some(rate)) = (&mut self.pfc, config.rate) {
            pfc.pauses.set_rate(rate);
            pfc.pausing.set_rate(rate);
        }
    }

    /// The queue of a class.
    #[inline]
    pub(crate) fn queue_of(&self, class: u8) -> u8 {
        self.class_to_queue[usize::from(class)]
    }

    /// Pauses of the classes of queue `with` apply to `queue` too.
    pub(crate) fn pause_with(&mut self, queue: u8, with: u8) {
        self.classes[usize::from(queue)] |= self.classes[usize::from(with)];
    }

    /// Holds a queue: it does not send until it is released.
    pub(crate) fn hold(&mut self, queue: u8, is_held: bool) {
        let mask = bit(queue.into());
        self.held = if is_held { self.held | mask } else { self.held & !mask };
    }

    /// The counters.
    pub(crate) fn counters(&self) -> PortCounters {
        let queues = self.queues.iter().map(Queue::counters).collect();
        PortCounters { queues, ..self.counters.clone() }
    }

    /// Priorities that are paused at this port, and that this port pauses at the other end.
    pub(crate) fn paused(&self) -> (u8, u8) {
        self.pfc.as_ref().map_or((0, 0), |pfc| (pfc.pauses.mask(), pfc.pausing.mask()))
    }

    /// Applies a pause frame. False if the port has no PFC.
    pub(crate) fn handle_pause_frame(&mut self, now: Time, frame: &PfcFrame) -> bool {
        let Some(pfc) = &mut self.pfc else { return false };
        pfc.pauses.handle_frame(now, frame, pfc.obeyed, &mut self.counters.pfc);
        self.rearm(now);
        true
    }

    /// Records a PFC signal for the other end.
    pub(crate) fn handle_signal(&mut self, class: u8, signal: Signal) {
        if let Some(pfc) = &mut self.pfc {
            pfc.pausing.handle_signal(class, signal);
        }
    }

    /// Ends expired pauses and sets the next wakeup, after `now`.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        if let Some(pfc) = &mut self.pfc {
            pfc.pauses.expire(now, &mut self.counters.pfc);
        }
        self.rearm(now);
    }

    /// Enqueues a frame if there is room.
    #[inline]
    pub(crate) fn enqueue(
        &mut self,
        now: Time,
        arriving: &Arriving<'_>,
        buffer: &mut Buffer,
        store: &mut Store,
    ) -> Outcome {
        let mut meta = arriving.meta;
        let of_class = self.class_to_queue[usize::from(meta.class)];
        let index = usize::from(arriving.queue.unwrap_or(of_class));
        let queue = &mut self.queues[index];
        let bytes = meta.wire_bytes();
        let is_phantom_over = queue.handle_arrival(now, bytes);
        let place =
            if self.shaped & bit(index) == 0 { 0 } else { queue.place(now, arriving.flow_key()) };
        let mut signal = None;
        if buffer.is_lossless(meta.ingress, meta.class) {
            meta.is_lossless = true;
            match buffer.admit_lossless(meta.ingress, meta.class, bytes) {
                Ok(to_ingress) => signal = to_ingress,
                Err(drop) => return Outcome::Refused(drop),
            }
        } else {
            let admitted = queue
                .check_room(place, bytes)
                .and_then(|()| buffer.admit(queue.bytes(), queue.config().alpha, bytes));
            if let Err(drop) = admitted {
                return self.trim_or_drop(now, index, arriving, drop, buffer, store);
            }
        }
        let id = store.insert(arriving.frame, meta);
        if let Some(hop) = arriving.hop {
            self.rewrite(store.bytes_mut(id), hop);
        }
        self.queues[index].push(now, store, id, place, is_phantom_over);
        self.filled |= bit(index);
        if self.shaped != 0 {
            self.rearm(now);
        }
        Outcome::Queued(signal)
    }

    /// Writes a pause frame if one is pending.
    #[inline]
    pub(crate) fn poll_pause_frame(&mut self, now: Time, out: &mut [u8]) -> Option<TxMeta> {
        let pfc = self.pfc.as_mut()?;
        let room = out.first_chunk_mut()?;
        if !pfc.pausing.poll_frame(now, self.mac, room, &mut self.counters.pfc) {
            return None;
        }
        self.counters.tx_pkts += 1;
        self.counters.tx_bytes += u64_from(PfcFrame::LEN);
        self.rearm(now);
        Some(TxMeta::whole(PfcFrame::LEN))
    }

    /// Dequeues the next frame that may be sent now.
    #[inline]
    pub(crate) fn dequeue(&mut self, now: Time, store: &mut Store) -> Option<Leaving> {
        let active = self.active(now);
        let queues = &mut self.queues;
        let queue = self.scheduler.next(active, |q| queues[q].head_bytes(now, store))?;
        let (id, mark) = queues[queue].pop(now, store)?;
        if queues[queue].bytes() == 0 {
            self.filled &= !bit(queue);
            self.scheduler.handle_empty(queue);
        }
        Some(Leaving { id, queue, mark })
    }

    /// True if frames may have to wait for a timer.
    pub(crate) fn has_timers(&self) -> bool {
        self.shaped != 0 || self.pfc.is_some()
    }

    /// True if a frame is queued, or a pause frame may be due.
    pub(crate) fn may_have_frame(&self) -> bool {
        self.filled != 0 || self.pfc.as_ref().is_some_and(|pfc| !pfc.pausing.is_idle())
    }

    /// Sets the next wakeup, after `now`: the driver polls for what is due now.
    pub(crate) fn rearm(&mut self, now: Time) {
        let pauses = self.pfc.as_ref().and_then(|pfc| pfc.pauses.next_end());
        let refresh = self.pfc.as_ref().and_then(|pfc| pfc.pausing.refresh_at());
        let shapers = self.queues.iter().filter_map(|q| q.flows()?.next_release());
        let all = pauses.into_iter().chain(refresh).chain(shapers);
        self.wake_at = all.filter(|at| *at > now).min();
    }

    /// The queues with a frame that may be sent now.
    #[inline]
    fn active(&mut self, now: Time) -> QueueMask {
        let mut active = self.filled & !self.held;
        if let Some(pfc) = &mut self.pfc {
            let paused = pfc.pauses.expire(now, &mut self.counters.pfc);
            for (queue, classes) in self.classes.iter().enumerate() {
                if classes & paused != 0 {
                    active &= !bit(queue);
                }
            }
        }
        if active & self.shaped != 0 {
            for (i, queue) in self.queues.iter().enumerate() {
                if queue.flows().is_some_and(|flows| !flows.is_ready(now)) {
                    active &= !bit(i);
                }
            }
        }
        active
    }

    /// Trims a frame without room if its queue is configured for it; otherwise drops it.
    fn trim_or_drop(
        &mut self,
        now: Time,
        index: usize,
        arriving: &Arriving<'_>,
        drop: QueueDrop,
        buffer: &mut Buffer,
        store: &mut Store,
    ) -> Outcome {
        let Some(config) = self.queues[index].config().trim else {
            self.queues[index].count(drop);
            return Outcome::Dropped(drop);
        };
        // The headers are within a chunk, so the rest need not be copied.
        let head = &arriving.frame[..arriving.frame.len().min(CHUNK_BYTES)];
        let id = store.insert(head, Meta { len: u32_from(head.len()), tag: 0, ..arriving.meta });
        let Some(len) = trim(store.bytes_mut(id), config.dscp) else {
            store.remove(id);
            self.queues[index].count(drop);
            return Outcome::Dropped(drop);
        };
        self.queues[index].count_trimmed();
        store.cut(id, len);
        let bytes = store.meta(id).wire_bytes();
        let target = &mut self.queues[usize::from(config.queue)];
        let place = target.place(now, arriving.flow_key());
        let has_room = target.check_room(place, bytes).and_then(|()| buffer.admit(0, None, bytes));
        if has_room.is_err() {
            store.remove(id);
            target.count(QueueDrop::Trimmed);
            return Outcome::Dropped(QueueDrop::Trimmed);
        }
        target.push(now, store, id, place, false);
        self.filled |= bit(usize::from(config.queue));
        if let Some(hop) = arriving.hop {
            self.rewrite(store.bytes_mut(id), hop);
        }
        if self.shaped != 0 {
            self.rearm(now);
        }
        Outcome::Trimmed
    }
}
