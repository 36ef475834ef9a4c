//! `taper predict`: labels for texts and images, captions, which text belongs to an image, tags for
//! words, and answers to questions.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::json;
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
use taper_run::{LoadedRun, Notice, RunFolder, answer_each};

use crate::arguments::Predict;
use crate::bars::sentence_bar;
use crate::items::{Faults, SpelledLines};
use crate::text::{name_of, print_line, read_lines, say, visible};

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
    let texts = lines_for(&run, arguments)?;
    if let Some(first) = first_with_tab(&texts, &run.config.data.labelled) {
        let (path, line) = (name_of(&arguments.input).into(), first as u64 + 1);
        say(&Notice::TabInText { path, line }.to_string());
    }
    let bar = sentence_bar(Some(texts.len() as u64), "labelling");
    let found = predict(&run, &texts, |done| bar.set_position(done as u64))
        .with_context(|| name_of(&arguments.input))?;
    bar.finish_and_clear();
    print_labels(found, arguments)
}

fn tags(arguments: &Predict) -> Result<()> {
    let run: LoadedRun<TokenTagger> = load(arguments)?;
    if let Some(file) = arguments.images.first() {
        bail!("{}: the run tags texts: name a file of them with --input", file.display());
    }
    let texts = lines_for(&run, arguments)?;
    let bar = sentence_bar(Some(texts.len() as u64), "tagging");
    let tokenizer = run.tokenizers.target();
    let fit = |(index, text): (usize, &String)| {
        tokenizer.check_spelled(text).with_context(|| format!("line {}", index + 1))?;
        Ok(text.clone())
    };
    let found = answer_each(texts.iter().enumerate().map(fit), |texts| {
        predict_tags(&run, &texts, |done| bar.set_position(done as u64))
    });
    let found = found.with_context(|| name_of(&arguments.input))?;
    bar.finish_and_clear();
    print(found, arguments, |text| {
        let line = |(word, tag): (&String, &String)| format!("{word}\t{tag}\n");
        text.words.iter().zip(&text.tags).map(line).collect()
    })
}

fn answers(arguments: &Predict) -> Result<()> {
    let run: LoadedRun<SpanExtractor> = load(arguments)?;
    if let Some(file) = arguments.images.first() {
        bail!("{}: the run answers questions: name a file of them with --input", file.display());
    }
    let lines = lines_for(&run, arguments)?;
    let tokenizer = run.tokenizers.target();
    let question = |(index, line): (usize, &String)| -> Result<QuestionInContext> {
        let wrong = || format!("line {}: expected {QUESTION}", index + 1);
        let question: QuestionInContext = serde_json::from_str(line).with_context(wrong)?;
        for (key, text) in [("question", &question.question), ("context", &question.context)] {
            let place = || format!("line {}: \"{key}\"", index + 1);
            if text.trim().is_empty() {
                bail!("{} is empty", place());
            }
            tokenizer.check_spelled(text).with_context(place)?;
        }
        Ok(question)
    };
    let bar = sentence_bar(Some(lines.len() as u64), "answering");
    let found = answer_each(lines.iter().enumerate().map(question), |questions| {
        predict_answers(&run, &questions, |done| bar.set_position(done as u64))
    });
    let found = found.with_context(|| name_of(&arguments.input))?;
    bar.finish_and_clear();
    print(found, arguments, |found| format!("{}\t{:.4}", found.answer, found.probability))
}

/// The lines that a run reads, of which it is told which spell special tokens.
fn lines_for<M>(run: &LoadedRun<M>, arguments: &Predict) -> Result<Vec<String>> {
    let lines = read_lines(&arguments.input)?;
    SpelledLines::new(run.tokenizers.target(), arguments.special_tokens)
        .look_at_lines(&lines, &name_of(&arguments.input));
    Ok(lines)
}

fn images(arguments: &Predict) -> Result<()> {
    let files = pictures(arguments, "labels")?;
    let run: LoadedRun<ImageClassifier> = load(arguments)?;
    let pictures = arguments.attention.as_deref().map(|folder| pictures_of(files, folder));
    let pictures = pictures.transpose()?.unwrap_or_default();
    let bar = sentence_bar(Some(files.len() as u64), "labelling");
    let found = predict_images(&run, files, |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    // Files without an answer have no picture either.
    for ((file, to), _) in files.iter().zip(pictures).zip(&found).filter(|(_, one)| one.is_ok()) {
        draw_attention(&run, file, &to)?;
    }
    print_labels(found, arguments)
}

fn captions(arguments: &Predict) -> Result<()> {
    let files = pictures(arguments, "describes")?;
    let run: LoadedRun<ImageCaptioner> = load(arguments)?;
    let bar = sentence_bar(Some(files.len() as u64), "describing");
    let found = describe_images(&run, files, |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    print(found, arguments, |caption| caption.text.clone())
}

fn matches(arguments: &Predict) -> Result<()> {
    let files = pictures(arguments, "compares")?;
    let run: LoadedRun<ContrastiveModel> = load(arguments)?;
    let bar = sentence_bar(Some(files.len() as u64), "comparing");
    let prompts = &arguments.prompt;
    let found = match_images(&run, files, prompts, |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    print_labels(found, arguments)
}

/// The run, which takes special tokens that are written as the arguments say.
fn load<M: TaskModel>(arguments: &Predict) -> Result<LoadedRun<M>> {
    let mut run = arguments.weights.load(&arguments.run, &arguments.overrides.set)?;
    run.tokenizers = run.tokenizers.with_spelled(arguments.special_tokens.rule.into());
    Ok(run)
}

/// The files of a run that does something with images.
fn pictures<'a>(arguments: &'a Predict, does: &str) -> Result<&'a [PathBuf]> {
    if arguments.images.is_empty() {
        bail!("the run {does} images: name PNG or JPEG files after it");
    }
    Ok(&arguments.images)
}

/// For each file the picture of its name in `folder`, which is made.
fn pictures_of(files: &[PathBuf], folder: &Path) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let picture = |file: &PathBuf| {
        let stem = file.file_stem().unwrap_or_default();
        let to = folder.join(stem).with_extension("png");
        if to.exists() {
            bail!("{} exists already and is left as it is", to.display());
        }
        Ok(to)
    };
    files.iter().map(picture).collect()
}

fn print_labels(found: Vec<Result<Prediction>>, arguments: &Predict) -> Result<()> {
    print(found, arguments, |prediction| {
        let Prediction { label, probability, .. } = prediction;
        format!("{label}\t{probability:.4}")
    })
}

/// One line for each: JSON, or `text` behind the file that it is of, if it is of one.
fn print<T: Serialize>(
    found: Vec<Result<T>>,
    arguments: &Predict,
    text: impl Fn(&T) -> String,
) -> Result<()> {
    let (mut faults, all) = (Faults::new(arguments.strict), found.len());
    for (index, one) in found.into_iter().enumerate() {
        let file = arguments.images.get(index);
        let (record, text) = match one {
            Ok(one) => (serde_json::to_string(&one)?, text(&one)),
            Err(error) => {
                let message = faults.note(error)?;
                let record = match file {
                    Some(file) => json!({ "image": file, "error": message }),
                    None => json!({ "line": index + 1, "error": message }),
                };
                (record.to_string(), String::new())
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
