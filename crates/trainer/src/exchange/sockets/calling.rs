//! Connections that this process makes to other processes, which have possibly not started yet.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::frame::Patience;
use super::greeting::{Answer, Hello, Watch, introduce};
use super::rendezvous::{Rendezvous, listen_everywhere};
use crate::ExchangeError;

/// Time limit of one attempt to connect.
const CONNECTING_TIME: Duration = Duration::from_secs(5);
/// Pause between two attempts to connect.
const RETRY: Duration = Duration::from_millis(10);

impl Rendezvous {
    /// Connects to process 0, which is possibly started later than this process. Returns the
    /// connection, the listener at which this process accepts connections of other processes, and
    /// the listener's port.
    pub(super) fn join_first(
        &self,
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<(TcpStream, TcpListener, u16), ExchangeError> {
        let resolve = || (self.host.as_str(), self.port).to_socket_addrs().map(Iterator::collect);
        self.join_first_of(resolve, deadline, watch)
    }

    /// Joins process 0 like [`join_first`](Self::join_first), at the first of its addresses where
    /// it answers: a host can have addresses that this machine cannot reach. `resolve` returns the
    /// addresses.
    fn join_first_of(
        &self,
        resolve: impl Fn() -> io::Result<Vec<SocketAddr>>,
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<(TcpStream, TcpListener, u16), ExchangeError> {
        loop {
            watch()?;
            let mut failure = io::ErrorKind::NotFound.into();
            match resolve() {
                Err(error) => failure = error,
                Ok(addresses) => {
                    for address in addresses {
                        watch()?;
                        match self.join_first_at(address, deadline, watch)? {
                            Ok(joined) => return Ok(joined),
                            Err(error) => failure = error,
                        }
                    }
                }
            }
            if Instant::now() > deadline {
                return Err(self.error(format_args!(
                    "cannot reach process 0 at {}:{} for {} s ({failure}); was it started, and \
                     are MASTER_ADDR and MASTER_PORT its machine and a port that is open there?",
                    self.host,
                    self.port,
                    self.patience.as_secs()
                )));
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Tries once to join process 0 at `address`. After the inner error, another attempt can
    /// succeed; after the outer error, it cannot.
    fn join_first_at(
        &self,
        address: SocketAddr,
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<io::Result<(TcpStream, TcpListener, u16)>, ExchangeError> {
        let stream = match TcpStream::connect_timeout(&address, CONNECTING_TIME) {
            Ok(stream) => stream,
            Err(error) => return Ok(Err(error)),
        };
        let own_address = stream.local_addr().map_err(|error| self.error(error))?.ip();
        // If process 0 is on this machine, its name can stand for a loopback address here, and for
        // another address on other machines, whose processes connect to this one, too.
        let listener = match own_address.to_canonical().is_loopback() && !self.is_local() {
            true => listen_everywhere(0),
            false => TcpListener::bind((own_address, 0)),
        };
        let listener = listener.map_err(|error| self.error(error))?;
        let port = listener.local_addr().map_err(|error| self.error(error))?.port();
        let joined = self.introduced(stream, 0, port, deadline, watch)?;
        Ok(joined.map(|stream| (stream, listener, port)))
    }

    /// Connects to process `rank`, which listens at `address`. `port`: port at which this process
    /// listens. `all`: connections made so far, by rank.
    pub(super) fn join(
        &self,
        rank: usize,
        address: SocketAddr,
        port: u16,
        all: &[Option<TcpStream>],
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<TcpStream, ExchangeError> {
        let watch: &mut Watch<'_> = &mut || watch().and_then(|()| self.require_silence(all));
        loop {
            let stream = TcpStream::connect(address).map_err(|error| match error.kind() {
                // The process was listening a moment ago, so it has ended since then.
                io::ErrorKind::ConnectionRefused => ExchangeError::lost(rank, self.rank, &error),
                _ => self.error(format_args!(
                    "cannot reach process {rank} at {address}: {error}; is a firewall between the \
                     machines?"
                )),
            })?;
            match self.introduced(stream, rank, port, deadline, watch)? {
                Ok(stream) => return Ok(stream),
                Err(error) if Instant::now() > deadline => {
                    return Err(ExchangeError::lost(rank, self.rank, &error));
                }
                // Process `rank` has closed the connection, because it had too many callers or this
                // process was too slow, so this process tries again.
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }

    /// Exchanges greetings with process `to` over `stream`. Returns the stream when both processes
    /// have proved that they know the key. After the inner error (`io::Error`), which is a failure
    /// of the connection, another attempt can succeed; after the outer error, it cannot.
    fn introduced(
        &self,
        stream: TcpStream,
        to: usize,
        port: u16,
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<io::Result<TcpStream>, ExchangeError> {
        let begin = || {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(RETRY))?;
            stream.set_write_timeout(Some(Patience::USUAL.beat))?;
            Hello::new(self.rank, self.size, port)
        };
        let hello = match begin() {
            Ok(hello) => hello,
            Err(error) => return Ok(Err(error)),
        };
        Ok(match introduce(&stream, &hello, to, &self.key, deadline, watch)? {
            Answer::Accepted => Patience::USUAL.apply(&stream).map(|()| stream),
            Answer::Refused => return Err(ExchangeError::Failed { rank: to }),
            Answer::OtherKey => {
                return Err(self.error(format_args!(
                    "process {to} has another key: set the variable TAPER_KEY to the same for all \
                     processes of a training, and MASTER_PORT to a port that no other training has"
                )));
            }
            Answer::OtherVersion => {
                return Err(self.error(format_args!(
                    "process {to} is another version of this program: start the same on each"
                )));
            }
            Answer::Lost(error) => Err(error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Process 0 has three addresses: one where nothing listens, one of another program, which
    /// closes every connection, and its own.
    #[test]
    fn every_address_of_process_0_is_tried() {
        let listen = || TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = |listener: &TcpListener| listener.local_addr().expect("an address");
        let (unused, other, first) = (listen(), listen(), listen());
        let addresses = [address(&unused), address(&other), address(&first)];
        drop(unused);
        let patience = Duration::from_secs(60);
        let process = |rank: usize| Rendezvous {
            rank,
            size: 2,
            host: "127.0.0.1".to_owned(),
            port: addresses[2].port(),
            key: String::new(),
            patience,
        };
        std::thread::scope(|scope| {
            scope.spawn(move || other.accept().map(|_| ()));
            // Process 0 loses process 1 when this test ends.
            scope.spawn(|| process(0).connections(Some(first), &mut || Ok(())).map(|_| ()));
            let joined = process(1).join_first_of(
                || Ok(addresses.to_vec()),
                Instant::now() + patience,
                &mut || Ok(()),
            );
            let (stream, ..) = joined.expect("process 0 is reached");
            assert_eq!(stream.peer_addr().expect("an address"), addresses[2]);
        });
    }

    /// The name of a machine stands for a loopback address on this machine, but not on others.
    #[test]
    fn a_process_beside_process_0_listens_for_other_machines() {
        let first = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = first.local_addr().expect("an address");
        let patience = Duration::from_secs(60);
        let process = |rank: usize, host: &str| {
            let (host, key) = (host.to_owned(), "secret".to_owned());
            Rendezvous { rank, size: 2, host, port: address.port(), key, patience }
        };
        for (host, hears_others) in [("node1", true), ("127.0.0.1", false)] {
            let listener = first.try_clone().expect("a listener");
            std::thread::scope(|scope| {
                // Process 0 loses process 1 when it ends.
                let first = process(0, host);
                scope.spawn(move || first.connections(Some(listener), &mut || Ok(())).map(|_| ()));
                let until = Instant::now() + patience;
                let joined =
                    process(1, host).join_first_of(|| Ok(vec![address]), until, &mut || Ok(()));
                let (_, listener, port) = joined.expect("process 0 is reached");
                let heard_at = listener.local_addr().expect("an address");
                assert_eq!(heard_at.ip().is_unspecified(), hears_others, "{host}: {heard_at}");
                assert_eq!(heard_at.port(), port);
            });
        }
    }
}
