//! Setting up and ending connections and networks from tasks and event loops.
#![expect(non_snake_case, reason = "tests are named function__case")]

mod common;

use common::{address, networks};
use spanwire_stream::{
    ConnectOptions, Connection, Error, Listener, Network, NetworkOptions, Progress, SetupError,
};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::Duration;

/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(120);
const EACH: [Progress; 3] = [Progress::Shared, Progress::Worker, Progress::Inline];

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a task on the calling thread.
fn block_on<T>(task: impl Future<Output = T>) -> T {
    let waker = Arc::new(Unpark(thread::current())).into();
    let (mut cx, mut task) = (Context::from_waker(&waker), pin!(task));
    loop {
        match task.as_mut().poll(&mut cx) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park_timeout(LATE),
        }
    }
}

#[test]
fn begin_connect__a_task_connects_closes_and_shuts_down() {
    for progress in [Progress::Shared, Progress::Worker] {
        let [a, b] = networks(progress);
        let listener = a.listen(0, ConnectOptions::default()).unwrap();
        let to = address(&listener);
        block_on(async {
            let pending = b.begin_connect(to, ConnectOptions::default()).unwrap();
            let mut caller = pending.await.unwrap();
            let mut peer: Connection = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
            caller.send(b"hello").unwrap();
            assert_eq!(caller.try_close(), Err(Error::WouldBlock), "it was not taken");
            let mut got = Vec::new();
            let is_message = poll_fn(|cx| peer.receiver().poll_recv(cx, &mut got)).await.unwrap();
            assert!(is_message && got == b"hello");
            let is_message = poll_fn(|cx| peer.receiver().poll_recv(cx, &mut got)).await.unwrap();
            assert!(!is_message, "the end");
            poll_fn(|cx| caller.poll_close(cx)).await.unwrap();
            poll_fn(|cx| peer.poll_close(cx)).await.unwrap();
            drop((caller, peer));
            for network in [a, b] {
                network.begin_shutdown(LATE).unwrap().await.unwrap();
            }
        });
    }
}

#[test]
fn begin_connect__an_event_loop_without_a_worker_drives_both_ends() {
    let [mut a, mut b] = networks(Progress::Inline);
    let listener = a.listen(0, ConnectOptions::default()).unwrap();
    let mut pending = b.begin_connect(address(&listener), ConnectOptions::default()).unwrap();
    let mut caller = loop {
        match pending.try_take().unwrap() {
            Some(caller) => break caller,
            None => b.wait(Duration::from_millis(1)).unwrap(),
        }
    };
    let mut peer: Connection = listener.accept().unwrap();
    caller.send(b"hello").unwrap();
    while caller.try_close() == Err(Error::WouldBlock) {
        a.turn().unwrap();
        if let Ok(message) = peer.receiver().try_recv() {
            assert!(message.is_none_or(|message| message == b"hello"));
        }
    }
    drop((caller, peer));
    for network in [a, b] {
        network.begin_shutdown(LATE).unwrap().wait().unwrap();
    }
}

#[test]
fn begin_connect__an_error_is_that_of_connect() {
    for progress in EACH {
        let [a, b] = networks(progress);
        let listener: Listener<Connection> = a.listen(0, ConnectOptions::default()).unwrap();
        let to = address(&listener);
        let options = ConnectOptions { protocol: "other".into(), ..ConnectOptions::default() };
        let refused = b.begin_connect(to, options).unwrap().wait();
        assert!(matches!(refused, Err(SetupError::Refused(_))), "{refused:?}");
    }
    let opened = Network::begin_open("no-such-interface", NetworkOptions::default());
    assert!(matches!(opened.unwrap().wait(), Err(SetupError::Interface(_))));
}
