//! Selection of the best allowed tokens from a row of logits.

use std::borrow::Cow;

use taper_ops::composed::Likeliest;
use taper_ops::normalizer::{BLOCK, block_maxima, log_normalizer};

use crate::model::columns::{Logits, RowTokens};
use crate::search::constraints::Constraints;

/// A possible next token of a hypothesis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) token: u32,
    /// Log-probability under the model.
    pub(crate) log_probability: f64,
    /// Log-probability by which the search ranks the token. It equals `log_probability`, unless
    /// repetition is penalised or the token is forced and costs nothing.
    pub(crate) rank: f64,
}

impl Candidate {
    /// Sets the rank to 0 if `constraints` admit no other token, and the rules of the search are
    /// those by which such a token costs nothing.
    pub(crate) fn apply_cost(&mut self, constraints: &Constraints<'_>) {
        if constraints.is_free {
            self.rank = 0.0;
        }
    }
}

/// Finds the `count` likeliest tokens that `constraints` admit, likeliest first. Of equally likely
/// tokens, the one with the lower id comes first. After them come the tokens that phrases need
/// next, if they are not among the likeliest. Tokens with probability zero are omitted. Returns
/// `None` if the row is not a distribution.
pub(crate) fn best_tokens(
    logits: Logits<'_>,
    count: usize,
    constraints: &Constraints<'_>,
) -> Option<Vec<Candidate>> {
    let mut best = likeliest_admitted(logits, count, constraints)?;
    best.iter_mut().for_each(|candidate| candidate.apply_cost(constraints));
    Some(best)
}

fn likeliest_admitted(
    logits: Logits<'_>,
    count: usize,
    constraints: &Constraints<'_>,
) -> Option<Vec<Candidate>> {
    let weighed = match logits {
        Logits::All(logits) => Weighed::new(logits, RowTokens::All, constraints)?,
        Logits::Listed { tokens, logits } => {
            Weighed::new(logits, RowTokens::Listed(tokens), constraints)?
        }
        Logits::Likeliest(found) => {
            let best = admitted(found, constraints)?.take(count);
            return Some(best.map(|(token, logit)| candidate_of(found, token, logit)).collect());
        }
    };
    if let Some(token) = constraints.forced {
        return Some(
            weighed.possible(token).then(|| weighed.candidate(token)).into_iter().collect(),
        );
    }
    let (row, count) = (weighed.ranked(), count.min(weighed.len()));
    // `maxima` has the largest logit of each block. The `count`-th largest of these maxima is the
    // first lower limit of the search. At least `count` logits reach this limit, one in each of
    // `count` blocks, so the `count` largest logits of the row reach it too. Nearly all other
    // blocks have only smaller logits, and are skipped without looking at their logits.
    let mut best = best_from(&weighed, nth_largest(&row.maxima, count), count, constraints);
    if best.len() < count {
        // Some tokens with such large logits are not admitted, so all blocks are searched.
        best = best_from(&weighed, f32::NEG_INFINITY, count, constraints);
    }
    let needed = constraints.needed.iter().copied();
    let is_new = |&token: &u32| {
        !best.iter().any(|&(_, other)| other == token)
            && weighed.possible(token)
            && constraints.admits(token)
    };
    let needed: Vec<u32> = needed.filter(is_new).collect();
    let all = best.iter().map(|&(_, token)| token).chain(needed);
    Some(all.map(|token| weighed.candidate(token)).collect())
}

/// Finds the `count` largest logits, or fewer, among those that are at least `least` and whose
/// tokens are admitted. Returns them with their tokens, largest first.
fn best_from(
    weighed: &Weighed<'_>,
    least: f32,
    count: usize,
    constraints: &Constraints<'_>,
) -> Vec<(f32, u32)> {
    let (mut best, row) = (Best::new(count), weighed.ranked());
    for (block, (values, &largest)) in row.logits.chunks(BLOCK).zip(&row.maxima).enumerate() {
        // If the largest logit of a block is too small to be among the best, so are the block's
        // other logits.
        if largest < least || best.beats(largest) {
            continue;
        }
        for (column, &logit) in (block * BLOCK..).zip(values) {
            if logit < least || logit == f32::NEG_INFINITY || best.beats(logit) {
                continue;
            }
            let token = weighed.tokens.token(column);
            if constraints.admits(token) {
                best.insert(logit, token);
            }
        }
    }
    best.sorted
}

/// Returns the `count`-th largest value; −∞ if there are fewer values.
fn nth_largest(values: &[f32], count: usize) -> f32 {
    let mut largest = Best::new(count);
    for &value in values {
        if !largest.beats(value) {
            largest.insert(value, 0);
        }
    }
    match largest.sorted.last() {
        Some(&(least, _)) if largest.sorted.len() == count => least,
        _ => f32::NEG_INFINITY,
    }
}

/// Returns the tokens of `likeliest_of_row` that `constraints` admit, with their logits, likeliest
/// first. Returns `None` if the row is not a distribution.
pub(crate) fn admitted<'a>(
    likeliest_of_row: &'a Likeliest,
    constraints: &'a Constraints<'_>,
) -> Option<impl Iterator<Item = (u32, f32)> + 'a> {
    if !likeliest_of_row.normalizer.is_finite() {
        return None;
    }
    let requested = constraints.asked();
    let likeliest =
        likeliest_of_row.tokens.iter().copied().filter(move |&(token, _)| token != requested);
    let before = move |&(token, logit): &(u32, f32)| {
        logit > likeliest_of_row.also || (logit == likeliest_of_row.also && token < requested)
    };
    // The token that was requested in addition, `also`, is inserted where its logit belongs.
    let first = likeliest.clone().take_while(before);
    let rest = likeliest.skip_while(before);
    let all = first.chain(std::iter::once((requested, likeliest_of_row.also))).chain(rest);
    Some(all.filter(|&(token, logit)| logit != f32::NEG_INFINITY && constraints.admits(token)))
}

/// Makes the candidate for `token`, given its `logit`, in a row of which only the likeliest tokens
/// are known.
pub(crate) fn candidate_of(likeliest: &Likeliest, token: u32, logit: f32) -> Candidate {
    let log_probability = (f64::from(logit) - likeliest.normalizer).min(0.0);
    Candidate { token, log_probability, rank: log_probability }
}

/// The `count` largest logits so far, with their tokens, largest first.
struct Best {
    count: usize,
    sorted: Vec<(f32, u32)>,
}

impl Best {
    fn new(count: usize) -> Self {
        Self { count, sorted: Vec::with_capacity(count + 1) }
    }

    /// True if `count` logits are kept already and each is at least `logit`, so that `logit` would
    /// be dropped. Logits must be inserted in ascending order of token ids. Then, if two logits are
    /// equal, the token with the lower id is kept.
    fn beats(&self, logit: f32) -> bool {
        self.sorted.len() == self.count
            && self.sorted.last().is_none_or(|&(worst, _)| logit <= worst)
    }

    fn insert(&mut self, logit: f32, token: u32) {
        let position = self.sorted.partition_point(|&(kept, _)| kept >= logit);
        self.sorted.insert(position, (logit, token));
        self.sorted.truncate(self.count);
    }
}

/// A row of logits, with the largest logit of each block and the normaliser.
pub(crate) struct Row<'a> {
    logits: Cow<'a, [f32]>,
    /// Largest logit of each block of [`BLOCK`] logits.
    maxima: Vec<f32>,
    normalizer: f64,
}

impl<'a> Row<'a> {
    /// Scans a row; `None` if it is not a distribution.
    pub(crate) fn new(logits: impl Into<Cow<'a, [f32]>>) -> Option<Self> {
        let logits = logits.into();
        let maxima = block_maxima(&logits);
        let largest = maxima.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let normalizer = log_normalizer(&logits, largest)?;
        Some(Self { logits, maxima, normalizer })
    }

    /// Log-probability of the token at `column`. It is at most 0 even if rounding would make it
    /// positive, because the searches rely on totals of log-probabilities that never rise.
    pub(crate) fn log_probability(&self, column: usize) -> f64 {
        (f64::from(self.logits[column]) - self.normalizer).min(0.0)
    }
}

/// A row of the model's logits. If repetition is penalised, it comes with a second row: the changed
/// logits by which the search ranks tokens.
pub(crate) struct Weighed<'a> {
    tokens: RowTokens<'a>,
    model: Row<'a>,
    penalised: Option<Row<'a>>,
}

impl<'a> Weighed<'a> {
    /// Applies the penalties in `constraints` to the logits of `tokens`; `None` if the row is not a
    /// distribution.
    pub(crate) fn new(
        logits: &'a [f32],
        tokens: RowTokens<'a>,
        constraints: &Constraints<'_>,
    ) -> Option<Self> {
        let penalised = match constraints.penalised(logits, tokens) {
            Some(logits) => Some(Row::new(logits)?),
            None => None,
        };
        Some(Self { tokens, model: Row::new(logits)?, penalised })
    }

    /// Returns the row by which the search ranks tokens.
    fn ranked(&self) -> &Row<'a> {
        self.penalised.as_ref().unwrap_or(&self.model)
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.model.logits.len()
    }

    /// Iterates over all tokens, ascending, with the logits that rank them in the search.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, f32)> {
        let logits = self.ranked().logits.iter().copied().enumerate();
        logits.map(|(column, logit)| (self.tokens.token(column), logit))
    }

    /// True if a token has a probability above zero.
    pub(crate) fn possible(&self, token: u32) -> bool {
        let logit = self.tokens.column(token).and_then(|column| self.model.logits.get(column));
        logit.is_some_and(|&logit| logit != f32::NEG_INFINITY)
    }

    /// Makes the candidate for a token of the row.
    pub(crate) fn candidate(&self, token: u32) -> Candidate {
        let column = self.tokens.column(token);
        let in_row =
            |row: &Row<'_>| column.map_or(f64::NEG_INFINITY, |column| row.log_probability(column));
        Candidate { token, log_probability: in_row(&self.model), rank: in_row(self.ranked()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{END, OURS};
    use crate::{DecodingConfig, Sentence, UNKNOWN};

    fn anything() -> Constraints<'static> {
        let config = DecodingConfig { allow_unknown: true, ..DecodingConfig::default() };
        let sentence =
            Sentence { source: &[5, END], prefix: &[], phrases: &[], candidates: None, number: 0 };
        let limits = sentence.limits(&config, None);
        Constraints::after(&OURS, 0, &[], &sentence, limits, &config)
    }

    #[test]
    fn ties_go_to_the_lowest_id_and_specials_never_come() {
        let logits = [9.0, 1.0, 9.0, 2.0, 5.0, 7.0, 5.0, 7.0];
        let best = best_tokens(Logits::All(&logits), 5, &anything()).expect("finite");
        let tokens: Vec<u32> = best.iter().map(|candidate| candidate.token).collect();
        assert_eq!(tokens, [5, 7, 4, 6, END]);
        let all = best_tokens(Logits::All(&logits), 100, &anything()).expect("finite");
        assert_eq!(all.len(), 6);
    }

    #[test]
    fn the_best_of_a_long_row_are_those_of_a_sort() {
        // With few distinct values, there are equal logits in different blocks.
        for levels in [7, 1000] {
            let logits: Vec<f32> = (0..1003_u64).map(|i| (i * i * 31 % levels) as f32).collect();
            let mut expected: Vec<u32> = (UNKNOWN..1003).filter(|&token| token != 2).collect();
            expected.sort_by(|&a, &b| {
                logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b))
            });
            for count in [1, 5, 6, 200] {
                let best = best_tokens(Logits::All(&logits), count, &anything()).expect("finite");
                let tokens: Vec<u32> = best.iter().map(|candidate| candidate.token).collect();
                assert_eq!(tokens, expected[..count]);
            }
        }
    }

    #[test]
    fn a_special_token_takes_no_place_of_another() {
        // Each of three blocks has a large logit. The first is that of a special token, which is
        // not allowed, and the other two are those of allowed tokens.
        let mut logits = [0.0_f32; 3 * BLOCK];
        (logits[0], logits[BLOCK], logits[2 * BLOCK], logits[7]) = (9.0, 8.0, 7.0, 6.0);
        let best = best_tokens(Logits::All(&logits), 3, &anything()).expect("finite");
        let tokens: Vec<usize> = best.iter().map(|candidate| candidate.token as usize).collect();
        assert_eq!(tokens, [BLOCK, 2 * BLOCK, 7]);
    }

    #[test]
    fn log_probabilities_are_those_of_the_whole_row() {
        let logits = [0.5_f32, -1.0, 2.0, 0.0, 1.5];
        let total: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
        for candidate in best_tokens(Logits::All(&logits), 3, &anything()).expect("finite") {
            let expected = f64::from(logits[candidate.token as usize]) - total.ln();
            assert!((candidate.log_probability - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn a_shift_of_the_row_changes_nothing_and_large_logits_do_not_overflow() {
        let best = best_tokens(Logits::All(&[0.0, 0.0, 0.0, 1000.0, 999.0]), 2, &anything())
            .expect("finite");
        assert!((best[0].log_probability + 0.313_261_687_5).abs() < 1e-6);
        assert!((best[1].log_probability + 1.313_261_687_5).abs() < 1e-6);
    }
}
