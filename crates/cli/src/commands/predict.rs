//! `taper predict`: labels for texts and images.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use taper_data::Task;
use taper_model::{ImageClassifier, TextClassifier};
use taper_run::attention::draw_attention;
use taper_run::prediction::{Prediction, predict, predict_images};
use taper_run::{LoadedRun, RunFolder};

use crate::arguments::Predict;
use crate::progress::sentence_bar;
use crate::text::{print_line, read_lines};

/// Runs the command: one line for each text or image, the label and its probability.
pub(crate) fn run(arguments: &Predict) -> Result<()> {
    let task = RunFolder::open(&arguments.run)?.load_config(&[])?.task;
    match task {
        Task::ImageClassification => images(arguments),
        _ => texts(arguments),
    }
}

fn texts(arguments: &Predict) -> Result<()> {
    let run: LoadedRun<TextClassifier> = arguments.weights.load(&arguments.run, &[])?;
    if let Some(file) = arguments.images.iter().chain(&arguments.attention).next() {
        bail!("{}: the run labels texts: name a file of them with --input", file.display());
    }
    let texts = read_lines(&arguments.input)?;
    let bar = sentence_bar(Some(texts.len() as u64), "labelling");
    let found = predict(&run, &texts, |done| bar.set_position(done as u64))
        .with_context(|| arguments.input.display().to_string())?;
    bar.finish_and_clear();
    print(found, arguments, |_| String::new())
}

fn images(arguments: &Predict) -> Result<()> {
    let files = &arguments.images;
    if files.is_empty() {
        bail!("the run labels images: name PNG or JPEG files after it");
    }
    let run: LoadedRun<ImageClassifier> = arguments.weights.load(&arguments.run, &[])?;
    if let Some(folder) = &arguments.attention {
        draw(&run, files, folder)?;
    }
    let bar = sentence_bar(Some(files.len() as u64), "labelling");
    let found = predict_images(&run, files, |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    print(found, arguments, |index| format!("{}\t", files[index].display()))
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

/// One line for each, which `before` begins where it is no JSON.
fn print(
    found: Vec<Prediction>,
    arguments: &Predict,
    before: impl Fn(usize) -> String,
) -> Result<()> {
    for (index, prediction) in found.into_iter().enumerate() {
        if arguments.json {
            print_line(&serde_json::to_string(&prediction)?)?;
        } else {
            let Prediction { label, probability, .. } = prediction;
            print_line(&format!("{}{label}\t{probability:.4}", before(index)))?;
        }
    }
    Ok(())
}
