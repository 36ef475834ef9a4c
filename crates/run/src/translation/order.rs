//! Order (task description) of a translation: the weights, settings and texts on which the result
//! depends. Equal orders give equal translations.

use std::fmt::Debug;
use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use taper_data::SpelledSpecial;
use taper_trainer::read_state;

use super::TranslationSettings;
use crate::{LoadedRun, RunFolder};

/// Weights, settings and texts that determine a translation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Checksum of the checkpoint of each model that translates or chooses among candidates.
    pub weights: Vec<String>,
    /// Settings of the search and of its output.
    pub settings: String,
    /// SHA-256 of each text, such as the lines to translate and the prefixes.
    pub texts: Vec<String>,
}

impl Order {
    /// Order for a translation by `run` with `settings`. `form`: form of the output. `texts`:
    /// hashes of the texts.
    ///
    /// # Errors
    /// When a member of the ensemble, a model that chooses among candidates, or the shortlist
    /// (target tokens that translations may contain) cannot be read.
    pub fn new(
        run: &LoadedRun,
        settings: &TranslationSettings,
        form: impl Debug,
        texts: &[String],
    ) -> Result<Self> {
        let mut weights = vec![run.state.checksum.clone()];
        let choosing = settings.decoding.reranking.models();
        for other in settings.ensemble.iter().map(PathBuf::as_path).chain(choosing) {
            let (_, checkpoint) = RunFolder::of_weights(other)?;
            weights.push(read_state(&checkpoint)?.checksum);
        }
        let mut same = settings.clone();
        // The number of texts that are translated at once does not change translations.
        same.decoding.batch_rows = 0;
        same.decoding.batch_tokens = 0;
        let mut settings = format!("{form:?} {same:?} {}", run.weights());
        if same.decoding.shortlist {
            settings.push_str(&format!(" shortlist {}", run.shortlist.get()?.checksum));
        }
        match run.tokenizers.source().spelled_rule() {
            SpelledSpecial::Text => {}
            rule => settings.push_str(&format!(" special tokens: {rule:?}")),
        }
        // The prefix of sources is part of the recipe, which a user can override.
        let prefix = &run.config.data.source_prefix;
        let trained = run.state.identity.recipe.get("data");
        let trained = trained.and_then(|data| data["source_prefix"].as_str());
        if trained.unwrap_or_default() != prefix {
            settings.push_str(&format!(" source prefix {prefix:?}"));
        }
        Ok(Self { weights, settings, texts: texts.to_vec() })
    }

    /// Hash of the order, as a key under which results can be stored.
    #[must_use]
    pub fn key(&self) -> String {
        let mut hash = Sha256::new();
        for part in self.weights.iter().chain([&self.settings]).chain(&self.texts) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        hex(&hash.finalize())
    }
}

/// Hexadecimal digits of a hash.
pub(crate) fn hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
