//! Counts the RoCEv2 frames (UDP port 4791) to one address that arrive on one queue of an
//! interface.
//!
//! ```text
//! cargo run -p spanwire-af-xdp --example count -- IFNAME ADDRESS [QUEUE [SECONDS]]
//! ```
//!
//! Other traffic of the interface is not affected; the program consumes RoCEv2 frames of that queue
//! to that address.

use af_xdp::{Frame, Socket, SocketConfig, Steering, SteeringConfig, Umem};
use std::error::Error;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(ifname), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("usage: count IFNAME ADDRESS [QUEUE [SECONDS]]".into());
    };
    let queue: u32 = arguments.next().map_or(Ok(0), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(10), |text| text.parse())?;

    let ifindex = af_xdp::interface_index(&ifname)?;
    let config = SteeringConfig { slots: queue + 1, ..SteeringConfig::new(ifindex) };
    let (steering, rejected) = Steering::attach(&config)?;
    steering.set_addresses([address.parse()?])?;
    for tried in rejected {
        eprintln!("not {}: {}", tried.mode.as_str(), tried.error);
    }
    let (umem, mut free) = Umem::with_frames(256, 4096)?;
    let (mut socket, rejected) = Socket::bind(&umem, &SocketConfig::new(ifindex, queue))?;
    for tried in rejected {
        eprintln!("not {:?}: {}", tried.mode, tried.error);
    }
    fill(&mut socket, &mut free)?;
    steering.register(queue, &socket)?;
    println!("{ifname} queue {queue}: {} XDP, {:?}", steering.mode().as_str(), socket.copy_mode());

    let end = Instant::now() + Duration::from_secs(seconds);
    let mut report = Instant::now() + Duration::from_secs(1);
    let (mut frames, mut bytes) = (0u64, 0u64);
    while Instant::now() < end {
        while let Some(received) = socket.rx.pop() {
            frames += 1;
            bytes += u64::try_from(received.bytes(&umem).len())?;
            free.push(received.into_frame());
        }
        socket.rx.release();
        fill(&mut socket, &mut free)?;
        if Instant::now() >= report {
            println!("{frames} frames, {bytes} bytes");
            report += Duration::from_secs(1);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    println!("{frames} frames, {bytes} bytes; {:?}", socket.statistics()?);
    Ok(())
}

/// Pushes the free frames into the fill ring, as many as fit.
fn fill(socket: &mut Socket, free: &mut Vec<Frame>) -> Result<(), Box<dyn Error>> {
    while let Some(frame) = free.pop() {
        if let Err(frame) = socket.fill.push(frame) {
            free.push(frame);
            break;
        }
    }
    socket.fill.publish();
    if socket.fill.needs_wakeup() {
        socket.wake_rx()?;
    }
    Ok(())
}
