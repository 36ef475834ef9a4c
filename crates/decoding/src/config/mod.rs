//! Settings of a search, and the limits that follow from them.

mod choices;
mod sampling;
mod validation;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lengths::{ExpectedLength, LengthSettings, gnmt_penalty};
use crate::reranking::RerankingConfig;

pub use choices::{CachePrecision, LengthPenaltyForm, SearchRules};
pub use sampling::SamplingConfig;

/// Default of `diverse_penalty`, the same as in fairseq. Vijayakumar et al. 2018 find values from
/// 0.2 to 0.8 good.
const USUAL_DIVERSE_PENALTY: f64 = 0.5;

/// Search for translations.
///
/// The penalty of 0.6 comes from Vaswani et al. 2017, "Attention Is All You Need", section 6.1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DecodingConfig {
    /// Number of hypotheses that are followed at once; 1 is greedy search.
    #[schemars(range(min = 1, max = 65_536))]
    #[schemars(
        extend("x-names" = "beam beams beam_width beamsize num_beams max_beam"),
        extend("x-idle" = ["no-beam", "drawn"])
    )]
    pub beam_size: usize,
    /// Number of translations to return per sentence, best first; at most `beam_size`, unless they
    /// are sampled. If fewer are wanted, the search can stop earlier.
    #[schemars(range(min = 1, max = 65_536))]
    #[schemars(extend("x-names" = "nbest num_return_sequences"))]
    pub n_best: usize,
    /// Number of groups of a diverse beam search, which finds translations that differ more
    /// (Vijayakumar et al. 2018, "Diverse Beam Search"). Each group has an equal share of the beam,
    /// so `beam_size` must be a multiple. Groups are searched separately, except that
    /// `diverse_penalty` keeps a group from the tokens of earlier groups. 1: a beam without groups.
    #[serde(skip_serializing_if = "is_one")]
    #[schemars(range(min = 1, max = 65_536))]
    #[schemars(
        extend("x-names" = "num_beam_groups diverse_beam_groups beam_groups"),
        extend("x-idle" = ["no-beam"])
    )]
    pub diverse_groups: usize,
    /// Penalty on a token, for each hypothesis of earlier groups that has this token at the same
    /// position; it is subtracted from the hypothesis's log-probability in the search. If it is not
    /// set, it is 0.5.
    #[serde(skip_serializing_if = "is_usual_penalty")]
    #[schemars(range(min = 0.0))]
    #[schemars(
        extend("x-names" = "diversity_penalty diverse_beam_strength diversity_strength"),
        extend("x-idle" = ["no-beam", "no-groups"])
    )]
    pub diverse_penalty: f64,
    /// Exponent `α` of the length penalty; 0 compares plain log-probabilities, which favours short
    /// output.
    #[schemars(range(min = 0.0, max = 100.0))]
    #[schemars(
        extend("x-names" = "lenpen len_pen alpha length_alpha beam_alpha length_penalty_alpha \
            normalize"),
        extend("x-idle" = ["no-beam"])
    )]
    pub length_penalty: f64,
    /// Base of the length penalty: the number, for a translation of `n` tokens, that is raised to
    /// the power `α`. The `</s>` at the end counts as a token.
    #[schemars(extend("x-idle" = ["no-beam", "no-length-penalty"]))]
    pub length_penalty_form: LengthPenaltyForm,
    /// Rules that decide when a search stops, what forced tokens cost, and whether the output at
    /// the maximum length has an end. The rules on forced tokens and ends also apply to greedy
    /// search and to sampling.
    #[serde(skip_serializing_if = "SearchRules::is_default")]
    pub rules: SearchRules,
    /// Reward added to the score for each token, including `</s>`: for models whose output is too
    /// short for any `α`, because their probabilities are flat (He et al. 2016, "Improved Neural
    /// Machine Translation with SMT Features", section 3; Murray and Chiang 2018, "Correcting
    /// Length Bias in Neural Machine Translation").
    #[schemars(range(min = 0.0))]
    #[schemars(
        extend("x-names" = "word_reward word_penalty length_bonus"),
        extend("x-idle" = ["no-beam"])
    )]
    pub length_reward: f64,
    /// Weight `β` of the penalty on translations that are shorter than expected. For a translation
    /// of `n` tokens where `L` are expected, the score falls by `β · max(0, L/n - 1)`, and the
    /// length penalty counts at most `L` tokens, so that further tokens gain nothing (Huang et al.
    /// 2017, "When to Finish?"; Yang et al. 2018, "Breaking the Beam Search Curse"). Unlike a
    /// reward, it cannot make translations longer than `L`. 0: no penalty.
    #[serde(skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0.0))]
    #[schemars(extend("x-idle" = ["no-beam", "not-translation"]))]
    pub shortfall_penalty: f64,
    /// Expected length of a translation.
    #[serde(skip_serializing_if = "ExpectedLength::is_unknown")]
    #[schemars(extend("x-idle" = ["no-beam", "not-translation"]))]
    pub expected_length: ExpectedLength,
    /// A sentence's search stops once `beam_size * patience` hypotheses have finished (Kasai et al.
    /// 2024, "A Call for Clarity in Beam Search: How It Works and When It Stops"), or earlier if
    /// nothing can change the result any more. 0: only the second rule applies.
    #[schemars(range(min = 0.0))]
    #[schemars(extend("x-idle" = ["no-beam", "drawn"]))]
    pub patience: f64,
    /// Number of output tokens allowed per source token; both are counted without `</s>`.
    #[schemars(range(min = 0.0))]
    #[schemars(extend("x-names" = "max_len_a"), extend("x-idle" = ["not-translation"]))]
    pub max_length_ratio: f64,
    /// Number of output tokens allowed on top of `max_length_ratio` times the source length.
    #[schemars(extend("x-idle" = ["not-translation"]))]
    pub max_length_offset: usize,
    /// Largest number of output tokens, whatever the length of the source.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-names" = "max_output_length max_new_tokens max_len_b max_decode_length"))]
    pub max_length: usize,
    /// Smallest number of output tokens, without `</s>`. If it exceeds the largest number for a
    /// source, the largest number applies.
    pub min_length: usize,
    /// Whether the output may contain `<unk>`.
    #[schemars(extend("x-names" = "unkpen allow_unk"))]
    pub allow_unknown: bool,
    /// Penalty on tokens that the output already contains: divides their positive logits and
    /// multiplies their negative ones (after Keskar et al. 2019, "CTRL"); 1 changes nothing.
    #[schemars(range(min = 0.01, max = 100.0))]
    pub repetition_penalty: f64,
    /// Penalty on tokens that the output already contains, as in OpenAI's API: subtracted from
    /// their logits; 0 changes nothing. For clients, not for recipes.
    #[serde(skip)]
    pub presence_penalty: f64,
    /// The same penalty, once for each occurrence in the output.
    #[serde(skip)]
    pub frequency_penalty: f64,
    /// Length of the sequences of tokens that must not occur twice in an output, or in a prompt and
    /// its continuation together; 0 allows all repetitions.
    #[schemars(extend("x-names" = "no_repeat_ngram_size block_ngram_repeat"))]
    pub no_repeat_ngram: usize,
    /// Whether a translation contains only tokens that the run's shortlist has for its source, so
    /// that the output projection computes few logits. Validation in training computes all. Other
    /// tasks than translation refuse it.
    #[serde(skip_serializing_if = "is_false")]
    #[schemars(extend("x-names" = "vmap use_vmap lexical_shortlist"))]
    pub shortlist: bool,
    /// Type in which keys and values of earlier tokens are kept while a text is generated. Compared
    /// with f32, "bf16" takes half of the memory and "int8" about a quarter; both change
    /// probabilities slightly, and need the CPU.
    #[serde(skip_serializing_if = "CachePrecision::is_exact")]
    #[schemars(
        extend("x-names" = "kv_cache_dtype cache_dtype cache_type_k cache_type_v"),
        extend("x-idle" = ["not-language-model"])
    )]
    pub cache: CachePrecision,
    /// Random sampling of translations instead of search.
    pub sampling: SamplingConfig,
    /// Choice among several translations of each text.
    #[serde(skip_serializing_if = "RerankingConfig::is_default")]
    #[schemars(extend("x-idle" = ["not-translation"]))]
    pub reranking: RerankingConfig,
    /// Largest number of source tokens decoded at a time, each counted once per hypothesis: in one
    /// batch, or on a CPU in the batches of all threads together. A sentence that exceeds the limit
    /// is a batch by itself.
    #[schemars(range(min = 1))]
    pub batch_tokens: usize,
    /// Largest number of hypotheses decoded at a time; a batch has at least one sentence. On a CPU,
    /// threads take separate batches if there are 32 hypotheses for each thread.
    #[schemars(range(min = 1))]
    pub batch_rows: usize,
}

impl Default for DecodingConfig {
    fn default() -> Self {
        Self {
            beam_size: 5,
            n_best: 1,
            diverse_groups: 1,
            diverse_penalty: USUAL_DIVERSE_PENALTY,
            length_penalty: 0.6,
            length_penalty_form: LengthPenaltyForm::Gnmt,
            rules: SearchRules::Exact,
            length_reward: 0.0,
            shortfall_penalty: 0.0,
            expected_length: ExpectedLength::default(),
            patience: 0.0,
            max_length_ratio: 2.0,
            max_length_offset: 10,
            max_length: 512,
            min_length: 0,
            allow_unknown: false,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            no_repeat_ngram: 0,
            shortlist: false,
            cache: CachePrecision::Exact,
            sampling: SamplingConfig::default(),
            reranking: RerankingConfig::default(),
            batch_tokens: 4096,
            batch_rows: 256,
        }
    }
}

/// Limits on the length of the output for one source; lengths are in tokens, without `</s>`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutputLimits {
    /// Smallest number of tokens before `</s>`.
    pub min_length: usize,
    /// Number of tokens after which `</s>` is forced.
    pub max_length: usize,
    /// Expected number of tokens, or 0 if none is known. If `shortfall_penalty` is above 0, shorter
    /// outputs are penalised.
    pub expected: f64,
}

impl DecodingConfig {
    /// Returns a configuration whose search finds as many candidates as reranking needs. If tokens
    /// are sampled, the search draws this many outputs; otherwise, its beam is at least this wide.
    /// Without reranking, the configuration is unchanged. A valid configuration stays valid.
    #[must_use]
    pub fn with_candidates(self) -> Self {
        if !self.reranking.is_active() {
            return self;
        }
        let n_best = self.n_best.max(self.reranking.candidates);
        let is_drawn = self.sampling.is_active();
        let widened = self.beam_size.max(n_best).next_multiple_of(self.diverse_groups.max(1));
        let beam_size = if is_drawn { self.beam_size } else { widened };
        Self { n_best, beam_size, ..self }
    }

    /// Returns the settings for the search of a single group in a diverse beam search.
    pub(crate) fn of_group(&self) -> Self {
        let beam_size = self.beam_size / self.diverse_groups.max(1);
        Self { beam_size, n_best: self.n_best.min(beam_size), ..self.clone() }
    }

    /// Computes the score by which hypotheses of different lengths are compared: `log_probability`
    /// divided by the length penalty; plus the length reward for each token; minus the shortfall
    /// penalty if the hypothesis is shorter than `limits.expected`. `log_probability` is that of
    /// `length` tokens, including `</s>`. For a fixed `log_probability` of at most 0, the score
    /// never falls if `length` grows.
    pub fn score(&self, log_probability: f64, length: usize, limits: OutputLimits) -> f64 {
        let (length, expected) = (length as f64, limits.expected + 1.0);
        let expects = self.shortfall_penalty > 0.0;
        // If a length is expected, the length penalty does not grow beyond it. Otherwise models
        // with flat probabilities would make endless translations.
        let counted = if expects { length.min(expected) } else { length };
        // An output without any token, not even `</s>`, is divided by the penalty of one token:
        // the penalty of length 0 can be 0, and 0/0 is NaN.
        let counted = counted.max(1.0);
        let penalty = match self.length_penalty_form {
            LengthPenaltyForm::Gnmt => gnmt_penalty(counted, self.length_penalty),
            LengthPenaltyForm::Power => counted.powf(self.length_penalty),
        };
        let score = log_probability / penalty + self.length_reward * length;
        match expects {
            true => score - self.shortfall_penalty * (expected / length.max(1.0) - 1.0).max(0.0),
            false => score,
        }
    }

    /// Returns the number of finished hypotheses that a beam search keeps for each sentence while
    /// it runs.
    pub(crate) fn kept(&self) -> usize {
        match self.rules {
            SearchRules::Exact => self.n_best,
            SearchRules::Transformers | SearchRules::TransformersOpen => self.beam_size,
        }
    }

    /// Whether the search changes the logits of tokens that the output already contains.
    pub(crate) fn penalises(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
    }

    /// Returns the limits on the output for a source of `source_length` tokens, not counting
    /// `</s>`.
    pub fn output_limits(&self, source_length: usize) -> OutputLimits {
        // A conversion from float to integer saturates, so with a huge ratio only `max_length`
        // limits the output.
        let by_ratio = (self.max_length_ratio * source_length as f64).floor() as usize;
        let max_length = by_ratio.saturating_add(self.max_length_offset).min(self.max_length);
        OutputLimits {
            min_length: self.min_length.min(max_length),
            max_length,
            expected: self.expected_length.predict(source_length),
        }
    }
}

impl LengthSettings {
    /// Returns the length settings of `config`.
    #[must_use]
    pub fn from_config(config: &DecodingConfig) -> Self {
        let &DecodingConfig { length_penalty, length_reward, shortfall_penalty, .. } = config;
        Self { length_penalty, length_reward, shortfall_penalty }
    }

    /// Replaces the length settings of `config` by the values of `self`.
    pub fn apply(self, config: &mut DecodingConfig) {
        let Self { length_penalty, length_reward, shortfall_penalty } = self;
        config.length_penalty = length_penalty;
        config.length_reward = length_reward;
        config.shortfall_penalty = shortfall_penalty;
    }
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn is_one(value: &usize) -> bool {
    *value == 1
}

fn is_usual_penalty(value: &f64) -> bool {
    *value == USUAL_DIVERSE_PENALTY
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}
