//! Students: small models that learn from the translations of large ones.
//!
//! [`write_pipeline`] writes a recipe (the settings of a training) and a pipeline: a list of steps
//! that make the training text (the teachers' translations), train the student, and make a page
//! that translates in a browser. Recipe and pipeline are ordinary files that can be read and
//! changed. After the pipeline has run, [`compare`] measures teacher and student on the same texts.

mod comparison;
mod recipe;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use taper_plots::Language;
use taper_trainer::read_state;

use crate::config::RunConfig;
use crate::folder::RunFolder;
use crate::folder::files::write_atomically;
use crate::pipeline::absolute;
use crate::tasks::entry;

pub use comparison::{Measurement, TestSetScore, compare};

/// File of the student's recipe.
const RECIPE: &str = "student.toml";
/// File of the pipeline.
const PIPELINE: &str = "pipeline.toml";
/// Name of the step that trains the student. The folder of the student's run has the same name.
const STUDENT: &str = "student";
/// Name of the step that makes the student's shortlist (target tokens that translations may
/// contain).
const SHORTLIST: &str = "shortlist";
/// Name of the step that writes the page. The file of the page has the same name, with the
/// extension `html`.
const PAGE: &str = "page";

/// Settings of a student.
#[derive(Debug)]
pub struct StudentSettings<'a> {
    /// Runs that translate as an ensemble. The student has the data and the tokenizer of the first.
    pub teachers: &'a [PathBuf],
    /// Folder for the recipe, the pipeline and their results.
    pub folder: &'a Path,
    /// Changed keys of the student's recipe, as `key=value`. Relative paths in these values are
    /// relative to the current folder when the pipeline is run.
    pub overrides: &'a [String],
    /// Page to write at the end; `None` to write no page.
    pub page: Option<StudentPage<'a>>,
}

/// Page that translates with a student.
#[derive(Debug, Clone, Copy)]
pub struct StudentPage<'a> {
    /// File of the WebAssembly module.
    pub module: &'a Path,
    /// Language of the page.
    pub language: Language,
}

/// Files of a student.
#[derive(Debug, Clone)]
pub struct StudentFiles {
    /// File of the pipeline.
    pub pipeline: PathBuf,
    /// Folder of the student's run, which the pipeline trains.
    pub run: PathBuf,
    /// Page that the pipeline writes; `None` if it writes no page.
    pub page: Option<PathBuf>,
    /// Whether the training of the first teacher began with the weights of another run. The
    /// student's recipe has the settings of this training, such as the number of updates. They may
    /// then be too few for a student, because its training begins with random weights.
    pub teacher_was_trained_further: bool,
}

/// Writes the recipe and the pipeline of a student. Files of an earlier call with the same settings
/// are left as they are.
///
/// # Errors
/// When the first teacher does not translate, has several directions or no training text; when
/// `overrides` do not fit the recipe; when the folder has files of another student; or when a file
/// cannot be read or written.
pub fn write_pipeline(settings: &StudentSettings<'_>) -> Result<StudentFiles> {
    let Some(teacher) = settings.teachers.first() else { bail!("name a run that translates") };
    let folder = absolute(settings.folder)?;
    let config = RunFolder::open(teacher)?.load_config(&[])?;
    require_one_direction(&config).with_context(|| teacher.display().to_string())?;
    let (path, text) = (folder.join(RECIPE), recipe::text(teacher, &config)?);
    RunConfig::parse(&text, &path, settings.overrides, None)?;
    write_once(&path, &text)?;
    let pipeline = folder.join(PIPELINE);
    write_once(&pipeline, &pipeline_text(settings)?)?;
    let page = settings.page.map(|_| folder.join(PAGE).with_extension("html"));
    let (_, checkpoint) = RunFolder::of_weights(teacher)?;
    let teacher_was_trained_further = read_state(&checkpoint)?.parent.is_some();
    Ok(StudentFiles { pipeline, run: folder.join(STUDENT), page, teacher_was_trained_further })
}

fn require_one_direction(config: &RunConfig) -> Result<()> {
    ensure!(
        entry(config.task).translates,
        "its task is {}, but a student learns from translations: name a run that translates",
        config.task
    );
    ensure!(
        !config.data.is_multilingual(),
        "the run has several directions of translation, and a student has one: train a run of one \
         direction"
    );
    ensure!(
        config.data.train.iter().next().is_some(),
        "the run has no training text (data.train) that it could translate for a student: if the \
         model was imported, fine-tune it first"
    );
    Ok(())
}

/// Text of the pipeline's file.
fn pipeline_text(settings: &StudentSettings<'_>) -> Result<String> {
    let quoted = |path: &Path| -> Result<String> {
        Ok(toml::Value::String(absolute(path)?.display().to_string()).to_string())
    };
    let teachers: Vec<String> =
        settings.teachers.iter().map(|teacher| quoted(teacher)).collect::<Result<_>>()?;
    let mut text = format!(
        "# Steps from a teacher to a student that translates as it does.\n\n\
         folder = \".\"\n\n\
         [steps.text.distill]\n\
         runs = [{}]\n\
         interpolate = true\n\n\
         [steps.{STUDENT}.train]\n\
         recipe = \"{RECIPE}\"\n\
         text = [\"text\"]\n",
        teachers.join(", ")
    );
    if !settings.overrides.is_empty() {
        let overrides = settings.overrides.iter().map(String::as_str).collect::<Vec<_>>();
        text.push_str(&format!("set = {}\n", toml::Value::from(overrides)));
    }
    text.push_str(&format!("\n[steps.{SHORTLIST}.shortlist]\nrun = \"{STUDENT}\"\n"));
    if let Some(page) = settings.page {
        let language = page.language.choose("en", "zh");
        text.push_str(&format!(
            "\n[steps.{PAGE}.page]\n\
             run = \"{SHORTLIST}\"\n\
             module = {}\n\
             language = \"{language}\"\n",
            quoted(page.module)?
        ));
    }
    Ok(text)
}

/// Writes `text` to a file, or checks that it contains this text already.
///
/// # Errors
/// When the file has another text, or cannot be read or written.
fn write_once(path: &Path, text: &str) -> Result<()> {
    if !path.exists() {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
        }
        return write_atomically(path, text.as_bytes());
    }
    let present = taper_data::read_regular(path, 1 << 24)?;
    ensure!(
        present == text.as_bytes(),
        "{} was changed, or belongs to a student with other settings; run the pipeline beside it \
         to continue with this file, or choose another folder",
        path.display()
    );
    Ok(())
}
