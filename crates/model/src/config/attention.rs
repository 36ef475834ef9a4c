//! Kinds of self-attention, and settings that they exclude.

use super::{Positions, bounds};
use crate::ModelError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest number of layers in one entry of a list.
const MOST_LAYERS: usize = 10_000;

/// A kind of self-attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionKind {
    /// A softmax over all tokens, in a decoder over all past ones (Vaswani et al. 2017, section
    /// 3.2).
    #[default]
    Full,
    /// A softmax over a window, global tokens and blocks drawn from a seed (Beltagy et al. 2020,
    /// "Longformer"; Zaheer et al. 2020, "Big Bird").
    Sparse,
    /// No softmax: the weight of a value is (elu(q) + 1) · (elu(k) + 1), so that a sum stands for
    /// all past tokens (Katharopoulos et al. 2020). There are no weights for `attention_dropout` to
    /// drop.
    Linear,
    /// The softmax over all tokens, estimated with random features, so that a sum stands for all
    /// past tokens (Choromanski et al. 2021). There are no weights for `attention_dropout` to drop.
    Performer,
    /// A softmax over `rank` sums of keys, each over the whole sequence with trained weights (Wang
    /// et al. 2020). Only for encoders, and sequences of up to `length`.
    Linformer,
    /// A softmax over the tokens in the same buckets of `hash_rounds` random rotations, in chunks;
    /// queries and keys share one projection (Kitaev et al. 2020).
    Reformer,
    /// A softmax over the tokens of the same chunk and summaries of other chunks, by default one
    /// summary each (Zhu and Soricut 2021, "H-Transformer-1D").
    Hierarchical,
    /// A softmax over the tokens of the same segment and of a memory of earlier ones, through which
    /// no gradient flows, with relative positions (Dai et al. 2019, "Transformer-XL"). Only for
    /// decoders.
    TransformerXl,
    /// A selective state-space layer in place of attention, by default also of the feed-forward
    /// layer (Gu and Dao 2023, "Mamba").
    Mamba,
    /// A state-space layer without selection: a diagonal S4, which treats all tokens alike (Gu et
    /// al. 2022).
    S4d,
}

impl AttentionKind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Full,
        Self::Sparse,
        Self::Linear,
        Self::Performer,
        Self::Linformer,
        Self::Reformer,
        Self::Hierarchical,
        Self::TransformerXl,
        Self::Mamba,
        Self::S4d,
    ];

    /// Whether it is a state-space layer of `[model.state_space]`, in place of attention.
    #[must_use]
    pub fn is_state_space(self) -> bool {
        matches!(self, Self::Mamba | Self::S4d)
    }

    /// Name of the sublayer within its layer, in the names of parameters.
    pub(crate) fn sublayer(self) -> &'static str {
        if self.is_state_space() { "state_space" } else { "self_attention" }
    }

    /// Name in recipes.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Sparse => "sparse",
            Self::Linear => "linear",
            Self::Performer => "performer",
            Self::Linformer => "linformer",
            Self::Reformer => "reformer",
            Self::Hierarchical => "hierarchical",
            Self::TransformerXl => "transformer-xl",
            Self::Mamba => "mamba",
            Self::S4d => "s4d",
        }
    }
}

/// Attention kinds of the layers of a stack, first to last.
///
/// As text, consecutive layers of one kind are one entry: `["2 linear", "full"]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
#[schemars(with = "Vec<String>", extend("x-values" = "a list of kinds"))]
pub struct LayerKinds(Vec<AttentionKind>);

impl LayerKinds {
    /// Makes a list with one kind for each layer.
    #[must_use]
    pub fn new(kinds: &[AttentionKind]) -> Self {
        Self(kinds.to_vec())
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TryFrom<Vec<String>> for LayerKinds {
    type Error = String;

    fn try_from(entries: Vec<String>) -> Result<Self, String> {
        let mut kinds = Vec::new();
        for entry in &entries {
            let (count, name) = entry.split_once(' ').unwrap_or(("1", entry));
            let kind = AttentionKind::ALL.into_iter().find(|kind| kind.name() == name.trim());
            let count = count.parse().ok().filter(|count| (1..=MOST_LAYERS).contains(count));
            let (Some(kind), Some(count)) = (kind, count) else {
                return Err(format!(
                    "{entry:?} is no kind of attention, nor a number of layers and a kind, such \
                     as \"2 linear\": there are {}",
                    AttentionKind::ALL.map(AttentionKind::name).join(", ")
                ));
            };
            kinds.extend(std::iter::repeat_n(kind, count));
        }
        Ok(Self(kinds))
    }
}

impl From<LayerKinds> for Vec<String> {
    fn from(kinds: LayerKinds) -> Self {
        let entry = |same: &[AttentionKind]| match same {
            [kind] => kind.name().to_owned(),
            several => format!("{} {}", several.len(), several[0].name()),
        };
        kinds.0.chunk_by(|a, b| a == b).map(entry).collect()
    }
}

/// Self-attention of the layers of a stack. Attention of a decoder to an encoder is always full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AttentionConfig {
    /// The kind.
    #[schemars(extend("x-idle" = ["not-transformer", "kind-of-each-layer"]))]
    pub kind: AttentionKind,
    /// The kind of each layer, first to last, if they differ: `["2 linear", "full"]` for three. The
    /// other keys apply to all layers of their kind. Empty: all layers are of `kind`.
    pub kinds: LayerKinds,
    /// Tokens of a block, the unit of window, dilation, global and random blocks: 1 for a window
    /// counted in tokens, 32 or more with random blocks.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-sparse"]))]
    pub block: usize,
    /// Blocks at less than this distance are seen, a token's own block being at 0: this many in a
    /// decoder, twice as many less one in an encoder.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-sparse"]))]
    pub window: usize,
    /// Distance from one block of the window to the next.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-sparse"]))]
    pub dilation: usize,
    /// Blocks at the beginning of a sequence that see all tokens and are seen by all.
    #[schemars(extend("x-idle" = ["not-sparse"]))]
    pub global_first: usize,
    /// Blocks at the end of a sequence that see all tokens and are seen by all; 0 in a decoder.
    #[schemars(extend("x-idle" = ["not-sparse"]))]
    pub global_last: usize,
    /// Additional random blocks that each block of each head sees.
    #[schemars(extend("x-idle" = ["not-sparse"]))]
    pub random: usize,
    /// Random features of a head of a Performer: the error of the estimate falls with their number.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-performer"]))]
    pub features: usize,
    /// In training, a Performer's features are drawn anew after this many updates; 0 never does.
    /// Everything else uses the features of `seed`.
    #[schemars(extend("x-idle" = ["not-performer"]))]
    pub redraw_every: usize,
    /// Sums of keys, and of values, that a Linformer attends to.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-linformer"]))]
    pub rank: usize,
    /// Tokens of the longest sequence of a Linformer, which has a trained weight for each position.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-linformer"]))]
    pub length: usize,
    /// Rounds of hashing of a Reformer: with more rounds, fewer nearby tokens are missed. Each
    /// round draws by itself, so that a model can be evaluated with more.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-weights" = ["changeable"]), extend("x-idle" = ["not-reformer"]))]
    pub hash_rounds: usize,
    /// Buckets of a round: an even number, or 1 for a single bucket.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-reformer"]))]
    pub hash_buckets: usize,
    /// Tokens of a chunk; each attends within its own chunk and the one before.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-reformer"]))]
    pub hash_chunk: usize,
    /// Tokens of a chunk of hierarchical attention, and chunks of one level in a chunk of the next.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-hierarchical"]))]
    pub chunk: usize,
    /// Levels of summaries of hierarchical attention: with one, all other chunks are seen by their
    /// summaries; with each further level, chunks that are farther away are seen by summaries of
    /// summaries. As many as possible, such as 10, make the cost grow as n log n.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-idle" = ["not-hierarchical"]))]
    pub levels: usize,
    /// Tokens of a segment of a Transformer-XL.
    #[schemars(range(min = 1))]
    #[schemars(extend("x-weights" = ["changeable"]), extend("x-idle" = ["not-transformer-xl"]))]
    pub segment: usize,
    /// Tokens before its segment that a token of a Transformer-XL sees; a trained model can be
    /// evaluated with more.
    #[schemars(extend("x-weights" = ["changeable"]), extend("x-idle" = ["not-transformer-xl"]))]
    pub memory: usize,
    /// Whether every token of a Transformer-XL sees equally many: itself and the `memory - 1`
    /// tokens before it, in place of its segment and the whole memory. For evaluation (Dai et al.
    /// 2019, section 4.1).
    #[schemars(extend("x-idle" = ["not-transformer-xl"]))]
    pub same_length: bool,
    /// The largest distance of a Transformer-XL: larger ones count as this one, so that a model can
    /// be evaluated with more memory than it was trained on; 0 sets no bound.
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
    /// Kind of a layer of the stack, counted from 0.
    #[must_use]
    pub fn kind_of(&self, layer: usize) -> AttentionKind {
        self.kinds.0.get(layer).copied().unwrap_or(self.kind)
    }

    /// Whether any layer is of this kind.
    #[must_use]
    pub fn has(&self, kind: AttentionKind) -> bool {
        match self.kinds.0.as_slice() {
            [] => self.kind == kind,
            layers => layers.contains(&kind),
        }
    }

    /// Name of the key that sets the kind, for messages.
    fn key(&self) -> &'static str {
        if self.kinds.0.is_empty() { "kind" } else { "kinds" }
    }

    /// Checks that the kind is possible and fits the rest of the model; `section` is its section in
    /// the recipe.
    pub(super) fn validate(
        &self,
        (section, causal): (&str, bool),
        layers: usize,
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
            ("hash_rounds", self.hash_rounds),
            ("hash_buckets", self.hash_buckets),
            ("hash_chunk", self.hash_chunk),
            ("chunk", self.chunk),
            ("levels", self.levels),
            ("segment", self.segment),
        ] {
            bounds::size(&format!("{section}.{name}"), value, bounds::TOKENS)?;
        }
        if self.hash_buckets > 1 && !self.hash_buckets.is_multiple_of(2) {
            return refuse(format!(
                "{section}.hash_buckets = {}: a rotation has two buckets for each of its vectors, \
                 so that it must be even, or 1",
                self.hash_buckets
            ));
        }
        let named = self.kinds.0.len();
        if named > 0 && named != layers {
            let stack = if causal { "decoder" } else { "encoder" };
            return refuse(format!(
                "{section}.kinds names the kinds of {named} layers, and model.{stack}_layers = \
                 {layers}: let it name as many, or none"
            ));
        }
        if self.has(AttentionKind::Sparse) && causal && self.global_last > 0 {
            return refuse(format!(
                "{section}.global_last = {}: a decoder does not know which tokens are the last, \
                 so that it must be 0 there",
                self.global_last
            ));
        }
        if self.has(AttentionKind::Linformer) {
            if causal {
                return refuse(format!(
                    "{section}.{} = \"linformer\" sums keys over the whole sequence, but a \
                     decoder must not see later tokens: use \"linear\" or \"performer\" there",
                    self.key()
                ));
            }
            if self.rank > self.length {
                return refuse(format!(
                    "{section}.rank = {} is more than the {} tokens of {section}.length: there \
                     must be fewer sums than keys",
                    self.rank, self.length
                ));
            }
        }
        if self.has(AttentionKind::TransformerXl) {
            if !causal {
                return refuse(format!(
                    "{section}.{} = \"transformer-xl\" keeps a memory of earlier segments, but \
                     an encoder sees all tokens at once: use it in decoders",
                    self.key()
                ));
            }
            if self.same_length && self.memory == 0 {
                return refuse(format!(
                    "{section}.same_length = true lets a token see itself and the memory - 1 \
                     before it, and {section}.memory = 0: it must be at least 1"
                ));
            }
            if positions != Positions::None {
                return refuse(format!(
                    "{section}.{} = \"transformer-xl\" has relative positions of its own: \
                     set model.positions = \"none\", not \"{}\"",
                    self.key(),
                    positions.name()
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
                    "sums keys over all positions before they meet a query, so that it has no \
                     distances, on which",
                )
            }
            (AttentionKind::Reformer, Positions::T5 | Positions::Alibi) => {
                Some("sorts tokens into chunks, which have no table of distances, on which")
            }
            (AttentionKind::Hierarchical, Positions::T5 | Positions::Alibi) => {
                Some("has summaries of chunks, which are at no single distance, on which")
            }
            _ => None,
        };
        for kind in AttentionKind::ALL.into_iter().filter(|&kind| self.has(kind)) {
            if let Some(why) = why(kind) {
                let rotary = match kind {
                    AttentionKind::Performer
                    | AttentionKind::Reformer
                    | AttentionKind::Hierarchical => ", or \"rotary\"",
                    _ => "",
                };
                return refuse(format!(
                    "{section}.{} = \"{}\" {why} model.positions = \"{}\" acts: use positions \
                     that are added to embeddings (\"sinusoidal\", \"sinusoidal-halves\" or \
                     \"learned\"){rotary}",
                    self.key(),
                    kind.name(),
                    positions.name()
                ));
            }
        }
        Ok(())
    }
}
