//! `taper bench decode`: speed and memory of a run's translation.

use std::time::Instant;

use anyhow::{Result, ensure};
use serde::Serialize;
use taper_decoding::DecodingConfig;

use crate::arguments::BenchDecode;
use crate::text::{print_line, read_lines};
use taper_run::translation::{LineTranslator, TranslationSettings, for_the_best};

/// Measurements that the command prints.
#[derive(Debug, Serialize)]
struct Report {
    sentences: usize,
    /// Number of output tokens, including one `</s>` for each line, or for each part of a line that
    /// was divided because it is too long.
    tokens: usize,
    /// Beam size; `None` if translations are sampled.
    beam_size: Option<usize>,
    decoding: DecodingConfig,
    threads: usize,
    /// Type in which matrices are multiplied.
    weights: String,
    /// Seconds from the start of the command to the translation of the first line that is not
    /// blank, including loading the model.
    first_translation_seconds: f64,
    /// Seconds of each repeat, including tokenisation and detokenisation.
    seconds: Vec<f64>,
    /// Sentences per second, computed from the median of `seconds`.
    sentences_per_second: f64,
    tokens_per_second: f64,
    /// Peak memory of the process, in bytes; `None` if the system does not report it.
    peak_memory: Option<u64>,
}

impl Report {
    fn print(&self) -> Result<()> {
        let how = match self.beam_size {
            Some(beam) => format!("beam {beam}"),
            None => format!("drawn at temperature {}", self.decoding.sampling.temperature),
        };
        print_line(&format!(
            "{} sentences, {} tokens, {how}, {}, {} threads",
            self.sentences, self.tokens, self.weights, self.threads
        ))?;
        print_line(&format!(
            "first translation   {:.3} s after the start",
            self.first_translation_seconds
        ))?;
        print_line(&format!(
            "sentences / second  {:.1} (median of {})",
            self.sentences_per_second,
            self.seconds.len()
        ))?;
        print_line(&format!("tokens / second     {:.0}", self.tokens_per_second))?;
        match self.peak_memory {
            Some(bytes) => print_line(&format!("peak memory         {:.1} MB", bytes as f64 / 1e6)),
            None => print_line("peak memory         unknown on this system"),
        }
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &BenchDecode) -> Result<()> {
    let began = Instant::now();
    ensure!(arguments.repeats != 0, "--repeats must be at least 1");
    let lines = read_lines(&arguments.input)?;
    ensure!(!lines.is_empty(), "{}: no line to translate", arguments.input.display());
    let run = arguments.weights.load(&arguments.run, &arguments.set)?;
    let mut settings = TranslationSettings::from_config(&run.config);
    arguments.search.apply(&mut settings.decoding, None)?;
    let decoding = for_the_best(&settings.decoding).with_candidates();
    let translator = LineTranslator::new(&run, &settings)?;
    decode(&translator, first_to_translate(&lines))?;
    let first_translation_seconds = began.elapsed().as_secs_f64();

    let mut tokens = 0;
    let mut seconds = Vec::new();
    for _ in 0..arguments.repeats {
        let began = Instant::now();
        tokens = decode(&translator, &lines)?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    let typical = median(&seconds);
    let report = Report {
        sentences: lines.len(),
        tokens,
        beam_size: (!decoding.sampling.is_active()).then_some(decoding.beam_size),
        decoding,
        threads: rayon::current_num_threads(),
        weights: run.weights().to_owned(),
        first_translation_seconds,
        seconds,
        sentences_per_second: lines.len() as f64 / typical,
        tokens_per_second: tokens as f64 / typical,
        peak_memory: taper_run::checks::memory::peak(),
    };
    if arguments.json {
        return print_line(&serde_json::to_string(&report)?);
    }
    report.print()
}

/// Translates lines of text as `taper translate` does; returns the number of tokens of the best
/// translations.
fn decode(translator: &LineTranslator<'_>, lines: &[String]) -> Result<usize> {
    let found = translator.translate(lines, &[], 1, |_| {})?;
    found.map(|line| Ok(line?.translations.first().map_or(0, |best| best.length))).sum()
}

/// Returns the first line that is not blank, because blank lines are translated without the model;
/// the first line if all are blank.
fn first_to_translate(lines: &[String]) -> &[String] {
    let first = lines.iter().position(|line| !line.trim().is_empty()).unwrap_or(0);
    &lines[first..=first]
}

/// Returns the median; for an even number of values, the mean of the middle two.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    } else {
        sorted[middle]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_are_no_warm_up() {
        let lines = ["", " \t", "one", "two"].map(str::to_owned);
        assert_eq!(first_to_translate(&lines), ["one"]);
        assert_eq!(first_to_translate(&lines[..2]), [""]);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
