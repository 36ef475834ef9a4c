//! Training examples for fine-tuning: their kind, their number, and the part of a recipe
//! (configuration of a training) that reads them. The parent is the trained model whose training
//! continues.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use taper_data::{
    Corpora, Corpus as CorpusConfig, DataConfig, FieldsConfig, Pairs, Task, TokenizerConfig,
    labelled_texts as read_labelled, running_text_size,
};

use super::FineTuneSettings;
use super::parent::Parent;
use crate::config::paths::seen_from;
use crate::init::corpus::{Corpus, number_of};
use crate::init::held_out::{self, Unused};

/// Number of examples that are tokenised to estimate the number of tokens of all examples.
const SAMPLE: usize = 1000;
/// Approximate number of bytes per token of running text.
const BYTES_OF_A_TOKEN: u64 = 4;
/// Share of running text that is held out for validation.
const HELD_OUT: f64 = 0.05;

/// Number of examples, and number of their tokens.
#[derive(Debug, Clone, Default)]
pub struct ExampleCounts {
    /// Number of sentence pairs or texts in the files, including those that are held out; 0 for
    /// running text.
    pub examples: u64,
    /// Approximate number of tokens to learn from in one epoch; for pairs, the tokens of the side
    /// that has more of them.
    pub tokens: u64,
    /// Number of examples per epoch from text like the parent's training text, in addition to
    /// `examples`.
    pub home: u64,
}

/// Facts about examples that were read.
pub(super) struct ReadExamples {
    /// Part of a recipe that reads the examples.
    pub(super) data: DataConfig,
    pub(super) counts: ExampleCounts,
    /// Folder with the examples after their division into training, validation and test sets, if
    /// they were divided.
    pub(super) divided: Unused,
}

/// Name for a recipe, from the names of the files with the examples.
pub(super) fn name(files: &[PathBuf]) -> String {
    let usual = ["train", "data", "corpus"];
    let stem = |path: &Path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        name.and_then(|name| name.split('.').next().map(str::to_owned))
    };
    let first = files.first().map(PathBuf::as_path).unwrap_or(Path::new("examples"));
    let folder = first.parent().and_then(stem).filter(|name| !name.is_empty());
    let name = stem(first).filter(|name| !name.is_empty() && !usual.contains(&name.as_str()));
    name.or(folder).unwrap_or_else(|| "examples".to_owned())
}

/// Settings of the parent's `[data]` section that also apply to the new examples.
fn of_parent(parent: &Parent, task: Task) -> DataConfig {
    let theirs = &parent.config.data;
    let tokenizer = TokenizerConfig { path: None, target_path: None, ..theirs.tokenizer.clone() };
    let (nfkc, lowercase) = (theirs.nfkc, theirs.lowercase);
    let mut data = DataConfig { nfkc, lowercase, tokenizer, ..DataConfig::default() };
    if task == parent.config.task {
        data.source_language.clone_from(&theirs.source_language);
        data.target_language.clone_from(&theirs.target_language);
        data.source_prefix.clone_from(&theirs.source_prefix);
        data.cleaning = theirs.cleaning.clone();
        data.text = theirs.text.clone();
        data.masked = theirs.masked.clone();
        data.labelled = theirs.labelled.clone();
    } else {
        // The model has learned only the positions up to `max_positions`, so texts are cut there.
        let most = parent.config.model.max_positions;
        data.labelled.max_tokens = data.labelled.max_tokens.min(most);
        data.labelled.pairs = Pairs::Auto;
    }
    (data.validation, data.test) = (Corpora::default(), Corpora::default());
    data
}

/// Folder for the files of training, validation and test sets.
fn divided(settings: &FineTuneSettings, recipe: &Path) -> PathBuf {
    let stem = recipe.file_stem().unwrap_or_default();
    settings.divided.clone().unwrap_or_else(|| Path::new("data").join(stem))
}

/// Folder of a recipe.
fn folder_of(recipe: &Path) -> &Path {
    recipe.parent().unwrap_or(Path::new(""))
}

/// Paths of `files`, relative to the folder of the recipe at `recipe`.
fn named(files: &[PathBuf], recipe: &Path) -> Vec<PathBuf> {
    files.iter().map(|file| seen_from(folder_of(recipe), file)).collect()
}

/// Checks the number of columns that a user names, and returns them (`given`). `wanted` has the
/// meaning of each column. The user may name no columns, or at least the first `fewest` of them.
///
/// # Errors
/// If there is another number of columns. The message has the meanings of the columns.
fn columns<'a>(given: &'a [String], wanted: &[&str], fewest: usize) -> Result<&'a [String]> {
    if given.is_empty() || (fewest..=wanted.len()).contains(&given.len()) {
        return Ok(given);
    }
    bail!(
        "--columns {}: name the columns {}, separated by commas",
        given.join(","),
        wanted.join(", ")
    )
}

/// Reads sentences with their translations. If no validation set lies next to them, divides them
/// into training, validation and test sets.
pub(super) fn pairs(
    settings: &FineTuneSettings,
    parent: &Parent,
    task: Task,
    recipe: &Path,
) -> Result<ReadExamples> {
    let columns = columns(&settings.columns, &["the source", "the target"], 2)?;
    let fields = match columns {
        [source, target] => FieldsConfig {
            source: source.clone(),
            target: target.clone(),
            ..FieldsConfig::default()
        },
        _ => FieldsConfig::default(),
    };
    let mut data = of_parent(parent, task);
    let languages = [data.source_language.clone(), data.target_language.clone()];
    let corpus = Corpus::from_files(&settings.files, fields)?;
    let facts = corpus.look(&languages)?;
    let as_it_lies = corpus.as_it_lies(&languages).filter(|data| !data.validation.is_empty());
    let (chosen, divided) = match as_it_lies {
        Some(chosen) => (chosen, None),
        None => {
            let folder = divided(settings, recipe);
            (held_out::divide(&corpus, &facts, &languages, &folder)?, Some(folder))
        }
    };
    let divided = Unused::new(divided);
    data.dir = seen_from(folder_of(recipe), &chosen.dir);
    (data.format, data.fields) = (chosen.format, chosen.fields);
    (data.train, data.validation, data.test) = (chosen.train, chosen.validation, chosen.test);
    let mut counts = ExampleCounts { examples: facts.pairs, ..ExampleCounts::default() };
    let mut tokens = [0, 0];
    let mut sampled = 0;
    for pair in corpus.pairs(&languages)?.take(SAMPLE) {
        let [source, target] = pair?;
        sampled += 1;
        tokens[0] += parent.tokenizers.source().encode(&source)?.len() as u64;
        tokens[1] += parent.tokenizers.target().encode(&target)?.len() as u64;
    }
    counts.tokens = tokens[0].max(tokens[1]) * facts.pairs / sampled.max(1);
    if !settings.home.is_empty() {
        let (mixed, pairs) = home(settings, &languages, recipe, counts.examples)?;
        counts.home = (mixed.weight * pairs as f64) as u64;
        counts.tokens += counts.tokens * counts.home / counts.examples.max(1);
        data.train.0.push(mixed);
    }
    Ok(ReadExamples { data, counts, divided })
}

/// Corpus of text like the parent's training text, and its number of pairs. The corpus has a weight
/// with which an epoch has `examples` pairs of it, or all of its pairs if it has fewer.
fn home(
    settings: &FineTuneSettings,
    languages: &[String; 2],
    recipe: &Path,
    examples: u64,
) -> Result<(CorpusConfig, u64)> {
    let home = Corpus::from_files(&settings.home, FieldsConfig::default()).context("--home")?;
    let pairs = home.look(languages).context("--home")?.pairs.max(1);
    let mut mixed = match home {
        Corpus::Files { source, target } => CorpusConfig {
            source: named(&[source], recipe).into(),
            target: named(&[target], recipe).into(),
            ..CorpusConfig::default()
        },
        Corpus::Table { file, .. } => {
            CorpusConfig { file: named(&[file], recipe).into(), ..CorpusConfig::default() }
        }
    };
    mixed.name = "home".to_owned();
    // The weight is rounded up to three digits after the point.
    let share = examples as f64 / pairs as f64;
    mixed.weight = if share < 1.0 { (share * 1000.0).ceil() / 1000.0 } else { 1.0 };
    Ok((mixed, pairs))
}

/// Describes files of running text, and estimates the number of their tokens from the sizes of the
/// texts.
pub(super) fn texts(
    settings: &FineTuneSettings,
    parent: &Parent,
    task: Task,
    recipe: &Path,
) -> Result<ReadExamples> {
    let mut data = of_parent(parent, task);
    if let [text] = columns(&settings.columns, &["the text"], 1)? {
        data.fields.text.clone_from(text);
    }
    let files = [settings.files.as_slice(), &settings.home].concat();
    let file = named(&files, recipe).into();
    let name = name(&settings.files);
    data.train = Corpora(vec![CorpusConfig { file, name, ..CorpusConfig::default() }]);
    data.text.hold_out = HELD_OUT;
    let files = task.files(&data, &absolute(&data.train, folder_of(recipe)))?;
    let sizes = files.iter().map(|file| running_text_size(file, &data));
    let tokens = sizes.sum::<taper_data::Result<u64>>()? / BYTES_OF_A_TOKEN;
    Ok(ReadExamples {
        data,
        counts: ExampleCounts { tokens, ..ExampleCounts::default() },
        divided: Unused::default(),
    })
}

/// Copy of `corpora` in which paths relative to `folder` are made relative to the current folder.
fn absolute(corpora: &Corpora, folder: &Path) -> Corpora {
    let mut corpora = corpora.clone();
    corpora.paths_mut().for_each(|path| *path = folder.join(&path));
    corpora
}

/// Reads texts with one label each, and divides them into training, validation and test sets.
pub(super) fn labelled_texts(
    settings: &FineTuneSettings,
    parent: &Parent,
    task: Task,
    recipe: &Path,
) -> Result<ReadExamples> {
    let mut data = of_parent(parent, task);
    if let [label, text, second @ ..] =
        columns(&settings.columns, &["the label", "the text", "a second text"], 2)?
    {
        (data.fields.label, data.fields.text) = (label.clone(), text.clone());
        data.fields.text_pair = second.first().cloned().unwrap_or_default();
    }
    if !settings.home.is_empty() {
        bail!(
            "--home can add only sentence pairs or running text; put examples of this task into \
             the other files"
        );
    }
    let corpus = |file: Vec<PathBuf>| {
        Corpora(vec![CorpusConfig { file: file.into(), ..CorpusConfig::default() }])
    };
    let rows = read_labelled(&data, &corpus(settings.files.clone()))?;
    let labels: BTreeSet<&str> = rows.iter().map(|[label, _]| label.as_str()).collect();
    let known = &data.labelled.labels;
    if task != parent.config.task
        || !labels.iter().all(|label| known.iter().any(|one| one == label))
    {
        if labels.len() < 2 {
            bail!("all {} texts have the same label: there is nothing to distinguish", rows.len());
        }
        data.labelled.labels = labels.into_iter().map(str::to_owned).collect();
    }
    let is_single = data.labelled.pairs == Pairs::No;
    let pairs = rows.iter().filter(|[_, text]| !is_single && text.contains('\t')).count();
    data.labelled.pairs = match pairs {
        0 => Pairs::No,
        all if all == rows.len() => Pairs::Yes,
        _ => Pairs::Auto,
    };
    let folder = divided(settings, recipe);
    // The texts of a record can contain characters that separate columns or lines in the files to
    // be written.
    let ends: &[char] = if is_single { &['\n', '\r', '\t'] } else { &['\n', '\r'] };
    let line = |[label, text]: &[String; 2]| {
        format!("{}\t{}\n", label.replace(['\n', '\r', '\t'], " "), text.replace(ends, " "))
    };
    let lines: Vec<(u64, String)> =
        rows.iter().map(|row| (number_of(&row[1]), line(row))).collect();
    held_out::divide_lines(&lines, &folder, "tsv")?;
    let divided = Unused::new(Some(folder.clone()));
    data.fields = FieldsConfig::default();
    data.dir = seen_from(folder_of(recipe), &folder);
    let [validation, test, train] = held_out::SPLITS;
    (data.train, data.validation, data.test) = (train.into(), validation.into(), test.into());
    let mut tokens = 0;
    for [_, text] in rows.iter().take(SAMPLE) {
        let length = parent.tokenizers.source().encode(text)?.len();
        tokens += length.min(data.labelled.max_tokens) as u64;
    }
    let examples = rows.len() as u64;
    let tokens = tokens * examples / examples.clamp(1, SAMPLE as u64);
    let counts = ExampleCounts { examples, tokens, home: 0 };
    Ok(ReadExamples { data, counts, divided })
}
