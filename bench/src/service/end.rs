//! One end of a sample: a process of its own in the namespace of its host.
//!
//! The server prints `ready` and its address, then, like the client, its report as JSON. An end
//! that waits for longer than `SILENCE` fails, so it also ends if its parent was killed.

use super::case::Transport;
use super::exchange::{Application, Client, Server};
use super::task::{End, Task};
use super::{bulk, epoll, stream, tcp, verbs};
use crate::sample::Error;
use spanwire_io::affinity;
use spanwire_stream::NetworkOptions;

/// Runs the end that `task`, JSON, describes.
///
/// # Errors
/// It is no such task, or the end failed.
pub fn run_end(task: &str) -> Result<(), Error> {
    let end: End = serde_json::from_str(task).map_err(|e| format!("no task of an end: {e}"))?;
    // Threads inherit it from the one that starts them.
    end.core.map_or(Ok(()), affinity::pin)?;
    let report = match (end.task, end.server) {
        (Task::Service { load, transport, .. }, None) => {
            let mut server = Server::new(load);
            run(transport, &end, &mut server)?;
            server.report()?
        }
        (Task::Service { load, transport, budget }, Some(_)) => {
            let mut client = Client::new(load, budget);
            run(transport, &end, &mut client)?;
            client.report()?
        }
        (Task::Bulk { transport, bytes }, _) => bulk::run(&end, transport, bytes)?,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

fn run(transport: Transport, end: &End, application: &mut impl Application) -> Result<(), Error> {
    match transport {
        Transport::Stream => stream::run(end, NetworkOptions::default(), application),
        Transport::InlineStream => stream::run(end, stream::inline_options(), application),
        Transport::Verbs => verbs::run(end, application),
        Transport::Tcp => tcp::run(end, false, application),
        Transport::BufferedTcp => tcp::run(end, true, application),
        Transport::Epoll => epoll::run(end, application),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_end__a_task_that_is_none_is_an_error() {
        let why = run_end("{}").unwrap_err().to_string();
        assert!(why.contains("no task of an end"), "{why}");
    }
}
