//! Finds the tokens with the largest logits in each row, on the device of the logits, for beam
//! search.

use super::recent::Recent;
use candle_core::{D, DType, Device, Result, Tensor, bail};

/// Likeliest tokens of a row of logits, and the row's normaliser.
#[derive(Debug, Clone, PartialEq)]
pub struct Likeliest {
    /// Likeliest tokens with their logits, in descending order of the logits; of equal logits, the
    /// lowest token comes first. Each token occurs once, even if its logit is −∞. If a logit is
    /// NaN, the order has no meaning.
    pub tokens: Vec<(u32, f32)>,
    /// Logit of the additional token that was requested for the row.
    pub also: f32,
    /// `ln Σ exp(logits)` over the row; not finite if the row is not a distribution.
    pub normalizer: f64,
}

/// Largest vocabulary for which f32 represents all token ids exactly.
const MOST: usize = 1 << 24;

/// Finds, for each row `r`, the tokens with the `count` largest logits, the logit of the token
/// `also[r]`, and the normaliser. Only `2 · count + 3` numbers per row are copied to the host, all
/// at once.
///
/// **Decision.** The largest logits are found one after the other. Each round computes the maximum
/// of the logits that are left, and then the lowest token that has this logit. To save work, the
/// vocabulary is divided into blocks. First, the `count` blocks with the largest maxima are found;
/// they contain all tokens to find. Then the largest logits in these blocks are found. Candle's
/// sort on CUDA is not used, because it needs a whole row in the shared memory of a thread block,
/// which is too small for the logits of a vocabulary. In addition, neither the sort nor `argmax`
/// specifies which of several equal elements it returns.
///
/// # Shapes
/// `logits (R, V)` in f32; `also` has `R` tokens.
///
/// # Errors
/// If `also` does not have `R` tokens, a token is not in the vocabulary, or the vocabulary has more
/// than 2²⁴ tokens.
pub fn likeliest(logits: &Tensor, count: usize, also: &[u32]) -> Result<Vec<Likeliest>> {
    let ((rows, vocabulary), device) = (logits.dims2()?, logits.device());
    if also.len() != rows || vocabulary > MOST {
        bail!(
            "{} tokens do not fit {rows} rows of {vocabulary} logits: each row needs one token, \
             and must have at most 2^24 logits",
            also.len()
        );
    }
    if let Some(token) = also.iter().find(|&&token| token as usize >= vocabulary) {
        bail!("token {token} is not in a vocabulary of {vocabulary}");
    }
    if rows == 0 {
        return Ok(Vec::new());
    }
    let count = count.min(vocabulary);
    // The work is smallest if there are about as many blocks as there are tokens in the `count`
    // blocks that are chosen.
    let block = ((vocabulary as f64 / count.max(1) as f64).sqrt() as usize).max(1);
    let blocks = vocabulary.div_ceil(block);
    let blocked = filled_up(logits, blocks * block)?.reshape((rows, blocks, block))?;
    let maxima = blocked.max(D::Minus1)?; // (R, blocks)
    let largest = maxima.max_keepdim(D::Minus1)?; // (R, 1)
    let sum = blocked.broadcast_sub(&largest.unsqueeze(2)?)?.exp()?.sum(D::Minus1)?;
    let log_sum = sum.sum_keepdim(D::Minus1)?.log()?; // (R, 1)
    let also = Tensor::new(also, device)?.unsqueeze(1)?;
    let mut columns = vec![logits.gather(&also, 1)?, largest, log_sum];
    if count > 0 {
        let tokens = largest_tokens(&blocked, &maxima, count)?;
        columns.extend([logits.gather(&tokens.to_dtype(DType::U32)?, 1)?, tokens]);
    }
    let host = Tensor::cat(&columns, 1)?.to_vec2::<f32>()?; // (R, 3 + 2 · count)
    Ok(host.iter().map(|row| read(row, count)).collect())
}

/// Returns the index of the first of the largest elements of each row. `argmax` does not specify
/// which of several equal elements it returns.
///
/// # Shapes
/// `(R, W)` → `(R, 1)` in u32, for a `W` of at least 1.
///
/// # Errors
/// If the device has no memory left.
pub fn first_largest(values: &Tensor) -> Result<Tensor> {
    let ((rows, width), device) = (values.dims2()?, values.device());
    let numbers = Tensor::arange(0, width as u32, device)?.broadcast_as((rows, width))?;
    // No element equals a maximum that is NaN; the result is then `width`.
    let beyond = Tensor::new(width as u32, device)?.broadcast_as((rows, width))?;
    let is_largest = values.broadcast_eq(&values.max_keepdim(1)?)?;
    is_largest.where_cond(&numbers, &beyond)?.min_keepdim(1)
}

fn read(row: &[f32], count: usize) -> Likeliest {
    let [also, largest, log_sum] = [0, 1, 2].map(|column| row[column]);
    let (values, tokens) = row[3..].split_at(count);
    Likeliest {
        tokens: tokens.iter().map(|&token| token as u32).zip(values.iter().copied()).collect(),
        also,
        normalizer: f64::from(largest) + f64::from(log_sum),
    }
}

/// Appends columns of −∞ until there are `columns`: `(R, V)` → `(R, columns)`.
fn filled_up(logits: &Tensor, columns: usize) -> Result<Tensor> {
    let (rows, vocabulary) = logits.dims2()?;
    if columns == vocabulary {
        return logits.contiguous();
    }
    let shape = (rows, columns - vocabulary);
    let nothing = Tensor::full(f32::NEG_INFINITY, shape, logits.device())?;
    Tensor::cat(&[logits, &nothing], 1)?.contiguous()
}

/// Finds the tokens with the `count` largest values of each row of `blocked (R, blocks, B)`, given
/// the maximum of each block, `maxima (R, blocks)`. Returns the tokens, `(R, count)`, in f32.
fn largest_tokens(blocked: &Tensor, maxima: &Tensor, count: usize) -> Result<Tensor> {
    let ((rows, blocks, block), device) = (blocked.dims3()?, blocked.device());
    let chosen = count.min(blocks);
    // These blocks have all tokens to find: if a token is among the first `count`, then fewer than
    // `count` blocks have a larger maximum than its own block.
    let at = first_few(maxima, &numbers(blocks, device)?.unsqueeze(0)?, chosen)?;
    let first_of_row = (0..rows as u32).map(|row| row * blocks as u32).collect::<Vec<_>>();
    let first_of_row = Tensor::from_vec(first_of_row, (rows, 1), device)?;
    let index = at.to_dtype(DType::U32)?.broadcast_add(&first_of_row)?.flatten_all()?;
    let values = blocked.reshape((rows * blocks, block))?.index_select(&index, 0)?;
    let values = values.reshape((rows, chosen * block))?;
    let tokens = (at.unsqueeze(2)? * block as f64)? // (R, chosen, 1)
        .broadcast_add(&numbers(block, device)?.reshape((1, 1, block))?)?
        .reshape((rows, chosen * block))?;
    first_few(&values, &tokens, count)
}

/// Finds the `count` largest values of each row, and returns the elements of `numbers` at the same
/// places. Of equal values, the one with the lowest number comes first. Values that have been found
/// are marked with −∞. So that NaN and −∞ exceed this mark, they count as the smallest finite
/// number.
///
/// # Shapes
/// `values (R, W)`, `numbers (R or 1, W)` below [`MOST`], `count` at most `W` → `(R, count)`.
fn first_few(values: &Tensor, numbers: &Tensor, count: usize) -> Result<Tensor> {
    let numbers = numbers.broadcast_as(values.shape())?.contiguous()?;
    let full = |value| Tensor::full(value, values.shape(), values.device());
    let (beyond, found, least) = (full(MOST as f32)?, full(f32::NEG_INFINITY)?, full(f32::MIN)?);
    let mut rest = values.ge(&least)?.where_cond(values, &least)?;
    let mut at = Vec::with_capacity(count);
    for place in 0..count {
        let is_it = rest.broadcast_eq(&rest.max_keepdim(D::Minus1)?)?;
        let number = is_it.where_cond(&numbers, &beyond)?.min_keepdim(D::Minus1)?; // (R, 1)
        if place + 1 < count {
            rest = numbers.broadcast_eq(&number)?.where_cond(&found, &rest)?;
        }
        at.push(number);
    }
    Tensor::cat(&at, 1)
}

/// Returns the numbers `0, 1, …, count − 1` as f32.
fn numbers(count: usize, device: &Device) -> Result<Tensor> {
    static NUMBERS: Recent<usize> = Recent::new();
    NUMBERS.get(count, device, || {
        let values: Vec<f32> = (0..count).map(|number| number as f32).collect();
        Tensor::from_vec(values, count, device)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_elements_counts() -> Result<()> {
        let rows = [[1.0, 3.0, 2.0, 3.0], [f32::NEG_INFINITY; 4], [f32::NAN; 4]];
        let first = first_largest(&Tensor::new(&rows, &Device::Cpu)?)?;
        assert_eq!(first.to_vec2::<u32>()?, [[1], [0], [4]]);
        Ok(())
    }
}
