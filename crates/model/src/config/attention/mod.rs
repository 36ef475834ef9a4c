//! Self-attention of a stack: its kinds and their settings, and the shape of its heads.

mod checks;
mod kinds;
mod shape;

pub use kinds::{AttentionKind, LayerKinds};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Self-attention of the layers of a stack. Attention of a decoder to an encoder is always full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AttentionConfig {
    /// Kind of attention.
    #[schemars(extend("x-idle" = ["not-transformer", "kind-of-each-layer"]))]
    pub kind: AttentionKind,
    /// Kind of each layer, from first to last, if they differ: `["2 linear", "full"]` for three
    /// layers. The other keys apply to all layers of their kind. Empty: all layers are of `kind`.
    pub kinds: LayerKinds,
    /// Number of tokens of a block. `window`, `dilation`, `global_first`, `global_last` and
    /// `random` are counted in blocks: choose 1 for a window counted in tokens, and 32 or more with
    /// random blocks.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-sparse"]))]
    pub block: usize,
    /// Width of the window: blocks at less than this distance are seen, where a token's own block
    /// has distance 0. With a window of w, a decoder sees w blocks, and an encoder 2w − 1.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-sparse"]))]
    pub window: usize,
    /// Distance from one block of the window to the next.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-sparse"]))]
    pub dilation: usize,
    /// Number of blocks, at the beginning of a sequence, that see all tokens and are seen by all
    /// tokens.
    #[schemars(extend("x-idle" = ["not-sparse"]))]
    pub global_first: usize,
    /// Number of blocks, at the end of a sequence, that see all tokens and are seen by all tokens;
    /// it must be 0 in a decoder.
    #[schemars(extend("x-idle" = ["not-sparse"]))]
    pub global_last: usize,
    /// Number of random blocks that each block sees in addition, drawn separately for each head.
    #[schemars(extend("x-idle" = ["not-sparse"]))]
    pub random: usize,
    /// Number of random features of a Performer's head; more of them reduce the error of the
    /// estimate.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-performer"]))]
    pub features: usize,
    /// Number of updates after which a Performer's features are redrawn in training; 0 never does.
    /// Outside of training the features of `seed` are used.
    #[schemars(extend("x-idle" = ["not-performer"]))]
    pub redraw_every: usize,
    /// Number of sums of keys, and of values, that a Linformer attends to.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-linformer"]))]
    pub rank: usize,
    /// Longest sequence of a Linformer, in tokens; it has a trained weight for each position.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-linformer"]))]
    pub length: usize,
    /// Rounds of hashing of a Reformer: with more rounds, fewer nearby tokens are missed. Rounds
    /// are independent, so a model can be evaluated with more of them.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-weights" = ["changeable"]), extend("x-idle" = ["not-reformer"]))]
    pub hash_rounds: usize,
    /// Number of buckets of a round: an even number, or 1.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-reformer"]))]
    pub hash_buckets: usize,
    /// Number of tokens of a chunk. Each token attends to its own chunk and to the chunk before it.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-reformer"]))]
    pub hash_chunk: usize,
    /// Number of tokens in a chunk of hierarchical attention, and number of chunks that form a
    /// chunk of the next level.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-hierarchical"]))]
    pub chunk: usize,
    /// Levels of summaries of hierarchical attention: with one, all other chunks are seen by their
    /// summaries; with each further level, chunks that are farther away are seen by summaries of
    /// summaries. With enough levels, such as 10, the cost grows as n log n.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-hierarchical"]))]
    pub levels: usize,
    /// Number of tokens of a segment of a Transformer-XL.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-weights" = ["changeable"]), extend("x-idle" = ["not-transformer-xl"]))]
    pub segment: usize,
    /// Number of tokens before its segment that a token of a Transformer-XL sees. A trained model
    /// can be evaluated with a larger number.
    #[schemars(extend("x-weights" = ["changeable"]), extend("x-idle" = ["not-transformer-xl"]))]
    pub memory: usize,
    /// Whether every token of a Transformer-XL sees equally many tokens: itself and the `memory -
    /// 1` tokens before it, instead of its segment and the whole memory. For evaluation (Dai et al.
    /// 2019, section 4.1).
    #[schemars(extend("x-idle" = ["not-transformer-xl"]))]
    pub same_length: bool,
    /// The largest distance between tokens that a Transformer-XL distinguishes. Larger distances
    /// count as this one, so that a model can be evaluated with more memory than in training; 0
    /// sets no limit.
    #[schemars(extend("x-idle" = ["not-transformer-xl"]))]
    pub clamp_distance: usize,
    /// Seed of random blocks, features and rotations.
    #[schemars(extend("x-idle" = ["attention-without-draws"]))]
    pub seed: u64,
}

impl Default for AttentionConfig {
    fn default() -> Self {
        Self {
            kind: AttentionKind::default(),
            kinds: LayerKinds::default(),
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
            hash_rounds: 4,
            hash_buckets: 16,
            hash_chunk: 64,
            chunk: 64,
            levels: 1,
            segment: 64,
            memory: 64,
            same_length: false,
            clamp_distance: 0,
            seed: 1,
        }
    }
}

impl AttentionConfig {
    /// Kind of the layer with the index `layer`, from 0, in the stack.
    #[must_use]
    pub fn kind_of(&self, layer: usize) -> AttentionKind {
        self.kinds.0.get(layer).copied().unwrap_or(self.kind)
    }

    /// True if any layer is of this kind.
    #[must_use]
    pub fn has(&self, kind: AttentionKind) -> bool {
        match self.kinds.0.as_slice() {
            [] => self.kind == kind,
            layers => layers.contains(&kind),
        }
    }

    /// Name of the key, `kind` or `kinds`, that sets the kinds of these layers, for messages.
    pub(in crate::config) fn key(&self) -> &'static str {
        if self.kinds.0.is_empty() { "kind" } else { "kinds" }
    }
}
