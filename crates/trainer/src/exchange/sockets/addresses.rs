//! List of the addresses of all processes. Process 0 sends it to the others when all of them have
//! connected to it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

/// Returns the list that process 0 sends: one line for each rank, with the address of the process
/// as process 0 sees it. The line of process 0 is empty. `streams`: connections, by rank. `ports`:
/// ports at which the processes listen, by rank.
///
/// # Errors
/// If a connection has ended.
pub(super) fn listed(streams: &[Option<TcpStream>], ports: &[u16]) -> io::Result<String> {
    let address = |(stream, &port): (&Option<TcpStream>, &u16)| match stream {
        // A listener that accepts IPv4 and IPv6 sees IPv4 addresses as IPv6 ones (RFC 4291, section
        // 2.5.5.2). A machine without IPv6 cannot connect to an address in this form.
        Some(stream) => {
            let ip = stream.peer_addr()?.ip().to_canonical();
            Ok(SocketAddr::new(ip, port).to_string())
        }
        None => Ok(String::new()),
    };
    let addresses: Vec<String> =
        streams.iter().zip(ports).map(address).collect::<io::Result<_>>()?;
    Ok(addresses.join("\n"))
}

/// Parses the list of [`listed`], and returns the addresses at which this process reaches the
/// others, by rank. Returns `None` if the list does not have `size` addresses. `first`: address at
/// which this process has reached process 0.
pub(super) fn parsed(list: &str, size: usize, first: SocketAddr) -> Option<Vec<SocketAddr>> {
    let none = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
    let parse = |(rank, line): (usize, &str)| match rank {
        0 => Some(none),
        _ => line.parse().ok().map(|address| reachable(address, first)),
    };
    let all: Vec<SocketAddr> = list.split('\n').enumerate().map(parse).collect::<Option<_>>()?;
    (all.len() == size).then_some(all)
}

/// Returns the address at which this process reaches a process that process 0 sees at `address`.
///
/// On the machine of process 0, its name can stand for a loopback address (`127.0.1.1` in
/// `/etc/hosts`), so process 0 sees the other processes on its machine at such an address. Other
/// machines reach these processes where they reach process 0.
///
/// A link-local IPv6 address (`fe80::…`) is complete only with a scope: the network interface, by
/// its number on this machine. A process with such an address is on the network by which this
/// process reaches process 0.
fn reachable(mut address: SocketAddr, first: SocketAddr) -> SocketAddr {
    if let (SocketAddr::V6(address), SocketAddr::V6(first)) = (&mut address, first)
        && address.ip().is_unicast_link_local()
    {
        address.set_scope_id(first.scope_id());
    }
    if !address.ip().is_loopback() || first.ip().to_canonical().is_loopback() {
        return address;
    }
    let mut reached = first;
    reached.set_port(address.port());
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn an_ipv4_address_is_listed_as_such() {
        // This machine possibly has no IPv6, or separates it from IPv4.
        let Ok(listener) = TcpListener::bind("[::]:0") else { return };
        let port = listener.local_addr().expect("an address").port();
        let Ok(_caller) = TcpStream::connect(("127.0.0.1", port)) else { return };
        let (accepted, _) = listener.accept().expect("the caller");
        let list = listed(&[None, Some(accepted)], &[0, 7]).expect("connected");
        assert_eq!(list, "\n127.0.0.1:7");
    }

    #[test]
    fn processes_beside_process_0_are_reached_where_process_0_is() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let list = "\n127.0.0.1:7\n192.0.2.5:8\n[::1]:9";
        let from_another_machine = parsed(list, 4, address("192.0.2.1:29500")).expect("a list");
        assert_eq!(
            from_another_machine[1..],
            ["192.0.2.1:7", "192.0.2.5:8", "192.0.2.1:9"].map(address)
        );
        let from_the_same = parsed(list, 4, address("127.0.1.1:29500")).expect("a list");
        assert_eq!(from_the_same[1..], ["127.0.0.1:7", "192.0.2.5:8", "[::1]:9"].map(address));
        // The scope of an address is a number that only this machine knows.
        let list = "\n[fe80::5]:7\n[2001:db8::5]:8\n[::1]:9";
        let by_link = parsed(list, 4, address("[fe80::1%3]:29500")).expect("a list");
        let reached = ["[fe80::5%3]:7", "[2001:db8::5]:8", "[fe80::1%3]:9"];
        assert_eq!(by_link[1..], reached.map(address));
        for list in ["", "\n127.0.0.1:7", "\n\n\n", "\n1:7\n2:8\n3:9"] {
            assert_eq!(parsed(list, 4, address("192.0.2.1:29500")), None, "{list:?}");
        }
    }
}
