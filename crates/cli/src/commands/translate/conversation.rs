//! Translation of lines that are typed at a terminal, with editing and a history. On request,
//! alternatives to the last translation are shown, or its alignment.

use std::io::ErrorKind;

use anyhow::{Context, Result};
use rustyline::config::{Behavior, Config};
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{DefaultEditor, Editor};
use taper_run::LoadedRun;
use taper_run::translation::{
    AlignedTokens, LineTranslator, TranslatedLine, TranslationDetail, TranslationSettings,
};

use super::{render, report};
use crate::advice::one_line;
use crate::arguments::Form;
use crate::error::Interrupted;
use crate::text::{print_line, say};

/// Default number of alternatives.
const ALTERNATIVES: usize = 5;

/// Largest number of alternatives that can be requested.
const MOST_ALTERNATIVES: usize = 100;

const HELP: &str = "a sentence     translates it
:alt [N]       the N best translations of the last sentence, with their scores
:align         which source tokens each token of its translation was made from
:help          this
:quit, Ctrl-D  ends";

/// Request in a line that begins with a colon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Alternatives(usize),
    Alignment,
    Help,
    Quit,
}

impl Request {
    /// Parses the request in `line`; returns `None` if `line` is a sentence. An unknown request
    /// counts as a request for help.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.trim().strip_prefix(':')?.split_whitespace();
        let (name, count) = (words.next(), words.next());
        Some(match (name, count.map(str::parse)) {
            (Some("alt"), None) => Self::Alternatives(ALTERNATIVES),
            (Some("alt"), Some(Ok(count))) if (1..=MOST_ALTERNATIVES).contains(&count) => {
                Self::Alternatives(count)
            }
            (Some("align"), None) => Self::Alignment,
            (Some("quit" | "q"), None) => Self::Quit,
            _ => Self::Help,
        })
    }
}

/// Translates typed lines until the input ends, with the model of `run` and with `settings`.
///
/// # Errors
/// When the terminal cannot be read, or output cannot be written. A sentence that cannot be
/// translated is reported, and does not end the conversation.
pub(super) fn converse(run: &LoadedRun, settings: &TranslationSettings, form: Form) -> Result<()> {
    let data = &run.config.data;
    let translator = LineTranslator::new(run, settings)?;
    say(&format!(
        "{} → {}, weights of step {}; one sentence per line, :help tells more, Ctrl-D ends",
        data.source_language, data.target_language, run.state.step
    ));
    // The editor uses the terminal itself, so that the prompt is not part of redirected output.
    let config = Config::builder().behavior(Behavior::PreferTerm).build();
    let mut editor: DefaultEditor =
        Editor::<(), DefaultHistory>::with_config(config).context("cannot read the terminal")?;
    let prompt = format!("{}> ", data.source_language);
    let (mut number, mut last) = (0, None);
    loop {
        let line = match editor.readline(&prompt) {
            Ok(line) => line,
            Err(ReadlineError::Eof) => break,
            Err(ReadlineError::Interrupted) => return Err(Interrupted(130).into()),
            Err(ReadlineError::Io(error)) if error.kind() == ErrorKind::InvalidData => {
                say("the typed line is not UTF-8 and is ignored");
                continue;
            }
            Err(error) => return Err(error).context("cannot read the terminal"),
        };
        // Failure to record a line in the history does no harm.
        let _ = editor.add_history_entry(line.as_str());
        let asked = match Request::parse(&line) {
            None => {
                (number, last) = (number + 1, Some(line));
                None
            }
            Some(Request::Quit) => break,
            Some(Request::Help) => {
                say(HELP);
                continue;
            }
            request => request,
        };
        let Some(sentence) = &last else {
            say("there is no sentence yet");
            continue;
        };
        let asked_for = asked.map_or_else(|| settings.clone(), |asked| wider(settings, asked));
        let translator = translator.under(&asked_for, &());
        // An error does not end the conversation: the next sentence may succeed.
        match translate(&translator, sentence, number) {
            Ok(translated) => show(sentence, number, &translated, asked, form)?,
            Err(error) => say(&format!("error: {}", one_line(&error))),
        }
    }
    Ok(())
}

/// Returns `settings` with the changes that a request needs.
fn wider(settings: &TranslationSettings, asked: Request) -> TranslationSettings {
    let mut settings = settings.clone();
    match asked {
        Request::Alternatives(count) => {
            let decoding = &mut settings.decoding;
            decoding.n_best = count;
            if !decoding.sampling.is_active() {
                decoding.beam_size = decoding.beam_size.max(count);
            }
            settings.detail = TranslationDetail { all: true, ..TranslationDetail::default() };
        }
        // The alignment is shown between tokens. The translator returns the texts of tokens only
        // together with the weights of the alignment.
        _ => settings.detail = TranslationDetail { all: false, alignments: true, weights: true },
    }
    settings
}

fn translate(
    translator: &LineTranslator<'_>,
    sentence: &str,
    number: usize,
) -> Result<Vec<TranslatedLine>> {
    let lines = [sentence.to_owned()];
    translator.translate(&lines, &[], number, |_| {})?.collect()
}

fn show(
    sentence: &str,
    number: usize,
    translated: &[TranslatedLine],
    asked: Option<Request>,
    form: Form,
) -> Result<()> {
    for line in translated {
        match asked {
            None => {
                report(number, line);
                print_line(render(form, number, sentence, line)?.trim_end_matches('\n'))?;
            }
            Some(Request::Alternatives(_)) => {
                for one in &line.translations {
                    print_line(&format!("{:8.4}  {}", one.score, one.text))?;
                }
            }
            Some(_) => {
                let aligned = line.translations.first().and_then(|best| best.alignment.as_ref());
                for row in aligned.map(rows).unwrap_or_default() {
                    print_line(&row)?;
                }
            }
        }
    }
    Ok(())
}

/// Formats one line for each token of the translation, with the source tokens to which it is
/// aligned.
fn rows(aligned: &AlignedTokens) -> Vec<String> {
    let width = |tokens: &[String]| tokens.iter().map(|one| one.chars().count()).max().unwrap_or(0);
    let width = width(&aligned.target_tokens);
    let row = |(place, token): (usize, &String)| {
        let sources: Vec<&str> = aligned
            .pairs
            .iter()
            .filter(|(_, target)| *target == place)
            .filter_map(|(source, _)| aligned.source_tokens.get(*source).map(String::as_str))
            .collect();
        format!("  {token:<width$}  {}", sources.join(" "))
    };
    aligned.target_tokens.iter().enumerate().map(|(place, token)| row((place, token))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_begin_with_a_colon() {
        for (line, request) in [
            ("a sentence", None),
            ("12:30 is late", None),
            (":alt", Some(Request::Alternatives(ALTERNATIVES))),
            (" :alt 2 ", Some(Request::Alternatives(2))),
            (":alt 0", Some(Request::Help)),
            (":align", Some(Request::Alignment)),
            (":quit", Some(Request::Quit)),
            (":q", Some(Request::Quit)),
            (":", Some(Request::Help)),
            (":something", Some(Request::Help)),
        ] {
            assert_eq!(Request::parse(line), request, "{line}");
        }
    }

    #[test]
    fn an_alignment_is_a_line_for_each_token() {
        let aligned = AlignedTokens {
            source_tokens: ["a", "b", "</s>"].map(str::to_owned).to_vec(),
            target_tokens: ["x", "long"].map(str::to_owned).to_vec(),
            pairs: vec![(0, 1), (1, 1), (1, 0)],
            weights: Vec::new(),
        };
        assert_eq!(rows(&aligned), ["  x     b", "  long  a b"]);
    }
}
