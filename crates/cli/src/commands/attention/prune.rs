//! `taper prune-heads`: the loss of a model without each of its heads.

use std::io::IsTerminal;

use anyhow::{Result, bail};
use taper_run::attention::head_importance;

use crate::arguments::PruneHeads;
use crate::text::{print_line, say};

/// Runs the command: prints a line for each head, beginning with the least important.
pub(crate) fn run(arguments: &PruneHeads) -> Result<()> {
    if !arguments.dry_run {
        bail!("give --dry-run: the value of heads is measured, but no weights are changed");
    }
    let load = arguments.loading.settings();
    let split = arguments.split.as_deref();
    let mut found =
        head_importance(&arguments.run, &load, split, arguments.tokens, |done, all| {
            if std::io::stderr().is_terminal() && done % 8 == 0 {
                say(&format!("{done} of {all} heads"));
            }
        })?;
    found.heads.sort_by(|one, other| one.lost.total_cmp(&other.lost));
    if arguments.json {
        return print_line(&serde_json::to_string(&found)?);
    }
    say(&format!(
        "{}, {} tokens: loss {:.4}, perplexity {:.3}, {:.2} % right with all heads; without each:",
        found.split,
        found.tokens,
        found.loss,
        found.perplexity,
        100.0 * found.accuracy
    ));
    print_line("part     layer head    lost    loss  perplexity  right %")?;
    for head in &found.heads {
        print_line(&format!(
            "{:<8} {:>5} {:>4}  {:>+6.4}  {:>6.4}  {:>10.3}  {:>7.2}",
            head.part.name(),
            head.layer,
            head.head,
            head.lost,
            head.loss,
            head.perplexity,
            100.0 * head.accuracy
        ))?;
    }
    Ok(())
}
