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
    /// Sentences that describe images with labels. `{label}` stands for the label, `{brightness}`
    /// for "dark" or "bright", and `{shape}` for "tall", "wide" or "square". Both words depend on
    /// the object in the image, which is all pixels with values above 15 of 255. It is bright if
    /// the mean of its pixels is at least 128, tall if its height exceeds its width by at least a
    /// quarter, wide if its width exceeds its height by at least a quarter, and otherwise square.
    #[schemars(extend("x-idle" = ["captions-in-table"]))]
    pub sentences: Vec<String>,
    /// Sentences with `{label}`, for a model of the task `image-text` that is to predict the labels
    /// of images. The embedding of a label is the mean of the embeddings of these sentences with
    /// the label in place of `{label}`. Without prompts, the probability of a label is the sum over
    /// all `sentences` with this label, with every word in place of `{brightness}` and `{shape}`.
    #[schemars(extend("x-idle" = ["captions-in-table", "not-image-text"]))]
    pub prompts: Vec<String>,
    /// Largest number of tokens of a caption. Longer captions are omitted, and so are images that
    /// have no other caption.
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
