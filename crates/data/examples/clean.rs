//! Measures the speed of the cleaning rules in sentence pairs per second on one core: the speed of
//! each rule, and of all rules together.
//!
//! `cargo run --release -p taper-data --example clean -- FOLDER STEM SOURCE TARGET`
//!
//! Language identification is not measured, because its speed depends only on its model. Each
//! number is the best of three passes over the pairs in memory.

use std::error::Error;
use std::time::Instant;

use taper_data::{
    Cleaner, CleaningConfig, DataConfig, Direction, NearDuplicates, NearKeys, RawPair, TextRules,
    read_pairs,
};

/// Smallest Jaccard index at which two pairs count as near duplicates.
const THRESHOLD: f64 = 0.8;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, stem, source, target] = arguments.as_slice() else {
        return Err("usage: clean FOLDER STEM SOURCE TARGET".into());
    };
    let mut config = DataConfig { dir: folder.into(), train: stem.into(), ..DataConfig::default() };
    config.source_language.clone_from(source);
    config.target_language.clone_from(target);
    let pairs = read_pairs(&config, stem.as_str())?;
    let characters: usize = pairs.iter().map(|pair| pair.source.len() + pair.target.len()).sum();
    println!("{} pairs of {} bytes on average", pairs.len(), characters / pairs.len());

    let off = CleaningConfig::default;
    let all = CleaningConfig {
        drop_copies: true,
        same_digits: true,
        same_case: true,
        min_own_script: 0.5,
        ..off()
    };
    let direction = || Direction::new(source, target);
    let mut together = 0.0;
    for (name, rules) in [
        ("drop_copies", CleaningConfig { drop_copies: true, ..off() }),
        ("same_digits", CleaningConfig { same_digits: true, ..off() }),
        ("same_case", CleaningConfig { same_case: true, ..off() }),
        ("min_own_script", CleaningConfig { min_own_script: 0.5, ..off() }),
        ("all of these", all),
    ] {
        let rules = TextRules::new(&rules, direction(), "")?.ok_or("no rules")?;
        let is_kept = |pair: &RawPair| rules.check(&pair.source, &pair.target).is_ok();
        together = show(name, &pairs, || pairs.iter().filter(|pair| is_kept(pair)).count());
    }
    let cleaner = Cleaner::new(&off());
    let is_kept = |pair: &RawPair| cleaner.check_text(&pair.source, &pair.target).is_ok();
    together += show("limits", &pairs, || pairs.iter().filter(|pair| is_kept(pair)).count());
    let length = |pair: &RawPair| pair.source.chars().count() + pair.target.chars().count();
    together += show("characters", &pairs, || pairs.iter().filter(|one| length(one) > 1).count());
    let near = NearKeys::new(THRESHOLD);
    let keys = |pair: &RawPair| near.for_pair(&pair.source, &pair.target);
    let all_keys: Vec<Vec<u32>> = pairs.iter().map(keys).collect();
    together += show("near_duplicates, keys", &pairs, || {
        pairs.iter().filter(|pair| !keys(pair).is_empty()).count()
    });
    let path = std::env::temp_dir().join(format!("clean-{}", std::process::id()));
    let take = || {
        let mut earlier = NearDuplicates::new(THRESHOLD, &path)?;
        let mut kept = 0;
        for (pair, keys) in pairs.iter().zip(&all_keys) {
            kept += usize::from(earlier.take(keys, &pair.source, &pair.target)?);
        }
        Ok::<_, taper_data::Error>(kept)
    };
    take()?;
    together += show("near_duplicates, joining", &pairs, || take().unwrap_or(0));
    println!("{:28}{:>12.0} pairs/s", "together", pairs.len() as f64 / together);
    Ok(())
}

/// Measures and prints the time of `work`, which returns the number of pairs that it keeps. Returns
/// the seconds of the fastest pass.
fn show(name: &str, pairs: &[RawPair], work: impl Fn() -> usize) -> f64 {
    let (mut seconds, mut kept) = (f64::INFINITY, 0);
    for _ in 0..3 {
        let began = Instant::now();
        kept = work();
        seconds = began.elapsed().as_secs_f64().min(seconds);
    }
    println!("{name:28}{:>12.0} pairs/s, {kept} kept", pairs.len() as f64 / seconds);
    seconds
}
