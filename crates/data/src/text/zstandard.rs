//! Decodes Zstandard files, which may contain several frames one after another, for example after
//! `cat` joined files.

use std::io::{self, BufRead, ErrorKind, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Largest window of a frame in bytes: the limit of the program `zstd`, which is also the window of
/// its option `--long`.
const LARGEST_WINDOW: u64 = 1 << 27;

/// Reader of the decompressed bytes of all frames of `source`.
pub(super) struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    is_within_frame: bool,
}

impl<R: BufRead> Frames<R> {
    pub(super) fn new(source: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(LARGEST_WINDOW);
        Self { source, decoder, is_within_frame: false }
    }

    /// Reads the head of the next frame. Frames that contain no data are skipped. Returns `false`
    /// at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = (&mut self.source).take(length.into());
                    if io::copy(&mut skipped, &mut io::sink())? < length.into() {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(damaged(error)),
            }
        }
        Ok(false)
    }

    /// Verifies the checksum of the frame, if it has one.
    fn end(&self) -> io::Result<()> {
        match self.decoder.get_checksum_from_data() {
            Some(sum) if self.decoder.get_calculated_checksum() != Some(sum) => {
                Err(damaged("its checksum is another"))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_within_frame {
                self.is_within_frame = self.begin()?;
                if !self.is_within_frame {
                    return Ok(0);
                }
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, one).map_err(damaged)?;
            }
            let count = self.decoder.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            self.end()?;
            self.is_within_frame = false;
        }
    }
}

fn damaged(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decompresses frames that are read a few bytes at a time.
    fn text(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        Frames::new(io::BufReader::with_capacity(7, bytes)).read_to_end(&mut text)?;
        Ok(text)
    }

    /// Three frames, the second of which is no data; the last has a checksum.
    fn frames() -> (Vec<u8>, Vec<u8>) {
        let first: Vec<u8> = (0..300_000_u32).flat_map(|at| (at / 7).to_le_bytes()).collect();
        let mut bytes = zstd::encode_all(&first[..], 3).unwrap();
        bytes.extend(0x184D_2A53_u32.to_le_bytes());
        bytes.extend(5_u32.to_le_bytes());
        bytes.extend(b"aside");
        let mut last = zstd::Encoder::new(Vec::new(), 19).unwrap();
        last.include_checksum(true).unwrap();
        io::Write::write_all(&mut last, b"the end").unwrap();
        bytes.extend(last.finish().unwrap());
        (bytes, [first, b"the end".to_vec()].concat())
    }

    #[test]
    fn frames_are_read_one_after_another() {
        let (bytes, expected) = frames();
        assert!(text(&bytes).unwrap() == expected);
        assert_eq!(text(b"").unwrap(), b"");
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let (bytes, _) = frames();
        for length in [bytes.len() - 1, bytes.len() - 5, bytes.len() / 2, 3] {
            assert!(text(&bytes[..length]).is_err(), "{length} bytes");
        }
        let mut other = bytes.clone();
        *other.last_mut().unwrap() ^= 1;
        assert!(text(&other).unwrap_err().to_string().contains("checksum"));
        assert!(text(&[&bytes[..], b"more"].concat()).is_err());
    }

    #[test]
    fn a_window_larger_than_that_of_the_program_is_refused() {
        // A frame that does not state the size of its content, and whose window is 1 GiB.
        let frame = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 20 << 3, 0x01, 0x00, 0x00];
        assert!(text(&frame).unwrap_err().to_string().contains("window"));
    }
}
