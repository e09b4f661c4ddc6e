//! Deficit round robin over the queue pairs that may send.

use crate::links::{Ends, Links};

/// Deficit round robin with weights, by bytes.
///
/// In its turn a slot gets its quantum times its weight, and sends while any of it is left. The
/// excess of the last packet is deducted from the next turn, because the length of a packet is
/// known only once it is written. A slot with nothing to send leaves and keeps no credit.
///
/// # Source
/// Shreedhar and Varghese (SIGCOMM'95), with the surplus carried over instead of the deficit.
#[derive(Debug)]
pub struct Drr {
    links: Links,
    active: Ends,
    entries: Vec<Entry>,
    quantum: u32,
    /// The head has received its quantum for this turn.
    turn_has_begun: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    left: i64,
    weight: u16,
    is_active: bool,
}

impl Drr {
    /// A turn has `quantum` bytes (at least 1) times the weight. The quantum should be at least a
    /// packet, or finding the head takes as many rounds as a packet has quanta.
    #[must_use]
    pub fn new(quantum: u32) -> Self {
        Self {
            links: Links::default(),
            active: Ends::default(),
            entries: Vec::new(),
            quantum: quantum.max(1),
            turn_has_begun: false,
        }
    }

    /// Sets the weight of `slot`, 1..=65535; the default is 1.
    pub fn set_weight(&mut self, slot: u32, weight: u16) {
        self.entry(slot).weight = weight.max(1);
    }

    /// Appends `slot`, which may send, unless it is active already.
    #[inline]
    pub fn activate(&mut self, slot: u32) {
        if !self.is_active(slot) {
            self.entry(slot).is_active = true;
            self.links.push_back(&mut self.active, slot);
        }
    }

    /// The slot whose turn it is.
    #[inline]
    pub fn head(&mut self) -> Option<u32> {
        // A turn that has begun has bytes left.
        if self.turn_has_begun { self.active.head() } else { self.begin() }
    }

    fn begin(&mut self) -> Option<u32> {
        loop {
            let head = self.active.head()?;
            let quantum = i64::from(self.quantum);
            let entry = self.entry(head);
            entry.left += quantum * i64::from(entry.weight);
            // A packet longer than the quantum is paid for by skipped turns.
            if entry.left > 0 {
                self.turn_has_begun = true;
                return Some(head);
            }
            self.rotate(head);
        }
    }

    /// Bytes that the head, whose turn has begun, may send before the turn ends; at least 1 then.
    #[inline]
    #[must_use]
    pub fn left(&self) -> i64 {
        let head = self.active.head().filter(|_| self.turn_has_begun);
        head.and_then(|head| self.entries.get(head as usize)).map_or(0, |entry| entry.left)
    }

    /// Charges a packet of `bytes` to the head. The turn ends when its bytes are used up.
    #[inline]
    pub fn charge(&mut self, bytes: u32) {
        let Some(head) = self.active.head() else { return };
        let Some(entry) = self.entries.get_mut(head as usize) else { return };
        entry.left -= i64::from(bytes);
        if entry.left <= 0 {
            self.rotate(head);
        }
    }

    /// Removes `slot`, which cannot send for now.
    pub fn deactivate(&mut self, slot: u32) {
        if !std::mem::replace(&mut self.entry(slot).is_active, false) {
            return;
        }
        if self.active.head() == Some(slot) {
            self.turn_has_begun = false;
        }
        self.links.remove(&mut self.active, slot);
        // Credit is discarded; excess bytes remain charged.
        let entry = self.entry(slot);
        entry.left = entry.left.min(0);
    }

    /// Removes `slot` and resets its weight: another queue pair may use it.
    pub fn remove(&mut self, slot: u32) {
        self.deactivate(slot);
        *self.entry(slot) = NEW;
    }

    /// True if `slot` is active.
    #[inline]
    #[must_use]
    pub fn is_active(&self, slot: u32) -> bool {
        self.entries.get(slot as usize).is_some_and(|e| e.is_active)
    }

    /// True if no slot is active.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    fn rotate(&mut self, head: u32) {
        self.links.remove(&mut self.active, head);
        self.links.push_back(&mut self.active, head);
        self.turn_has_begun = false;
    }

    fn entry(&mut self, slot: u32) -> &mut Entry {
        let i = slot as usize;
        if i >= self.entries.len() {
            self.grow(i + 1);
        }
        &mut self.entries[i]
    }

    #[cold]
    fn grow(&mut self, len: usize) {
        self.entries.resize(len, NEW);
    }
}

const NEW: Entry = Entry { left: 0, weight: 1, is_active: false };

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of departures while all slots always have packets of their length.
    fn run(drr: &mut Drr, lens: &[u32], packets: usize) -> Vec<(u32, u32)> {
        (0..packets)
            .map(|_| {
                let slot = drr.head().unwrap();
                let len = lens[slot as usize];
                drr.charge(len);
                (slot, len)
            })
            .collect()
    }

    fn bytes(sent: &[(u32, u32)], slot: u32) -> u32 {
        sent.iter().filter(|(s, _)| *s == slot).map(|(_, len)| len).sum()
    }

    fn three() -> Drr {
        let mut drr = Drr::new(4096);
        for slot in 0..3 {
            drr.activate(slot);
        }
        drr
    }

    #[test]
    fn charge__a_turn_is_of_bytes_not_of_packets() {
        let lens = [4096, 1024, 2048];
        let mut drr = three();
        let round = run(&mut drr, &lens, 7);
        let order: Vec<u32> = round.iter().map(|(slot, _)| *slot).collect();
        assert_eq!(order, [0, 1, 1, 1, 1, 2, 2]);
        let rest = run(&mut drr, &lens, 14);
        for slot in 0..3 {
            assert_eq!(bytes(&round, slot) + bytes(&rest, slot), 12_288);
        }
    }

    #[test]
    fn charge__shares_follow_weights_whatever_the_lengths() {
        let mut drr = three();
        drr.set_weight(1, 3);
        let sent = run(&mut drr, &[1500, 777, 9000], 20_000);
        let [a, b, c] = [0, 1, 2].map(|slot| f64::from(bytes(&sent, slot)));
        assert!((b / a - 3.0).abs() < 0.01 && (c / a - 1.0).abs() < 0.01, "{a} {b} {c}");
    }

    #[test]
    fn deactivate__discards_credit_and_keeps_debt() {
        let mut drr = three();
        assert_eq!(drr.head(), Some(0));
        drr.deactivate(0);
        assert!(!drr.is_active(0));
        assert_eq!(drr.head(), Some(1));
        drr.charge(10_000);
        drr.deactivate(1);
        drr.activate(1);
        assert_eq!(drr.head(), Some(2));
        drr.charge(4096);
        // 5904 bytes in excess: its next turn is skipped.
        assert_eq!(drr.head(), Some(2));
        drr.charge(4096);
        assert_eq!(drr.head(), Some(1));
    }

    #[test]
    fn activate__twice_is_once() {
        let mut drr = Drr::new(1);
        drr.activate(5);
        drr.activate(5);
        drr.deactivate(5);
        drr.deactivate(5);
        assert!(drr.is_empty() && drr.head().is_none());
    }
}
