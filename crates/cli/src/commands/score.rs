//! `taper score`: log-probabilities of given translations.

use anyhow::{Result, bail};
use taper_decoding::Translator;

use crate::arguments::Score;
use crate::progress::sentence_bar;
use crate::text::{print_line, read_lines};
use taper_run::LoadedRun;
use taper_run::translation::{LineLimit, OverlongRule};
use taper_run::translation::{by_line, encode_sources};

/// Runs the command: one line for each pair, log-probability and
/// length-normalised score, tab-separated.
pub(crate) fn run(arguments: &Score) -> Result<()> {
    let sources = read_lines(&arguments.source)?;
    let targets = read_lines(&arguments.target)?;
    if sources.len() != targets.len() {
        bail!(
            "{} has {} lines but {} has {}: line i of one must belong to line i of the other",
            arguments.source.display(),
            sources.len(),
            arguments.target.display(),
            targets.len()
        );
    }
    let run: LoadedRun = arguments.weights.load(&arguments.run, &[])?;
    let source_ids = encode_sources(&run.tokenizers, &sources)?;
    let target_ids = run.tokenizers.target().encode_batch(&targets)?;
    let most = arguments.max_tokens.unwrap_or(run.config.data.cleaning.max_tokens);
    let limit = LineLimit::new(OverlongRule::Error, most).within(&run.config.model);
    let most = limit.tokens;
    // A source ends with </s>; a target has as many positions, the first of which `<s>` takes.
    for (path, ids, ends) in
        [(&arguments.source, &source_ids, 1), (&arguments.target, &target_ids, 0)]
    {
        if let Some((index, line)) =
            ids.iter().enumerate().find(|(_, line)| line.len() > most + ends)
        {
            let tokens = line.len() - ends;
            let remedy = limit.more_by("--max-tokens N allows more");
            bail!(
                "{}, line {}: {tokens} tokens, more than {most}; {remedy}",
                path.display(),
                index + 1
            );
        }
    }
    let model = run.model.inference();
    let bar = sentence_bar(Some(source_ids.len() as u64), "scoring");
    let scores = Translator::new(&model, run.config.decoding.clone())?
        .score_with(&source_ids, &target_ids, |chunk| bar.set_position(chunk.sentences_done as u64))
        .map_err(|error| by_line(error, "scoring", |index| index + 1))?;
    bar.finish_and_clear();
    for (index, score) in scores.iter().enumerate() {
        if arguments.json {
            print_line(
                &serde_json::json!({
                    "line": index + 1,
                    "log_probability": score.log_probability,
                    "score": score.score,
                    "token_log_probabilities": score.token_log_probabilities,
                })
                .to_string(),
            )?;
        } else {
            print_line(&format!("{:.6}\t{:.6}", score.log_probability, score.score))?;
        }
    }
    Ok(())
}
