//! Number of operations of attention by hashing, and memory that it keeps for the backward pass, as
//! formulas.

/// Expected number of chunks of `size` tokens in a bucket. The number X of tokens in the bucket is
/// binomially distributed, with `length` draws of probability `share`, and the result is the mean
/// of `⌈X / size⌉`. The sum starts at the likeliest X and goes on in both directions until the
/// probabilities are negligible; each probability is computed from the one next to it.
pub(super) fn chunks_of_bucket(length: usize, share: f64, size: usize) -> f64 {
    if share <= 0.0 || share >= 1.0 {
        return if share <= 0.0 { 0.0 } else { length.div_ceil(size) as f64 };
    }
    let (odds, middle) = (share / (1.0 - share), (length as f64 * share) as usize);
    let (mut weights, mut sum) = (0.0, 0.0);
    let mut add = |tokens: usize, weight: f64| {
        weights += weight;
        sum += weight * tokens.div_ceil(size) as f64;
        weight > 1e-12
    };
    let (mut tokens, mut weight) = (middle, 1.0);
    while add(tokens, weight) && tokens < length {
        weight *= odds * (length - tokens) as f64 / (tokens + 1) as f64;
        tokens += 1;
    }
    (tokens, weight) = (middle, 1.0);
    while tokens > 0 {
        weight *= tokens as f64 / (odds * (length - tokens + 1) as f64);
        tokens -= 1;
        if !add(tokens, weight) {
            break;
        }
    }
    sum / weights
}

/// Number of scalars kept for the backward pass of a sequence of `length` tokens.
///
/// Every intermediate result of the operations counts, and so do masks and indices.
///
/// - For each token, ten vectors: a copy of the input, which consists of two vectors; the query and
///   the value; the squares of the query, and the normalised query; query, normalised query and
///   value once more, with a row of zeros for empty places; and the result. Seven numbers for each
///   head: five of the normalisation, and the maximum and the sum over the rounds.
/// - For each place in a chunk, which holds one head of one token, eight vectors as wide as a head:
///   the query, the keys of two chunks, the same keys transposed, their values, and the result. Six
///   numbers for each of these keys: the mask; the score as a product, with the mask added, with
///   the largest score subtracted, and as an exponential; and the weight. With dropout, there are
///   also the mask and the result of dropout. Nine numbers for each place: five indices, the
///   maximum, the sum, its logarithm and the weight of the round.
/// - For each token and round: for each head an index and a weight of the round. If there are
///   several rounds, also the normalised weight in three steps, and the result of the round, alone
///   and multiplied by its weight. With a single round, the result of the round is the final
///   result, which is counted above.
///
/// `chunks` is the number of chunks in all heads and rounds, `size` is the number of places in a
/// chunk, and `drops` says whether attention weights have dropout.
pub(super) fn kept(
    (width, heads): (usize, usize),
    (rounds, size): (usize, usize),
    drops: bool,
    (length, chunks): (usize, f64),
) -> f64 {
    let [d, h, size] = [width, heads, size].map(|number| number as f64);
    let (count, scores) = (rounds as f64, if drops { 8.0 } else { 6.0 });
    let of_place = 8.0 * d / h + 2.0 * size * scores + 9.0;
    let of_round = if rounds > 1 { 2.0 * d + 5.0 * h } else { 2.0 * h };
    let of_token = 10.0 * d + 7.0 * h + count * of_round;
    chunks * size * of_place + length as f64 * of_token
}

/// Number of operations. Each place in a chunk, even an empty one, needs the scores with the keys
/// of two chunks, and the weighted sums. In addition, queries are multiplied by the rotations:
/// `rotated` is the number of multiplications for that. `chunks` is the number of chunks in all
/// heads and rounds.
pub(super) fn flops(head: usize, size: usize, (rotated, chunks): (f64, f64)) -> f64 {
    chunks * ((size * 2 * size * 4) as f64 * head as f64) + 2.0 * rotated
}
