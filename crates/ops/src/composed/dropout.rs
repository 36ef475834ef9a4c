//! Dropout, composed of Candle's operations, with its mask computed on the tensor's device.
//!
//! Candle has no bitwise operations. So the exclusive or of two numbers is looked up in a table,
//! for nine bits of each number at a time. A shift to the left is a product with a power of two,
//! and a shift to the right is a quotient. Products of 32-bit numbers wrap around on every device,
//! as the hash requires. The resulting bits are identical to those of
//! [`mask_bits`](crate::rng::mask_bits), which the fused operations use.

use crate::device::kernels_of;
use crate::rng::ROUNDS;
use crate::spec::Dropout;
use candle_core::{DType, Device, Result, Tensor, bail};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Multiplies `x` by the mask of a dropout.
///
/// # Shapes
/// `x` → the shape of `x`.
///
/// # Errors
/// If the device has no memory left.
pub fn drop(x: &Tensor, dropout: Dropout) -> Result<Tensor> {
    if !dropout.is_active() {
        return Ok(x.clone());
    }
    if let Some(dropped) = kernels_of(x.device()).drop(x, dropout) {
        return dropped;
    }
    x.mul(&dropout.mask(x.elem_count(), x.dtype(), x.device())?.reshape(x.shape())?)
}

impl Dropout {
    /// Returns the mask as a tensor, for the composed operations. It is computed on `device`, and
    /// has the same elements on every device.
    ///
    /// # Shapes
    /// → `(count,)`.
    ///
    /// # Errors
    /// If the device has no memory for it.
    pub fn mask(&self, count: usize, dtype: DType, device: &Device) -> Result<Tensor> {
        if !device.is_cpu() {
            if let Some(mask) = kernels_of(device).drop(&Tensor::ones(count, dtype, device)?, *self)
            {
                return mask;
            }
            return self.mask_on_device(count, dtype, device);
        }
        let factor = self.kernel::<f64>();
        let mask: Vec<f64> = (0..count).map(|index| factor(index as u32)).collect();
        Tensor::from_vec(mask, count, device)?.to_dtype(dtype)
    }

    /// Computes the mask with Candle's operations only.
    pub(crate) fn mask_on_device(
        &self,
        count: usize,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        mask_on_device(self.drawn(), count, dtype, device)
    }
}

/// Returns the mask of `count` elements, `(count,)`: `kept` if the random bits of an element are at
/// least `threshold`, otherwise 0.
fn mask_on_device(
    (key, threshold, kept): (u64, u32, f64),
    count: usize,
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    let bits = Words::on(device)?.bits(key, count)?;
    let threshold = Tensor::full(threshold, 1, device)?;
    // Multiplies ones by `kept`, so that the result is just `kept` rounded to the type.
    bits.broadcast_ge(&threshold)?.to_dtype(dtype)? * kept
}

/// Number of bits in each of the two numbers that the table combines.
const PIECE: u32 = 9;
/// Number of different numbers that have [`PIECE`] bits.
const SIDE: u32 = 1 << PIECE;
/// Number of consecutive indices that differ only in their lower 16 bits.
const BLOCK: usize = 1 << 16;

/// Tables and constants for computing with 32-bit words on a device.
struct Words {
    device: Device,
    /// Table with the value `x ^ y` at index `SIDE · x + y`: `(SIDE²,)`.
    xor: Tensor,
    /// Factors and divisors of words, each as a tensor `(1,)`.
    constants: HashMap<u32, Tensor>,
}

impl Words {
    /// Returns the tables and constants for a device, which are made only once.
    fn on(device: &Device) -> Result<Arc<Self>> {
        static ALL: Mutex<Vec<Arc<Words>>> = Mutex::new(Vec::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(words) = all.iter().find(|words| words.device.same_device(device)) {
            return Ok(words.clone());
        }
        let xor: Vec<u32> = (0..SIDE * SIDE).map(|at| (at / SIDE) ^ (at % SIDE)).collect();
        let powers = [8, PIECE, 15, 16, 17].map(|power| 1 << power);
        let factors = ROUNDS.iter().map(|round| round.1).chain(powers);
        let constants = factors.map(|value| Ok((value, Tensor::full(value, 1, device)?)));
        let words = Arc::new(Self {
            device: device.clone(),
            xor: Tensor::from_vec(xor, (SIDE * SIDE) as usize, device)?,
            constants: constants.collect::<Result<_>>()?,
        });
        all.push(words.clone());
        Ok(words)
    }

    fn constant(&self, value: u32) -> Result<&Tensor> {
        match self.constants.get(&value) {
            Some(constant) => Ok(constant),
            None => bail!("{value} is not a constant of the hash"),
        }
    }

    fn times(&self, x: &Tensor, factor: u32) -> Result<Tensor> {
        x.broadcast_mul(self.constant(factor)?)
    }

    fn over(&self, x: &Tensor, divisor: u32) -> Result<Tensor> {
        x.broadcast_div(self.constant(divisor)?)
    }

    /// Computes [`mask_bits`] of `key` and each index below `count`: `(count,)`.
    fn bits(&self, key: u64, count: usize) -> Result<Tensor> {
        let [(_, factor), second, third, fourth, fifth] = ROUNDS;
        let mut x = self.first_round(key as u32, factor, count)?;
        x = self.round(&self.round(&x, second)?, third)?;
        x = x.broadcast_add(&Tensor::full((key >> 32) as u32, 1, &self.device)?)?;
        self.round(&self.round(&x, fourth)?, fifth)
    }

    /// Computes `(x ^ x >> 16) · factor`, where `x = key ^ i`, for each index `i` below `count`.
    ///
    /// The indices are processed in blocks of 2¹⁶, in which the upper 16 bits of `i` are constant.
    /// Then the upper 16 bits of `x ^ x >> 16` are constant, too. Each of the two lower bytes of
    /// this number depends on one byte of `i` only. So `x ^ x >> 16` is the sum of two numbers. One
    /// depends on the second-lowest byte of `i`, and includes the constant bits; the other depends
    /// on the lowest byte. Each has only 256 possible values in a block. Their products with
    /// `factor` are computed in advance, and the result for an index is the sum of two such
    /// products.
    fn first_round(&self, key: u32, factor: u32, count: usize) -> Result<Tensor> {
        let blocks = count.div_ceil(BLOCK);
        let (mut upper, mut lower) = (Vec::new(), Vec::new());
        for block in 0..blocks as u32 {
            let high = block ^ (key >> 16);
            let change = (key & 0xffff) ^ high;
            upper.extend(
                (0..256u32).map(|byte| {
                    ((high << 16) | ((byte ^ (change >> 8)) << 8)).wrapping_mul(factor)
                }),
            );
            lower.extend((0..256u32).map(|byte| (byte ^ (change & 0xff)).wrapping_mul(factor)));
        }
        let upper = Tensor::from_vec(upper, (blocks, 256, 1), &self.device)?;
        let lower = Tensor::from_vec(lower, (blocks, 1, 256), &self.device)?;
        upper.broadcast_add(&lower)?.flatten_all()?.narrow(0, 0, count)?.contiguous()
    }

    /// Computes `(x ^ x >> shift) · factor`.
    fn round(&self, x: &Tensor, (shift, factor): (u32, u32)) -> Result<Tensor> {
        // `x >> shift` overlaps only the lowest `width` bits of `x`.
        let width = 32 - shift;
        let half = 1 << width.div_ceil(2);
        let above = self.times(&self.over(x, 1 << width)?, 1 << width)?;
        let (low, moved) = ((x - &above)?, self.over(x, 1 << shift)?);
        let index = (self.times(&low, SIDE)? + &moved)?;
        let upper = (self.times(&self.over(&low, half)?, SIDE)? + self.over(&moved, half)?)?;
        // Index into the table for the lower halves: the parts of the two numbers below `half`.
        let lower = (index - self.times(&upper, half)?)?;
        let looked_up = |index: &Tensor| self.xor.index_select(index, 0);
        let out = (above + self.times(&looked_up(&upper)?, half)?)?.add(&looked_up(&lower)?)?;
        if factor == 1 { Ok(out) } else { self.times(&out, factor) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::mask_bits;

    // In builds with overflow checks, Candle's integer products panic instead of wrapping around.
    #[cfg_attr(debug_assertions, ignore = "needs wrapping products")]
    #[test]
    fn the_device_draws_the_bits_that_the_host_draws() {
        let words = Words::on(&Device::Cpu).unwrap();
        for key in [0, 1, 0x1234_5678_9abc_def0, u64::MAX, crate::rng::mix(3, &[7])] {
            for count in [0, 1, 255, BLOCK, 3 * BLOCK + 77] {
                let bits = words.bits(key, count).unwrap().to_vec1::<u32>().unwrap();
                let expected: Vec<u32> = (0..count as u32).map(|i| mask_bits(key, i)).collect();
                assert_eq!(bits, expected, "{key:x}, {count}");
            }
        }
    }

    #[cfg_attr(debug_assertions, ignore = "needs wrapping products")]
    #[test]
    fn the_device_drops_what_the_host_drops() {
        for (rate, key) in [(0.1, 5), (0.3, u64::MAX / 3), (0.5, 0), (0.999, 17)] {
            let dropout = Dropout::new(rate, key);
            for dtype in [DType::F32, DType::F64, DType::BF16, DType::F16] {
                let ours = dropout.mask_on_device(100_003, dtype, &Device::Cpu).unwrap();
                let host = dropout.mask(100_003, dtype, &Device::Cpu).unwrap();
                let values = |x: Tensor| x.to_dtype(DType::F64).unwrap().to_vec1::<f64>().unwrap();
                assert_eq!(ours.dtype(), dtype);
                assert_eq!(values(ours), values(host), "{rate} in {dtype:?}");
            }
        }
    }
}
