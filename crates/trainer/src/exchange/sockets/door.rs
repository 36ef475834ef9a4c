//! The port of a process, at which anybody may call: all who do are heard side by side, none for
//! longer than one greeting takes, and who does not prove that it is one of the processes is turned
//! away.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::frame::{Patience, is_timeout};
use super::greeting::{Challenge, HELLO, Hello, MAGIC, PROOF, Role, Verdict, answer, is_proof};

/// How long a whole greeting may take. Anybody may connect, and need not say a word.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// Callers that are heard at a time; of more, the first give way. A process of the training that
/// has to calls again.
const MOST_CALLERS: usize = 256;

/// A port that is listened to, and who has called there.
pub(super) struct Door {
    listener: TcpListener,
    callers: Vec<Caller>,
    turned_away: TurnedAway,
}

/// Who has connected, and has proved nothing so far.
struct Caller {
    stream: TcpStream,
    deadline: Instant,
    /// What it has said: a hello and a proof, or the beginning of it.
    heard: Vec<u8>,
    /// What it was told, once it has said hello.
    greeted: Option<(Hello, Challenge)>,
}

/// A process that knows the key.
pub(super) struct Guest {
    stream: TcpStream,
    pub(super) hello: Hello,
    challenge: Challenge,
}

/// How many connections were turned away, and why.
#[derive(Debug, Default)]
pub(super) struct TurnedAway {
    other_keys: usize,
    other_versions: usize,
    strangers: usize,
}

/// Why a caller is turned away.
enum Fault {
    OtherKey,
    OtherVersion,
    Stranger,
}

impl Door {
    /// Hears whoever calls at the port of `listener`.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn open(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, callers: Vec::new(), turned_away: TurnedAway::default() })
    }

    /// Who was turned away so far.
    pub(super) const fn turned_away(&self) -> &TurnedAway {
        &self.turned_away
    }

    /// Those who have proved since the last call that they know `key`, which is that of this process
    /// `rank`. Waits for nobody.
    pub(super) fn listen(&mut self, rank: usize, key: &str) -> Vec<Guest> {
        for _ in 0..MOST_CALLERS {
            let Ok((stream, _)) = self.listener.accept() else { break };
            // One that is gone already calls again.
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
        self.turned_away.count(&Fault::Stranger, excess);
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

    /// Takes in what has come; whether it is a whole greeting, with the right proof.
    fn hear(&mut self, rank: usize, key: &str) -> Result<bool, Fault> {
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
            return Err(Fault::OtherKey);
        }
    }

    /// Reads up to where `awaited` bytes are there; whether something has come.
    fn read(&mut self, awaited: usize) -> Result<bool, Fault> {
        let mut bytes = [0; HELLO];
        let room = bytes.len().min(awaited - self.heard.len());
        match (&self.stream).read(&mut bytes[..room]) {
            Ok(0) => Err(Fault::Stranger),
            Ok(count) => {
                self.heard.extend_from_slice(&bytes[..count]);
                let compared = self.heard.len().min(MAGIC.len());
                let is_ours = self.heard[..compared] == MAGIC[..compared];
                if is_ours { Ok(true) } else { Err(Fault::Stranger) }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted || is_timeout(&error) => {
                if Instant::now() > self.deadline {
                    Err(Fault::Stranger)
                } else {
                    Ok(false)
                }
            }
            Err(_) => Err(Fault::Stranger),
        }
    }

    /// Asks for a proof. What is written has room in the system's buffer of a new connection.
    fn challenge(&mut self, rank: usize) -> Result<(), Fault> {
        let hello = Hello::parse(&self.heard).ok_or(Fault::Stranger)?;
        let challenge = Challenge::new(rank).map_err(|_| Fault::Stranger)?;
        (&self.stream).write_all(challenge.bytes()).map_err(|_| Fault::Stranger)?;
        if !hello.is_of_this_version() {
            return Err(Fault::OtherVersion);
        }
        self.greeted = Some((hello, challenge));
        Ok(())
    }
}

impl Guest {
    /// Takes the process in; the connection to it.
    ///
    /// # Errors
    /// It is gone.
    pub(super) fn admit(self, key: &str) -> io::Result<TcpStream> {
        Patience::USUAL.apply(&self.stream)?;
        let answer = answer(Verdict::Accepted, key, &self.hello, &self.challenge);
        Patience::USUAL.write(&self.stream, &answer)?;
        Ok(self.stream)
    }

    /// Sends the process away: this one says why.
    pub(super) fn refuse(self, key: &str) {
        let answer = answer(Verdict::Refused, key, &self.hello, &self.challenge);
        let _ = (&self.stream).write_all(&answer);
    }
}

impl TurnedAway {
    fn count(&mut self, fault: &Fault, more: usize) {
        *match fault {
            Fault::OtherKey => &mut self.other_keys,
            Fault::OtherVersion => &mut self.other_versions,
            Fault::Stranger => &mut self.strangers,
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
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        match parts.is_empty() {
            true => Ok(()),
            false => write!(formatter, "; of those who called, {}", parts.join(", ")),
        }
    }
}
