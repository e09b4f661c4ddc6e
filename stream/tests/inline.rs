//! Networks without a worker (`Progress::Inline`): only calls of the application drive them.
#![expect(non_snake_case, reason = "tests are named function__case")]

mod common;

use common::{address, networks};
use spanwire_stream::{ConnectOptions, Connection, Error, ModeChoice, Progress};
use std::thread;
use std::time::{Duration, Instant};

/// Only a hang takes so long.
const LATE: Duration = Duration::from_secs(120);
const SOON: Duration = Duration::from_millis(50);

#[test]
fn recv__two_threads_drive_their_own_engines() {
    for mode in [ModeChoice::Rc, ModeChoice::Sr] {
        let [a, b] = networks(Progress::Inline);
        let listener = a.listen(0, ConnectOptions::default()).unwrap();
        let to = address(&listener);
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut peer: Connection = listener.accept().unwrap();
                while let Some(message) = peer.recv().unwrap() {
                    peer.send(&message).unwrap();
                }
                peer.close(LATE).unwrap();
                a.shutdown(LATE).unwrap();
            });
            let options = ConnectOptions { mode, ..ConnectOptions::default() };
            let mut echo = b.connect(to, &options).unwrap();
            for len in [0, 1, 1000, 100_000] {
                let message = vec![7; len];
                echo.send(&message).unwrap();
                assert!(echo.recv().unwrap() == Some(message), "{len}");
            }
            echo.close(LATE).unwrap();
            b.shutdown(LATE).unwrap();
        });
    }
}

#[test]
fn turn__one_thread_serves_many_connections() {
    const CLIENTS: usize = 8;
    const EACH: u8 = 50;
    let [mut a, b] = networks(Progress::Inline);
    let listener = a.listen(0, ConnectOptions::default()).unwrap();
    let to = address(&listener);
    thread::scope(|scope| {
        let b = &b;
        for n in 0..CLIENTS {
            scope.spawn(move || {
                let mut connection = b.connect(to, &ConnectOptions::default()).unwrap();
                for i in 0..EACH {
                    let message = [u8::try_from(n).unwrap(), i];
                    connection.send(&message).unwrap();
                    assert_eq!(connection.recv().unwrap().as_deref(), Some(&message[..]));
                }
                connection.close(LATE).unwrap();
            });
        }
        let mut open = Vec::new();
        let (mut accepted, mut served) = (0, 0);
        while accepted < CLIENTS || !open.is_empty() {
            if let Some(connection) = listener.try_accept().unwrap() {
                accepted += 1;
                open.push(connection);
            }
            open.retain_mut(|connection: &mut Connection| {
                match connection.receiver().try_recv() {
                    Ok(Some(message)) => {
                        connection.send(&message).unwrap();
                        served += 1;
                    }
                    Ok(None) => {
                        connection.sender().finish();
                        return false;
                    }
                    Err(Error::WouldBlock) => {}
                    Err(e) => panic!("{e}"),
                }
                true
            });
            if !a.turn().unwrap() {
                a.wait(Duration::from_millis(1)).unwrap();
            }
        }
        assert_eq!(served, CLIENTS * usize::from(EACH));
    });
    a.shutdown(LATE).unwrap();
    b.shutdown(LATE).unwrap();
}

#[test]
fn turn__nothing_moves_between_calls() {
    let [mut a, b] = networks(Progress::Inline);
    let listener = a.listen(0, ConnectOptions::default()).unwrap();
    let mut caller = b.connect(address(&listener), &ConnectOptions::default()).unwrap();
    let mut peer: Connection = listener.accept().unwrap();
    caller.send(b"hello").unwrap();
    caller.sender().finish();
    assert!(matches!(caller.sender().drained(SOON), Err(Error::TimedOut(_))), "no thread answers");
    let begin = Instant::now();
    while caller.sender().drained(Duration::ZERO).is_err() {
        a.turn().unwrap();
        if let Ok(message) = peer.receiver().try_recv() {
            assert!(message.is_none_or(|message| message == b"hello"));
        }
        assert!(begin.elapsed() < LATE);
    }
}
