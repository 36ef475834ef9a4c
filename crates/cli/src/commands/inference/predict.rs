//! `taper predict`: labels for texts and images, captions, the text that matches an image, tags for
//! words, and answers to questions.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use taper_plots::Language;
use taper_run::folder::files::write_atomically;
use taper_run::image_text::{Matches, matches_figure};
use taper_run::tasks::{
    self, AnyRun, InputKind, ItemPrediction, Items, PredictionEntry, predictions_that,
    require_predictions,
};
use taper_run::{RunConfig, RunFolder};

use crate::arguments::Predict;
use crate::bars::sentence_bar;
use crate::file_names::distinct;
use crate::items::{Faults, SpelledLines};
use crate::text::{name_of, print_line, read_lines, say, visible};

/// Runs the command: prints one line for each text or image.
pub(crate) fn run(arguments: &Predict) -> Result<()> {
    let config = RunFolder::open(&arguments.run)?.load_config(&arguments.overrides.set)?;
    let task = config.task;
    let has = |property: fn(&PredictionEntry) -> bool| {
        tasks::entry(task).predicts.as_ref().is_some_and(property)
    };
    if let (Some(prompt), false) = (arguments.prompt.first(), has(|it| it.takes_prompts)) {
        let others = predictions_that(|it| it.takes_prompts);
        bail!(
            "--prompt {prompt:?} is for a run of the task {others}; the task of this run is {task}"
        );
    }
    if let (Some(folder), false) = (&arguments.attention, has(|it| it.draws_attention)) {
        bail!(
            "--attention {} is for a run of the task {}; the task of this run is {task}",
            folder.display(),
            predictions_that(|it| it.draws_attention)
        );
    }
    let entry = tasks::entry(task);
    if let (Some(file), true) =
        (&arguments.svg, entry.writes || !has(|it| it.reads == InputKind::Images))
    {
        bail!(
            "--svg {} draws probabilities of labels for images; the task of this run is {task}",
            file.display()
        );
    }
    let predicts =
        require_predictions(&config).with_context(|| arguments.run.display().to_string())?;
    match predicts.reads {
        InputKind::Lines(_) => lines(arguments, &config, predicts),
        InputKind::Images => images(arguments, &config, predicts),
    }
}

/// Predicts for the lines of the input, and reports special tokens that are spelled out in the
/// lines.
fn lines(arguments: &Predict, config: &RunConfig, predicts: &PredictionEntry) -> Result<()> {
    let run = load(arguments, config)?;
    if let Some(file) = arguments.images.first() {
        let does = predicts.does;
        bail!("{}: the run {does}: name a file of them with --input", file.display());
    }
    let (lines, name) = (read_lines(&arguments.input)?, name_of(&arguments.input));
    SpelledLines::new(run.tokenizers().target(), arguments.items.special_tokens)
        .look_at_lines(&lines, &name);
    if let Some(notice) = run.notice_on(&lines, Path::new(&name)) {
        say(&notice.to_string());
    }
    let bar = sentence_bar(Some(lines.len() as u64), predicts.doing);
    let items = Items { lines: &lines, ..Items::default() };
    let answers = run.predict_each(&items, &mut |done| bar.set_position(done as u64));
    let answers = answers.with_context(|| name)?;
    bar.finish_and_clear();
    print(answers, arguments)
}

/// Predicts for image files.
fn images(arguments: &Predict, config: &RunConfig, predicts: &PredictionEntry) -> Result<()> {
    let files = &arguments.images;
    ensure!(!files.is_empty(), "the run {}: name PNG or JPEG files after it", predicts.does);
    let run = load(arguments, config)?;
    let pictures = arguments.attention.as_deref().map(|folder| pictures_of(files, folder));
    let pictures = pictures.transpose()?.unwrap_or_default();
    let bar = sentence_bar(Some(files.len() as u64), predicts.doing);
    let items = Items { images: files, prompts: &arguments.prompt, ..Items::default() };
    let answers = run.predict_each(&items, &mut |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    // A file without an answer gets no picture.
    for ((file, to), _) in files.iter().zip(pictures).zip(&answers).filter(|(_, one)| one.is_ok()) {
        run.draw_attention(file, &to)?;
    }
    if let Some(path) = &arguments.svg {
        let texts = match arguments.prompt.as_slice() {
            [] => config.data.images.labels.clone(),
            prompts => prompts.to_vec(),
        };
        draw(path, texts, files, &answers)?;
    }
    print(answers, arguments)
}

/// Draws the probability of each of `texts` for each file that could be read.
fn draw(
    path: &Path,
    texts: Vec<String>,
    files: &[PathBuf],
    answers: &[Result<ItemPrediction>],
) -> Result<()> {
    let (mut images, mut probabilities): (Vec<&Path>, _) = (Vec::new(), Vec::new());
    for (file, answer) in files.iter().zip(answers) {
        let Ok(answer) = answer else { continue };
        let mut record: serde_json::Value = serde_json::from_str(&answer.json)?;
        probabilities.push(serde_json::from_value(record["probabilities"].take())?);
        images.push(file);
    }
    let images = row_names(&images);
    ensure!(!images.is_empty(), "{}: no image has an answer to draw", path.display());
    let figure = matches_figure(Matches { images, texts, probabilities }, Language::English);
    write_atomically(path, figure.draw()?.standalone().as_bytes())
}

/// Returns a name for each image: the file name without its ending, or the whole path if another
/// image has the same name.
fn row_names(images: &[&Path]) -> Vec<String> {
    let stem = |image: &Path| image.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut counts: HashMap<String, usize> = HashMap::new();
    for image in images {
        *counts.entry(stem(image)).or_default() += 1;
    }
    let name = |image: &&Path| match stem(image) {
        stem if counts[&stem] == 1 => stem,
        _ => image.display().to_string(),
    };
    images.iter().map(name).collect()
}

/// Loads the run; the arguments decide how special tokens in the text are treated.
fn load(arguments: &Predict, config: &RunConfig) -> Result<Box<dyn AnyRun>> {
    let settings = arguments.weights.settings(&arguments.overrides.set);
    let mut run = tasks::open(config.task, &arguments.run, &settings)?;
    run.spell(arguments.items.special_tokens.rule.into());
    Ok(run)
}

/// Returns the path of each file's picture in `folder`, and makes the folder. A picture has the
/// name of its file; files with the same name in different folders get a number.
///
/// # Errors
/// When the folder cannot be made, or a picture exists already.
fn pictures_of(files: &[PathBuf], folder: &Path) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let picture = |mut name: OsString| {
        name.push(".png");
        let to = folder.join(name);
        ensure!(
            !to.exists(),
            "{} exists already and is left as it is: name another folder with --attention, or \
             move the file away",
            to.display()
        );
        Ok(to)
    };
    let stems = files.iter().map(|file| file.file_stem().unwrap_or_default());
    distinct(stems).into_iter().map(picture).collect()
}

/// Prints one line for each answer: JSON, or text, preceded by the answer's file if there is one.
fn print(answers: Vec<Result<ItemPrediction>>, arguments: &Predict) -> Result<()> {
    let (mut faults, all) = (Faults::new(arguments.items.strict), answers.len());
    for (index, one) in answers.into_iter().enumerate() {
        let file = arguments.images.get(index);
        let ItemPrediction { json: record, text } = match one {
            Ok(one) => one,
            Err(error) => {
                let message = faults.note(error)?;
                let record = match file {
                    Some(file) => json!({ "image": file, "error": message }),
                    None => json!({ "line": index + 1, "error": message }),
                };
                ItemPrediction { json: record.to_string(), text: String::new() }
            }
        };
        if arguments.json {
            print_line(&record)?;
        } else {
            let file = file.map_or_else(String::new, |file| {
                format!("{}\t", visible(&file.display().to_string()))
            });
            print_line(&format!("{file}{text}"))?;
        }
    }
    faults.end(all)
}
