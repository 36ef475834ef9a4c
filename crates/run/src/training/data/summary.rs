//! Summary of the data of a training, printed before the training begins and saved as `data.json`.

use serde::Serialize;
use taper_data::{
    BatchingReport, CaptionReport, CorpusReport, DataReport, ImageReport, RegressionReport, Report,
    SideReport, TextReport, UsualLengths,
};

use crate::numbers::bytes;

/// Summary of the data of a training: `data.json`.
#[derive(Debug, Serialize)]
pub struct DataSummary<'a> {
    /// Report on the training split.
    pub train: Report<'a>,
    /// Report on the validation split; `None` if there is no such split.
    pub validation: Option<Report<'a>>,
    /// Number of tokens of the source vocabulary.
    pub source_vocabulary: usize,
    /// Number of tokens of the target vocabulary.
    pub target_vocabulary: usize,
    /// True if source and target share one vocabulary.
    #[serde(skip)]
    pub is_joint: bool,
    /// Estimated memory for the activations of the largest training batch, in bytes.
    pub largest_batch_bytes: u64,
}

impl DataSummary<'_> {
    /// Lines of text that describe the data, for printing.
    pub fn lines(&self) -> Vec<String> {
        let splits = || [Some(self.train), self.validation].into_iter().flatten();
        let mut lines: Vec<String> = splits().flat_map(split_lines).collect();
        let largest = bytes(self.largest_batch_bytes);
        match self.train {
            Report::Pairs(report) => {
                lines.extend([&report.source, &report.target].map(lengths_line));
                lines.push(format!(
                    "{}; the largest needs at most about {largest}",
                    batches_of_pairs(&report.batching)
                ));
            }
            Report::Text(TextReport { batching, .. }) => lines.push(format!(
                "batches: {} an epoch, of {} blocks of {} tokens; one needs at most about \
                 {largest}",
                batching.batches, batching.largest_sentences, batching.longest_target
            )),
            Report::Images(ImageReport { batching, .. }) => lines.push(format!(
                "batches: {} an epoch, of {} images of {} tokens; one needs at most about \
                 {largest}",
                batching.batches, batching.largest_sentences, batching.longest_target
            )),
            Report::Functions(RegressionReport { batching, .. }) => lines.push(format!(
                "batches: {} an epoch, of {} functions of {} tokens; one needs at most about \
                 {largest}",
                batching.batches, batching.largest_sentences, batching.longest_target
            )),
            Report::Captions(CaptionReport { images: ImageReport { batching, .. }, .. }) => {
                lines.push(format!(
                    "batches: {} an epoch, of {} images of {} tokens and captions of at most {}; \
                     one needs at most about {largest}",
                    batching.batches,
                    batching.largest_sentences,
                    batching.longest_source,
                    batching.longest_target
                ));
            }
        }
        lines.extend(match (self.train, self.is_joint) {
            (Report::Images(_) | Report::Functions(_), _) => None,
            (Report::Text(_) | Report::Captions(_), _) => {
                Some(format!("vocabulary: {} tokens", self.target_vocabulary))
            }
            (_, true) => Some(format!("vocabulary: {} tokens, joint", self.source_vocabulary)),
            (_, false) => Some(format!(
                "vocabulary: {} source and {} target tokens",
                self.source_vocabulary, self.target_vocabulary
            )),
        });
        lines
    }
}

/// Lines that describe a split.
fn split_lines(report: Report<'_>) -> Vec<String> {
    match report {
        Report::Pairs(report) => pair_lines(report),
        Report::Images(report) => {
            let of_classes = &report.of_classes;
            let least = of_classes.iter().min().copied().unwrap_or(0);
            let most = of_classes.iter().max().copied().unwrap_or(0);
            let classes = of_classes.len();
            vec![format!("{}; {classes} classes of {least} to {most}", images_line(report))]
        }
        Report::Captions(report) => {
            let CaptionReport { images, captions, different, left_out, images_left_out, .. } =
                report;
            let left_out = match left_out {
                0 => String::new(),
                _ => format!(
                    "; {left_out} have too many tokens, and {images_left_out} images no others"
                ),
            };
            vec![format!(
                "{}; {captions} captions, {different} of them different{left_out}",
                images_line(images)
            )]
        }
        Report::Functions(report) => {
            let RegressionReport {
                split, drawn_anew, functions, dimensions, points, noise, ..
            } = report;
            let when = if *drawn_anew { " an epoch, drawn anew in each" } else { "" };
            vec![format!(
                "{split}: {functions} linear functions{when}; {points} points of {dimensions} \
                 dimensions, noise of deviation {noise}"
            )]
        }
        Report::Text(report) => {
            let share = |part: u64| part as f64 / report.tokens.max(1) as f64;
            vec![format!(
                "{}: {} characters in {} document(s), {} tokens of {:.2} characters, unknown \
                 {:.3} %",
                report.split,
                report.characters,
                report.documents,
                report.tokens,
                share(report.characters),
                100.0 * share(report.unknown)
            )]
        }
    }
}

/// Lines that describe a split of sentence pairs.
fn pair_lines(report: &DataReport) -> Vec<String> {
    let DataReport { split, pairs_read, pairs_kept, dropped, source, target, .. } = report;
    let reasons = match dropped.total() {
        0 => String::new(),
        _ => format!(" ({dropped})"),
    };
    let pairs = format!(
        "{split}: {pairs_read} pairs read, {pairs_kept} kept, {} dropped{reasons}",
        dropped.total()
    );
    let held_out = (report.held_out > 0).then(|| {
        format!(
            "  {} more are omitted, because their source is held out for validation",
            report.held_out
        )
    });
    let several = report.corpora.iter().filter(|_| report.corpora.len() > 1);
    let mut lines = vec![pairs];
    lines.extend(held_out);
    lines.extend(several.map(corpus_line));
    lines.extend([source, target].map(side_line));
    lines.extend(usual_lengths(&report.usual_lengths));
    lines
}

/// Lines of text with the usual ratios of target length to source length that were measured on the
/// data: one line for each direction of translation.
fn usual_lengths(all: &[UsualLengths]) -> Vec<String> {
    let class = |usual: &UsualLengths| {
        let up_to = match usual.most_characters {
            Some(most) => format!("to {most}"),
            None => "above".to_owned(),
        };
        format!("{up_to}: {:.2} ×÷ {:.2}", usual.ratio, usual.deviation.exp())
    };
    let line = |classes: &[UsualLengths]| {
        let list: Vec<String> = classes.iter().map(class).collect();
        format!(
            "  usual lengths {}, target characters per source character, by the characters of \
             both: {}",
            classes[0].direction,
            list.join(", ")
        )
    };
    all.chunk_by(|one, other| one.direction == other.direction).map(line).collect()
}

fn images_line(report: &ImageReport) -> String {
    let ImageReport { split, images, size, channels, .. } = report;
    format!("{split}: {images} images of {size} x {size} pixels in {channels} channel(s)")
}

fn lengths_line(side: &SideReport) -> String {
    let bins: Vec<String> = side
        .histogram
        .iter()
        .filter(|bin| bin.pairs > 0)
        .map(|bin| format!("{}-{}: {}", bin.from, bin.to, bin.pairs))
        .collect();
    format!("  lengths {}: {}", side.language, bins.join(", "))
}

fn batches_of_pairs(batching: &BatchingReport) -> String {
    let epochs = match batching.bidirectional_epochs {
        0 => format!("{} an epoch", batching.batches),
        epochs => format!(
            "{} an epoch in the first {epochs}, which go in both directions, then {}",
            batching.bidirectional_batches, batching.batches
        ),
    };
    format!(
        "batches: {epochs}, at most {} source and {} target tokens, {} sentences; packed, so \
         none is padding (rectangles would cost {:.1} %)",
        batching.largest_source_tokens,
        batching.largest_target_tokens,
        batching.largest_sentences,
        100.0 * batching.padding_cost
    )
}

fn corpus_line(corpus: &CorpusReport) -> String {
    let CorpusReport { name, pairs_read, pairs_kept, weight, tag } = corpus;
    let weight = if *weight == 1.0 { String::new() } else { format!(", weight {weight}") };
    let tag = if tag.is_empty() { String::new() } else { format!(", {tag} before each source") };
    format!("  {name}: {pairs_read} read, {pairs_kept} kept{weight}{tag}")
}

fn side_line(side: &SideReport) -> String {
    format!(
        "  {}: {} tokens, {:.1} a sentence, longest {}, unknown {:.3} %",
        side.language,
        side.tokens,
        side.mean_length,
        side.longest,
        100.0 * side.unknown_rate
    )
}
