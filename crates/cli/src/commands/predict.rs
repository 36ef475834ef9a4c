//! `taper predict`: labels for texts and images, captions, which text belongs to an image, tags for
//! words, and answers to questions.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use taper_data::{Task, first_with_tab};
use taper_model::{
    ContrastiveModel, ImageCaptioner, ImageClassifier, SpanExtractor, TextClassifier, TokenTagger,
};
use taper_run::attention::draw_attention;
use taper_run::image_text::{describe_images, match_images};
use taper_run::prediction::{
    Prediction, QuestionInContext, predict, predict_answers, predict_images, predict_tags,
};
use taper_run::tasks::TaskModel;
use taper_run::{LoadedRun, Notice, RunFolder};

use crate::arguments::Predict;
use crate::bars::sentence_bar;
use crate::text::{print_line, read_lines, say};

/// What a line of questions has.
const QUESTION: &str = "{\"question\": \"…\", \"context\": \"…\"}, and \"id\" where wanted";

/// Runs the command: one line for each text or image.
pub(crate) fn run(arguments: &Predict) -> Result<()> {
    let task = RunFolder::open(&arguments.run)?.load_config(&arguments.overrides.set)?.task;
    if let (Some(prompt), true) = (arguments.prompt.first(), task != Task::ImageText) {
        bail!("--prompt {prompt:?} is for a run of the task image-text; this one's is {task}");
    }
    if let (Some(folder), true) = (&arguments.attention, task != Task::ImageClassification) {
        bail!(
            "--attention {} is for a run of the task image-classification; this one's is {task}",
            folder.display()
        );
    }
    match task {
        Task::ImageClassification => images(arguments),
        Task::Captions => captions(arguments),
        Task::ImageText => matches(arguments),
        Task::Tagging => tags(arguments),
        Task::QuestionAnswering => answers(arguments),
        _ => texts(arguments),
    }
}

fn texts(arguments: &Predict) -> Result<()> {
    let run: LoadedRun<TextClassifier> = load(arguments)?;
    if let Some(file) = arguments.images.first() {
        bail!("{}: the run labels texts: name a file of them with --input", file.display());
    }
    let texts = read_lines(&arguments.input)?;
    if let Some(first) = first_with_tab(&texts, &run.config.data.labelled) {
        let (path, line) = (arguments.input.clone(), first as u64 + 1);
        say(&Notice::TabInText { path, line }.to_string());
    }
    let bar = sentence_bar(Some(texts.len() as u64), "labelling");
    let found = predict(&run, &texts, |done| bar.set_position(done as u64))
        .with_context(|| arguments.input.display().to_string())?;
    bar.finish_and_clear();
    print_labels(&found, arguments)
}

fn tags(arguments: &Predict) -> Result<()> {
    let run: LoadedRun<TokenTagger> = load(arguments)?;
    if let Some(file) = arguments.images.first() {
        bail!("{}: the run tags texts: name a file of them with --input", file.display());
    }
    let texts = read_lines(&arguments.input)?;
    let bar = sentence_bar(Some(texts.len() as u64), "tagging");
    let found = predict_tags(&run, &texts, |done| bar.set_position(done as u64))
        .with_context(|| arguments.input.display().to_string())?;
    bar.finish_and_clear();
    print(&found, arguments, |text| {
        let line = |(word, tag): (&String, &String)| format!("{word}\t{tag}\n");
        text.words.iter().zip(&text.tags).map(line).collect()
    })
}

fn answers(arguments: &Predict) -> Result<()> {
    let run: LoadedRun<SpanExtractor> = load(arguments)?;
    if let Some(file) = arguments.images.first() {
        bail!("{}: the run answers questions: name a file of them with --input", file.display());
    }
    let lines = read_lines(&arguments.input)?;
    let name = || arguments.input.display().to_string();
    let question = |(index, line): (usize, &String)| -> Result<QuestionInContext> {
        let wrong = || format!("line {}: expected {QUESTION}", index + 1);
        let question: QuestionInContext = serde_json::from_str(line).with_context(wrong)?;
        for (key, text) in [("question", &question.question), ("context", &question.context)] {
            if text.trim().is_empty() {
                bail!("line {}: \"{key}\" is empty", index + 1);
            }
        }
        Ok(question)
    };
    let questions: Vec<QuestionInContext> =
        lines.iter().enumerate().map(question).collect::<Result<_>>().with_context(name)?;
    let bar = sentence_bar(Some(questions.len() as u64), "answering");
    let found = predict_answers(&run, &questions, |done| bar.set_position(done as u64))
        .with_context(name)?;
    bar.finish_and_clear();
    print(&found, arguments, |found| format!("{}\t{:.4}", found.answer, found.probability))
}

fn images(arguments: &Predict) -> Result<()> {
    let files = pictures(arguments, "labels")?;
    let run: LoadedRun<ImageClassifier> = load(arguments)?;
    if let Some(folder) = &arguments.attention {
        draw(&run, files, folder)?;
    }
    let bar = sentence_bar(Some(files.len() as u64), "labelling");
    let found = predict_images(&run, files, |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    print_labels(&found, arguments)
}

fn captions(arguments: &Predict) -> Result<()> {
    let files = pictures(arguments, "describes")?;
    let run: LoadedRun<ImageCaptioner> = load(arguments)?;
    let bar = sentence_bar(Some(files.len() as u64), "describing");
    let found = describe_images(&run, files, |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    print(&found, arguments, |caption| caption.text.clone())
}

fn matches(arguments: &Predict) -> Result<()> {
    let files = pictures(arguments, "compares")?;
    let run: LoadedRun<ContrastiveModel> = load(arguments)?;
    let bar = sentence_bar(Some(files.len() as u64), "comparing");
    let prompts = &arguments.prompt;
    let found = match_images(&run, files, prompts, |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    print_labels(&found, arguments)
}

fn load<M: TaskModel>(arguments: &Predict) -> Result<LoadedRun<M>> {
    arguments.weights.load(&arguments.run, &arguments.overrides.set)
}

/// The files of a run that does something with images.
fn pictures<'a>(arguments: &'a Predict, does: &str) -> Result<&'a [PathBuf]> {
    if arguments.images.is_empty() {
        bail!("the run {does} images: name PNG or JPEG files after it");
    }
    Ok(&arguments.images)
}

/// Where the model looks at each file, as a picture of its name in `folder`.
fn draw(run: &LoadedRun<ImageClassifier>, files: &[PathBuf], folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for file in files {
        let stem = file.file_stem().unwrap_or_default();
        let to = folder.join(stem).with_extension("png");
        if to.exists() {
            bail!("{} exists already and is left as it is", to.display());
        }
        draw_attention(run, file, &to)?;
    }
    Ok(())
}

fn print_labels(found: &[Prediction], arguments: &Predict) -> Result<()> {
    print(found, arguments, |prediction| {
        let Prediction { label, probability, .. } = prediction;
        format!("{label}\t{probability:.4}")
    })
}

/// One line for each: JSON, or `text` behind the file that it is of, if it is of one.
fn print<T: Serialize>(
    found: &[T],
    arguments: &Predict,
    text: impl Fn(&T) -> String,
) -> Result<()> {
    for (index, one) in found.iter().enumerate() {
        if arguments.json {
            print_line(&serde_json::to_string(one)?)?;
        } else {
            let file = arguments.images.get(index);
            let file = file.map_or_else(String::new, |file| format!("{}\t", file.display()));
            print_line(&format!("{file}{}", text(one)))?;
        }
    }
    Ok(())
}
