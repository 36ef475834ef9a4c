//! Checks of the settings of a search.

use super::DecodingConfig;
use crate::reranking::{PruningConfig, RerankingConfig, Utility};
use crate::{DecodingError, Result};

/// Upper bound of the beam size. It is far above any useful size (compare Stahlberg and Byrne 2019,
/// "On NMT Search Errors and Model Errors: Cat Got Your Tongue?").
const WIDEST_BEAM: usize = 1 << 16;

/// Upper bound of the factors in scores. It is far above any useful factor. With larger factors,
/// scores could overflow.
const MOST: f64 = 1e6;

impl DecodingConfig {
    /// Checks that every value is in its range.
    ///
    /// # Errors
    /// [`DecodingError::Config`] for the first value that is out of range.
    pub fn validate(&self) -> Result<()> {
        self.validate_sizes()?;
        self.validate_groups()?;
        self.validate_lengths()?;
        self.validate_sampling()?;
        self.validate_reranking()?;
        self.validate_penalties()?;
        if self.n_best > self.beam_size && !self.sampling.is_active() {
            let expected = format!("at most decoding.beam_size, {}", self.beam_size);
            return Err(refused("n_best", self.n_best, expected));
        }
        if self.min_length > self.max_length {
            let expected = format!("at most decoding.max_length, {}", self.max_length);
            return Err(refused("min_length", self.min_length, expected));
        }
        Ok(())
    }

    /// Checks every value, like [`validate`](Self::validate), and also that the expected lengths,
    /// which `shortfall_penalty` needs, have been measured.
    ///
    /// # Errors
    /// [`DecodingError::Config`] for the first value that a search cannot use, or
    /// [`DecodingError::UnknownLength`].
    pub fn validate_search(&self) -> Result<()> {
        self.validate()?;
        if self.shortfall_penalty > 0.0 && self.expected_length.is_unknown() {
            return Err(DecodingError::UnknownLength);
        }
        Ok(())
    }

    fn validate_sizes(&self) -> Result<()> {
        for (key, value) in [("beam_size", self.beam_size), ("n_best", self.n_best)] {
            at_least_one(key, value)?;
            if value > WIDEST_BEAM {
                return Err(refused(key, value, format!("at most {WIDEST_BEAM}")));
            }
        }
        at_least_one("max_length", self.max_length)?;
        at_least_one("batch_tokens", self.batch_tokens)?;
        at_least_one("batch_rows", self.batch_rows)
    }

    fn validate_groups(&self) -> Result<()> {
        let groups = self.diverse_groups;
        at_least_one("diverse_groups", groups)?;
        from_0("diverse_penalty", self.diverse_penalty, MOST)?;
        if groups == 1 {
            return Ok(());
        }
        if self.sampling.is_active() {
            let expected = "1 if translations are sampled, which no search divides".to_owned();
            return Err(refused("diverse_groups", groups, expected));
        }
        if !self.beam_size.is_multiple_of(groups) {
            let expected =
                format!("a number that divides decoding.beam_size, {}, evenly", self.beam_size);
            return Err(refused("diverse_groups", groups, expected));
        }
        if self.diverse_penalty == 0.0 {
            let expected = format!("above 0 with decoding.diverse_groups = {groups}");
            return Err(refused("diverse_penalty", self.diverse_penalty, expected));
        }
        Ok(())
    }

    fn validate_lengths(&self) -> Result<()> {
        // The length penalty is an exponent, so it has a smaller bound.
        from_0("length_penalty", self.length_penalty, 100.0)?;
        from_0("length_reward", self.length_reward, MOST)?;
        from_0("shortfall_penalty", self.shortfall_penalty, MOST)?;
        from_0("expected_length.ratio", self.expected_length.ratio, MOST)?;
        let offset = self.expected_length.offset;
        if !(-MOST..=MOST).contains(&offset) {
            let expected = format!("from -{MOST} to {MOST}");
            return Err(refused("expected_length.offset", offset, expected));
        }
        from_0("max_length_ratio", self.max_length_ratio, f64::MAX)?;
        from_0("patience", self.patience, f64::MAX)
    }

    fn validate_sampling(&self) -> Result<()> {
        from_0("sampling.temperature", self.sampling.temperature, MOST)?;
        if !(self.sampling.top_p > 0.0 && self.sampling.top_p <= 1.0) {
            let expected = "above 0 and at most 1".to_owned();
            return Err(refused("sampling.top_p", self.sampling.top_p, expected));
        }
        if !(0.0..1.0).contains(&self.sampling.epsilon) {
            let expected = "from 0 to below 1".to_owned();
            return Err(refused("sampling.epsilon", self.sampling.epsilon, expected));
        }
        Ok(())
    }

    fn validate_penalties(&self) -> Result<()> {
        // Beyond these bounds, logits could overflow f32.
        if !(0.01..=100.0).contains(&self.repetition_penalty) {
            let expected = "from 0.01 to 100".to_owned();
            return Err(refused("repetition_penalty", self.repetition_penalty, expected));
        }
        for (key, value) in [
            ("presence_penalty", self.presence_penalty),
            ("frequency_penalty", self.frequency_penalty),
        ] {
            if !(-2.0..=2.0).contains(&value) {
                return Err(refused(key, value, "from -2 to 2".to_owned()));
            }
        }
        Ok(())
    }

    fn validate_reranking(&self) -> Result<()> {
        let RerankingConfig { candidates, utility_weight, model_weight, .. } = self.reranking;
        let RerankingConfig { reverse_weight, language_model_weight, .. } = self.reranking;
        if candidates == 1 || candidates > WIDEST_BEAM {
            let expected = format!("0 for none, or from 2 to {WIDEST_BEAM}");
            return Err(refused("reranking.candidates", candidates, expected));
        }
        // The search for candidates needs a beam of at least this size that its groups divide.
        let groups = self.diverse_groups;
        let most = WIDEST_BEAM - WIDEST_BEAM % groups;
        if candidates > most {
            let expected = format!("at most {most} with decoding.diverse_groups = {groups}");
            return Err(refused("reranking.candidates", candidates, expected));
        }
        from_0("reranking.utility_weight", utility_weight, MOST)?;
        from_0("reranking.model_weight", model_weight, MOST)?;
        from_0("reranking.reverse_weight", reverse_weight, MOST)?;
        from_0("reranking.language_model_weight", language_model_weight, MOST)?;
        self.validate_pruning()
    }

    fn validate_pruning(&self) -> Result<()> {
        let PruningConfig { confidence, references, resamples } = self.reranking.pruning;
        from_0("reranking.pruning.confidence", confidence, 1.0)?;
        for (key, value) in [
            ("reranking.pruning.references", references),
            ("reranking.pruning.resamples", resamples),
        ] {
            at_least_one(key, value)?;
            if value > WIDEST_BEAM {
                return Err(refused(key, value, format!("at most {WIDEST_BEAM}")));
            }
        }
        if !(self.reranking.is_active() && self.reranking.pruning.is_active()) {
            return Ok(());
        }
        let needs = |reason: &str| {
            refused("reranking.pruning.confidence", confidence, format!("0 {reason}"))
        };
        if !self.sampling.is_active() {
            return Err(needs(
                "with decoding.sampling.temperature = 0: it is estimated from samples, and the \
                 candidates of a beam are not samples",
            ));
        }
        if self.reranking.utility == Utility::AggregatedChrf {
            return Err(needs(
                "with decoding.reranking.utility = \"aggregated-chrf\", which compares each \
                 candidate only once",
            ));
        }
        Ok(())
    }
}

fn refused(key: &'static str, value: impl std::fmt::Debug, expected: String) -> DecodingError {
    // The debug format writes huge numbers with an exponent, not with hundreds of digits.
    let value = format!("{value:?}");
    DecodingError::Config { key, value, expected }
}

fn at_least_one(key: &'static str, value: usize) -> Result<()> {
    if value == 0 {
        return Err(refused(key, value, "at least 1".to_owned()));
    }
    Ok(())
}

fn from_0(key: &'static str, value: f64, most: f64) -> Result<()> {
    if (0.0..=most).contains(&value) {
        return Ok(());
    }
    let expected = match most == f64::MAX {
        true => "a finite number from 0 up".to_owned(),
        false => format!("from 0 to {most}"),
    };
    Err(refused(key, value, expected))
}
