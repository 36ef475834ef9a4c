//! Reading of the values of a tensor in a file as f32, in pieces of [`PIECE`] values.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use anyhow::{Context, Result, bail};

use super::stored::{Scales, Stored};

/// Largest number of values in a piece.
const PIECE: usize = 1 << 14;

/// Reader of the values of a tensor, piece by piece.
pub(super) struct Pieces<'a> {
    file: &'a File,
    stored: &'a Stored,
    /// Size of a value in the file in bytes.
    width: usize,
    /// Scales of a tensor of integers; empty for other tensors.
    scales: Vec<f32>,
    /// Number of successive integers that have the same scale.
    run: usize,
    /// Index of the next value.
    next: usize,
    bytes: Vec<u8>,
}

impl<'a> Pieces<'a> {
    /// Reader of the values of the tensor `stored` in `file`.
    ///
    /// # Errors
    /// When the scales cannot be read, a scale is not a normal number, or the tensor has a type
    /// that weights cannot have.
    pub(super) fn new(file: &'a File, stored: &'a Stored) -> Result<Self> {
        let width = stored.width().context("no type of weights")?;
        let (scales, run) = match stored.scales {
            None => (Vec::new(), 1),
            Some(Scales::All(scale)) => (vec![scale], usize::MAX),
            Some(Scales::Rows(start)) => {
                let columns: usize = stored.shape[1..].iter().product();
                let rows = stored.count() / columns.max(1);
                let mut bytes = vec![0; 4 * rows];
                let mut file = file;
                file.seek(SeekFrom::Start(start))?;
                file.read_exact(&mut bytes)?;
                let scales = bytes.as_chunks().0.iter().map(|&one| f32::from_le_bytes(one));
                (scales.collect(), columns.max(1))
            }
        };
        if scales.iter().any(|scale| !scale.is_normal()) {
            bail!("a scale of its rows is zero or not finite");
        }
        Ok(Self { file, stored, width, scales, run, next: 0, bytes: Vec::new() })
    }

    /// Number of values that are still to be read.
    pub(super) fn remaining(&self) -> usize {
        self.stored.count() + self.stored.appended.len() - self.next
    }

    /// Appends the next piece of the tensor to `values`. Returns `false` if there are no more
    /// values.
    pub(super) fn next(&mut self, values: &mut Vec<f32>) -> Result<bool> {
        let count = self.stored.count().saturating_sub(self.next).min(PIECE);
        if count == 0 {
            let rest = &self.stored.appended[self.next - self.stored.count()..];
            let rest = &rest[..rest.len().min(PIECE)];
            values.extend(rest);
            self.next += rest.len();
            return Ok(!rest.is_empty());
        }
        self.bytes.resize(count * self.width, 0);
        // Sets the position in the file each time, because another tensor may be read from it
        // between two calls.
        let start = self.stored.start + (self.next * self.width) as u64;
        self.file.seek(SeekFrom::Start(start))?;
        self.file.read_exact(&mut self.bytes)?;
        let bytes = &self.bytes;
        match self.stored.dtype.as_str() {
            "F32" => values.extend(bytes.as_chunks().0.iter().map(|&one| f32::from_le_bytes(one))),
            "F64" => {
                values
                    .extend(bytes.as_chunks().0.iter().map(|&one| f64::from_le_bytes(one) as f32));
            }
            "F16" => {
                let wide = |&one: &[u8; 2]| half::f16::from_le_bytes(one).to_f32();
                values.extend(bytes.as_chunks().0.iter().map(wide));
            }
            "I8" => self.scaled(bytes.iter().map(|&one| f32::from(one as i8)), values),
            "I16" => {
                let wide = |&one: &[u8; 2]| f32::from(i16::from_le_bytes(one));
                self.scaled(bytes.as_chunks().0.iter().map(wide), values);
            }
            _ => {
                let wide = |&one: &[u8; 2]| half::bf16::from_le_bytes(one).to_f32();
                values.extend(bytes.as_chunks().0.iter().map(wide));
            }
        }
        self.next += count;
        Ok(true)
    }

    /// Appends integers to `values`, each divided by its scale.
    fn scaled(&self, integers: impl Iterator<Item = f32>, values: &mut Vec<f32>) {
        let scale = |at: usize| self.scales[(self.next + at) / self.run];
        values.extend(integers.enumerate().map(|(at, integer)| integer / scale(at)));
    }
}
