//! Limits on the connections of a client.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, Shutdown};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Largest number of clients that are told at the same time why their connection is closed. The
/// connections of further clients are closed without a message.
const TOLD: usize = 32;
/// Time that a client has to receive the reason.
const TELLING: Duration = Duration::from_millis(250);

/// Counts of the open connections of each client, and the limit on each count.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
    most: usize,
    told: Arc<Semaphore>,
}

/// A connection of a client, which is counted until this value is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    client: IpAddr,
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Places {
    /// Makes counters with the limit `most` for each client.
    pub(crate) fn new(most: usize) -> Self {
        Self { taken: Arc::default(), most, told: Arc::new(Semaphore::new(TOLD)) }
    }

    /// Counts a new connection of a client until the returned value is dropped; `None` if the
    /// client has reached the limit.
    pub(crate) fn take(&self, client: IpAddr) -> Option<Place> {
        let client = network(client);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let places_taken = taken.entry(client).or_default();
        if *places_taken >= self.most {
            return None;
        }
        *places_taken += 1;
        Some(Place { client, taken: Arc::clone(&self.taken) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places_taken) = taken.get_mut(&self.client) {
            *places_taken -= 1;
            if *places_taken == 0 {
                taken.remove(&self.client);
            }
        }
    }
}

/// Returns the address by which a client is counted: its IPv4 address, or the first 64 bits of its
/// IPv6 address. These bits name a network of 2^64 addresses, which can all belong to a single
/// machine.
fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

/// Tells a client that it has reached its limit of connections, and closes the new connection.
pub(crate) fn turn_away(stream: TcpStream, places: &Places, refusals: &mut JoinSet<()>) {
    let Ok(place) = Arc::clone(&places.told).try_acquire_owned() else { return };
    let message = format!(
        "this address already has {} connections, the most allowed (--client-connections): close \
         one or reuse one",
        places.most
    );
    refusals.spawn(async move {
        let body = json!({ "error": message }).to_string();
        let answer = format!(
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let tell = tell(stream, answer.as_bytes());
        let _ = tokio::time::timeout(TELLING, tell).await;
        drop(place);
    });
}

/// Sends an answer, and discards input until the client closes the connection. If the server closed
/// the connection while there are unread bytes, the client's operating system would discard the
/// answer.
async fn tell(stream: TcpStream, mut answer: &[u8]) -> io::Result<()> {
    while !answer.is_empty() {
        stream.writable().await?;
        match stream.try_write(answer) {
            Ok(written) => answer = &answer[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    let stream = stream.into_std()?;
    stream.shutdown(Shutdown::Write)?;
    let stream = TcpStream::from_std(stream)?;
    let mut bytes = [0; 4096];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_share() {
        let places = Places::new(2);
        let take = |client: &str| places.take(client.parse().expect("an address"));
        let (first, second) = (take("192.0.2.1"), take("::ffff:192.0.2.1"));
        assert!(first.is_some() && second.is_some());
        assert!(take("192.0.2.1").is_none());
        let others = [take("192.0.2.2"), take("2001:db8::1"), take("2001:db8::2:1")];
        assert!(others.iter().all(Option::is_some));
        assert!(take("2001:db8::3").is_none(), "of the same network");
        assert!(take("2001:db8:0:1::3").is_some());
        drop(first);
        assert!(take("192.0.2.1").is_some(), "and it is free again");
        drop((second, others));
        assert!(places.taken.lock().expect("places").is_empty());
    }
}
