//! Training and translating from Rust: a phrase book of eight lines, learned by heart.
//!
//!     cargo run --release -p taper-run --example train
//!
//! A recipe is a text in TOML with the settings of a training. Training by a recipe makes a run,
//! which is a folder on disk. Here, this folder is temporary. A run in a folder that is kept can
//! also be opened by the commands `taper resume`, `taper translate` and `taper serve`.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use taper_run::{
    LineTranslator, LoadSettings, LoadedRun, RunConfig, RunEvent, RunFolder, TrainSettings,
    TranslationSettings, training,
};
use taper_trainer::Event;

/// Phrases with their translations.
const PHRASES: [(&str, &str); 8] = [
    ("good morning", "guten Morgen"),
    ("good evening", "guten Abend"),
    ("good night", "gute Nacht"),
    ("good luck", "viel Glück"),
    ("many thanks", "vielen Dank"),
    ("many years", "viele Jahre"),
    ("see you soon", "bis bald"),
    ("see you tomorrow", "bis morgen"),
];

/// Recipe, with the same text as in a file. Keys that it does not name have their defaults.
const RECIPE: &str = r#"
device = "cpu"
dtype = "f32"

[data]
dir = "."
source_language = "en"
target_language = "de"
train = "phrases"
validation = "known"
test = []

[data.tokenizer]
kind = "char"

[data.batching]
max_tokens = 512

[model]
d_model = 64
d_ff = 128
heads = 4
encoder_layers = 1
decoder_layers = 1
embedding_dropout = 0.0
residual_dropout = 0.0

[training]
label_smoothing = 0.0
max_updates = 300
log_every = 50
validate_every = 300

[training.schedule]
kind = "cosine"
learning_rate = 3e-3
warmup = 20

[decoding]
beam_size = 2
max_length = 30
"#;

/// Trains in `folder`, and returns the model's translations of `lines`.
fn run(folder: &Path, lines: &[String]) -> Result<Vec<String>> {
    let side = |of: fn(&(&str, &str)) -> String| PHRASES.iter().map(of).collect::<String>();
    // The validation text is the training text, because the model is to know it by heart.
    for name in ["phrases", "known"] {
        fs::write(folder.join(format!("{name}.en")), side(|(source, _)| format!("{source}\n")))?;
        fs::write(folder.join(format!("{name}.de")), side(|(_, target)| format!("{target}\n")))?;
    }
    let config = RunConfig::parse(RECIPE, &folder.join("recipe.toml"), &[], None)?;

    let run = RunFolder::new(&folder.join("run"));
    let mut observer = |event: &RunEvent<'_>| {
        if let RunEvent::Training(Event::Log { step, nll, .. }) = event {
            println!("update {step}: {nll:.3} nats for each letter");
        }
        Ok(())
    };
    // A program can set this flag to stop training. The run is then saved, and can be resumed.
    let stop = AtomicBool::new(false);
    training::start(&run, &config, &TrainSettings::default(), &mut observer, &stop)?;

    let loaded = LoadedRun::open(run.root(), &LoadSettings::default())?;
    let translator =
        LineTranslator::new(&loaded, &TranslationSettings::from_config(&loaded.config))?;
    let translated = translator.translate(lines, &[], 1, |_| {})?;
    translated.map(|line| Ok(line?.translations[0].text.clone())).collect()
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lines = PHRASES.map(|(source, _)| source.to_owned());
    for (source, target) in lines.iter().zip(run(folder.path(), &lines)?) {
        println!("{source} → {target}");
    }
    Ok(())
}

#[test]
fn it_learns_its_phrases() {
    let folder = tempfile::tempdir().expect("a folder");
    let lines = PHRASES.map(|(source, _)| source.to_owned());
    let targets = PHRASES.map(|(_, target)| target.to_owned());
    assert_eq!(run(folder.path(), &lines).expect("trained"), targets);
}
