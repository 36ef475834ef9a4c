//! `taper translate`: text in, translations out, in the same order.

use std::io::{IsTerminal, Write};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::arguments::Translate;
use crate::decoding_arguments::OverlongRule;
use crate::line_translator::{LineTranslator, Translated};
use crate::loaded_run::LoadedRun;
use crate::metrics_log::write_atomically;
use crate::progress::sentence_bar;
use crate::text::{next_line, print_line, read_lines, read_standard_input};
use crate::translation::Translation;

/// One line of `--json`.
#[derive(Debug, Serialize)]
struct Record<'a> {
    line: usize,
    source: &'a str,
    #[serde(flatten)]
    translated: &'a Translated,
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
    let prefixes = arguments.prefix.as_deref().map(read_lines).transpose()?;
    let mut run = LoadedRun::open(&arguments.run, &arguments.weights, &arguments.overrides.set)?;
    arguments.control.apply(&mut run.config.decoding);
    run.search(&arguments.search, arguments.n_best)?;
    let translator = LineTranslator::new(&run, &arguments.ensemble, &arguments.overlong, arguments.alignments)?;
    let lines = match given {
        Some(lines) => lines,
        None if std::io::stdin().is_terminal() => return converse(&run, &translator, arguments),
        None => read_standard_input()?,
    };
    let prefixes = prefixes.unwrap_or_default();
    if let Some(path) = &arguments.prefix
        && prefixes.len() != lines.len()
    {
        bail!("{}: {} lines, but {} to translate; give each its prefix, or an empty line", path.display(), prefixes.len(), lines.len());
    }
    let bar = sentence_bar(lines.len(), "translating");
    let found = translator.translate(&lines, &prefixes, 1, |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();

    let mut text = String::new();
    for (index, (source, translated)) in lines.iter().zip(&found).enumerate() {
        report(index + 1, translated);
        text.push_str(&render(arguments, index + 1, source, translated)?);
    }
    match &arguments.output {
        Some(path) => write_atomically(path, text.as_bytes()),
        None => std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output"),
    }
}

/// Says on standard error that a line was too long, and what became of it.
fn report(line: usize, translated: &Translated) {
    if let Some(overlong) = &translated.overlong {
        let done = match overlong.rule {
            OverlongRule::Split => format!("translated in {} parts", overlong.parts),
            OverlongRule::Cut | OverlongRule::Error => format!("cut after {}", overlong.limit),
        };
        eprintln!("line {line}: {} tokens, more than {}: {done}", overlong.tokens, overlong.limit);
    }
}

/// What is printed for one source line: as many lines as translations were
/// asked for, each ended.
fn render(arguments: &Translate, line: usize, source: &str, translated: &Translated) -> Result<String> {
    if arguments.json {
        let record = Record { line, source, translated };
        return Ok(serde_json::to_string(&record)? + "\n");
    }
    let translations = &translated.translations;
    if arguments.n_best.is_some() {
        let listed = translations.iter().map(|one| format!("{line}\t{:.4}\t{}{}\n", one.score, one.text, pharaoh(one)));
        return Ok(listed.collect());
    }
    Ok(translations.first().map_or_else(|| "\n".to_owned(), |best| format!("{}{}\n", best.text, pharaoh(best))))
}

/// A tab and the pairs of the alignment, source first, where there is one.
fn pharaoh(translation: &Translation) -> String {
    let Some(alignment) = &translation.alignment else {
        return String::new();
    };
    let pairs: Vec<String> = alignment.pairs.iter().map(|(source, target)| format!("{source}-{target}")).collect();
    format!("\t{}", pairs.join(" "))
}

/// A prompt for each sentence, until the end of input.
fn converse(run: &LoadedRun, translator: &LineTranslator<'_>, arguments: &Translate) -> Result<()> {
    if arguments.prefix.is_some() {
        bail!("--prefix goes with a text to translate: give --input or pipe it in");
    }
    let data = &run.config.data;
    eprintln!("{} → {}, weights of step {}; one sentence a line, Ctrl-D ends", data.source_language, data.target_language, run.state.step);
    let mut stream = std::io::stdin().lock();
    for number in 1.. {
        eprint!("{}> ", data.source_language);
        let Some(line) = next_line(&mut stream, number)? else {
            break;
        };
        let lines = [line];
        for translated in &translator.translate(&lines, &[], number, |_| {})? {
            report(number, translated);
            print_line(render(arguments, number, &lines[0], translated)?.trim_end_matches('\n'))?;
        }
    }
    eprintln!();
    Ok(())
}
