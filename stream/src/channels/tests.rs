use super::*;
use crate::config::Config;
use crate::side_thread::SideThread;
use crate::testing::{SMALL, bell, route};
use spanwire_transport::WireMode;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A network's channels, one of which is connected.
fn connected() -> (Channels, Endpoint, ChannelId) {
    let shape = SMALL;
    let config = Config {
        ring_bytes: shape.ring_bytes,
        fragment_bytes: shape.fragment_bytes,
        fragments: shape.fragments,
        max_message_bytes: shape.max_message_bytes,
        ..Config::default()
    };
    let ready_queue = Arc::new(ReadyQueue::new(4, bell()));
    let (side_thread, _) = SideThread::new().unwrap();
    let clock = Clock::start();
    let mut channels = Channels::new(config.validate().unwrap(), clock, ready_queue, side_thread);
    let engine = spanwire_transport::ValidConfig::default();
    let mut endpoint = Endpoint::new(engine, [1; 32]);
    let rings = || Rings::new(shape.ring_bytes).unwrap();
    let (id, _) = channels.open(&mut endpoint, (shape, rings(), Place::default()), None).unwrap();
    let (_, theirs) =
        channels.open(&mut endpoint, (shape, rings(), Place::default()), None).unwrap();
    let route = route(WireMode::Sr, 0);
    let params = ConnectParams { id, kind: Kind::Bytes, shape, route, theirs, count: None };
    drop(channels.connect(&mut endpoint, params).unwrap());
    (channels, endpoint, id)
}

/// The application aborts before the thread of its handshake hands the side connection over.
#[test]
fn keep__of_a_channel_that_has_ended_sends_its_reason() {
    let (mut channels, mut endpoint, id) = connected();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut theirs = Side::new(listener.accept().unwrap().0).unwrap();
    let why = "the disk is full";
    channels.settle(id.slot, ChannelState::Lost(Cause::Aborted(why.into())), &mut endpoint);
    assert_eq!(channels.unsent_reasons.len(), 1);
    channels.keep(id, Side::new(ours).unwrap());
    assert!(channels.unsent_reasons.is_empty());
    let limit = Instant::now() + Duration::from_secs(60);
    let received = theirs.recv(limit);
    assert!(matches!(&received, Err(SetupError::Refused(reason)) if reason == why), "{received:?}");
}
