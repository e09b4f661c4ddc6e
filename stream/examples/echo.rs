//! Messages that are echoed: `echo eth0 listen 7000` on one host, then on another `echo eth0 call
//! 10.0.0.1:7000 hello world`.
#![forbid(unsafe_code)]

use spanwire_stream::{ConnectOptions, Network, NetworkOptions};
use std::error::Error;
use std::thread;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let [_, interface, role, at, words @ ..] = &args[..] else {
        return Err(
            "usage: echo INTERFACE listen PORT | echo INTERFACE call IP:PORT WORD...".into()
        );
    };
    let network = Network::open(interface, NetworkOptions::default())?;
    if *role == "listen" {
        let listener = network.listen(at.parse()?, ConnectOptions::default())?;
        eprintln!("listening on {}", listener.local_addr());
        loop {
            let mut connection = listener.accept()?;
            thread::spawn(move || {
                let peer = connection.about().peer;
                while let Ok(Some(message)) = connection.recv() {
                    if let Err(e) = connection.send(&message) {
                        return eprintln!("{peer}: {e}");
                    }
                }
            });
        }
    }
    let mut connection = network.connect(at.parse()?, &ConnectOptions::default())?;
    eprintln!("connected by {:?}", connection.mode());
    for word in words {
        connection.send(word.as_bytes())?;
        let echo = connection.recv()?.ok_or("the other end finished")?;
        println!("{}", String::from_utf8_lossy(&echo));
    }
    connection.close(Duration::from_secs(5))?;
    Ok(())
}
