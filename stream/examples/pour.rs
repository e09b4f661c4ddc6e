//! A byte stream from one host's standard input to another's standard output: `pour eth0 listen
//! 7001 > copy` on the receiver, then `pour eth0 call 10.0.0.1:7001 < file` on the sender.
#![forbid(unsafe_code)]

use spanwire_stream::{ConnectOptions, Network, NetworkOptions};
use std::error::Error;
use std::io;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let [_, interface, role, at] = args[..] else {
        return Err("usage: pour INTERFACE listen PORT | pour INTERFACE call IP:PORT".into());
    };
    let network = Network::open(interface, NetworkOptions::default())?;
    let options = ConnectOptions { protocol: "pour/1".to_owned(), ..ConnectOptions::default() };
    let mut stream = if role == "listen" {
        let listener = network.listen_stream(at.parse()?, options)?;
        eprintln!("listening on {}", listener.local_addr());
        listener.accept()?
    } else {
        network.connect_stream(at.parse()?, &options)?
    };
    let bytes = match role {
        "listen" => io::copy(&mut stream, &mut io::stdout().lock())?,
        _ => io::copy(&mut io::stdin().lock(), &mut stream)?,
    };
    let (mode, peer) = (stream.mode(), stream.about().peer);
    // When this returns, the other application has read everything.
    stream.close(Duration::from_secs(60))?;
    eprintln!("{bytes} bytes with {peer} by {mode:?}");
    Ok(())
}
