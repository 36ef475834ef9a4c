//! `taper score`: log-probabilities of translations, texts and continuations that the user
//! supplies.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::json;
use taper_decoding::ForcedScore;
use taper_model::LanguageModel;
use taper_run::generation::{ChoiceScore, TextScore, TextScorer};
use taper_run::tasks::TaskModel;
use taper_run::translation::{Side, score_pairs};
use taper_run::{BadItem, LoadedRun};

use crate::arguments::Score;
use crate::bars::sentence_bar;
use crate::items::{Faults, SpelledLines};
use crate::text::{name_of, print_line, read_lines, say};

/// Runs the command: prints one line for each pair, text or question. Without `--json`, a line
/// begins with a log-probability.
pub(crate) fn run(arguments: &Score) -> Result<()> {
    match (&arguments.source, &arguments.target, &arguments.text, &arguments.choices) {
        (Some(source), Some(target), ..) => pairs(arguments, source, target),
        (.., Some(text), _) => texts(arguments, text),
        (.., Some(choices)) => continuations(arguments, choices),
        _ => bail!("nothing to score: give --source and --target, --text or --choices"),
    }
}

/// Loads the run; the arguments decide how special tokens in the text are treated.
fn load<M: TaskModel>(arguments: &Score) -> Result<LoadedRun<M>> {
    let mut run = arguments.weights.load(&arguments.run, &[])?;
    run.tokenizers = run.tokenizers.with_spelled(arguments.items.special_tokens.rule.into());
    Ok(run)
}

/// Scores pairs of sentences.
fn pairs(arguments: &Score, source: &Path, target: &Path) -> Result<()> {
    let sources = read_lines(source)?;
    let targets = read_lines(target)?;
    ensure!(
        sources.len() == targets.len(),
        "{} has {} lines but {} has {}: line i of one must belong to line i of the other",
        source.display(),
        sources.len(),
        target.display(),
        targets.len()
    );
    let run: LoadedRun = load(arguments)?;
    let (of_source, of_target) = (run.tokenizers.source(), run.tokenizers.target());
    for (tokenizer, lines, path) in [(of_source, &sources, source), (of_target, &targets, target)] {
        SpelledLines::new(tokenizer, arguments.items.special_tokens)
            .look_at_lines(lines, &name_of(path));
    }
    let place = |side, index: usize| {
        let path = if side == Side::Source { source } else { target };
        format!("{}, line {}", path.display(), index + 1)
    };
    let bar = sentence_bar(Some(sources.len() as u64), "scoring");
    let progress = |done: usize| bar.set_position(done as u64);
    let scores = score_pairs(&run, &sources, &targets, arguments.max_tokens, place, progress)?;
    bar.finish_and_clear();
    let text = |score: &ForcedScore| format!("{:.6}\t{:.6}", score.log_probability, score.score);
    let record = |score: &ForcedScore| {
        Ok(json!({
            "log_probability": score.log_probability,
            "score": score.score,
            "token_log_probabilities": score.token_log_probabilities,
        }))
    };
    print(scores, arguments, text, record)
}

/// Scores texts; each gets its log-probability and its perplexity per token.
fn texts(arguments: &Score, path: &Path) -> Result<()> {
    let lines = read_lines(path)?;
    let run: LoadedRun<LanguageModel> = load(arguments)?;
    SpelledLines::new(run.tokenizers.target(), arguments.items.special_tokens)
        .look_at_lines(&lines, &name_of(path));
    let bar = sentence_bar(Some(lines.len() as u64), "scoring");
    let scores = TextScorer::new(&run)?
        .texts(&lines, |done| bar.set_position(done as u64))
        .with_context(|| name_of(path))?;
    bar.finish_and_clear();
    let named = scores.into_iter().map(|score| score.with_context(|| name_of(path)));
    let text = |score: &TextScore| {
        let TextScore { log_probability, perplexity, .. } = score;
        format!("{log_probability:.6}\t{perplexity:.4}")
    };
    print(named.collect(), arguments, text, |score| Ok(serde_json::to_value(score)?))
}

/// A line of the file of `--choices`: a prompt, and continuations to choose from.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    prompt: String,
    choices: Vec<String>,
    /// Index of the right choice, counted from 0.
    answer: Option<usize>,
}

impl Question {
    fn parse(line: &str) -> Result<Self> {
        let question: Self = serde_json::from_str(line)?;
        if question.answer.is_some_and(|answer| answer >= question.choices.len()) {
            bail!("`answer` is not the index of a choice, counted from 0");
        }
        Ok(question)
    }
}

/// Scores the continuations of each question in the file `path`, and prints the best.
fn continuations(arguments: &Score, path: &Path) -> Result<()> {
    let lines = read_lines(path)?;
    let run: LoadedRun<LanguageModel> = load(arguments)?;
    SpelledLines::new(run.tokenizers.target(), arguments.items.special_tokens)
        .look_at_lines(&lines, &name_of(path));
    let scorer = TextScorer::new(&run)?;
    let (mut asked, mut right, mut right_per_byte) = (0_u32, 0_u32, 0_u32);
    let mut answered = |line: &String| -> Result<(ChoiceScore, String)> {
        let question = Question::parse(line).map_err(|error| BadItem::from_error(&error))?;
        let score = scorer.choices(&question.prompt, &question.choices)?;
        if let Some(answer) = question.answer {
            asked += 1;
            right += u32::from(score.best == answer);
            right_per_byte += u32::from(score.best_per_byte == answer);
        }
        let best = question.choices[score.best].clone();
        Ok((score, best))
    };
    let mut faults = Faults::new(arguments.items.strict);
    for (index, line) in lines.iter().enumerate() {
        let place = || format!("{}, line {}", name_of(path), index + 1);
        let found = match answered(line).with_context(place) {
            // A bad question does not affect other questions; any other error ends the command.
            Err(error) if error.is::<BadItem>() => Err(error),
            found => Ok(found?),
        };
        let text = |(score, best): &(ChoiceScore, String)| {
            format!("{:.6}\t{best}", score.log_probabilities[score.best])
        };
        let record = |(score, _): &(ChoiceScore, String)| Ok(serde_json::to_value(score)?);
        print_one(index, found, &mut faults, arguments.json, text, record)?;
    }
    if asked > 0 {
        let share = |count: u32| 100.0 * f64::from(count) / f64::from(asked);
        say(&format!(
            "right: {right} of {asked} ({:.1} %); if chosen by log-probability per byte: \
             {right_per_byte} of {asked} ({:.1} %)",
            share(right),
            share(right_per_byte)
        ));
    }
    faults.end(lines.len())
}

/// Prints one line for each score with [`print_one`].
fn print<T>(
    scores: Vec<Result<T>>,
    arguments: &Score,
    text: impl Fn(&T) -> String,
    record: impl Fn(&T) -> Result<serde_json::Value>,
) -> Result<()> {
    let (mut faults, all) = (Faults::new(arguments.items.strict), scores.len());
    for (index, score) in scores.into_iter().enumerate() {
        print_one(index, score, &mut faults, arguments.json, &text, &record)?;
    }
    faults.end(all)
}

/// Prints the line of a score. With `as_json` this is the `record` of the score, or of the error,
/// with the line number. Otherwise it is the `text` of the score, or an empty line for an error.
fn print_one<T>(
    index: usize,
    score: Result<T>,
    faults: &mut Faults,
    as_json: bool,
    text: impl Fn(&T) -> String,
    record: impl Fn(&T) -> Result<serde_json::Value>,
) -> Result<()> {
    let (mut record, text) = match score {
        Ok(score) => (record(&score)?, text(&score)),
        Err(error) => (json!({ "error": faults.note(error)? }), String::new()),
    };
    record["line"] = (index + 1).into();
    print_line(&if as_json { record.to_string() } else { text })
}
