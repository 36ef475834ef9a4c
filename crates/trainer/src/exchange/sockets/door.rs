//! Port at which a process accepts connections (calls) from anybody. All callers are served
//! concurrently. A caller is turned away if it cannot prove within a time limit that it knows the
//! common key of the training.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::frame::{Patience, is_timeout};
use super::greeting::{Challenge, HELLO, Hello, MAGIC, PROOF, Role, Verdict, answer, is_proof};

/// Time limit of a complete greeting, because anybody can connect and then send nothing.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// Largest number of simultaneous callers. If there are more, the earliest are dropped. If a
/// dropped caller belongs to the training, it calls again.
const MOST_CALLERS: usize = 256;

/// Listening port, with the callers that have not completed their greeting.
pub(super) struct Door {
    listener: TcpListener,
    callers: Vec<Caller>,
    turned_away: TurnedAway,
}

/// Connection whose other end has not proved yet that it knows the key.
struct Caller {
    stream: TcpStream,
    deadline: Instant,
    /// Bytes received so far. A caller sends a hello (first message), followed by a proof.
    heard: Vec<u8>,
    /// Hello of the caller, and challenge that was sent in reply; `None` until the hello is
    /// complete.
    greeted: Option<(Hello, Challenge)>,
}

/// Connection of a process that has proved that it knows the key.
pub(super) struct Guest {
    stream: TcpStream,
    pub(super) hello: Hello,
    challenge: Challenge,
}

/// Numbers of connections that were turned away, by reason.
#[derive(Debug, Default)]
pub(super) struct TurnedAway {
    other_keys: usize,
    other_versions: usize,
    strangers: usize,
}

/// Reason to turn a caller away.
enum SkipReason {
    OtherKey,
    OtherVersion,
    Stranger,
}

impl Door {
    /// Accepts calls at the port of `listener`.
    ///
    /// # Errors
    /// If the system cannot make the listener non-blocking.
    pub(super) fn open(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, callers: Vec::new(), turned_away: TurnedAway::default() })
    }

    /// Numbers of connections that were turned away so far.
    pub(super) const fn turned_away(&self) -> &TurnedAway {
        &self.turned_away
    }

    /// Reads the bytes that callers have sent, without waiting. Returns the callers that have now
    /// proved that they know `key`. `rank`: rank of this process.
    pub(super) fn listen(&mut self, rank: usize, key: &str) -> Vec<Guest> {
        for _ in 0..MOST_CALLERS {
            let Ok((stream, _)) = self.listener.accept() else { break };
            // The error of a connection that has failed already is ignored: a process of the
            // training calls again.
            self.callers.extend(Caller::new(stream).ok());
        }
        let mut guests = Vec::new();
        for mut caller in std::mem::take(&mut self.callers) {
            match (caller.hear(rank, key), caller.greeted.take()) {
                (Ok(true), Some((hello, challenge))) => {
                    guests.push(Guest { stream: caller.stream, hello, challenge });
                }
                (Ok(_), greeted) => self.callers.push(Caller { greeted, ..caller }),
                (Err(fault), _) => self.turned_away.count(&fault, 1),
            }
        }
        let excess = self.callers.len().saturating_sub(MOST_CALLERS);
        self.callers.drain(..excess);
        self.turned_away.count(&SkipReason::Stranger, excess);
        guests
    }
}

impl Caller {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let deadline = Instant::now() + GREETING_TIME;
        Ok(Self { stream, deadline, heard: Vec::new(), greeted: None })
    }

    /// Reads new bytes, and returns whether the greeting is complete. Returns an error if the
    /// caller must be turned away.
    fn hear(&mut self, rank: usize, key: &str) -> Result<bool, SkipReason> {
        loop {
            let awaited = if self.greeted.is_none() { HELLO } else { HELLO + PROOF };
            if !self.read(awaited)? {
                return Ok(false);
            }
            if self.heard.len() < awaited {
                continue;
            }
            let Some((hello, challenge)) = &self.greeted else {
                self.challenge(rank)?;
                continue;
            };
            if is_proof(&self.heard[HELLO..], key, Role::Connects, hello, challenge) {
                return Ok(true);
            }
            let answer = answer(Verdict::OtherKey, key, hello, challenge);
            let _ = (&self.stream).write_all(&answer);
            return Err(SkipReason::OtherKey);
        }
    }

    /// Makes one attempt to read bytes that have already arrived, without waiting for more.
    /// `awaited` is the total number of bytes that the caller must have sent by now; bytes beyond
    /// it are not read. Returns whether new bytes were read.
    fn read(&mut self, awaited: usize) -> Result<bool, SkipReason> {
        let mut bytes = [0; HELLO];
        let room = bytes.len().min(awaited - self.heard.len());
        match (&self.stream).read(&mut bytes[..room]) {
            Ok(0) => Err(SkipReason::Stranger),
            Ok(count) => {
                self.heard.extend_from_slice(&bytes[..count]);
                let compared = self.heard.len().min(MAGIC.len());
                let is_ours = self.heard[..compared] == MAGIC[..compared];
                if is_ours { Ok(true) } else { Err(SkipReason::Stranger) }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted || is_timeout(&error) => {
                if Instant::now() > self.deadline {
                    Err(SkipReason::Stranger)
                } else {
                    Ok(false)
                }
            }
            Err(_) => Err(SkipReason::Stranger),
        }
    }

    /// Sends a challenge in reply to the hello. This does not wait, because the send buffer of a
    /// new connection has room for the challenge.
    fn challenge(&mut self, rank: usize) -> Result<(), SkipReason> {
        let hello = Hello::parse(&self.heard).ok_or(SkipReason::Stranger)?;
        let challenge = Challenge::new(rank).map_err(|_| SkipReason::Stranger)?;
        (&self.stream).write_all(challenge.bytes()).map_err(|_| SkipReason::Stranger)?;
        if !hello.is_of_this_version() {
            return Err(SkipReason::OtherVersion);
        }
        self.greeted = Some((hello, challenge));
        Ok(())
    }
}

impl Guest {
    /// Accepts the process, and returns its connection.
    ///
    /// # Errors
    /// If the other process has closed the connection.
    pub(super) fn admit(self, key: &str) -> io::Result<TcpStream> {
        Patience::USUAL.apply(&self.stream)?;
        let answer = answer(Verdict::Accepted, key, &self.hello, &self.challenge);
        Patience::USUAL.write(&self.stream, &answer)?;
        Ok(self.stream)
    }

    /// Refuses the process. The caller of this function must report the reason.
    pub(super) fn refuse(self, key: &str) {
        let answer = answer(Verdict::Refused, key, &self.hello, &self.challenge);
        let _ = (&self.stream).write_all(&answer);
    }
}

impl TurnedAway {
    fn count(&mut self, fault: &SkipReason, more: usize) {
        *match fault {
            SkipReason::OtherKey => &mut self.other_keys,
            SkipReason::OtherVersion => &mut self.other_versions,
            SkipReason::Stranger => &mut self.strangers,
        } += more;
    }
}

impl fmt::Display for TurnedAway {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.other_keys, "had another TAPER_KEY"),
            (self.other_versions, "were of another version of this program"),
            (self.strangers, "did not greet as a process of a training"),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, description)| format!("{count} {description}"))
            .collect();
        match parts.is_empty() {
            true => Ok(()),
            false => write!(formatter, "; of those who called, {}", parts.join(", ")),
        }
    }
}
