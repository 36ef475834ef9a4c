//! Scores of hostile variants of a test set, that is, of copies with lines that were changed to be
//! harder to translate.

use serde::Serialize;

/// Score of translations of hostile lines (changed to be harder to translate), and of the same
/// lines before they were changed.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct HostileScore {
    /// Score of the translations of the hostile lines.
    pub score: f64,
    /// Score of the translations of the unchanged lines.
    pub clean: f64,
    /// Ratio of `score` to `clean` in per cent; `None` if `clean` is 0.
    pub share: Option<f64>,
}

/// Scores of one hostile variant of a test set.
#[derive(Debug, Clone, Serialize)]
pub struct HostileScores {
    /// Name of the variant: the kind of change to the lines.
    pub variant: &'static str,
    /// Number of hostile lines of this variant.
    pub lines: usize,
    /// BLEU. If the lines of the variant are single words, this is instead the percentage of
    /// translated words that occur in the reference of the whole line.
    pub bleu: HostileScore,
    /// chrF2; `None` if the lines of the variant are single words, which have no references of
    /// their own.
    pub chrf: Option<HostileScore>,
}

/// Scores of the hostile variants of a test set.
#[derive(Debug, Clone, Serialize)]
pub struct HostileTestSet {
    /// Name of the split.
    pub split: String,
    /// Direction of translation, such as `en-de`; `None` for a model with a single direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// Scores of each variant that has any lines.
    pub variants: Vec<HostileScores>,
}

impl HostileTestSet {
    /// Lines of a report for people, with a table.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let heads = ["lines", "BLEU", "clean", "share", "chrF2", "clean", "share"];
        let heads: String = heads.map(|head| format!("{head:>8}")).concat();
        let mut lines = vec![format!("{}, made hostile", self.split), format!("{:<18}{heads}", "")];
        for HostileScores { variant, lines: count, bleu, chrf } in &self.variants {
            let scores: String = [Some(bleu), chrf.as_ref()].map(cells).concat();
            lines.push(format!("  {variant:<16}{count:>8}{scores}").trim_end().to_owned());
        }
        if self.variants.iter().any(|one| one.chrf.is_none()) {
            lines.push(
                "  (one word: percentage of its translation that the reference has)".to_owned(),
            );
        }
        lines
    }
}

fn cells(score: Option<&HostileScore>) -> String {
    let Some(HostileScore { score, clean, share }) = score else { return String::new() };
    let share = share.map_or_else(|| "–".to_owned(), |share| format!("{share:.1} %"));
    format!("{score:>8.2}{clean:>8.2}{share:>8}")
}
