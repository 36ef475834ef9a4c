//! Tests searches that pause for other work, and that end for sentences whose outputs are no longer
//! wanted.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use common::{HashModel, random_sources};
use taper_decoding::{
    Control, DecodingConfig, Hypothesis, SamplingConfig, Sentence, Translator, generate,
};

/// Control that cancels every third sentence after `after` calls of `between_steps` (pauses).
#[derive(Debug)]
struct Leaving {
    after: usize,
    pauses: AtomicUsize,
}

impl Leaving {
    fn after(after: usize) -> Self {
        Self { after, pauses: AtomicUsize::new(0) }
    }

    fn pauses(&self) -> usize {
        self.pauses.load(Ordering::Relaxed)
    }
}

impl Control for Leaving {
    fn between_steps(&self) {
        self.pauses.fetch_add(1, Ordering::Relaxed);
    }

    fn is_cancelled(&self, sentence: usize) -> bool {
        sentence % 3 == 1 && self.pauses() > self.after
    }
}

fn model() -> HashModel {
    let mut model = HashModel::new(61);
    model.vocabulary = 12;
    model.end_bias = -1.0;
    model
}

fn searches() -> [DecodingConfig; 3] {
    let sampling = SamplingConfig { temperature: 1.0, ..SamplingConfig::default() };
    [
        DecodingConfig { beam_size: 4, n_best: 2, ..DecodingConfig::default() },
        DecodingConfig { beam_size: 1, ..DecodingConfig::default() },
        DecodingConfig { n_best: 3, sampling, ..DecodingConfig::default() },
    ]
}

/// Checks the results `found` of a search in which every third sentence was cancelled against the
/// results `whole` of a search without a control. The results of other sentences must be the same.
/// Those of cancelled sentences must only be outputs that had ended before the sentence was
/// cancelled.
fn only_those_that_left_are_missing(found: &[Vec<Hypothesis>], whole: &[Vec<Hypothesis>]) {
    assert_eq!(found.len(), whole.len());
    let mut missing = 0;
    for (sentence, (found, whole)) in found.iter().zip(whole).enumerate() {
        if sentence % 3 == 1 {
            assert!(found.iter().all(|one| whole.contains(one)), "sentence {sentence}");
            missing += usize::from(found.is_empty());
        } else {
            assert_eq!(found, whole, "sentence {sentence}");
        }
    }
    assert!(missing > 0, "every sentence has an output");
}

#[test]
fn cancelled_sentences_leave_between_steps_and_change_no_other() {
    let sources: Vec<Vec<u32>> = random_sources(30, 61);
    for config in searches() {
        let whole_model = model();
        let translator = Translator::new(&whole_model, config.clone()).expect("valid");
        let whole = translator.translate(&sources).expect("decodes");
        let rows = whole_model.rows_stepped.load(Ordering::Relaxed);
        // Sentences are cancelled before the batch begins, after its first step, and later.
        let mut stepped = Vec::new();
        for after in [0, 2, 4] {
            let (model, control) = (model(), Leaving::after(after));
            let translator = Translator::new(&model, config.clone()).expect("valid");
            let translator = translator.controlled(&control);
            let found = translator.translate(&sources).expect("decodes");
            only_those_that_left_are_missing(&found, &whole);
            stepped.push(model.rows_stepped.load(Ordering::Relaxed));
        }
        assert!(stepped[0] < stepped[1] && stepped[1] < stepped[2], "{stepped:?}");
        assert!(stepped[2] < rows, "{stepped:?} of {rows}");
        // The sentences cancelled after the first step took part in this step.
        assert_eq!(stepped[1] - stepped[0], 10 * first_rows(&config), "{config:?}");
    }
}

/// Returns the number of rows of a sentence at the first step.
fn first_rows(config: &DecodingConfig) -> usize {
    if config.sampling.is_active() { config.n_best } else { 1 }
}

#[test]
fn threads_that_share_a_search_drop_the_same() {
    let sources: Vec<Vec<u32>> = random_sources(300, 62);
    let config = DecodingConfig { beam_size: 4, batch_rows: 128, ..DecodingConfig::default() };
    let mut model = model();
    model.apart = true;
    let whole = Translator::new(&model, config.clone()).expect("valid").translate(&sources);
    let control = Leaving::after(0);
    let translator = Translator::new(&model, config).expect("valid").controlled(&control);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().expect("a pool");
    let found = pool.install(|| translator.translate(&sources)).expect("decodes");
    only_those_that_left_are_missing(&found, &whole.expect("decodes"));
}

#[test]
fn a_search_of_which_nothing_is_wanted_asks_the_model_for_nothing() {
    #[derive(Debug)]
    struct Nobody;
    impl Control for Nobody {
        fn is_cancelled(&self, _: usize) -> bool {
            true
        }
    }
    let sources = random_sources(20, 63);
    let targets: Vec<Vec<u32>> = vec![vec![5, 6]; 20];
    for config in searches() {
        let model = model();
        let translator = Translator::new(&model, config.clone()).expect("valid");
        let translator = translator.controlled(&Nobody);
        assert!(translator.translate(&sources).expect("decodes").iter().all(Vec::is_empty));
        translator.score(&sources, &targets).expect("scores");
        let prompts = Sentence::plain(&sources);
        let told = |_| unreachable!("no token of what nobody wants");
        let found = generate(&model, &prompts, &config, &Nobody, told).expect("decodes");
        assert!(found.iter().all(Vec::is_empty));
        assert_eq!(model.starts.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn generation_and_forced_scoring_drop_as_a_search_does() {
    let sources = random_sources(30, 64);
    let prompts = Sentence::plain(&sources);
    let goes_on = |_| std::ops::ControlFlow::Continue(());
    for config in &searches()[1..] {
        let model = model();
        let whole = generate(&model, &prompts, config, &(), goes_on).expect("decodes");
        let found = generate(&model, &prompts, config, &Leaving::after(2), goes_on);
        only_those_that_left_are_missing(&found.expect("decodes"), &whole);
    }
    let targets: Vec<Vec<u32>> = vec![vec![5, 6, 7, 8]; 30];
    let (model, config) = (model(), DecodingConfig::default());
    let translator = Translator::new(&model, config).expect("valid");
    let whole = translator.score(&sources, &targets).expect("scores");
    let control = Leaving::after(2);
    let found = translator.controlled(&control).score(&sources, &targets).expect("scores");
    for (sentence, (found, whole)) in found.iter().zip(&whole).enumerate() {
        if sentence % 3 == 1 {
            assert_eq!(found.length, 1, "sentence {sentence} was dropped after a token");
        } else {
            assert_eq!(found, whole, "sentence {sentence}");
        }
    }
}

/// Control that runs another search in each pause.
#[derive(Debug)]
struct Interrupting<'m> {
    other: Translator<'m, HashModel>,
    sources: Vec<Vec<u32>>,
    expected: Vec<Vec<Hypothesis>>,
    pauses: AtomicUsize,
}

impl Control for Interrupting<'_> {
    fn between_steps(&self) {
        self.pauses.fetch_add(1, Ordering::Relaxed);
        assert_eq!(self.other.translate(&self.sources).expect("decodes"), self.expected);
    }
}

#[test]
fn a_search_goes_on_where_another_has_interrupted_it() {
    let (one, other) = (model(), HashModel::new(65));
    let (sources, others) = (random_sources(20, 66), random_sources(3, 67));
    for config in searches() {
        let translator = Translator::new(&one, config.clone()).expect("valid");
        let whole = translator.translate(&sources).expect("decodes");
        let other = Translator::new(&other, config.clone()).expect("valid");
        let expected = other.translate(&others).expect("decodes");
        let pauses = AtomicUsize::new(0);
        let control = Interrupting { other, sources: others.clone(), expected, pauses };
        let found = translator.controlled(&control).translate(&sources).expect("decodes");
        assert_eq!(found, whole);
        assert!(control.pauses.into_inner() > 2);
    }
}
