//! Comparison of a student with its teacher: BLEU and speed on the same texts.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use taper_model::{Model, TranslationModel};

use crate::config::RunConfig;
use crate::evaluation::{ParallelText, TextScores};
use crate::loaded_run::{LoadSettings, LoadedRun, WeightType};
use crate::tasks::TaskModel;
use crate::translation::{LineTranslator, TranslationSettings};

/// Result of a model on test sets.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// Number of parameters.
    pub parameters: usize,
    /// Type of the weights in matrix products.
    pub weights: String,
    /// Size of the beam.
    pub beam_size: usize,
    /// BLEU of each test set.
    pub scores: Vec<TestSetScore>,
    /// Number of words in the sources of all test sets, counted between spaces.
    pub words: usize,
    /// Time of all translations, without loading.
    pub duration: Duration,
}

/// BLEU of a test set.
#[derive(Debug, Clone, PartialEq)]
pub struct TestSetScore {
    /// Name of the set.
    pub name: String,
    /// BLEU, from 0 to 100.
    pub bleu: f64,
}

impl Measurement {
    /// Words of the sources that are translated in a second.
    pub fn words_per_second(&self) -> f64 {
        self.words as f64 / self.duration.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Translates the student's test sets, or its validation set if it has none, with the ensemble
/// `teachers` and with `student`; all of them are runs (folders of trained models). The teachers
/// use the number type of weights and the search settings in their own configurations. The student
/// has weights in int8, as on the page that [`super::write_pipeline`] makes. `progress` receives
/// the number of sentences that each of the two has translated. Returns `None` if the student has
/// neither test sets nor a validation set.
///
/// # Errors
/// When a run cannot be loaded, or a set cannot be read, translated or scored.
pub fn compare(
    teachers: &[PathBuf],
    student: &Path,
    mut progress: impl FnMut(usize),
) -> Result<Option<[Measurement; 2]>> {
    let Some((first, others)) = teachers.split_first() else { bail!("name a teacher") };
    let int8 = LoadSettings { weights: Some(WeightType::Int8), ..LoadSettings::default() };
    let student: LoadedRun = LoadedRun::open(student, &int8)?;
    if sets(&student.config).is_empty() {
        return Ok(None);
    }
    let teacher: LoadedRun = LoadedRun::open(first, &LoadSettings::default())?;
    let of_teachers = measure(&teacher, &student, others, &mut progress)
        .with_context(|| first.display().to_string())?;
    drop(teacher);
    let of_student = measure(&student, &student, &[], &mut progress)?;
    Ok(Some([of_teachers, of_student]))
}

/// Names of the test sets of a run, or of its validation set if it has no test sets.
fn sets(config: &RunConfig) -> Vec<String> {
    let mut sets = TranslationModel::test_sets(config);
    if sets.is_empty() && !config.data.validation.is_empty() {
        sets.push(config.data.validation.name());
    }
    sets
}

/// Measures `run`, as an ensemble with `others`, on the test sets of `student`.
fn measure(
    run: &LoadedRun,
    student: &LoadedRun,
    others: &[PathBuf],
    progress: &mut dyn FnMut(usize),
) -> Result<Measurement> {
    let mut settings = TranslationSettings::from_config(&run.config);
    settings.ensemble = others.to_vec();
    let translator = LineTranslator::new(run, &settings)?;
    let mut measurement = Measurement {
        parameters: run.model.parameters().len(),
        weights: run.weights().to_owned(),
        beam_size: settings.decoding.beam_size,
        scores: Vec::new(),
        words: 0,
        duration: Duration::ZERO,
    };
    let data = &student.config.data;
    for name in sets(&student.config) {
        let text = ParallelText::read(data, data.split(&name))?;
        let began = Instant::now();
        let translations = translator.best(&text.sources, &mut *progress)?.texts;
        measurement.duration += began.elapsed();
        let words = text.sources.iter().map(|source| source.split_whitespace().count());
        measurement.words += words.sum::<usize>();
        let scores = TextScores::new(&translations, &text.references, &student.config.scoring())
            .with_context(|| format!("split `{name}`"))?;
        measurement.scores.push(TestSetScore { name, bleu: scores.bleu.score });
    }
    Ok(measurement)
}
