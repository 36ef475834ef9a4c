//! Kinds of self-attention: of a single layer, and of the layers of a stack.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest number of layers that one entry of a list of kinds, such as "2 linear", can name.
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
    /// No softmax: the weight of a value is (elu(q) + 1) · (elu(k) + 1), so that one sum represents
    /// all past tokens (Katharopoulos et al. 2020). It ignores `attention_dropout`, since it
    /// computes no weights.
    Linear,
    /// The softmax over all tokens, estimated with random features, so that one sum represents all
    /// past tokens (Choromanski et al. 2021). It ignores `attention_dropout`, since it computes no
    /// weights.
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
    /// A softmax over the tokens of the same segment and of a memory of earlier tokens, without a
    /// gradient through the memory, with relative positions (Dai et al. 2019, "Transformer-XL").
    /// Only for decoders.
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

    /// True if the layer is a state-space layer, configured in `[model.state_space]`, in place of
    /// attention.
    #[must_use]
    pub fn is_state_space(self) -> bool {
        matches!(self, Self::Mamba | Self::S4d)
    }

    /// True if this build has the kind. `Full` and `Sparse` are in every build; the other kinds
    /// need the cargo feature `kinds`.
    #[must_use]
    pub fn is_built(self) -> bool {
        cfg!(feature = "kinds") || matches!(self, Self::Full | Self::Sparse)
    }

    /// Name of the sublayer of this kind in the names of parameters.
    pub(crate) fn sublayer(self) -> &'static str {
        if self.is_state_space() { "state_space" } else { "self_attention" }
    }

    /// Name of the kind in recipes (configuration files).
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
pub struct LayerKinds(pub(super) Vec<AttentionKind>);

impl LayerKinds {
    /// Makes a list with one kind for each layer.
    #[must_use]
    pub fn new(kinds: &[AttentionKind]) -> Self {
        Self(kinds.to_vec())
    }

    /// True if the list is empty.
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
