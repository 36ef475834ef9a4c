//! Best translation of each line of a text, with links between words of the line and words of the
//! translation.

use anyhow::Result;

use super::LineTranslator;
use super::links::{in_characters, links};

/// Best translation of each line of a text.
#[derive(Debug, Default)]
pub(crate) struct BestTranslations {
    /// Translations in the order of the lines.
    pub(crate) texts: Vec<String>,
    /// Number of lines that have too many tokens, so that they were translated in parts, or only
    /// their beginning was translated.
    pub(crate) overlong: usize,
    /// Number of translations that end only because they reached the maximum length.
    pub(crate) truncated: usize,
    /// For each line, links between parts of the line and parts of its translation. A link has four
    /// indices of characters: start and end of the part of the line, then start and end of the part
    /// of the translation. `None` if no alignment is requested.
    pub(crate) links: Option<Vec<Vec<[usize; 4]>>>,
}

impl LineTranslator<'_> {
    /// Best translation of each line.
    ///
    /// # Errors
    /// See [`Self::translate`].
    pub(crate) fn best(
        &self,
        lines: &[String],
        progress: impl FnMut(usize),
    ) -> Result<BestTranslations> {
        self.best_linked(lines, "", progress)
    }

    /// Best translation of each line, with links if alignments are requested. `source_prefix`: text
    /// that the tokenizer puts before each line.
    ///
    /// # Errors
    /// See [`Self::translate`].
    pub(crate) fn best_linked(
        &self,
        lines: &[String],
        source_prefix: &str,
        progress: impl FnMut(usize),
    ) -> Result<BestTranslations> {
        let of_lines = self.detail.alignments.then(|| Vec::with_capacity(lines.len()));
        let mut best_translations =
            BestTranslations { links: of_lines, ..BestTranslations::default() };
        for (text, line) in lines.iter().zip(self.translate(lines, &[], 1, progress)?) {
            let line = line?;
            let best = line.translations.into_iter().next();
            best_translations.overlong += usize::from(line.overlong.is_some());
            best_translations.truncated +=
                usize::from(best.as_ref().is_some_and(|best| best.truncated));
            let (translation, aligned) =
                best.map_or_else(Default::default, |best| (best.text, best.alignment));
            if let Some(of_lines) = &mut best_translations.links {
                let aligned = aligned.unwrap_or_default();
                let linked = links(source_prefix, text, &translation, &aligned);
                of_lines.push(in_characters(text, &translation, linked));
            }
            best_translations.texts.push(translation);
        }
        Ok(best_translations)
    }
}
