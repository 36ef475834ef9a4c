//! Number of operations of attention by hashing, and memory that it keeps for the backward pass, as
//! formulas.

/// Expected number of chunks of `size` tokens in a bucket: the mean of `⌈X / size⌉` for X from the
/// binomial distribution of `length` draws with probability `share`. The sum starts at the
/// likeliest X, and goes on in both directions by the ratio of neighbouring probabilities, until
/// these are negligible.
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

/// Number of scalars kept for the backward pass of a sequence.
///
/// - Per token: queries and values; normalised queries; the result.
/// - Per place in a chunk (for one head of one token): its gathered and its weighted rows; its
///   scores with the keys of two chunks, and the results of softmax and of dropout.
/// - Per token and round: the result of the round, and its weight.
///
/// `chunks` is the number of chunks in all heads and rounds.
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

/// Number of operations: for each place in a chunk, empty places included, the scores with the keys
/// of two chunks and the weighted sums; and the products of queries and rotations. `rotated` is the
/// number of multiplications in these products, and `chunks` is the number of chunks in all heads
/// and rounds.
pub(super) fn flops(head: usize, size: usize, (rotated, chunks): (usize, f64)) -> f64 {
    chunks * (size * 2 * size * 4 * head) as f64 + 2.0 * rotated as f64
}
