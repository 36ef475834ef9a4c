//! Keys and values that a decoding cache keeps in fewer bits (bf16 or int8) than the tensors have.

use crate::float::Float;
use crate::host::{Host, for_float};
use candle_core::{Device, Result, Tensor, bail};
use half::bf16;

/// Type in which a [`Cache`](crate::Cache) keeps keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheType {
    /// The type of the tensors that are added.
    #[default]
    Exact,
    /// bf16: half the memory of f32, and three significant digits.
    Bf16,
    /// int8 with a scale for each key and each value of a head: about a quarter of the memory of
    /// f32.
    Int8,
}

/// Rows of keys and values that are rounded to bf16 or int8.
///
/// In bf16, each number is rounded to the nearest bf16 number. In int8, a row is divided into
/// blocks of columns. Each block is as wide as a head, so that it is the key or the value of one
/// head. The largest magnitude in a block is 127 times the scale of the block, and each number is
/// rounded to the nearest multiple of the scale.
#[derive(Debug, Clone)]
pub struct CompactRows {
    /// Number of columns.
    width: usize,
    /// Number of columns in a block.
    block: usize,
    codes: Codes,
}

#[derive(Debug, Clone)]
enum Codes {
    Bf16(Vec<bf16>),
    /// For `M` rows of `W` columns: codes, `(M, W)`, and scales, `(M, W / block)`.
    Int8 {
        codes: Vec<i8>,
        scales: Vec<f32>,
    },
}

/// Elements of compact rows, in row-major order.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CompactElements<'a> {
    Bf16(&'a [bf16]),
    /// Codes, and the scale of each block of columns in each row.
    Int8(&'a [i8], &'a [f32]),
}

/// Largest magnitude of an int8 code.
const LARGEST: f32 = 127.0;

/// If no magnitude in a block reaches this bound, the block is stored as zeros. Otherwise its scale
/// could be so small that the inverse of the scale would be infinite.
const SMALLEST: f32 = 1e-35;

impl CompactRows {
    /// Rounds the rows of a tensor.
    ///
    /// # Shapes
    /// `(M, W)`; `block` divides `W`.
    ///
    /// # Errors
    /// If `W` or `block` is 0, if `block` does not divide `W`, or if the tensor is not on the host
    /// or is neither f32 nor f64.
    pub fn new(rows: &Tensor, block: usize, cache_type: CacheType) -> Result<Self> {
        let width = rows.dims2()?.1;
        if width == 0 || block == 0 || !width.is_multiple_of(block) {
            bail!("a cache has rows of {width} columns, but blocks of {block}");
        }
        let codes = match cache_type {
            CacheType::Int8 => Codes::Int8 { codes: Vec::new(), scales: Vec::new() },
            _ => Codes::Bf16(Vec::new()),
        };
        let mut compact = Self { width, block, codes };
        compact.push(rows)?;
        Ok(compact)
    }

    /// Adds the rows of a tensor.
    ///
    /// # Shapes
    /// `(M, W)`.
    ///
    /// # Errors
    /// If the tensor has another width than the rows so far, is not on the host, or is neither f32
    /// nor f64.
    pub fn push(&mut self, rows: &Tensor) -> Result<()> {
        let (count, width) = rows.dims2()?;
        if width != self.width {
            bail!("a cache has rows of {} columns, but gets one of {width}", self.width);
        }
        let host = Host::new(rows)?;
        for_float!(rows, T => {
            let elements = host.elements::<T>()?.iter().map(|&x| x.wide() as f32);
            self.codes.push(elements, (count * width, self.block));
        });
        Ok(())
    }

    /// Number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.codes.count() / self.width
    }

    /// Number of columns.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of columns in a block.
    #[must_use]
    pub fn block(&self) -> usize {
        self.block
    }

    pub(crate) fn elements(&self) -> CompactElements<'_> {
        match &self.codes {
            Codes::Bf16(codes) => CompactElements::Bf16(codes),
            Codes::Int8 { codes, scales } => CompactElements::Int8(codes, scales),
        }
    }

    /// Returns the rows with the indices `rows`, in this order.
    ///
    /// # Errors
    /// If there is no row with one of these indices.
    pub fn select(&self, rows: &[u32]) -> Result<Self> {
        let count = self.count();
        if let Some(row) = rows.iter().find(|&&row| row as usize >= count) {
            bail!("a cache of {count} rows has no row {row}");
        }
        let codes = match &self.codes {
            Codes::Bf16(codes) => Codes::Bf16(chosen(codes, self.width, rows)),
            Codes::Int8 { codes, scales } => Codes::Int8 {
                codes: chosen(codes, self.width, rows),
                scales: chosen(scales, self.width / self.block, rows),
            },
        };
        Ok(Self { codes, ..*self })
    }

    /// Returns the rounded rows in f32.
    ///
    /// # Shapes
    /// `(M, W)`.
    ///
    /// # Errors
    /// If there is no memory left.
    pub fn to_tensor(&self) -> Result<Tensor> {
        let values: Vec<f32> = match &self.codes {
            Codes::Bf16(codes) => codes.iter().map(|code| code.to_f32()).collect(),
            Codes::Int8 { codes, scales } => codes
                .chunks_exact(self.block)
                .zip(scales)
                .flat_map(|(block, scale)| block.iter().map(move |&code| scale * f32::from(code)))
                .collect(),
        };
        Tensor::from_vec(values, (self.count(), self.width), &Device::Cpu)
    }
}

impl Codes {
    fn count(&self) -> usize {
        match self {
            Self::Bf16(codes) => codes.len(),
            Self::Int8 { codes, .. } => codes.len(),
        }
    }

    /// Rounds and appends `count` numbers; in int8, by blocks of `block`.
    fn push(&mut self, numbers: impl Iterator<Item = f32>, (count, block): (usize, usize)) {
        match self {
            Self::Bf16(codes) => {
                codes.reserve(count);
                codes.extend(numbers.map(bf16::from_f32));
            }
            Self::Int8 { codes, scales } => {
                codes.reserve(count);
                scales.reserve(count / block);
                let mut numbers = numbers.peekable();
                let mut of_block = Vec::with_capacity(block);
                while numbers.peek().is_some() {
                    of_block.clear();
                    of_block.extend(numbers.by_ref().take(block));
                    // If a number in a block is NaN or infinite, the scale of the block is not
                    // finite either. So the fault remains visible.
                    let largest = of_block.iter().fold(0.0_f32, |largest, &x| match x.abs() {
                        size if size > largest || size.is_nan() => size,
                        _ => largest,
                    });
                    let scale = match largest / LARGEST {
                        _ if largest < SMALLEST => 0.0,
                        // The largest f32 would overflow if its scale had been rounded up.
                        scale if largest.is_finite() && (scale * LARGEST).is_infinite() => {
                            scale.next_down()
                        }
                        scale => scale,
                    };
                    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
                    scales.push(scale);
                    codes.extend(of_block.iter().map(|x| (x * inverse).round_ties_even() as i8));
                }
            }
        }
    }
}

/// Returns rows of `width` numbers, in the order of `rows`.
fn chosen<T: Copy>(numbers: &[T], width: usize, rows: &[u32]) -> Vec<T> {
    rows.iter().flat_map(|&row| &numbers[width * row as usize..][..width]).copied().collect()
}
