//! Frames: units in which data are sent over a connection. A frame has a kind, a length in bytes,
//! and content of this length.
//!
//! ```text
//! kind (1 byte), length (u64), content
//! ```
//!
//! Integers and floats are little-endian.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Kind of a frame's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// Values in f32.
    Part,
    /// Bytes of a message between processes.
    Fact,
    /// No content: the sender is alive.
    Alive,
    /// The sender ends. If it ends because a third process was lost, the content is a description
    /// of this loss as JSON. Otherwise the content is `null` in JSON, and the sender reports its
    /// error itself.
    Leave,
    /// No content: the sender has read all frames up to `Leave`.
    Heard,
    /// Addresses of all processes, which process 0 sends to all others.
    Addresses,
    /// No content. From process 0: every process is connected to every other. From another process:
    /// the sender is connected to all other processes.
    Ready,
    /// Name and secret of a socket to which the receiver, on the same machine, can connect without
    /// TCP; empty if there is no such socket.
    Offer,
    /// One byte: 1 if the sender has connected to the socket in the frame `Offer`, otherwise 0.
    Taken,
}

const KINDS: [FrameKind; 9] = [
    FrameKind::Part,
    FrameKind::Fact,
    FrameKind::Alive,
    FrameKind::Leave,
    FrameKind::Heard,
    FrameKind::Addresses,
    FrameKind::Ready,
    FrameKind::Offer,
    FrameKind::Taken,
];

/// Number of bytes of a frame's header, which stands before its content.
const HEADER: usize = 9;

/// Number of values that are read at a time, so that a wrong length does not cause a large
/// allocation of memory.
const VALUES_AT_ONCE: usize = 1 << 22;
/// Largest accepted number of bytes of a message.
const MOST_BYTES: u64 = 1 << 32;

/// Time after which a silent process counts as lost. It is counted as a number of reads or writes
/// that time out after one beat each. A clock is not used, because it would also count the time
/// during which this machine was suspended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Time between two signs of life, and time limit of each read and write.
    pub(super) beat: Duration,
    /// Number of consecutive beats without a sign of life after which a process counts as lost.
    pub(super) beats: u32,
}

impl Patience {
    /// A beat of one second, and half a minute until a process counts as lost.
    pub(super) const USUAL: Self = Self { beat: Duration::from_secs(1), beats: 30 };

    /// Sets the time limit of each read and write of `stream` to one beat.
    pub(super) fn apply(self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.beat))?;
        stream.set_write_timeout(Some(self.beat))
    }

    /// Calls `attempt` until `length` bytes are read or written in total. `attempt` receives the
    /// number of bytes that earlier calls have read or written, and returns the number of bytes
    /// that it has read or written itself.
    fn repeat(
        self,
        length: usize,
        mut attempt: impl FnMut(usize) -> io::Result<usize>,
    ) -> io::Result<()> {
        let (mut done, mut silent) = (0, 0);
        while done < length {
            match attempt(done) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => (done, silent) = (done + count, 0),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => {
                    silent += 1;
                    if silent >= self.beats {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub(super) fn read(self, mut stream: impl Read, bytes: &mut [u8]) -> io::Result<()> {
        self.repeat(bytes.len(), |done| stream.read(&mut bytes[done..]))
    }

    pub(super) fn write(self, mut stream: impl Write, bytes: &[u8]) -> io::Result<()> {
        self.repeat(bytes.len(), |done| stream.write(&bytes[done..]))
    }

    /// Writes a frame.
    pub(super) fn write_frame(
        self,
        mut stream: impl Write,
        kind: FrameKind,
        content: &[u8],
    ) -> io::Result<()> {
        let mut header = [0; HEADER];
        header[0] = KINDS.iter().position(|&one| one == kind).unwrap_or(0) as u8;
        header[1..].copy_from_slice(&(content.len() as u64).to_le_bytes());
        // Header and content are written together, because each write wakes the reader up.
        let mut written = 0;
        self.repeat(HEADER, |done| {
            let both = [IoSlice::new(&header[done..]), IoSlice::new(content)];
            let count = stream.write_vectored(&both)?;
            written += count;
            Ok(count)
        })?;
        self.write(stream, &content[written - HEADER..])
    }

    /// Reads the header of a frame. Returns its kind, and the number of bytes of its content.
    pub(super) fn read_header(self, stream: impl Read) -> io::Result<(FrameKind, u64)> {
        let mut header = [0; HEADER];
        self.read(stream, &mut header)?;
        let [kind, length @ ..] = header;
        let kind = KINDS.get(usize::from(kind)).ok_or(ErrorKind::InvalidData)?;
        Ok((*kind, u64::from_le_bytes(length)))
    }

    /// Reads the header of a frame like [`Self::read_header`] if at least one byte has arrived.
    /// Returns `None` without waiting if nothing has arrived, and an error if the connection has
    /// ended.
    pub(super) fn try_header(self, stream: &TcpStream) -> io::Result<Option<(FrameKind, u64)>> {
        stream.set_nonblocking(true)?;
        let waiting = stream.peek(&mut [0]);
        stream.set_nonblocking(false)?;
        match waiting {
            Err(error) if is_timeout(&error) || error.kind() == ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
            Ok(_) => self.read_header(stream).map(Some),
        }
    }

    /// Reads content of `length` bytes, as bytes.
    pub(super) fn read_bytes(self, mut stream: impl Read, length: u64) -> io::Result<Vec<u8>> {
        if length > MOST_BYTES {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut rest = usize::try_from(length).map_err(|_| ErrorKind::InvalidData)?;
        let mut bytes = Vec::new();
        while rest > 0 {
            let begin = bytes.len();
            let count = rest.min(4 * VALUES_AT_ONCE);
            bytes.resize(begin + count, 0);
            self.read(&mut stream, &mut bytes[begin..])?;
            rest -= count;
        }
        Ok(bytes)
    }

    /// Reads content of `length` bytes, as f32 values.
    pub(super) fn read_values(self, mut stream: impl Read, length: u64) -> io::Result<Vec<f32>> {
        let length = usize::try_from(length).map_err(|_| ErrorKind::InvalidData)?;
        if !length.is_multiple_of(size_of::<f32>()) {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut rest = length / size_of::<f32>();
        let mut values: Vec<f32> = Vec::new();
        while rest > 0 {
            let begin = values.len();
            let count = rest.min(VALUES_AT_ONCE);
            values.resize(begin + count, 0.0);
            self.read(&mut stream, bytemuck::cast_slice_mut(&mut values[begin..]))?;
            rest -= count;
        }
        if cfg!(target_endian = "big") {
            for value in &mut values {
                *value = f32::from_bits(value.to_bits().swap_bytes());
            }
        }
        Ok(values)
    }
}

/// Returns the bytes of f32 values in little-endian order, in which they are sent.
pub(super) fn as_bytes(values: &[f32]) -> std::borrow::Cow<'_, [u8]> {
    if cfg!(target_endian = "big") {
        values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>().into()
    } else {
        bytemuck::cast_slice(values).into()
    }
}

pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
