//! Frames, of which all data on a connection consist: a kind, a length, and content of that length
//! in bytes.
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
    /// Empty: the sender is alive.
    Alive,
    /// The sender ends, and reports any error itself. The content is the loss that made it end, if
    /// any, as JSON.
    Leave,
    /// Empty: the sender has read everything up to the frame `Leave`.
    Heard,
    /// Addresses of all processes, which process 0 sends to each.
    Addresses,
    /// Empty: the sender is connected to all other processes. From process 0 it means that all
    /// processes are connected.
    Ready,
    /// Address at which the receiver, on the same machine, can connect without TCP; empty if there
    /// is none.
    Offer,
    /// One byte: true if the sender has connected to the address in the frame `Offer`.
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

/// Number of bytes of a frame before its content.
const HEADER: usize = 9;

/// Number of values that are read at a time, so that a false length cannot cause a large
/// allocation.
const VALUES_AT_ONCE: usize = 1 << 22;
/// Upper bound of the bytes of a message's content.
const MOST_BYTES: u64 = 1 << 32;

/// How long a process may be silent, counted in reads that each wait for one beat. A clock would
/// also count time during which the whole machine was asleep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Time between two signs of life, and time limit of each read and write.
    pub(super) beat: Duration,
    /// Number of beats without a sign of life after which a process counts as lost.
    pub(super) beats: u32,
}

impl Patience {
    /// Half a minute of silence.
    pub(super) const USUAL: Self = Self { beat: Duration::from_secs(1), beats: 30 };

    /// Sets reads and writes of `stream` to wait for one beat.
    pub(super) fn apply(self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.beat))?;
        stream.set_write_timeout(Some(self.beat))
    }

    /// Repeats `attempt`, which moves some bytes and returns how many, until `length` bytes are
    /// moved. Its argument is the number of bytes moved so far.
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
        // Header and content are in one write, because each write wakes the reader up.
        let mut written = 0;
        self.repeat(HEADER, |done| {
            let both = [IoSlice::new(&header[done..]), IoSlice::new(content)];
            let count = stream.write_vectored(&both)?;
            written += count;
            Ok(count)
        })?;
        self.write(stream, &content[written - HEADER..])
    }

    /// Reads the beginning of a frame: its kind, and the number of bytes that follow.
    pub(super) fn read_header(self, stream: impl Read) -> io::Result<(FrameKind, u64)> {
        let mut header = [0; HEADER];
        self.read(stream, &mut header)?;
        let [kind, length @ ..] = header;
        let kind = KINDS.get(usize::from(kind)).ok_or(ErrorKind::InvalidData)?;
        Ok((*kind, u64::from_le_bytes(length)))
    }

    /// Reads the beginning of a frame if bytes have come; `None` if not. An error if the connection
    /// has ended. Does not wait for the first byte.
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

    /// Reads the content of a frame of bytes, `length` bytes long.
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

    /// Reads the content of a frame of f32 values, `length` bytes long.
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

/// Returns the bytes of f32 values in the order in which they are sent (little-endian).
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
