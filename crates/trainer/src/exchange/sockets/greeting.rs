//! Greeting of two processes: before anything else is sent, each process verifies that the other
//! one knows the common key.
//!
//! ```text
//! who connects:  hello      magic, version, rank, size, port, nonce          54 bytes
//! who listens:   challenge  magic, version, rank, nonce                      48 bytes
//! who connects:  proof      HMAC(key, "connects" and all of the above)       32 bytes
//! who listens:   answer     verdict, HMAC(key, "listens" and all of the above)  33 bytes
//! ```
//!
//! The key itself is never sent. A proof is a message authentication code (HMAC) of the hello, the
//! challenge and the role of the proof's sender. Because of the nonces (random numbers that are
//! used once), a proof is valid for one greeting only. Because of the role, a process that received
//! a proof cannot send it back as its own. The process that connects sends its proof first, so a
//! stranger who connects receives nothing from which the key could be guessed. All messages have
//! fixed lengths, so a stranger cannot make a process read more bytes than these.

use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::time::Instant;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::frame::{Patience, is_timeout};
use crate::ExchangeError;

/// Function that is called repeatedly while this process waits. If it returns an error, the wait
/// ends.
pub(super) type Watch<'a> = dyn FnMut() -> Result<(), ExchangeError> + 'a;

/// First bytes in each direction of every connection of this program.
pub(super) const MAGIC: &[u8; 8] = b"TAPERNET";
/// Version of the protocol.
const VERSION: u32 = 3;
/// Number of bytes of a nonce, which makes each greeting unique.
const NONCE: usize = 32;
/// Number of bytes of a hello.
pub(super) const HELLO: usize = MAGIC.len() + 3 * 4 + 2 + NONCE;
/// Number of bytes of a challenge.
const CHALLENGE: usize = MAGIC.len() + 2 * 4 + NONCE;
/// Number of bytes of a proof.
pub(super) const PROOF: usize = 32;
/// Number of bytes of an answer.
const ANSWER: usize = 1 + PROOF;

/// First message, from the process that connects.
#[derive(Clone)]
pub(super) struct Hello([u8; HELLO]);

/// Reply to the hello, from the process that listens.
pub(super) struct Challenge([u8; CHALLENGE]);

/// Role of the process that sends a proof: whether it opened the connection or accepted it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    Connects,
    Listens,
}

/// Judgement of the listening process about the process that connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    OtherKey = 0,
    Accepted = 1,
    /// The key is right, but the process is refused, for example because another one has the same
    /// rank.
    Refused = 2,
}

/// Result of a greeting, for the process that connects.
#[derive(Debug)]
pub(super) enum Answer {
    /// Both processes know the key.
    Accepted,
    /// Both processes know the key, but the listening process refuses the connection. It reports
    /// the reason itself.
    Refused,
    /// The two processes do not have the same key.
    OtherKey,
    /// The two processes run different versions of this program.
    OtherVersion,
    /// The connection ended, or the other end sent unexpected bytes.
    Lost(io::Error),
}

impl Hello {
    /// Makes the hello of the process `rank` of `size` processes, which listens at `port`.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn new(rank: usize, size: usize, port: u16) -> io::Result<Self> {
        let (rank, size) = ((rank as u32).to_le_bytes(), (size as u32).to_le_bytes());
        let version = VERSION.to_le_bytes();
        joined(&[MAGIC, &version, &rank, &size, &port.to_le_bytes(), &nonce()?]).map(Self)
    }

    /// Reads a hello; `None` if the bytes are not a hello.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; HELLO] = bytes.try_into().ok()?;
        bytes.starts_with(MAGIC).then_some(Self(bytes))
    }

    pub(super) fn is_of_this_version(&self) -> bool {
        number(&self.0, 8) == VERSION
    }

    pub(super) fn rank(&self) -> usize {
        number(&self.0, 12) as usize
    }

    pub(super) fn size(&self) -> usize {
        number(&self.0, 16) as usize
    }

    /// Port at which the sender of the hello listens.
    pub(super) fn port(&self) -> u16 {
        u16::from_le_bytes([self.0[20], self.0[21]])
    }
}

impl Challenge {
    /// Makes the challenge of process `rank`.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub(super) fn new(rank: usize) -> io::Result<Self> {
        let (version, rank) = (VERSION.to_le_bytes(), (rank as u32).to_le_bytes());
        joined(&[MAGIC, &version, &rank, &nonce()?]).map(Self)
    }

    pub(super) const fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Proof that a process with the role `role` knows `key`, in the greeting with the messages `hello`
/// and `challenge`.
pub(super) fn proof(key: &str, role: Role, hello: &Hello, challenge: &Challenge) -> [u8; PROOF] {
    let role: &[u8] = match role {
        Role::Connects => b"taper connects",
        Role::Listens => b"taper listens",
    };
    hmac(key.as_bytes(), &[role, &hello.0, &challenge.0])
}

/// Whether `received` is the correct proof. The comparison takes the same time whichever bytes
/// differ, so that its duration does not help to guess the proof.
pub(super) fn is_proof(
    received: &[u8],
    key: &str,
    role: Role,
    hello: &Hello,
    challenge: &Challenge,
) -> bool {
    received.ct_eq(&proof(key, role, hello, challenge)).into()
}

/// Bytes of the answer with `verdict`, and with this process's proof unless the other process has
/// another key.
pub(super) fn answer(
    verdict: Verdict,
    key: &str,
    hello: &Hello,
    challenge: &Challenge,
) -> [u8; ANSWER] {
    let mut answer = [0; ANSWER];
    answer[0] = verdict as u8;
    if verdict != Verdict::OtherKey {
        answer[1..].copy_from_slice(&proof(key, Role::Listens, hello, challenge));
    }
    answer
}

/// Reason why a greeting failed.
enum Broken {
    Connection(io::Error),
    Waiting(ExchangeError),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Connection(error)
    }
}

/// Sends `hello` over `stream` to process `to`, proves that this process knows `key`, and verifies
/// the proof of the other process. `watch` is called before each read, so reads of `stream` must
/// have a short timeout. Waiting ends at `deadline`.
///
/// # Errors
/// If `watch` returns an error.
pub(super) fn introduce(
    stream: &TcpStream,
    hello: &Hello,
    to: usize,
    key: &str,
    deadline: Instant,
    watch: &mut Watch<'_>,
) -> Result<Answer, ExchangeError> {
    match converse(stream, hello, to, key, deadline, watch) {
        Ok(answer) => Ok(answer),
        Err(Broken::Connection(error)) => Ok(Answer::Lost(error)),
        Err(Broken::Waiting(error)) => Err(error),
    }
}

fn converse(
    stream: &TcpStream,
    hello: &Hello,
    to: usize,
    key: &str,
    deadline: Instant,
    watch: &mut Watch<'_>,
) -> Result<Answer, Broken> {
    let not_understood = || io::Error::from(ErrorKind::InvalidData);
    Patience::USUAL.write(stream, &hello.0)?;
    let challenge = Challenge(wait_for(stream, deadline, watch)?);
    if !challenge.0.starts_with(MAGIC) {
        return Err(not_understood().into());
    }
    if number(&challenge.0, 8) != VERSION {
        return Ok(Answer::OtherVersion);
    }
    if number(&challenge.0, 12) as usize != to {
        return Err(not_understood().into());
    }
    Patience::USUAL.write(stream, &proof(key, Role::Connects, hello, &challenge))?;
    let answer: [u8; ANSWER] = wait_for(stream, deadline, watch)?;
    let [verdict, proof @ ..] = &answer;
    if !is_proof(proof, key, Role::Listens, hello, &challenge) {
        return Ok(Answer::OtherKey);
    }
    match *verdict {
        verdict if verdict == Verdict::Accepted as u8 => Ok(Answer::Accepted),
        verdict if verdict == Verdict::Refused as u8 => Ok(Answer::Refused),
        _ => Err(not_understood().into()),
    }
}

/// Reads the next `LENGTH` bytes of `stream`. Waits for them until `deadline`, or until `watch`
/// returns an error.
fn wait_for<const LENGTH: usize>(
    mut stream: &TcpStream,
    deadline: Instant,
    watch: &mut Watch<'_>,
) -> Result<[u8; LENGTH], Broken> {
    let (mut bytes, mut done) = ([0; LENGTH], 0);
    while done < LENGTH {
        watch().map_err(Broken::Waiting)?;
        match stream.read(&mut bytes[done..]) {
            Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if !is_timeout(&error) => return Err(error.into()),
            Err(_) if Instant::now() > deadline => {
                return Err(io::Error::from(ErrorKind::TimedOut).into());
            }
            Err(_) => {}
        }
    }
    Ok(bytes)
}

fn nonce() -> io::Result<[u8; NONCE]> {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce).map_err(io::Error::other)?;
    Ok(nonce)
}

/// Reads the little-endian number that begins at byte `at`.
fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Concatenates parts that have `LENGTH` bytes in total.
fn joined<const LENGTH: usize>(parts: &[&[u8]]) -> io::Result<[u8; LENGTH]> {
    parts.concat().try_into().map_err(|_| ErrorKind::InvalidData.into())
}

/// HMAC-SHA-256 (RFC 2104) of the concatenation of `parts`.
fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; PROOF] {
    const BLOCK: usize = 64;
    let mut block = [0_u8; BLOCK];
    if key.len() > BLOCK {
        block[..PROOF].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let padded = |pad: u8| Sha256::new().chain_update(block.map(|byte| byte ^ pad));
    let inner = parts.iter().fold(padded(0x36), |hash, part| hash.chain_update(part)).finalize();
    padded(0x5c).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn codes_are_those_of_rfc_4231() {
        for (key, text, code) in [
            (
                vec![0x0b; 20],
                &b"Hi There"[..],
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe".to_vec(),
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                vec![0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ] {
            assert_eq!(hex(&hmac(&key, &[text])), code);
            let (first, second) = text.split_at(3);
            assert_eq!(hex(&hmac(&key, &[first, second])), code);
        }
    }

    #[test]
    fn a_proof_holds_for_one_role_one_greeting_and_one_key() {
        let (hello, challenge) = (Hello::new(1, 2, 7).unwrap(), Challenge::new(0).unwrap());
        let proved = proof("key", Role::Connects, &hello, &challenge);
        assert!(is_proof(&proved, "key", Role::Connects, &hello, &challenge));
        assert!(!is_proof(&proved, "key", Role::Listens, &hello, &challenge));
        assert!(!is_proof(&proved, "kez", Role::Connects, &hello, &challenge));
        assert!(!is_proof(&proved[1..], "key", Role::Connects, &hello, &challenge));
        let other = Challenge::new(0).unwrap();
        assert!(!is_proof(&proved, "key", Role::Connects, &hello, &other), "another nonce");
        for at in 0..HELLO {
            let mut changed = hello.clone();
            changed.0[at] ^= 1;
            assert!(!is_proof(&proved, "key", Role::Connects, &changed, &challenge), "byte {at}");
        }
        assert!(Hello::parse(&hello.0).is_some_and(|heard| {
            heard.is_of_this_version() && (heard.rank(), heard.size(), heard.port()) == (1, 2, 7)
        }));
        assert!(Hello::parse(&hello.0[1..]).is_none() && Hello::parse(&[0; HELLO]).is_none());
    }
}
