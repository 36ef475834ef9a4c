//! Kinds of self-attention, and what they do not go with.

use super::{ModelConfig, Positions};
use crate::ModelError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A kind of self-attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionKind {
    /// A softmax over all tokens, or in a decoder all past ones (Vaswani et al. 2017, section 3.2).
    #[default]
    Full,
    /// A softmax over a window, global tokens and blocks drawn from a seed (Beltagy et al. 2020,
    /// "Longformer"; Zaheer et al. 2020, "Big Bird").
    Sparse,
    /// No softmax: elu(q) + 1 times elu(k) + 1 weighs a value, so that a sum stands for all past
    /// tokens (Katharopoulos et al. 2020). There are no weights for `attention_dropout` to drop.
    Linear,
    /// The softmax over all tokens, estimated with random features, so that a sum stands for all
    /// past tokens (Choromanski et al. 2021). There are no weights for `attention_dropout` to drop.
    Performer,
    /// A softmax over `rank` sums of keys, each over the whole sequence with trained weights (Wang
    /// et al. 2020). For encoders alone, of sequences up to `length`.
    Linformer,
}

impl AttentionKind {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::Full, Self::Sparse, Self::Linear, Self::Performer, Self::Linformer];

    /// As a recipe has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Sparse => "sparse",
            Self::Linear => "linear",
            Self::Performer => "performer",
            Self::Linformer => "linformer",
        }
    }
}

/// What kind of self-attention the layers of a stack have. Attention of a decoder to an encoder is
/// always full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AttentionConfig {
    /// The kind.
    pub kind: AttentionKind,
    /// Tokens of a block, in which window, dilation, global and random blocks are counted: 1 for a
    /// window of tokens, 32 or more where blocks are drawn.
    #[schemars(range(min = 1))]
    pub block: usize,
    /// Blocks at less than this distance are seen, the token's own being at 0: in a decoder that
    /// many, in an encoder twice as many less one.
    #[schemars(range(min = 1))]
    pub window: usize,
    /// Distance from one block of the window to the next.
    #[schemars(range(min = 1))]
    pub dilation: usize,
    /// Blocks at the beginning of a sequence that see all and are seen by all.
    pub global_first: usize,
    /// The same at the end of a sequence; 0 in a decoder.
    pub global_last: usize,
    /// Blocks that each block of each head sees besides.
    pub random: usize,
    /// Random features of a head of a Performer: the error of an estimate falls with their number.
    #[schemars(range(min = 1))]
    pub features: usize,
    /// In training, a Performer's features are drawn anew after this many updates, and for all else
    /// they are those of `seed`; 0 never draws others.
    pub redraw_every: usize,
    /// Sums of keys, and of values, that a Linformer attends to.
    #[schemars(range(min = 1))]
    pub rank: usize,
    /// Tokens of the longest sequence of a Linformer, which has a trained weight for each position.
    #[schemars(range(min = 1))]
    pub length: usize,
    /// What random blocks and features are drawn from.
    pub seed: u64,
}

impl Default for AttentionConfig {
    fn default() -> Self {
        Self {
            kind: AttentionKind::default(),
            block: 1,
            window: 256,
            dilation: 1,
            global_first: 0,
            global_last: 0,
            random: 0,
            features: 128,
            redraw_every: 0,
            rank: 128,
            length: 512,
            seed: 1,
        }
    }
}

impl AttentionConfig {
    /// Whether a layer is of this kind.
    #[must_use]
    pub fn has(&self, kind: AttentionKind) -> bool {
        self.kind == kind
    }

    /// Checks that the kind can be and goes with the rest of the model; `section` is where it
    /// stands.
    pub(super) fn validate(
        &self,
        section: &str,
        causal: bool,
        positions: Positions,
    ) -> Result<(), ModelError> {
        let refuse = |message: String| Err(ModelError::Config(message));
        for (name, value) in [
            ("block", self.block),
            ("window", self.window),
            ("dilation", self.dilation),
            ("features", self.features),
            ("rank", self.rank),
            ("length", self.length),
        ] {
            if value == 0 {
                return refuse(format!("{section}.{name} = 0: it must be at least 1"));
            }
        }
        if self.has(AttentionKind::Sparse) && causal && self.global_last > 0 {
            return refuse(format!(
                "{section}.global_last = {}: a decoder does not know which tokens are the last, so that it must be 0 there",
                self.global_last
            ));
        }
        if self.has(AttentionKind::Linformer) {
            if causal {
                return refuse(format!(
                    "{section}.kind = \"linformer\" sums keys over the whole sequence, of which a decoder must not see what follows: use \"linear\" or \"performer\" there"
                ));
            }
            if self.rank > self.length {
                return refuse(format!(
                    "{section}.rank = {} is more than the {} tokens of {section}.length: sums of keys are to be fewer than keys",
                    self.rank, self.length
                ));
            }
        }
        let why = |kind| match (kind, positions) {
            (AttentionKind::Linear, Positions::T5 | Positions::Rotary | Positions::Alibi) => {
                Some("has no scores, on which")
            }
            (AttentionKind::Performer, Positions::T5 | Positions::Alibi) => {
                Some("has no scores of single tokens, on which")
            }
            (AttentionKind::Linformer, Positions::T5 | Positions::Rotary | Positions::Alibi) => {
                Some(
                    "sums keys over all positions before they meet a query, so that it has no distances, on which",
                )
            }
            _ => None,
        };
        for kind in AttentionKind::ALL.into_iter().filter(|&kind| self.has(kind)) {
            if let Some(why) = why(kind) {
                let rotary = if kind == AttentionKind::Performer { ", or \"rotary\"" } else { "" };
                return refuse(format!(
                    "{section}.kind = \"{}\" {why} model.positions = \"{}\" acts: use positions that are added to embeddings (\"sinusoidal\", \"sinusoidal-halves\" or \"learned\"){rotary}",
                    kind.name(),
                    match positions {
                        Positions::T5 => "t5",
                        Positions::Rotary => "rotary",
                        _ => "alibi",
                    }
                ));
            }
        }
        Ok(())
    }
}

/// Of both stacks: why keys change nothing, and which.
macro_rules! of_both {
    ($why:literal: $($key:literal),*) => {
        [
            (
                concat!("model.encoder_attention.", $why),
                &[$(concat!("model.encoder_attention.", $key)),*],
            ),
            (
                concat!("model.decoder_attention.", $why),
                &[$(concat!("model.decoder_attention.", $key)),*],
            ),
        ]
    };
}

impl ModelConfig {
    /// Keys of the kinds of attention that change nothing beside others: whether that is so, why,
    /// and which.
    #[must_use]
    pub fn attention_without_effect(&self) -> Vec<(bool, &'static str, &'static [&'static str])> {
        use AttentionKind::{Linformer, Performer, Sparse};
        type OfBoth = [(&'static str, &'static [&'static str]); 2];
        let rules: [(&[AttentionKind], OfBoth); 4] = [
            (
                &[Sparse],
                of_both!["kind is not \"sparse\"": "block", "window", "dilation", "global_first",
                    "global_last", "random"],
            ),
            (&[Performer], of_both!["kind is not \"performer\"": "features", "redraw_every"]),
            (&[Linformer], of_both!["kind is not \"linformer\"": "rank", "length"]),
            (&[Sparse, Performer], of_both!["kind draws nothing": "seed"]),
        ];
        let mut found = Vec::new();
        for (kinds, of_stacks) in rules {
            let stacks = [&self.encoder_attention, &self.decoder_attention];
            for (own, (why, keys)) in stacks.into_iter().zip(of_stacks) {
                found.push((!kinds.iter().any(|&kind| own.has(kind)), why, keys));
            }
        }
        found
    }
}
