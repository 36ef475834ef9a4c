//! Measures the time of making the batches of an epoch without other work: opens the tokenised
//! pairs of a run, plans an epoch, and makes every batch of the epoch.
//!
//! `cargo run --release -p taper-data --example walk -- RUN FOLDER STEM SOURCE TARGET MAX_TOKENS`
//!
//! The run is the folder that a training writes. Its recipe (the TOML file with all settings) must
//! have the default cleaning and no validation split, because this program reads its data with
//! these settings. `scripts/bench/scale.sh` makes such a run and calls this program.

use std::path::Path;
use std::time::Instant;

use taper_data::{Corpora, DataConfig, Epoch, PairPlan, prepare_pairs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [run, folder, stem, source, target, max_tokens] = arguments.as_slice() else {
        return Err("usage: walk RUN FOLDER STEM SOURCE TARGET MAX_TOKENS".into());
    };
    let mut config = DataConfig {
        dir: folder.into(),
        train: stem.into(),
        validation: Corpora::default(),
        source_language: source.clone(),
        target_language: target.clone(),
        ..DataConfig::default()
    };
    config.batching.max_tokens = max_tokens.parse()?;

    let began = Instant::now();
    let data = prepare_pairs(&config, Path::new(run))?.train;
    let opened = began.elapsed().as_secs_f64();

    let began = Instant::now();
    let plan = PairPlan::new(&data, &config.batching, Epoch::new(1, 1));
    let planned = began.elapsed().as_secs_f64();

    let began = Instant::now();
    let (mut pairs, mut tokens) = (0, 0);
    for batch in 0..plan.len() {
        let batch = plan.batch(&data, batch)?;
        pairs += batch.indices.len();
        tokens += batch.answers.len();
    }
    let walked = began.elapsed().as_secs_f64();
    println!(
        "{{\"opened\": {opened:.2}, \"planned\": {planned:.2}, \"walked\": {walked:.2}, \
         \"batches\": {}, \"pairs\": {pairs}, \"target_tokens\": {tokens}}}",
        plan.len()
    );
    Ok(())
}
