//! Measures the time of tokenising a corpus without other work: trains a tokenizer on a split, or
//! loads one, and encodes the split.
//!
//! `cargo run --release -p taper-data --example tokenise -- FOLDER STEM SOURCE TARGET [TOKENIZER]`
//!
//! `scripts/bench/scale.sh` compares this time with the time that the whole preparation of training
//! data takes.

use std::path::PathBuf;
use std::time::Instant;

use taper_data::{DataConfig, PairReader, TokenizerPair};

/// Number of pairs encoded together, in parallel.
const CHUNK: usize = 16_384;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, stem, source, target, tokenizer @ ..] = arguments.as_slice() else {
        return Err("usage: tokenise FOLDER STEM SOURCE TARGET [TOKENIZER]".into());
    };
    let mut config = DataConfig { dir: folder.into(), train: stem.into(), ..DataConfig::default() };
    config.source_language.clone_from(source);
    config.target_language.clone_from(target);
    config.tokenizer.path = tokenizer.first().map(PathBuf::from);

    let began = Instant::now();
    let tokenizers = TokenizerPair::train(&config)?;
    println!("trained in {:.1} s", began.elapsed().as_secs_f64());

    let (mut encoding, mut tokens) = (0.0, 0);
    let mut pairs = PairReader::open(&config, stem)?;
    loop {
        let chunk = pairs.by_ref().take(CHUNK).collect::<Result<Vec<_>, _>>()?;
        if chunk.is_empty() {
            break;
        }
        let sides = [
            (
                tokenizers.source(),
                chunk.iter().map(|pair| pair.source.as_str()).collect::<Vec<_>>(),
            ),
            (tokenizers.target(), chunk.iter().map(|pair| pair.target.as_str()).collect()),
        ];
        let began = Instant::now();
        for (tokenizer, texts) in &sides {
            tokens += tokenizer.encode_batch(texts)?.iter().map(Vec::len).sum::<usize>();
        }
        encoding += began.elapsed().as_secs_f64();
    }
    println!(
        "{tokens} tokens encoded in {encoding:.1} s, of {:.1} s in all",
        began.elapsed().as_secs_f64()
    );
    Ok(())
}
