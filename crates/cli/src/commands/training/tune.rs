//! `taper tune`: finds the search settings that translate the validation set best, or the weights
//! with which the best of several candidate translations is chosen (reranking).

use anyhow::{Result, ensure};
use serde::Serialize;
use taper_decoding::{Criteria, DecodingConfig, LengthSettings};
use taper_model::TranslationModel;
use taper_run::evaluation::{
    Trial, TrialScores, TunedWeights, Tuning, TuningEvent, TuningMetric, WeightTrial, tune,
    tune_weights,
};
use taper_run::folder::RunLock;
use taper_run::{LoadedRun, RunFolder};

use crate::arguments::Tune;
use crate::bars::sentence_bar;
use crate::progress::TestReporter;
use crate::text::{print_line, quoted};

/// Number of the best trials that are shown for each beam size.
const SHOWN: usize = 3;

/// Runs the command.
pub(crate) fn run(arguments: &Tune) -> Result<()> {
    ensure!(arguments.sentences != 0, "--sentences must be at least 1");
    let folder = RunFolder::open(&arguments.run)?;
    // The lock is held to the end, so that no other process writes the configuration in the
    // meantime.
    let _lock = match arguments.dry_run {
        true => None,
        false => Some(RunLock::acquire(folder.root(), &mut TestReporter::default())?),
    };
    let run: LoadedRun<TranslationModel> = arguments.loading.load(&arguments.run)?;
    let split = arguments.split.clone().unwrap_or_else(|| run.config.data.validation.name());
    ensure!(
        !split.is_empty(),
        "the run has no validation set (data.validation is empty): name a split with --split"
    );
    if !arguments.json {
        print_line(&format!(
            "weights of step {}, {}; translating {split}",
            run.state.step,
            run.checkpoint.display()
        ))?;
    }
    if run.config.decoding.reranking.is_active() {
        ensure!(
            !arguments.names_settings(),
            "the run chooses among candidates (decoding.reranking), and the weights of the \
                 choice are tuned: leave beams, penalties and rewards out, or tune them with --set \
                 decoding.reranking.candidates=0"
        );
        let tuned = search_weights(&run, &split, arguments)?;
        let best = (tuned.best != tuned.before).then_some(tuned.best.weights);
        return finish(&folder, arguments, &tuned, conclusion_of_weights(&tuned), |decoding| {
            best.map(|weights| decoding.reranking.set_weights(&weights)).is_some()
        });
    }
    let tuning = search(&run, &split, arguments)?;
    finish(&folder, arguments, &tuning, conclusion(&tuning), |decoding| {
        tuning.best.apply(decoding);
        if decoding.shortfall_penalty > 0.0 {
            decoding.expected_length = tuning.expected_length;
        }
        tuning.best != tuning.before
    })
}

/// Writes the best settings into the run if they are better than the run's own settings. Prints a
/// line with the number of trials, `tried`, and a description of the best settings, `settings`;
/// with `--json`, prints `record` instead. `apply` replaces the run's settings by the best
/// settings, and returns true if they are better.
fn finish(
    folder: &RunFolder,
    arguments: &Tune,
    record: &impl Serialize,
    (tried, settings): (usize, String),
    apply: impl FnOnce(&mut DecodingConfig) -> bool,
) -> Result<()> {
    // Overrides on the command line apply only to this command.
    let mut config = folder.load_config(&[])?;
    let is_better = apply(&mut config.decoding);
    let written = is_better && !arguments.dry_run;
    if written {
        config.validate()?;
        folder.save_config(&config)?;
    }
    if arguments.json {
        let mut record = serde_json::to_value(record)?;
        record["written"] = written.into();
        return print_line(&serde_json::to_string_pretty(&record)?);
    }
    print_line(&match (is_better, written) {
        (false, _) => format!("the run's settings are the best of {tried}: {settings}"),
        (true, true) => {
            format!("best of {tried}: {settings}; written into {}", quoted(&folder.config()))
        }
        (true, false) => format!("best of {tried}: {settings}; the run is left as it is"),
    })
}

/// Formats the weights of reranking with their keys.
fn weights_by_key(weights: &Criteria) -> String {
    let Criteria { utility, model, reverse, language_model } = weights;
    format!(
        "decoding.reranking.utility_weight = {utility}, model_weight = {model}, reverse_weight = \
         {reverse}, language_model_weight = {language_model}"
    )
}

/// Returns the number of sets of weights that were scored, and a description of the best set.
fn conclusion_of_weights(tuned: &TunedWeights) -> (usize, String) {
    (tuned.trials.len() + 1, weights_by_key(&tuned.best.weights))
}

/// Searches for weights from several starting points, and prints the result from each of them.
fn search_weights(
    run: &LoadedRun<TranslationModel>,
    split: &str,
    arguments: &Tune,
) -> Result<TunedWeights> {
    let mut bar = None;
    let metric = arguments.metric.into();
    let tuned = tune_weights(run, split, arguments.sentences, metric, |done, all| {
        bar.get_or_insert_with(|| sentence_bar(Some(all as u64), "candidates"))
            .set_position(done as u64);
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let tuned = tuned?;
    if !arguments.json {
        let TunedWeights { sentences, candidates, .. } = tuned;
        print_line(&format!("{candidates} candidates of {sentences} sentences"))?;
        print_line("utility   model  reverse  language model   BLEU  brevity  length  chrF2")?;
        print_line(&format!("{}  the run's", row_of_weights(&tuned.before)))?;
        for trial in &tuned.trials {
            print_line(&row_of_weights(trial))?;
        }
    }
    Ok(tuned)
}

fn row_of_weights(WeightTrial { weights, scores }: &WeightTrial) -> String {
    let Criteria { utility, model, reverse, language_model } = weights;
    format!("{utility:7.4}  {model:6.4}  {reverse:7.4}  {language_model:14.4}  {}", columns(scores))
}

/// Returns the number of trials, and a description of the best settings.
fn conclusion(tuning: &Tuning) -> (usize, String) {
    let Trial { beam_size, lengths, .. } = tuning.best;
    let LengthSettings { length_penalty, length_reward, shortfall_penalty } = lengths;
    let settings = format!(
        "decoding.beam_size = {beam_size}, length_penalty = {length_penalty}, length_reward = \
         {length_reward}, shortfall_penalty = {shortfall_penalty}"
    );
    (tuning.trials.len(), settings)
}

/// Tries the settings of the grid, and prints the best settings for each beam size.
fn search(run: &LoadedRun<TranslationModel>, split: &str, arguments: &Tune) -> Result<Tuning> {
    let grid = arguments.grid();
    let metric = arguments.metric.into();
    let of_run = run.config.decoding.clone();
    if !arguments.json {
        print_line(
            "beam  length penalty  length reward  shortfall   BLEU  brevity  length  chrF2",
        )?;
    }
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
                    for trial in shown(trials, metric, |trial| trial.is_of(&of_run)) {
                        let mark = if trial.is_of(&of_run) { "  the run's" } else { "" };
                        print_line(&format!("{}{mark}", row(trial)))?;
                    }
                }
            }
        }
        Ok(())
    })
}

/// Returns the [`SHOWN`] best of the trials and the trial with the run's own settings, best first.
/// All `trials` have the same beam size.
fn shown(
    trials: &[Trial],
    metric: TuningMetric,
    is_own: impl Fn(&Trial) -> bool,
) -> impl Iterator<Item = &Trial> {
    let mut order: Vec<&Trial> = trials.iter().collect();
    order.sort_by(|one, other| {
        other.scores.value_of(metric).total_cmp(&one.scores.value_of(metric))
    });
    let places = order.into_iter().enumerate();
    places.filter(move |(place, trial)| *place < SHOWN || is_own(trial)).map(|(_, trial)| trial)
}

fn row(trial: &Trial) -> String {
    format!(
        "{:4}  {:14}  {:13}  {:9}  {}",
        trial.beam_size,
        trial.lengths.length_penalty,
        trial.lengths.length_reward,
        trial.lengths.shortfall_penalty,
        columns(&trial.scores)
    )
}

fn columns(scores: &TrialScores) -> String {
    let TrialScores { bleu, brevity_penalty, length_ratio, chrf } = scores;
    format!("{bleu:5.2}  {brevity_penalty:7.3}  {length_ratio:6.3}  {chrf:5.2}")
}
