//! TCP sockets of the side connection, bound to one interface. So the side connection uses the
//! interface of the RoCE packets, and a server is reachable through no other.

use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::time::Duration;

/// Listens on TCP `port` of interface `ifname`: of address `local`, else of every address, IPv6 and
/// IPv4; only IPv4 where the machine has no IPv6. Accepting does not block.
///
/// # Errors
/// The port is taken, or there is no such interface or address.
pub fn listen(ifname: &str, local: Option<IpAddr>, port: u16) -> io::Result<TcpListener> {
    if let Some(local) = local {
        return listen_on(ifname, SocketAddr::new(local, port));
    }
    match listen_on(ifname, SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)) {
        Err(e) if is_without_ipv6(&e) => {
            listen_on(ifname, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port))
        }
        other => other,
    }
}

/// The next pending connection of a [`listen`] listener, if there is one. The connection is
/// blocking.
///
/// # Errors
/// The listener is broken, or there are no descriptors left.
pub fn accept(listener: &TcpListener) -> io::Result<Option<(TcpStream, SocketAddr)>> {
    match listener.accept() {
        Ok((stream, from)) => {
            stream.set_nonblocking(false)?;
            Ok(Some((stream, from)))
        }
        Err(e) if is_passing(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Connects to `address` through interface `ifname`, from its address `local` or any, waiting at
/// most `timeout`.
///
/// # Errors
/// The connection is refused, the address does not answer, or there is no such interface or local
/// address.
pub fn dial(
    ifname: &str,
    local: Option<IpAddr>,
    address: SocketAddr,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let socket = tcp_on(ifname, address.ip())?;
    if let Some(local) = local {
        socket.bind(&SocketAddr::new(local, 0).into())?;
    }
    socket.connect_timeout(&address.into(), timeout)?;
    Ok(socket.into())
}

/// The result of `attempt`, which is made again while its error is that of a busy peer, after each
/// of `BUSY_PAUSES`.
///
/// # Errors
/// Those of the last attempt.
pub fn retry_busy<T, E>(
    is_busy: impl Fn(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    for pause in BUSY_PAUSES {
        match attempt() {
            Err(e) if is_busy(&e) => std::thread::sleep(pause),
            other => return other,
        }
    }
    attempt()
}

/// The socket address of `ip` through the interface of index `ifindex`, which is the scope of a
/// link-local address.
#[must_use]
pub fn address(ip: IpAddr, port: u16, ifindex: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddr::V6(SocketAddrV6::new(v6, port, 0, ifindex))
        }
        other => SocketAddr::new(other, port),
    }
}

fn listen_on(ifname: &str, address: SocketAddr) -> io::Result<TcpListener> {
    let socket = tcp_on(ifname, address.ip())?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // A restarted server can bind its port at once.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn tcp_on(ifname: &str, ip: IpAddr) -> io::Result<Socket> {
    let domain = if ip.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    socket.bind_device(Some(ifname.as_bytes()))?;
    Ok(socket)
}

/// No connection is pending, or the pending one was aborted.
fn is_passing(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
    )
}

fn is_without_ipv6(e: &io::Error) -> bool {
    let no_family = e.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error());
    no_family || e.kind() == ErrorKind::AddrNotAvailable
}

/// Pauses of [`retry_busy`]: about a second.
const BUSY_PAUSES: [Duration; 6] = [
    Duration::from_millis(20),
    Duration::from_millis(40),
    Duration::from_millis(80),
    Duration::from_millis(160),
    Duration::from_millis(320),
    Duration::from_millis(400),
];

/// Clients that may be pending while one is served.
const BACKLOG: i32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn listen__takes_both_ip_versions_and_dial_reaches_it() {
        let listener = listen("lo", None, 0).unwrap();
        let port = listener.local_addr().unwrap().port();
        let wait = Duration::from_secs(120);
        assert!(dial("lo", None, SocketAddr::new(LOOPBACK, port), wait).is_ok());
        if listener.local_addr().unwrap().is_ipv6() {
            assert!(
                dial("lo", None, SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port), wait).is_ok()
            );
        }
    }

    #[test]
    fn retry_busy__ends_with_another_result_or_after_some_attempts() {
        let mut results = vec![Err("busy"), Err("busy"), Ok(7)];
        let is_busy = |e: &&str| *e == "busy";
        assert_eq!(retry_busy(is_busy, || results.remove(0)), Ok(7));
        assert!(results.is_empty());
        assert_eq!(retry_busy(is_busy, || Err::<(), _>("closed")), Err("closed"));
        let mut attempts = 0;
        let busy = || {
            attempts += 1;
            Err::<(), _>("busy")
        };
        assert_eq!(retry_busy(is_busy, busy), Err("busy"));
        assert_eq!(attempts, 7);
    }

    #[test]
    fn dial__a_closed_port_and_a_missing_interface_are_errors() {
        // Bound, so that no other process listens there.
        let bound = tcp_on("lo", LOOPBACK).unwrap();
        bound.bind(&SocketAddr::new(LOOPBACK, 0).into()).unwrap();
        let address = bound.local_addr().unwrap().as_socket().unwrap();
        let wait = Duration::from_secs(120);
        let refused = dial("lo", None, address, wait).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(dial("nope0", None, address, wait).is_err());
        assert!(listen("nope0", None, 0).is_err());
    }
}
