//! How processes find each other: all of them connect to the first, which tells them where the
//! others are.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::frame::{Kind, Patience};
use super::lines::Loss;
use super::neighbour::{self, Offer};
use super::stream::Stream;
use crate::ExchangeError;

/// What a connection of this program begins with.
const MAGIC: &[u8; 8] = b"TAPERNET";
/// Changes with what is sent.
const VERSION: u32 = 2;
/// The bytes of a greeting.
const GREETING: usize = 8 + 3 * 4 + 2 + 32;
/// How long a new connection may take to greet. Anything may connect, and need not say a word.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// Where processes meet, and which of them this one is.
#[derive(Debug, Clone)]
pub struct Meeting {
    /// The number of this process, from 0.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
    /// The machine of process 0.
    pub host: String,
    /// The port there.
    pub port: u16,
    /// What only processes of this training know; may be empty.
    pub key: String,
    /// How long to wait for the others.
    pub patience: Duration,
}

/// Asked whether to go on waiting.
pub(super) type Watch<'a> = dyn FnMut() -> Result<(), ExchangeError> + 'a;

/// What a process says first.
struct Greeting {
    version: u32,
    rank: usize,
    size: usize,
    /// Where it can be reached itself.
    port: u16,
}

impl Meeting {
    fn key_hash(&self) -> [u8; 32] {
        Sha256::digest(self.key.as_bytes()).into()
    }

    fn error(&self, what: impl std::fmt::Display) -> ExchangeError {
        ExchangeError::Meeting(format!("process {} of {}: {what}", self.rank, self.size))
    }

    /// Where the first process listens.
    ///
    /// # Errors
    /// The port is taken.
    pub(super) fn listen(&self) -> Result<TcpListener, ExchangeError> {
        let is_local = self.host == "localhost"
            || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let all: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
        let bound = if is_local {
            TcpListener::bind((self.host.as_str(), self.port))
        } else {
            TcpListener::bind((all[0], self.port)).or_else(|_| {
                // A machine without IPv6.
                TcpListener::bind((all[1], self.port))
            })
        };
        bound.map_err(|error| {
            self.error(format_args!(
                "cannot listen at {}:{} ({error}); set MASTER_PORT to a port that is free",
                self.host, self.port
            ))
        })
    }

    /// Connections to all others, by rank; none to this process itself. `watch` is asked again and
    /// again whether to go on waiting.
    ///
    /// # Errors
    /// Somebody does not come in time, or is another program.
    pub(super) fn connections(
        &self,
        listener: Option<TcpListener>,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<Option<Stream>>, ExchangeError> {
        let deadline = Instant::now() + self.patience;
        let mut all: Vec<Option<TcpStream>> = (0..self.size).map(|_| None).collect();
        let met = if self.rank == 0 {
            self.receive_all(listener, &mut all, deadline, watch)
        } else {
            self.join_all(&mut all, deadline, watch)
        };
        let mut near: Vec<Option<Stream>> = (0..self.size).map(|_| None).collect();
        let met = met.and_then(|()| self.neighbours(&all, &mut near, deadline, watch));
        let nearest = |(near, far): (Option<Stream>, Option<TcpStream>)| {
            near.or_else(|| far.map(Stream::Tcp))
        };
        let nearest: Vec<Option<Stream>> = near.into_iter().zip(all).map(nearest).collect();
        let Err(error) = met else { return Ok(nearest) };
        // Nobody is left waiting.
        let loss: Option<Loss> = match &error {
            ExchangeError::Lost { rank, why, .. } => Some((*rank, why.clone())),
            _ => None,
        };
        let reason = serde_json::to_vec(&loss).unwrap_or_default();
        for stream in nearest.iter().flatten() {
            let _ = Patience::USUAL.write_frame(stream, Kind::Leave, &reason);
        }
        Err(error)
    }

    /// The part of process 0.
    fn receive_all(
        &self,
        listener: Option<TcpListener>,
        all: &mut [Option<TcpStream>],
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExchangeError> {
        let listener = listener.map_or_else(|| self.listen(), Ok)?;
        let mut ports = vec![0; self.size];
        while all.iter().skip(1).any(Option::is_none) {
            let (stream, greeting) = self.accept(&listener, all, deadline, watch)?;
            ports[greeting.rank] = greeting.port;
            all[greeting.rank] = Some(stream);
        }
        let address = |(stream, &port): (&Option<TcpStream>, &u16)| match stream {
            Some(stream) => Ok(SocketAddr::new(stream.peer_addr()?.ip(), port).to_string()),
            None => Ok(String::new()),
        };
        let addresses = all.iter().zip(&ports).map(address).collect::<io::Result<Vec<_>>>();
        let addresses = addresses.map_err(|error| self.error(error))?.join("\n");
        self.tell_all(all, Kind::Addresses, addresses.as_bytes())?;
        // Each of them connects to each other now.
        let mut waiting: Vec<usize> = (1..self.size).collect();
        while !waiting.is_empty() {
            watch()?;
            let mut still = Vec::new();
            for rank in waiting {
                match self.heard_of(all, rank)? {
                    Some((Kind::Ready, _)) => {}
                    Some(_) => return Err(ExchangeError::Garbled { rank }),
                    None => still.push(rank),
                }
            }
            waiting = still;
            self.pause(deadline, &waiting)?;
        }
        self.tell_all(all, Kind::Ready, &[])
    }

    /// The part of any other process.
    fn join_all(
        &self,
        all: &mut [Option<TcpStream>],
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExchangeError> {
        let first = self.connect_to_first(deadline, watch)?;
        let own = first.local_addr().map_err(|error| self.error(error))?.ip();
        let listener = TcpListener::bind((own, 0)).map_err(|error| self.error(error))?;
        let port = listener.local_addr().map_err(|error| self.error(error))?.port();
        let greeted = self.greet(&first, port);
        all[0] = Some(first);
        greeted.map_err(|error| ExchangeError::lost(0, self.rank, &error))?;
        let addresses = self.addresses(all, deadline, watch)?;
        for (rank, address) in addresses.iter().enumerate().take(self.rank).skip(1) {
            let stream = TcpStream::connect(address)
                .and_then(|stream| Patience::USUAL.apply(&stream).map(|()| stream))
                .and_then(|stream| self.greet(&stream, port).map(|()| stream));
            all[rank] = Some(stream.map_err(|error| match error.kind() {
                // It was there a moment ago.
                io::ErrorKind::ConnectionRefused => ExchangeError::lost(rank, self.rank, &error),
                _ => self.error(format_args!(
                    "cannot reach process {rank} at {address}: {error}; is a firewall between the \
                     machines?"
                )),
            })?);
        }
        while all.iter().skip(self.rank + 1).any(Option::is_none) {
            let (stream, greeting) = self.accept(&listener, all, deadline, watch)?;
            all[greeting.rank] = Some(stream);
        }
        if let Some(first) = &all[0] {
            Patience::USUAL
                .write_frame(first, Kind::Ready, &[])
                .map_err(|error| ExchangeError::lost(0, self.rank, &error))?;
        }
        match self.heard(all, 0, deadline, watch)? {
            (Kind::Ready, _) => Ok(()),
            _ => Err(ExchangeError::Garbled { rank: 0 }),
        }
    }

    /// Makes connections without TCP to those that are on the same machine and can be reached so.
    /// Each offers one to those after it.
    fn neighbours(
        &self,
        all: &[Option<TcpStream>],
        near: &mut [Option<Stream>],
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExchangeError> {
        let lost = |rank| move |error| ExchangeError::lost(rank, self.rank, &error);
        let mut offers = Vec::new();
        for (rank, stream) in all.iter().enumerate().skip(self.rank + 1) {
            let Some(stream) = stream else { continue };
            let offer = Offer::to(stream);
            let secret = offer.as_ref().map_or(&[][..], Offer::secret);
            Patience::USUAL.write_frame(stream, Kind::Offer, secret).map_err(lost(rank))?;
            offers.push((rank, offer));
        }
        for (rank, stream) in all.iter().enumerate().take(self.rank) {
            let Some(stream) = stream else { continue };
            let secret = self.content(all, rank, Kind::Offer, deadline, watch)?;
            near[rank] = neighbour::take(&secret);
            let taken = [u8::from(near[rank].is_some())];
            Patience::USUAL.write_frame(stream, Kind::Taken, &taken).map_err(lost(rank))?;
        }
        for (rank, offer) in offers {
            let taken = self.content(all, rank, Kind::Taken, deadline, watch)?;
            if let (Some(offer), [1]) = (offer, &taken[..]) {
                near[rank] = Some(offer.accept().map_err(lost(rank))?);
            }
        }
        Ok(())
    }

    /// The content of what process `rank` sends next, of this kind.
    fn content(
        &self,
        all: &[Option<TcpStream>],
        rank: usize,
        kind: Kind,
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<u8>, ExchangeError> {
        let (of, length) = self.heard(all, rank, deadline, watch)?;
        let Some(stream) = all[rank].as_ref().filter(|_| of == kind) else {
            return Err(ExchangeError::Garbled { rank });
        };
        let read = Patience::USUAL.read_bytes(stream, length);
        read.map_err(|error| ExchangeError::lost(rank, self.rank, &error))
    }

    /// Sends a frame to each that has come.
    fn tell_all(
        &self,
        all: &[Option<TcpStream>],
        kind: Kind,
        content: &[u8],
    ) -> Result<(), ExchangeError> {
        for (rank, stream) in all.iter().enumerate() {
            let Some(stream) = stream else { continue };
            Patience::USUAL
                .write_frame(stream, kind, content)
                .map_err(|error| ExchangeError::lost(rank, self.rank, &error))?;
        }
        Ok(())
    }

    /// The beginning of what process `rank` has sent, if there is something.
    fn heard_of(
        &self,
        all: &[Option<TcpStream>],
        rank: usize,
    ) -> Result<Option<(Kind, u64)>, ExchangeError> {
        let Some(Some(stream)) = all.get(rank) else { return Ok(None) };
        let lost = |error: io::Error| ExchangeError::lost(rank, self.rank, &error);
        match Patience::USUAL.try_header(stream).map_err(lost)? {
            Some((Kind::Leave, length)) => {
                let reason = Patience::USUAL.read_bytes(stream, length).map_err(lost)?;
                let loss: Option<Loss> = serde_json::from_slice(&reason).unwrap_or_default();
                Err(match loss {
                    Some((rank, why)) => ExchangeError::Lost { rank, here: self.rank, why },
                    None => ExchangeError::Failed { rank },
                })
            }
            heard => Ok(heard),
        }
    }

    /// What process `rank` sends next, and the bytes that follow.
    fn heard(
        &self,
        all: &[Option<TcpStream>],
        rank: usize,
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<(Kind, u64), ExchangeError> {
        loop {
            watch()?;
            if let Some(heard) = self.heard_of(all, rank)? {
                return Ok(heard);
            }
            self.pause(deadline, &[rank])?;
        }
    }

    /// Waits a moment for processes that are `absent`.
    fn pause(&self, deadline: Instant, absent: &[usize]) -> Result<(), ExchangeError> {
        if absent.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let absent: Vec<String> = absent.iter().map(ToString::to_string).collect();
            return Err(self.error(format_args!(
                "waited {} s in vain for process {}; was it started, and does it see the others?",
                self.patience.as_secs(),
                absent.join(", ")
            )));
        }
        std::thread::sleep(PAUSE);
        Ok(())
    }

    /// The next process that is awaited. Who does not greet as one of them is sent away.
    fn accept(
        &self,
        listener: &TcpListener,
        all: &[Option<TcpStream>],
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<(TcpStream, Greeting), ExchangeError> {
        listener.set_nonblocking(true).map_err(|error| self.error(error))?;
        loop {
            watch()?;
            // They wait for this process, and say nothing unless something is wrong.
            for rank in (0..self.size).filter(|&rank| rank == 0 || self.rank == 0) {
                if self.heard_of(all, rank)?.is_some() {
                    return Err(ExchangeError::Garbled { rank });
                }
            }
            let Ok((stream, _)) = listener.accept() else {
                let absent = |&rank: &usize| rank != self.rank && all[rank].is_none();
                let absent: Vec<usize> = (0..self.size).filter(absent).collect();
                self.pause(deadline, &absent)?;
                continue;
            };
            let Ok(greeting) = self.hear(&stream) else { continue };
            if greeting.version != VERSION {
                return Err(self.error(format_args!(
                    "process {} is another version of this program: start the same on each",
                    greeting.rank
                )));
            }
            if greeting.size != self.size {
                return Err(self.error(format_args!(
                    "another process was started as one of {}: start each as one of as many",
                    greeting.size
                )));
            }
            match all.get(greeting.rank) {
                Some(None) if greeting.rank != self.rank => return Ok((stream, greeting)),
                _ => {
                    return Err(self.error(format_args!(
                        "two processes were started as number {}",
                        greeting.rank
                    )));
                }
            }
        }
    }

    fn greet(&self, stream: &TcpStream, port: u16) -> io::Result<()> {
        let mut greeting = Vec::with_capacity(GREETING);
        greeting.extend(MAGIC);
        for number in [VERSION, self.rank as u32, self.size as u32] {
            greeting.extend(number.to_le_bytes());
        }
        greeting.extend(port.to_le_bytes());
        greeting.extend(self.key_hash());
        Patience::USUAL.write(stream, &greeting)
    }

    fn hear(&self, stream: &TcpStream) -> io::Result<Greeting> {
        let patience = Patience { beat: GREETING_TIME, beats: 1 };
        patience.apply(stream)?;
        let mut bytes = [0; GREETING];
        patience.read(stream, &mut bytes)?;
        if &bytes[..8] != MAGIC || bytes[22..] != self.key_hash() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let number = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let port = u16::from_le_bytes([bytes[20], bytes[21]]);
        Patience::USUAL.apply(stream)?;
        let (rank, size) = (number(12) as usize, number(16) as usize);
        Ok(Greeting { version: number(8), rank, size, port })
    }

    /// Connects to process 0, which may be started later than this one.
    fn connect_to_first(
        &self,
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<TcpStream, ExchangeError> {
        loop {
            watch()?;
            let reached = (self.host.as_str(), self.port)
                .to_socket_addrs()
                .and_then(|mut all| all.next().ok_or(io::ErrorKind::NotFound.into()))
                .and_then(|address| TcpStream::connect_timeout(&address, GREETING_TIME))
                .and_then(|stream| Patience::USUAL.apply(&stream).map(|()| stream));
            match reached {
                Ok(stream) => return Ok(stream),
                Err(error) if Instant::now() > deadline => {
                    return Err(self.error(format_args!(
                        "cannot reach process 0 at {}:{} for {} s ({error}); was it started, and \
                         are MASTER_ADDR and MASTER_PORT its machine and a port that is open there?",
                        self.host,
                        self.port,
                        self.patience.as_secs()
                    )));
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// What process 0 says of where the others are, once all of them have come.
    fn addresses(
        &self,
        all: &[Option<TcpStream>],
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<SocketAddr>, ExchangeError> {
        let garbled = || ExchangeError::Garbled { rank: 0 };
        let text = self.content(all, 0, Kind::Addresses, deadline, watch)?;
        let text = String::from_utf8(text).map_err(|_| garbled())?;
        let none = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        let parse = |(rank, line): (usize, &str)| match rank {
            0 => Ok(none),
            _ => line.parse().map_err(|_| garbled()),
        };
        let all: Vec<SocketAddr> =
            text.split('\n').enumerate().map(parse).collect::<Result<_, _>>()?;
        if all.len() == self.size { Ok(all) } else { Err(garbled()) }
    }
}
