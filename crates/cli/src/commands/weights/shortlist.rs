//! `taper shortlist`: makes the shortlist of a run, that is, for each source token, the target
//! tokens that its translation may contain.

use anyhow::Result;
use taper_run::shortlist::{MadeShortlist, ShortlistProgress, ShortlistSettings, make_shortlist};

use crate::arguments::ShortlistOfRun;
use crate::bars::sentence_bar;
use crate::text::print_line;

/// Runs the command.
pub(crate) fn run(arguments: &ShortlistOfRun) -> Result<()> {
    let ShortlistOfRun { run, best, frequent, iterations, split } = arguments;
    let (best, frequent, iterations) = (*best, *frequent, *iterations);
    let settings = ShortlistSettings { best, frequent, iterations, split: split.clone() };
    let bar = sentence_bar(None, "tokenising");
    let made = make_shortlist(run, &settings, &mut |ShortlistProgress { iteration, pairs }| {
        if iteration > 0 {
            bar.set_message(format!("iteration {iteration} of {iterations}"));
        }
        bar.set_position(pairs);
    });
    bar.finish_and_clear();
    let MadeShortlist { path, bytes, header, translated } = made?;
    print_line(&format!(
        "{}, {:.2} MB: translations of {translated} source tokens, from {} pairs; use it with \
         --shortlist or --set decoding.shortlist=true",
        path.display(),
        bytes as f64 / 1e6,
        header.pairs
    ))
}
