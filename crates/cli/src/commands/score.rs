//! `taper score`: log-probabilities of given translations, texts and continuations.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use taper_decoding::Translator;

use crate::arguments::Score;
use crate::bars::sentence_bar;
use crate::text::{print_line, read_lines, say};
use taper_model::LanguageModel;
use taper_run::LoadedRun;
use taper_run::generation::TextScorer;
use taper_run::translation::{LineLimit, OverlongRule};
use taper_run::translation::{by_line, encode_sources};

/// Runs the command: one line for each pair, text or question, with its log-probability first.
pub(crate) fn run(arguments: &Score) -> Result<()> {
    match (&arguments.source, &arguments.target, &arguments.text, &arguments.choices) {
        (Some(source), Some(target), ..) => pairs(arguments, source, target),
        (.., Some(text), _) => texts(arguments, text),
        (.., Some(choices)) => continuations(arguments, choices),
        _ => bail!("name what to score: --source and --target, --text or --choices"),
    }
}

/// Pairs of sentences.
fn pairs(arguments: &Score, source: &Path, target: &Path) -> Result<()> {
    let sources = read_lines(source)?;
    let targets = read_lines(target)?;
    if sources.len() != targets.len() {
        bail!(
            "{} has {} lines but {} has {}: line i of one must belong to line i of the other",
            source.display(),
            sources.len(),
            target.display(),
            targets.len()
        );
    }
    let run: LoadedRun = arguments.weights.load(&arguments.run, &[])?;
    let source_ids = encode_sources(&run.tokenizers, &sources)?;
    let target_ids = run.tokenizers.target().encode_batch(&targets)?;
    let most = arguments.max_tokens.unwrap_or(run.config.data.cleaning.max_tokens);
    let limit = LineLimit::new(OverlongRule::Error, most).within(&run.config.model);
    let most = limit.tokens;
    // A source ends with </s>; a target has as many positions, the first of which `<s>` takes.
    for (path, ids, ends) in [(source, &source_ids, 1), (target, &target_ids, 0)] {
        if let Some((index, line)) =
            ids.iter().enumerate().find(|(_, line)| line.len() > most + ends)
        {
            let tokens = line.len() - ends;
            let remedy = limit.more_by("--max-tokens N allows more");
            bail!(
                "{}, line {}: {tokens} tokens, more than {most}; {remedy}",
                path.display(),
                index + 1
            );
        }
    }
    let model = run.model.inference();
    let bar = sentence_bar(Some(source_ids.len() as u64), "scoring");
    let scores = Translator::new(&model, run.config.decoding.clone())?
        .score_with(&source_ids, &target_ids, |chunk| bar.set_position(chunk.sentences_done as u64))
        .map_err(|error| by_line(error, "scoring", |index| index + 1))?;
    bar.finish_and_clear();
    for (index, score) in scores.iter().enumerate() {
        if arguments.json {
            print_line(
                &serde_json::json!({
                    "line": index + 1,
                    "log_probability": score.log_probability,
                    "score": score.score,
                    "token_log_probabilities": score.token_log_probabilities,
                })
                .to_string(),
            )?;
        } else {
            print_line(&format!("{:.6}\t{:.6}", score.log_probability, score.score))?;
        }
    }
    Ok(())
}

/// Texts, each with the log-probability and the perplexity of a token.
fn texts(arguments: &Score, path: &Path) -> Result<()> {
    let lines = read_lines(path)?;
    let run: LoadedRun<LanguageModel> = arguments.weights.load(&arguments.run, &[])?;
    let bar = sentence_bar(Some(lines.len() as u64), "scoring");
    let scores = TextScorer::new(&run)?
        .texts(&lines, |done| bar.set_position(done as u64))
        .with_context(|| path.display().to_string())?;
    bar.finish_and_clear();
    for (index, score) in scores.iter().enumerate() {
        if arguments.json {
            let mut record = serde_json::to_value(score)?;
            record["line"] = (index + 1).into();
            print_line(&record.to_string())?;
        } else {
            print_line(&format!("{:.6}\t{:.4}", score.log_probability, score.perplexity))?;
        }
    }
    Ok(())
}

/// A line of `--choices`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    prompt: String,
    choices: Vec<String>,
    /// The right choice, counted from 0.
    answer: Option<usize>,
}

/// Continuations to choose from.
fn continuations(arguments: &Score, path: &Path) -> Result<()> {
    let place = |index: usize| format!("{}, line {}", path.display(), index + 1);
    let mut questions = Vec::new();
    for (index, line) in read_lines(path)?.iter().enumerate() {
        let question: Question = serde_json::from_str(line).with_context(|| place(index))?;
        if question.answer.is_some_and(|answer| answer >= question.choices.len()) {
            bail!("{}: `answer` is not the number of a choice, counted from 0", place(index));
        }
        questions.push(question);
    }
    let run: LoadedRun<LanguageModel> = arguments.weights.load(&arguments.run, &[])?;
    let scorer = TextScorer::new(&run)?;
    let (mut asked, mut right, mut right_per_byte) = (0_u32, 0_u32, 0_u32);
    for (index, question) in questions.iter().enumerate() {
        let score =
            scorer.choices(&question.prompt, &question.choices).with_context(|| place(index))?;
        if let Some(answer) = question.answer {
            asked += 1;
            right += u32::from(score.best == answer);
            right_per_byte += u32::from(score.best_per_byte == answer);
        }
        if arguments.json {
            let mut record = serde_json::to_value(&score)?;
            record["line"] = (index + 1).into();
            print_line(&record.to_string())?;
        } else {
            print_line(&format!(
                "{:.6}\t{}",
                score.log_probabilities[score.best], question.choices[score.best]
            ))?;
        }
    }
    if asked > 0 {
        let share = |count: u32| 100.0 * f64::from(count) / f64::from(asked);
        say(&format!(
            "right: {right} of {asked} ({:.1} %), by log-probability a byte {right_per_byte} \
             ({:.1} %)",
            share(right),
            share(right_per_byte)
        ));
    }
    Ok(())
}
