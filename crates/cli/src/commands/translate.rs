//! `taper translate`: text in, translations out, in the same order.

use std::io::{IsTerminal, Write};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::arguments::Translate;
use crate::loaded_run::LoadedRun;
use crate::metrics_log::write_atomically;
use crate::progress::sentence_bar;
use crate::text::{next_line, print_line, read_lines, read_standard_input};
use crate::translation::{Translation, translate};

/// One line of `--json`.
#[derive(Debug, Serialize)]
struct Record<'a> {
    line: usize,
    source: &'a str,
    translations: &'a [Translation],
}

/// Runs the command.
pub(crate) fn run(arguments: &Translate) -> Result<()> {
    if let Some(path) = &arguments.output
        && path.exists()
    {
        bail!("{} exists already and is left as it is: choose another --output or remove it", path.display());
    }
    // Bad input is found before the model is loaded.
    let given = arguments.input.as_deref().map(read_lines).transpose()?;
    let mut run = LoadedRun::open(&arguments.run, &arguments.weights, &[])?;
    run.search(&arguments.search, arguments.n_best)?;
    let lines = match given {
        Some(lines) => lines,
        None if std::io::stdin().is_terminal() => return converse(&run, arguments),
        None => read_standard_input()?,
    };
    let bar = sentence_bar(lines.len(), "translating");
    let found = translate(&run.model, &run.tokenizers, &run.config.decoding, &lines, |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();

    let mut text = String::new();
    for (index, (source, translations)) in lines.iter().zip(&found).enumerate() {
        text.push_str(&render(arguments, index + 1, source, translations)?);
    }
    match &arguments.output {
        Some(path) => write_atomically(path, text.as_bytes()),
        None => std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output"),
    }
}

/// What is printed for one source line: as many lines as translations were
/// asked for, each ended.
fn render(arguments: &Translate, line: usize, source: &str, translations: &[Translation]) -> Result<String> {
    if arguments.json {
        let record = Record { line, source, translations };
        return Ok(serde_json::to_string(&record)? + "\n");
    }
    if arguments.n_best.is_some() {
        return Ok(translations.iter().map(|one| format!("{line}\t{:.4}\t{}\n", one.score, one.text)).collect());
    }
    let best = translations.first().map_or("", |one| one.text.as_str());
    Ok(format!("{best}\n"))
}

/// A prompt for each sentence, until the end of input.
fn converse(run: &LoadedRun, arguments: &Translate) -> Result<()> {
    let data = &run.config.data;
    eprintln!("{} → {}, weights of step {}; one sentence a line, Ctrl-D ends", data.source_language, data.target_language, run.state.step);
    let mut stream = std::io::stdin().lock();
    for number in 1.. {
        eprint!("{}> ", data.source_language);
        let Some(line) = next_line(&mut stream, number)? else {
            break;
        };
        let lines = [line];
        let found = translate(&run.model, &run.tokenizers, &run.config.decoding, &lines, |_| {})?;
        for translations in &found {
            print_line(render(arguments, number, &lines[0], translations)?.trim_end_matches('\n'))?;
        }
    }
    eprintln!();
    Ok(())
}
