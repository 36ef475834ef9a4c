//! `taper translate`: translates a text in order, window by window. A window is a number of
//! successive lines that are read, translated and written together.

mod continuation;
mod conversation;
mod document;
mod input;
mod output;

use std::io::IsTerminal;
use std::path::Path;

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::arguments::{Form, TextArguments, Translate};
use crate::bars::sentence_bar;
use crate::items::{Faults, SpelledLines};
use crate::text::{name_of, say};
use conversation::converse;
use input::Input;
use output::Output;
use taper_run::translation::{LineTranslator, Order, OverlongRule, TranslatedLine, Translation};
use taper_run::{BadItem, LoadSettings, LoadedRun, truncated_translations};

/// Output line of `--json` for a line of text with its translations.
#[derive(Debug, Serialize)]
struct Record<'a> {
    line: usize,
    source: &'a str,
    #[serde(flatten)]
    translated: &'a TranslatedLine,
}

/// Output line of `--json` for a line of text without a translation.
#[derive(Debug, Serialize)]
struct FaultRecord<'a> {
    line: usize,
    source: &'a str,
    error: &'a str,
}

/// Runs the command.
pub(crate) fn run(arguments: &Translate) -> Result<()> {
    if let Some(file) = &arguments.text.file {
        return document::translate_file(arguments, file);
    }
    let form = arguments.form();
    if arguments.text.input.is_none() && std::io::stdin().is_terminal() {
        refuse_files(&arguments.text)?;
        let run = load(arguments, false)?;
        return converse(&run, &arguments.settings(&run)?, form);
    }
    // Opens the files first, so that errors in them are found before the model is loaded.
    let mut input = Input::open(&arguments.text)?;
    let continued = arguments.text.goes_on.then_some(form);
    let output = Output::open(arguments.text.output.as_deref(), continued)?;
    input.skip(output.lines())?;
    let translated = translate(arguments, form, &mut input, &output);
    let translated = translated.and_then(|ended| output.finish().map(|()| ended));
    let (faults, lines) = translated.inspect_err(|_| output.give_up())?;
    faults.end(lines)
}

/// Loads the run; the arguments decide how special tokens in the text are treated. With
/// `only_decodes`, the model can only search translations; see [`LoadSettings::only_decodes`].
fn load(arguments: &Translate, only_decodes: bool) -> Result<LoadedRun> {
    let settings = LoadSettings { only_decodes, ..arguments.loading.settings() };
    let mut run = LoadedRun::open(&arguments.run, &settings)?;
    run.tokenizers = run.tokenizers.with_spelled(arguments.items.special_tokens.rule.into());
    Ok(run)
}

/// Refuses options that apply to a text but not to a conversation.
fn refuse_files(text: &TextArguments) -> Result<()> {
    let given = [
        ("--prefix", text.prefix.is_some()),
        ("--output", text.output.is_some()),
        ("--window", text.window.is_some()),
        ("--continue", text.goes_on),
    ];
    for (name, given) in given {
        ensure!(!given, "{name} goes with a text to translate: give --input or pipe it in");
    }
    Ok(())
}

/// Loads the models and translates the lines of `input` that are left. Returns the record of lines
/// without a translation, and the number of lines that were read.
fn translate(
    arguments: &Translate,
    form: Form,
    input: &mut Input,
    output: &Output,
) -> Result<(Faults, usize)> {
    // A model that is loaded only to search translations needs less memory, but it cannot compute
    // word links.
    let run = load(arguments, !arguments.alignments)?;
    let settings = arguments.settings(&run)?;
    let translator = LineTranslator::new(&run, &settings)?;
    output.begin(&Order::new(&run, &settings, form, &input.hashes())?)?;
    let spelled = SpelledLines::new(run.tokenizers.source(), arguments.items.special_tokens);
    let name = arguments.text.input.as_deref().map_or("standard input".to_owned(), name_of);
    stream(&translator, form, input, output, (spelled, &name), Faults::new(arguments.items.strict))
}

/// True if `path` is neither a file nor a folder but, for example, a pipe or a device, whose bytes
/// can be read only once.
fn is_stream(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// Translates the text window by window, and writes each window before it reads the next.
fn stream(
    translator: &LineTranslator<'_>,
    form: Form,
    input: &mut Input,
    output: &Output,
    (mut spelled, name): (SpelledLines<'_>, &str),
    mut faults: Faults,
) -> Result<(Faults, usize)> {
    let bar = sentence_bar(input.total(), "translating");
    let (mut lines, mut truncated, mut first) = (0, 0, None);
    while let Some(window) = input.next_window()? {
        bar.suspend(|| {
            for (number, line) in (window.first..).zip(&window.lines) {
                spelled.look(line, || format!("{name}, line {number}"));
            }
        });
        let (before, count) = (window.first - 1, window.lines.len());
        // `done` also counts the parts of divided lines, so it may exceed the number of lines.
        let progress = |done: usize| bar.set_position((before + done.min(count)) as u64);
        let translations =
            translator.translate(&window.lines, &window.prefixes, window.first, progress)?;
        bar.suspend(|| -> Result<()> {
            for ((line, source), translated) in
                (window.first..).zip(&window.lines).zip(translations)
            {
                lines += 1;
                let translated = match translated {
                    Err(error) if error.is::<BadItem>() => {
                        let fault = faults.note(error)?;
                        output.write(&render_fault(form, line, source, &fault)?)?;
                        continue;
                    }
                    translated => translated?,
                };
                report(line, &translated);
                if translated.translations.first().is_some_and(|best| best.truncated) {
                    truncated += 1;
                    first.get_or_insert(line);
                }
                // Each line is written by itself, because the output for a line with alignment
                // weights may take megabytes.
                output.write(&render(form, line, source, &translated)?)?;
            }
            Ok(())
        })?;
    }
    bar.finish_and_clear();
    if let Some(first) = first {
        let which = format!(" (line {first} is the first)");
        say(&format!("warning: {}", truncated_translations(truncated, lines, &which)));
    }
    Ok((faults, lines))
}

/// Reports on standard error that a line was too long and how it was treated. Also reports each
/// term whose required translation is missing in the translation of the line.
fn report(line: usize, translated: &TranslatedLine) {
    if let Some(overlong) = &translated.overlong {
        let done = match overlong.rule {
            OverlongRule::Split => format!("translated in {} parts", overlong.parts),
            OverlongRule::Cut | OverlongRule::Error => {
                "only its beginning is translated".to_owned()
            }
        };
        say(&format!(
            "line {line}: {} tokens, more than {}: {done}",
            overlong.tokens, overlong.limit
        ));
    }
    for term in &translated.missing_terms {
        say(&format!("line {line}: the translation lacks the term {term:?}"));
    }
}

/// Formats the output for one source line: one line for each requested translation, each with a
/// line end.
fn render(form: Form, line: usize, source: &str, translated: &TranslatedLine) -> Result<String> {
    let translations = &translated.translations;
    Ok(match form {
        Form::Json => serde_json::to_string(&Record { line, source, translated })? + "\n",
        Form::NBest => translations
            .iter()
            .map(|one| format!("{line}\t{:.4}\t{}{}\n", one.score, one.text, pharaoh(one)))
            .collect(),
        Form::Best => translations
            .first()
            .map_or_else(|| "\n".to_owned(), |best| format!("{}{}\n", best.text, pharaoh(best))),
    })
}

/// Formats the output for a line that has no translations.
fn render_fault(form: Form, line: usize, source: &str, error: &str) -> Result<String> {
    Ok(match form {
        Form::Json => serde_json::to_string(&FaultRecord { line, source, error })? + "\n",
        Form::NBest => format!("{line}\t\t\n"),
        Form::Best => "\n".to_owned(),
    })
}

/// Formats the alignment as a tab and pairs `source-target`; returns an empty string without one.
fn pharaoh(translation: &Translation) -> String {
    let Some(alignment) = &translation.alignment else {
        return String::new();
    };
    let pairs: Vec<String> =
        alignment.pairs.iter().map(|(source, target)| format!("{source}-{target}")).collect();
    format!("\t{}", pairs.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command};
    use clap::Parser;

    #[test]
    fn a_conversation_has_no_files() {
        for (option, value, refused) in [
            ("--output", "file", true),
            ("--prefix", "file", true),
            ("--window", "1", true),
            ("--checkpoint", "best", false),
        ] {
            let arguments = Arguments::try_parse_from(["taper", "translate", "run", option, value])
                .expect("parses");
            let Command::Translate(arguments) = arguments.command else {
                panic!("another command")
            };
            let result = refuse_files(&arguments.text);
            assert_eq!(result.is_err(), refused, "{option}");
            if let Err(error) = result {
                assert!(
                    error.to_string().contains(option) && error.to_string().contains("--input"),
                    "{error}"
                );
            }
        }
    }
}
