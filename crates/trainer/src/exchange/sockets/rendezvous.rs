//! Rendezvous of processes: all of them connect to process 0, which sends each of them the
//! addresses of the others.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::addresses::{listed, parsed};
use super::door::Door;
use super::frame::{FrameKind, Patience};
use super::greeting::Watch;
use super::lines::Loss;
use super::neighbour::{self, Offer};
use super::stream::Stream;
use crate::ExchangeError;

/// Pause between two checks for new bytes. A greeting takes about as long as two such pauses.
const PAUSE: Duration = Duration::from_millis(2);

/// Address at which the processes meet, with the rank of this process.
#[derive(Debug, Clone)]
pub struct Rendezvous {
    /// Rank of this process: its index among all processes.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
    /// Name or address of the machine of process 0.
    pub host: String,
    /// Port of process 0.
    pub port: u16,
    /// Common secret of the processes of this training. It is never sent; the processes only prove
    /// that they know it. It can be empty if `host` is a loopback address, which other machines
    /// cannot reach.
    pub key: String,
    /// Longest time to wait for the other processes.
    pub patience: Duration,
}

impl Rendezvous {
    /// Whether `host` is a loopback address, which other machines cannot reach.
    pub(super) fn is_local(&self) -> bool {
        self.host == "localhost"
            || self.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    /// Returns an error if there is no key although other machines can reach the address, because
    /// anybody could then take part in the training.
    fn require_key(&self) -> Result<(), ExchangeError> {
        if !self.key.is_empty() || self.is_local() {
            return Ok(());
        }
        Err(self.error(format_args!(
            "processes that meet at {}:{} can be called by strangers: set the variable TAPER_KEY \
             to the same secret for all of them, for example that of `openssl rand -hex 16`; on \
             one machine, MASTER_ADDR=127.0.0.1 needs none",
            self.host, self.port
        )))
    }

    pub(super) fn error(&self, problem: impl std::fmt::Display) -> ExchangeError {
        ExchangeError::Rendezvous(format!("process {} of {}: {problem}", self.rank, self.size))
    }

    /// Opens the listener of process 0.
    ///
    /// # Errors
    /// If the port is already in use.
    pub(super) fn listen(&self) -> Result<TcpListener, ExchangeError> {
        let bound = if self.is_local() {
            TcpListener::bind((self.host.as_str(), self.port))
        } else {
            listen_everywhere(self.port)
        };
        bound.map_err(|error| {
            self.error(format_args!(
                "cannot listen at {}:{} ({error}); set MASTER_PORT to a port that is free",
                self.host, self.port
            ))
        })
    }

    /// Connects to all other processes, and returns the connections by rank, with `None` for this
    /// process itself. `watch` is called repeatedly while this process waits; if it returns an
    /// error, the wait ends.
    ///
    /// # Errors
    /// If a required key is missing, or a process does not connect in time or runs another version
    /// of this program.
    pub(super) fn connections(
        &self,
        listener: Option<TcpListener>,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<Option<Stream>>, ExchangeError> {
        self.require_key()?;
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
        // The processes that are connected already are told about the error, so that none of them
        // continues to wait for this process.
        let loss: Option<Loss> = match &error {
            ExchangeError::Lost { rank, why, .. } => Some((*rank, why.clone())),
            _ => None,
        };
        let reason = serde_json::to_vec(&loss).unwrap_or_default();
        for stream in nearest.iter().flatten() {
            let _ = Patience::USUAL.write_frame(stream, FrameKind::Leave, &reason);
        }
        Err(error)
    }

    /// Connects process 0 to all others.
    fn receive_all(
        &self,
        listener: Option<TcpListener>,
        all: &mut [Option<TcpStream>],
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExchangeError> {
        let listener = listener.map_or_else(|| self.listen(), Ok)?;
        let ports = self.receive(listener, all, deadline, watch)?;
        let addresses = listed(all, &ports).map_err(|error| self.error(error))?;
        self.tell_all(all, FrameKind::Addresses, addresses.as_bytes())?;
        // Now the other processes connect to each other, and report when they have done so.
        let mut waiting: Vec<usize> = (1..self.size).collect();
        while !waiting.is_empty() {
            watch()?;
            let mut still = Vec::new();
            for rank in waiting {
                match self.heard_of(all, rank)? {
                    Some((FrameKind::Ready, _)) => {}
                    Some(_) => return Err(ExchangeError::Garbled { rank }),
                    None => still.push(rank),
                }
            }
            waiting = still;
            self.pause(deadline, &waiting, &"")?;
        }
        self.tell_all(all, FrameKind::Ready, &[])
    }

    /// Connects this process, which is not process 0, to all others.
    fn join_all(
        &self,
        all: &mut [Option<TcpStream>],
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<(), ExchangeError> {
        let (first, listener, port) = self.join_first(deadline, watch)?;
        all[0] = Some(first);
        let addresses = self.addresses(all, deadline, watch)?;
        for (rank, &address) in addresses.iter().enumerate().take(self.rank).skip(1) {
            let stream = self.join(rank, address, port, all, deadline, watch)?;
            all[rank] = Some(stream);
        }
        self.receive(listener, all, deadline, watch)?;
        if let Some(first) = &all[0] {
            Patience::USUAL
                .write_frame(first, FrameKind::Ready, &[])
                .map_err(|error| ExchangeError::lost(0, self.rank, &error))?;
        }
        match self.heard(all, 0, deadline, watch)? {
            (FrameKind::Ready, _) => Ok(()),
            _ => Err(ExchangeError::Garbled { rank: 0 }),
        }
    }

    /// Makes connections by Unix sockets to processes on the same machine, if possible, and stores
    /// them in `near`, by rank. For each pair of processes, the one with the lower rank offers a
    /// socket to the other.
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
            Patience::USUAL.write_frame(stream, FrameKind::Offer, secret).map_err(lost(rank))?;
            offers.push((rank, offer));
        }
        for (rank, stream) in all.iter().enumerate().take(self.rank) {
            let Some(stream) = stream else { continue };
            let secret = self.content(all, rank, FrameKind::Offer, deadline, watch)?;
            near[rank] = neighbour::take(&secret);
            let taken = [u8::from(near[rank].is_some())];
            Patience::USUAL.write_frame(stream, FrameKind::Taken, &taken).map_err(lost(rank))?;
        }
        for (rank, offer) in offers {
            let taken = self.content(all, rank, FrameKind::Taken, deadline, watch)?;
            if let (Some(offer), [1]) = (offer, &taken[..]) {
                near[rank] = Some(offer.accept().map_err(lost(rank))?);
            }
        }
        Ok(())
    }

    /// Waits for the next frame from process `rank`, which must be of the kind `kind`, and returns
    /// its content.
    fn content(
        &self,
        all: &[Option<TcpStream>],
        rank: usize,
        kind: FrameKind,
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<u8>, ExchangeError> {
        let (received_kind, length) = self.heard(all, rank, deadline, watch)?;
        let Some(stream) = all[rank].as_ref().filter(|_| received_kind == kind) else {
            return Err(ExchangeError::Garbled { rank });
        };
        let read = Patience::USUAL.read_bytes(stream, length);
        read.map_err(|error| ExchangeError::lost(rank, self.rank, &error))
    }

    /// Sends a frame to all connected processes.
    fn tell_all(
        &self,
        all: &[Option<TcpStream>],
        kind: FrameKind,
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

    /// Reads the header of the next frame from process `rank`, without waiting. Returns its kind
    /// and the number of bytes of its content, or `None` if nothing has arrived. Returns an error
    /// if the process has left.
    fn heard_of(
        &self,
        all: &[Option<TcpStream>],
        rank: usize,
    ) -> Result<Option<(FrameKind, u64)>, ExchangeError> {
        let Some(Some(stream)) = all.get(rank) else { return Ok(None) };
        let lost = |error: io::Error| ExchangeError::lost(rank, self.rank, &error);
        match Patience::USUAL.try_header(stream).map_err(lost)? {
            Some((FrameKind::Leave, length)) => {
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

    /// Waits for the next frame from process `rank`. Returns its kind, and the number of bytes of
    /// its content.
    fn heard(
        &self,
        all: &[Option<TcpStream>],
        rank: usize,
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<(FrameKind, u64), ExchangeError> {
        loop {
            watch()?;
            if let Some(heard) = self.heard_of(all, rank)? {
                return Ok(heard);
            }
            self.pause(deadline, &[rank], &"")?;
        }
    }

    /// Pauses briefly before the next check for the awaited processes, whose ranks are `absent`. If
    /// no process is awaited, returns at once. After the deadline, returns an error that names
    /// these processes and ends with `more`.
    fn pause(
        &self,
        deadline: Instant,
        absent: &[usize],
        more: &dyn std::fmt::Display,
    ) -> Result<(), ExchangeError> {
        if absent.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let absent: Vec<String> = absent.iter().map(ToString::to_string).collect();
            return Err(self.error(format_args!(
                "waited {} s in vain for process {}; was it started, and can it reach the \
                 others?{more}",
                self.patience.as_secs(),
                absent.join(", ")
            )));
        }
        std::thread::sleep(PAUSE);
        Ok(())
    }

    /// Accepts connections at `listener` until all processes are connected, and stores them in
    /// `all`. Returns, by rank, the ports at which the processes that have connected here listen
    /// themselves.
    fn receive(
        &self,
        listener: TcpListener,
        all: &mut [Option<TcpStream>],
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<u16>, ExchangeError> {
        let mut door = Door::open(listener).map_err(|error| self.error(error))?;
        let mut ports = vec![0; self.size];
        loop {
            watch()?;
            self.require_silence(all)?;
            let is_absent = |&rank: &usize| rank != self.rank && all[rank].is_none();
            let absent: Vec<usize> = (0..self.size).filter(is_absent).collect();
            if absent.is_empty() {
                return Ok(ports);
            }
            let guests = door.listen(self.rank, &self.key);
            if guests.is_empty() {
                self.pause(deadline, &absent, door.turned_away())?;
            }
            for guest in guests {
                let (rank, size, port) =
                    (guest.hello.rank(), guest.hello.size(), guest.hello.port());
                if size != self.size {
                    guest.refuse(&self.key);
                    return Err(self.error(format_args!(
                        "another process was started as one of {size}: start all with the same size"
                    )));
                }
                if rank == self.rank || !matches!(all.get(rank), Some(None)) {
                    guest.refuse(&self.key);
                    let problem = format_args!("two processes were started as process {rank}");
                    return Err(self.error(problem));
                }
                // If this fails, the connection has ended, and the process calls again.
                if let Ok(stream) = guest.admit(&self.key) {
                    (all[rank], ports[rank]) = (Some(stream), port);
                }
            }
        }
    }

    /// Returns an error if a connected process has sent something although it waits for this
    /// process. The only thing that it can send in this state is an error.
    pub(super) fn require_silence(&self, all: &[Option<TcpStream>]) -> Result<(), ExchangeError> {
        for rank in (0..self.size).filter(|&rank| rank == 0 || self.rank == 0) {
            if self.heard_of(all, rank)?.is_some() {
                return Err(ExchangeError::Garbled { rank });
            }
        }
        Ok(())
    }

    /// Waits for the addresses of all processes, which process 0 sends when all of them have
    /// connected to it.
    fn addresses(
        &self,
        all: &[Option<TcpStream>],
        deadline: Instant,
        watch: &mut Watch<'_>,
    ) -> Result<Vec<SocketAddr>, ExchangeError> {
        let garbled = || ExchangeError::Garbled { rank: 0 };
        let text = self.content(all, 0, FrameKind::Addresses, deadline, watch)?;
        let text = String::from_utf8(text).map_err(|_| garbled())?;
        let first = all[0].as_ref().ok_or_else(garbled)?.peer_addr();
        let first = first.map_err(|error| ExchangeError::lost(0, self.rank, &error))?;
        parsed(&text, self.size, first).ok_or_else(garbled)
    }
}

/// Opens a listener at all addresses of this machine.
pub(super) fn listen_everywhere(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).or_else(|_| {
        // The machine possibly has no IPv6.
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
    })
}
