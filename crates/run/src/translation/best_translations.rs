//! Best translation of each line of a text, with links between the words of both.

use anyhow::Result;

use super::LineTranslator;
use super::links::{in_characters, links};

/// Best translation of each line of a text.
#[derive(Debug, Default)]
pub(crate) struct BestTranslations {
    /// Translations in the order of the lines.
    pub(crate) texts: Vec<String>,
    /// Number of lines that were translated in parts, or of which only the beginning was
    /// translated, because they have too many tokens.
    pub(crate) overlong: usize,
    /// Number of translations that end only because they reached the maximum length.
    pub(crate) truncated: usize,
    /// Links between parts of each line and of its translation. A link has the first character and
    /// the end of the part of the line, and then the same of the translation. `None` without
    /// alignment.
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

    /// Best translation of each line, with links if alignments are requested. `source_prefix` is
    /// the text that the tokenizer puts before each line.
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
