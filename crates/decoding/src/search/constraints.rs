//! Constraints on the next token, and penalties on repeated tokens.

use crate::model::columns::RowTokens;
use crate::search::phrases::Progress;
use crate::tokens::SpecialIds;
use crate::{DecodingConfig, OutputLimits, SearchRules, Sentence};

/// Constraints on the next token of one hypothesis.
#[derive(Clone, Debug)]
pub(crate) struct Constraints<'a> {
    /// Ids with a special role.
    special: &'a SpecialIds,
    /// Whether tokens that end the output are allowed.
    end: bool,
    /// Whether tokens that do not end the output are allowed.
    others: bool,
    /// Whether `<unk>` is allowed, if `others` is true.
    unknown: bool,
    /// The only allowed token, if there is one; it overrides the other constraints.
    pub(crate) forced: Option<u32>,
    /// Whether the token adds nothing to the score, because no other token is allowed.
    pub(crate) is_free: bool,
    /// Tokens that are candidates even if they are unlikely, because a phrase needs them.
    pub(crate) needed: Vec<u32>,
    /// Tokens that would complete an n-gram that has occurred before.
    banned: Vec<u32>,
    /// Tokens whose repetition is penalised, each once, with the number of its occurrences in the
    /// output.
    pub(crate) repeated: Vec<(u32, usize)>,
    /// Factor of the repetition penalty: it divides positive logits, and multiplies negative ones.
    penalty: f32,
    /// Presence penalty: it is subtracted once from the logit of a token that the output contains.
    presence: f32,
    /// Frequency penalty: it is subtracted once for each occurrence of the token in the output.
    frequency: f32,
}

impl<'a> Constraints<'a> {
    /// Makes the constraints on the token that follows `length` output tokens.
    ///
    /// If the configuration [needs earlier tokens](looks_back), `history` must end with the output
    /// tokens. Before them, `history` can have the tokens of the source. These count for the ban on
    /// repeated n-grams and, by the rules of the library Transformers, for the repetition penalty.
    ///
    /// At the maximum length, the end is forced. Unless the rules are those of Transformers, its
    /// log-probability counts, so that every translation is a complete sentence whose score
    /// includes its end.
    pub(crate) fn after(
        special: &'a SpecialIds,
        length: usize,
        history: &[u32],
        sentence: &Sentence<'_>,
        limits: OutputLimits,
        config: &DecodingConfig,
    ) -> Self {
        let mut repeated = Vec::new();
        if config.penalises() {
            let (before, output) = history.split_at(history.len().saturating_sub(length));
            let before = if config.rules == SearchRules::Exact { &before[..0] } else { before };
            let before = before.iter().map(|&token| (token, 0));
            let output = output.iter().map(|&token| (token, 1));
            let mut counts: Vec<(u32, usize)> = before.chain(output).collect();
            counts.sort_unstable();
            let of_same = counts.chunk_by(|(one, _), (other, _)| one == other);
            repeated
                .extend(of_same.map(|same| (same[0].0, same.iter().map(|(_, count)| count).sum())));
        }
        let forced = sentence.prefix.get(length).copied();
        let others = length < limits.max_length;
        Self {
            special,
            end: length >= limits.min_length,
            others,
            unknown: config.allow_unknown,
            forced,
            is_free: config.rules != SearchRules::Exact && (forced.is_some() || !others),
            needed: Vec::new(),
            banned: run_ends(history, config.no_repeat_ngram),
            repeated,
            penalty: config.repetition_penalty as f32,
            presence: config.presence_penalty as f32,
            frequency: config.frequency_penalty as f32,
        }
    }

    /// Adds the constraints of phrases that the output must contain: an end is not admitted before
    /// the hypothesis contains all phrases, except at the maximum length.
    pub(crate) fn containing(mut self, progress: Progress, phrases: &[Vec<u32>]) -> Self {
        if !progress.is_complete(phrases) {
            self.end &= !self.others;
            self.needed = progress.next_tokens(phrases);
        }
        self
    }

    pub(crate) fn admits(&self, token: u32) -> bool {
        if let Some(forced) = self.forced {
            return token == forced;
        }
        if self.special.is_end(token) {
            // If the output must end, only one of several end tokens is admitted, so that the
            // search need not find the likeliest of them.
            return self.end && (self.others || token == self.special.end());
        }
        let is_refused = self.special.is_never(token)
            || (self.special.is_unknown(token) && !self.unknown)
            || self.banned.contains(&token);
        self.others && !is_refused
    }

    /// Returns an upper bound of the number of tokens that are refused while tokens other than ends
    /// are admitted. At most this many tokens can be likelier than the likeliest admitted token.
    pub(crate) fn refused(&self) -> usize {
        self.special.count() + self.banned.len()
    }

    /// Returns the token whose logit is needed even if it is unlikely: the forced token if there is
    /// one, otherwise the end, which can be the only admitted token.
    pub(crate) fn asked(&self) -> u32 {
        self.forced.unwrap_or(self.special.end())
    }

    /// Returns the logits by which the search ranks `tokens`: the model's logits with the penalties
    /// on repeated tokens. Returns `None` if there are no repeated tokens; the search then ranks
    /// tokens by the model's logits.
    pub(crate) fn penalised(&self, logits: &[f32], tokens: RowTokens<'_>) -> Option<Vec<f32>> {
        if self.repeated.is_empty() {
            return None;
        }
        let mut logits = logits.to_vec();
        for &(token, times) in &self.repeated {
            let column = tokens.column(token);
            if let Some(logit) = column.and_then(|column| logits.get_mut(column)) {
                *logit = if *logit > 0.0 { *logit / self.penalty } else { *logit * self.penalty };
                if times > 0 {
                    *logit -= self.presence + self.frequency * times as f32;
                }
            }
        }
        Some(logits)
    }
}

/// Whether [`Constraints::after`] needs earlier tokens in `history`.
pub(crate) fn looks_back(config: &DecodingConfig) -> bool {
    config.penalises() || config.no_repeat_ngram > 0
}

/// Finds the tokens that would repeat an n-gram of `size` tokens: those that followed an earlier
/// occurrence of the `size - 1` tokens with which `history` ends.
fn run_ends(history: &[u32], size: usize) -> Vec<u32> {
    if size == 0 || history.len() < size {
        return Vec::new();
    }
    let beginning = &history[history.len() + 1 - size..];
    history
        .windows(size)
        .filter_map(|run| run.split_last())
        .filter(|(_, start)| *start == beginning)
        .map(|(last, _)| *last)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::{END, OURS};

    #[test]
    fn a_run_may_not_end_as_it_did_before() {
        assert_eq!(run_ends(&[7, 8, 9, 7, 8], 3), [9]);
        assert_eq!(run_ends(&[7, 8, 9, 7, 8], 2), [9]);
        assert_eq!(run_ends(&[7, 8, 9], 1), [7, 8, 9]);
        assert!(run_ends(&[7, 8, 9, 7, 8], 4).is_empty());
        assert!(run_ends(&[7, 8], 3).is_empty());
        assert!(run_ends(&[7, 7, 7], 0).is_empty());
    }

    #[test]
    fn what_was_said_before_the_output_counts_for_runs_alone() {
        let config = DecodingConfig {
            repetition_penalty: 2.0,
            no_repeat_ngram: 2,
            ..DecodingConfig::default()
        };
        let sentence =
            Sentence { source: &[7, 8, 9], prefix: &[], phrases: &[], candidates: None, number: 0 };
        let limits = sentence.limits(&config, None);
        let constraints = Constraints::after(&OURS, 1, &[7, 8, 9, 7], &sentence, limits, &config);
        assert_eq!(constraints.banned, [8]);
        assert_eq!(constraints.repeated, [(7, 1)]);

        // By the rules of Transformers, the repetition penalty also applies to tokens of the
        // prompt.
        let config =
            DecodingConfig { rules: SearchRules::Transformers, presence_penalty: 0.5, ..config };
        let constraints = Constraints::after(&OURS, 1, &[7, 8, 8, 7], &sentence, limits, &config);
        assert_eq!(constraints.repeated, [(7, 1), (8, 0)]);
        let logits = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 3.0];
        assert_eq!(
            constraints.penalised(&logits, RowTokens::All).expect("penalised")[7..],
            [1.0, 1.5]
        );
    }

    #[test]
    fn penalised_logits_fall_on_either_side_of_zero() {
        let config = DecodingConfig { repetition_penalty: 2.0, ..DecodingConfig::default() };
        let sentence =
            Sentence { source: &[5, END], prefix: &[], phrases: &[], candidates: None, number: 0 };
        let limits = sentence.limits(&config, None);
        let constraints = Constraints::after(&OURS, 3, &[4, 5, 4], &sentence, limits, &config);
        let logits = [0.0, 0.0, 0.0, 0.0, 3.0, -3.0, 1.0];
        assert_eq!(
            constraints.penalised(&logits, RowTokens::All).expect("penalised"),
            [0.0, 0.0, 0.0, 0.0, 1.5, -6.0, 1.0]
        );
    }

    #[test]
    fn any_end_may_come_and_one_is_forced() {
        let config = DecodingConfig::default();
        let sentence =
            Sentence { source: &[5, END], prefix: &[], phrases: &[], candidates: None, number: 0 };
        let special = SpecialIds::new(7, &[2, 7], [9, 8]);
        let limits = OutputLimits { min_length: 1, max_length: 2, expected: 0.0 };
        let admitted = |length| -> Vec<u32> {
            let constraints = Constraints::after(&special, length, &[], &sentence, limits, &config);
            (0..10).filter(|&token| constraints.admits(token)).collect()
        };
        assert_eq!(admitted(0), [0, 1, 3, 4, 5, 6]);
        assert_eq!(admitted(1), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(admitted(2), [7]);
    }

    #[test]
    fn presence_counts_once_and_frequency_each_time() {
        let config = DecodingConfig {
            presence_penalty: 0.5,
            frequency_penalty: -0.25,
            ..DecodingConfig::default()
        };
        let sentence =
            Sentence { source: &[5, END], prefix: &[], phrases: &[], candidates: None, number: 0 };
        let limits = sentence.limits(&config, None);
        let constraints = Constraints::after(&OURS, 3, &[4, 5, 4], &sentence, limits, &config);
        let logits = [0.0, 0.0, 0.0, 0.0, 3.0, -3.0, 1.0];
        let expected = [0.0, 0.0, 0.0, 0.0, 3.0, -3.25, 1.0];
        assert_eq!(constraints.penalised(&logits, RowTokens::All).expect("penalised"), expected);
    }
}
