//! A key-value service: `kv eth0 serve 7000` on one host, then on another `kv eth0 load
//! 10.0.0.1:7000 100000 16`: so many gets of 4 KiB values, sixteen of them unanswered at a time.
//! Blocking calls, and a thread for each client.
//!
//! A request is `G` and a key, or `P`, the length of the key (1 byte), the key and a value. A reply
//! is a status (0, 1: no such key, 2: the store is full, 3: no request) and the value of a get.
#![forbid(unsafe_code)]

use spanwire_stream::{ConnectOptions, Connection, Listener, Network, NetworkOptions, SetupError};
use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [interface, "serve", port] => {
            let network = Network::open(interface, NetworkOptions::default())?;
            let listener = network.listen(port.parse()?, ConnectOptions::default())?;
            eprintln!("serving on {}", listener.local_addr());
            serve(&listener)
        }
        [interface, "load", server, gets, outstanding] => {
            let network = Network::open(interface, NetworkOptions::default())?;
            let mut server = network.connect(server.parse()?, &ConnectOptions::default())?;
            let Measured { per_second, p50 } =
                load(&mut server, gets.parse()?, outstanding.parse()?)?;
            println!("{per_second:.0} gets a second, half of them within {p50:?}");
            Ok(server.close(SILENCE)?)
        }
        _ => {
            Err("usage: kv INTERFACE serve PORT | kv INTERFACE load IP:PORT GETS OUTSTANDING"
                .into())
        }
    }
}

type Store = RwLock<HashMap<Vec<u8>, Vec<u8>>>;

/// Serves clients until the listener is closed.
///
/// # Errors
/// The network is gone.
pub(crate) fn serve(listener: &Listener<Connection>) -> Result<(), Box<dyn Error>> {
    let store = Arc::new(Store::default());
    loop {
        let mut client = match listener.accept() {
            Err(SetupError::ListenerClosed) => return Ok(()),
            accepted => accepted?,
        };
        let store = store.clone();
        thread::spawn(move || {
            let peer = client.about().peer;
            let mut request = Vec::new();
            while let Ok(true) = client.receiver().recv_into(&mut request) {
                if let Err(e) = client.send(&answer(&request, &store)) {
                    return eprintln!("{peer}: {e}");
                }
            }
        });
    }
}

/// The reply to `request`.
pub(crate) fn answer(request: &[u8], store: &Store) -> Vec<u8> {
    match request {
        [b'G', key @ ..] => {
            let store = store.read().unwrap_or_else(PoisonError::into_inner);
            store.get(key).map_or_else(|| vec![1], |value| [&[0], &value[..]].concat())
        }
        [b'P', len, rest @ ..] if rest.len() >= usize::from(*len) => {
            let (key, value) = rest.split_at(usize::from(*len));
            let mut store = store.write().unwrap_or_else(PoisonError::into_inner);
            // A client fills no more than this, whatever it sends.
            if store.len() >= KEYS_MAX && !store.contains_key(key) {
                return vec![2];
            }
            store.insert(key.to_vec(), value.to_vec());
            vec![0]
        }
        _ => vec![3],
    }
}

/// A measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Gets per second.
    pub(crate) per_second: f64,
    /// Half of them had their reply within this time.
    pub(crate) p50: Duration,
}

/// Stores values at `server`, then gets them, with at most `outstanding` requests unanswered, and
/// checks each.
///
/// # Errors
/// The connection is gone, or a reply is wrong.
pub(crate) fn load(
    server: &mut Connection,
    gets: usize,
    outstanding: usize,
) -> Result<Measured, Box<dyn Error>> {
    for number in 0..KEYS {
        let key = key(number);
        let put = [&[b'P', u8::try_from(key.len())?], &key[..], &value(number)].concat();
        server.send(&put)?;
    }
    for _ in 0..KEYS {
        if server.recv()?.as_deref() != Some(&[0]) {
            return Err("a value was not stored".into());
        }
    }
    let (begin, mut times, mut unanswered) = (Instant::now(), Vec::new(), VecDeque::new());
    let (mut sent, mut reply) = (0, Vec::new());
    while times.len() < gets {
        while sent < gets && unanswered.len() < outstanding.max(1) {
            server.send(&[b"G", &key(sent)[..]].concat())?;
            unanswered.push_back((sent, Instant::now()));
            sent += 1;
        }
        if !server.receiver().recv_into_timeout(&mut reply, SILENCE)? {
            return Err("the server has finished".into());
        }
        // Replies come in the order of their requests.
        let (number, asked_at) = unanswered.pop_front().ok_or("a reply without a request")?;
        if reply.split_first() != Some((&0, &value(number)[..])) {
            return Err(format!("the reply to get {number} is not its value").into());
        }
        times.push(asked_at.elapsed());
    }
    let per_second = f64::from(u32::try_from(gets)?) / begin.elapsed().as_secs_f64();
    times.sort_unstable();
    let p50 = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok(Measured { per_second, p50 })
}

/// A key of 63 bytes: the request has 64.
fn key(number: usize) -> Vec<u8> {
    format!("{:063}", number % KEYS).into_bytes()
}

fn value(number: usize) -> Vec<u8> {
    vec![u8::try_from(number % KEYS).unwrap_or_default(); 4096]
}

const KEYS: usize = 200;
const KEYS_MAX: usize = 100_000;
const SILENCE: Duration = Duration::from_secs(10);
