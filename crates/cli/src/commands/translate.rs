//! `taper translate`: text in, translations out, in the same order, window by window.

mod input;
mod output;

use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::{Result, bail};
use serde::Serialize;

use crate::arguments::{Form, TextArguments, Translate};
use crate::progress::sentence_bar;
use crate::text::{print_line, say, standard_input};
use input::Input;
use output::Output;
use taper_run::LoadedRun;
use taper_run::translation::{LineTranslator, OverlongRule, TranslatedLine, Translation};

/// One line of `--json`.
#[derive(Debug, Serialize)]
struct Record<'a> {
    line: usize,
    source: &'a str,
    #[serde(flatten)]
    translated: &'a TranslatedLine,
}

/// Runs the command.
pub(crate) fn run(arguments: &Translate) -> Result<()> {
    let form = arguments.form();
    if arguments.text.input.is_none() && std::io::stdin().is_terminal() {
        refuse_files(&arguments.text)?;
        return with_model(arguments, |run, translator| converse(run, translator, form));
    }
    // What is wrong with files is found before the model is loaded.
    let mut input = Input::open(&arguments.text)?;
    let output = Output::open(arguments.text.output.as_deref())?;
    let translated =
        with_model(arguments, |_, translator| stream(translator, form, &mut input, &output))
            .and_then(|()| output.finish());
    if translated.is_err() {
        output.give_up();
    }
    translated
}

/// Refuses what goes with a text, not with a conversation.
fn refuse_files(text: &TextArguments) -> Result<()> {
    let given = [
        ("--prefix", text.prefix.is_some()),
        ("--output", text.output.is_some()),
        ("--window", text.window.is_some()),
    ];
    for (name, given) in given {
        if given {
            bail!("{name} goes with a text to translate: give --input or pipe it in");
        }
    }
    Ok(())
}

/// Loads the models and gives them to `act`.
fn with_model(
    arguments: &Translate,
    act: impl FnOnce(&LoadedRun, &LineTranslator<'_>) -> Result<()>,
) -> Result<()> {
    let run = arguments.weights.load(&arguments.run, &arguments.overrides.set)?;
    let translator = LineTranslator::new(&run, &arguments.settings(&run.config)?)?;
    act(&run, &translator)
}

/// Whether there is something at `path` that is neither a file nor a folder, such as a pipe or a
/// device: its bytes pass once.
fn is_stream(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// Translates one window of the text after the other, and writes each before the next is read.
fn stream(
    translator: &LineTranslator<'_>,
    form: Form,
    input: &mut Input,
    output: &Output,
) -> Result<()> {
    let bar = sentence_bar(input.total(), "translating");
    while let Some(window) = input.next_window()? {
        let (before, count) = (window.first - 1, window.lines.len());
        // Parts of long lines are counted on the way, and are more than the lines.
        let progress = |done: usize| bar.set_position((before + done.min(count)) as u64);
        let found =
            translator.translate(&window.lines, &window.prefixes, window.first, progress)?;
        bar.suspend(|| -> Result<()> {
            for ((line, source), translated) in (window.first..).zip(&window.lines).zip(found) {
                let translated = translated?;
                report(line, &translated);
                // Line by line: with weights one may take megabytes.
                output.write(&render(form, line, source, &translated)?)?;
            }
            Ok(())
        })?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// Says on standard error that a line was too long, and what became of it.
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
}

/// What is printed for one source line: as many lines as translations were
/// asked for, each ended.
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

/// A tab and the pairs of the alignment, source first, where there is one.
fn pharaoh(translation: &Translation) -> String {
    let Some(alignment) = &translation.alignment else {
        return String::new();
    };
    let pairs: Vec<String> =
        alignment.pairs.iter().map(|(source, target)| format!("{source}-{target}")).collect();
    format!("\t{}", pairs.join(" "))
}

/// A prompt for each sentence, until the end of input.
fn converse(run: &LoadedRun, translator: &LineTranslator<'_>, form: Form) -> Result<()> {
    let data = &run.config.data;
    say(&format!(
        "{} → {}, weights of step {}; one sentence a line, Ctrl-D ends",
        data.source_language, data.target_language, run.state.step
    ));
    let mut lines = standard_input();
    loop {
        // A prompt that cannot be shown is no reason not to read.
        let _ = write!(std::io::stderr(), "{}> ", data.source_language);
        let Some(line) = lines.next_line()? else {
            break;
        };
        let (number, lines) = (lines.line() as usize, [line]);
        let found = match translator
            .translate(&lines, &[], number, |_| {})
            .and_then(|found| found.collect::<Result<Vec<_>>>())
        {
            Ok(found) => found,
            // The next sentence may be another matter.
            Err(error) => {
                say(&format!("error: {error:#}"));
                continue;
            }
        };
        for translated in &found {
            report(number, translated);
            print_line(render(form, number, &lines[0], translated)?.trim_end_matches('\n'))?;
        }
    }
    say("");
    Ok(())
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
