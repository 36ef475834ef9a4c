//! Settings of captions of images: the `[data.captions]` table of a recipe (the TOML file with all
//! settings of a training).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Captions of images. A table has its own captions. Other images get one of `sentences`, in which
/// `{label}` stands for the label, `{brightness}` for `dark` or `bright`, and `{shape}` for `tall`,
/// `wide` or `square`, according to the pixels.
///
/// If an image has several captions, each epoch draws one of them by seed and image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CaptionsConfig {
    /// Sentences that describe images with labels. Pixels above 15 of 255 form the object, the
    /// others its background. The object is bright if the mean of its pixels is at least 128, tall
    /// if it is higher than wide by a quarter, and wide if it is wider than high by a quarter.
    #[schemars(extend("x-idle" = ["captions-in-table"]))]
    pub sentences: Vec<String>,
    /// Sentences with `{label}` by which a model of the task `image-text` predicts the labels of
    /// images; the embedding of a label is the mean over its sentences. Without prompts, the
    /// probability of a label is the sum over all `sentences` with this label, with every word in
    /// place of `{brightness}` and `{shape}`.
    #[schemars(extend("x-idle" = ["captions-in-table", "not-image-text"]))]
    pub prompts: Vec<String>,
    /// Largest number of tokens of a caption. Longer captions are omitted, and so are images
    /// without another caption.
    #[schemars(range(min = 1))]
    pub max_tokens: usize,
}

impl Default for CaptionsConfig {
    fn default() -> Self {
        Self {
            sentences: ["a photo of a {brightness} {label}"].map(str::to_owned).to_vec(),
            prompts: Vec::new(),
            max_tokens: 75,
        }
    }
}
