//! `taper bleu`: scores a file of translations, as sacreBLEU does.

use anyhow::{Context, Result, bail};
use taper_metrics::{Bleu, Chrf};

use crate::arguments::{self, Metric};
use crate::text::{print_line, read_lines};

/// Runs the command.
pub(crate) fn run(arguments: &arguments::Bleu) -> Result<()> {
    let tokenizer = arguments.tokenize.parse().with_context(|| format!("--tokenize {}", arguments.tokenize))?;
    let hypotheses = read_lines(&arguments.hypothesis)?;
    if hypotheses.is_empty() {
        bail!("{}: the file has no lines", arguments.hypothesis.display());
    }
    let mut references = Vec::with_capacity(arguments.references.len());
    for path in &arguments.references {
        let lines = read_lines(path)?;
        if lines.len() != hypotheses.len() {
            bail!(
                "{} has {} lines but {} has {}: line i of each must belong to the same sentence",
                arguments.hypothesis.display(),
                hypotheses.len(),
                path.display(),
                lines.len()
            );
        }
        references.push(lines);
    }

    let lowercase = arguments.lowercase;
    let mut records = Vec::new();
    for metric in &arguments.metrics {
        let (name, line, value, signature) = match metric {
            Metric::Bleu => {
                let metric = Bleu { tokenizer, lowercase, ..Bleu::default() };
                let score = metric.corpus(&hypotheses, &references)?;
                if score.looks_tokenized {
                    eprintln!("warning: the translation looks tokenized; detokenize it, or the score is not comparable");
                }
                ("BLEU".to_owned(), score.line(2), score.score, score.signature)
            }
            Metric::Chrf | Metric::Chrfpp => {
                let base = match metric {
                    Metric::Chrfpp => Chrf::plus_plus(),
                    _ => Chrf::default(),
                };
                let score = Chrf { lowercase, ..base }.corpus(&hypotheses, &references)?;
                let line = score.line(2);
                (score.name, line, score.score, score.signature)
            }
        };
        if arguments.json {
            records.push(serde_json::json!({
                "name": name, "score": value, "signature": signature, "line": line,
            }));
        } else {
            print_line(&line)?;
        }
    }
    if arguments.json {
        print_line(&serde_json::to_string_pretty(&records)?)?;
    }
    Ok(())
}
