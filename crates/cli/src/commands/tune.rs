//! `taper tune`: the settings of the search that translate the validation set best.

use anyhow::{Result, bail};
use taper_decoding::LengthSettings;
use taper_model::TranslationModel;
use taper_run::evaluation::{Trial, Tuning, TuningEvent, TuningMetric, tune};
use taper_run::folder::RunLock;
use taper_run::{LoadedRun, RunFolder};

use crate::arguments::Tune;
use crate::bars::sentence_bar;
use crate::progress::TestReporter;
use crate::text::{print_line, quoted};

/// Number of rows shown for each beam, the best ones.
const SHOWN: usize = 3;

/// Runs the command.
pub(crate) fn run(arguments: &Tune) -> Result<()> {
    if arguments.sentences == 0 {
        bail!("--sentences must be at least 1");
    }
    let folder = RunFolder::open(&arguments.run)?;
    // Held to the end, so that no other process writes the configuration in the meantime.
    let _lock = match arguments.dry_run {
        true => None,
        false => Some(RunLock::acquire(folder.root(), &mut TestReporter::default())?),
    };
    let run: LoadedRun<TranslationModel> =
        arguments.weights.load(&arguments.run, &arguments.overrides.set)?;
    let split = arguments.split.clone().unwrap_or_else(|| run.config.data.validation.name());
    if split.is_empty() {
        bail!(
            "the run has no validation set (data.validation is empty): name a split with --split"
        );
    }
    if !arguments.json {
        print_line(&format!(
            "weights of step {}, {}; translating {split}",
            run.state.step,
            run.checkpoint.display()
        ))?;
        print_line(
            "beam  length penalty  length reward  shortfall   BLEU  brevity  length  chrF2",
        )?;
    }
    let tuning = search(&run, &split, arguments)?;
    let written = tuning.best != tuning.before && !arguments.dry_run;
    if written {
        // Overrides of the command line apply to this command alone.
        let mut config = folder.load_config(&[])?;
        tuning.best.apply(&mut config.decoding);
        if config.decoding.shortfall_penalty > 0.0 {
            config.decoding.expected_length = tuning.expected_length;
        }
        config.validate()?;
        folder.save_config(&config)?;
    }
    if arguments.json {
        let mut record = serde_json::to_value(&tuning)?;
        record["written"] = written.into();
        return print_line(&serde_json::to_string_pretty(&record)?);
    }
    print_line(&conclusion(&tuning, written.then(|| quoted(&folder.config()))))
}

/// Best settings, and the file that they were written to.
fn conclusion(tuning: &Tuning, written: Option<String>) -> String {
    let Trial { beam_size, lengths, .. } = tuning.best;
    let LengthSettings { length_penalty, length_reward, shortfall_penalty } = lengths;
    let settings = format!(
        "decoding.beam_size = {beam_size}, length_penalty = {length_penalty}, length_reward = \
         {length_reward}, shortfall_penalty = {shortfall_penalty}"
    );
    let tried = tuning.trials.len();
    match (tuning.best != tuning.before, written) {
        (false, _) => format!("the run's settings are the best of {tried}: {settings}"),
        (true, Some(file)) => format!("best of {tried}: {settings}; written into {file}"),
        (true, None) => format!("best of {tried}: {settings}; the run is left as it is"),
    }
}

/// Tries the settings, and shows the best of each beam.
fn search(run: &LoadedRun<TranslationModel>, split: &str, arguments: &Tune) -> Result<Tuning> {
    let grid = arguments.grid();
    let metric = arguments.metric.into();
    let own = run.config.decoding.clone();
    let mut bar = None;
    tune(run, split, arguments.sentences, &grid, metric, |event| {
        match event {
            TuningEvent::Translated { beam_size, done, sentences } => bar
                .get_or_insert_with(|| {
                    sentence_bar(Some(sentences as u64), &format!("beam {beam_size}"))
                })
                .set_position(done as u64),
            TuningEvent::Scored(trials) => {
                if let Some(bar) = bar.take() {
                    bar.finish_and_clear();
                }
                if !arguments.json {
                    for trial in shown(trials, metric, |trial| trial.is_of(&own)) {
                        let mark = if trial.is_of(&own) { "  the run's" } else { "" };
                        print_line(&format!("{}{mark}", row(trial)))?;
                    }
                }
            }
        }
        Ok(())
    })
}

/// Returns the best trials of a beam, and the trial of the run's own settings.
fn shown(
    trials: &[Trial],
    metric: TuningMetric,
    is_own: impl Fn(&Trial) -> bool,
) -> impl Iterator<Item = &Trial> {
    let mut order: Vec<&Trial> = trials.iter().collect();
    order.sort_by(|one, other| other.score(metric).total_cmp(&one.score(metric)));
    let places = order.into_iter().enumerate();
    places.filter(move |(place, trial)| *place < SHOWN || is_own(trial)).map(|(_, trial)| trial)
}

fn row(trial: &Trial) -> String {
    format!(
        "{:4}  {:14}  {:13}  {:9}  {:5.2}  {:7.3}  {:6.3}  {:5.2}",
        trial.beam_size,
        trial.lengths.length_penalty,
        trial.lengths.length_reward,
        trial.lengths.shortfall_penalty,
        trial.bleu,
        trial.brevity_penalty,
        trial.length_ratio,
        trial.chrf
    )
}
