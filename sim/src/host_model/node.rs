//! A polled host as a node of the network.

use super::PolledHost;
use spanwire_base::{Node, PortId, PortMask, RxMeta, Time, TxMeta};

impl<N: Node> Node for PolledHost<N> {
    #[inline]
    fn handle_packet(&mut self, now: Time, port: PortId, frame: &[u8], meta: &RxMeta) {
        match &mut self.driver {
            None => self.node.handle_packet(now, port, frame, meta),
            Some(driver) => driver.on_arrival(now, frame, meta),
        }
    }

    #[inline]
    fn handle_timeout(&mut self, now: Time) {
        let Some(driver) = &mut self.driver else { return self.node.handle_timeout(now) };
        if driver.next_step().is_some_and(|at| at <= now) {
            driver.step(now, &mut self.node);
        }
        if driver.leaving.front().is_some_and(|frame| frame.at <= now) {
            (driver.is_ready, driver.reported_until) = (true, now);
        }
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, port: PortId, frame: &mut [u8]) -> Option<TxMeta> {
        let Some(driver) = &mut self.driver else {
            return self.node.poll_transmit(now, port, frame);
        };
        let next = driver.leaving.front().filter(|next| next.at <= now)?;
        let meta = TxMeta { elided_bytes: next.elided_bytes, ..TxMeta::whole(next.bytes.len()) };
        frame[..meta.len].copy_from_slice(&next.bytes);
        let sent = driver.leaving.pop()?;
        driver.spare.push(sent.bytes);
        Some(meta)
    }

    #[inline]
    fn may_have_frame(&self, port: PortId) -> bool {
        match &self.driver {
            None => self.node.may_have_frame(port),
            Some(driver) => !driver.leaving.is_empty(),
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        let Some(driver) = &self.driver else { return self.node.poll_timeout() };
        let departure = driver.leaving.front().map(|frame| frame.at);
        let departure = departure.filter(|at| *at > driver.reported_until);
        driver.next_step().into_iter().chain(departure).min()
    }

    #[inline]
    fn take_ready(&mut self) -> PortMask {
        match &mut self.driver {
            None => self.node.take_ready(),
            Some(driver) => match std::mem::take(&mut driver.is_ready) {
                true => PortMask::of(PortId::HOST),
                false => PortMask::EMPTY,
            },
        }
    }
}
