//! `taper translate --file`: a document in, the same document in another language out.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use taper_data::{is_compressed, not_a_file, read_regular, text_of, write_whole};
use taper_documents::{Document, DocumentFormat, Docx};
use taper_run::translation::translate_document;
use taper_run::truncated_translations;

use super::load;
use crate::arguments::Translate;
use crate::bars::sentence_bar;
use crate::items::{Faults, SpelledLines};
use crate::text::{is_standard_stream, name_of, say};

/// Largest document, in bytes.
const LARGEST: u64 = 1 << 28;

/// Translates the document `file` to `--output`, which appears whole or not at all.
///
/// # Errors
/// When the document or the output is refused, the run cannot be loaded, or a line has no translation.
pub(super) fn translate_file(arguments: &Translate, file: &Path) -> Result<()> {
    let Some(output) = arguments.text.output.as_deref() else {
        bail!("--file needs --output FILE");
    };
    require_new(output)?;
    let format = format_of(file)?;
    let (container, source) = read(file, format)?;
    // What is wrong with the document is found before the model is loaded.
    Document::parse(source.clone(), format, "").with_context(|| file.display().to_string())?;
    let run = load(arguments)?;
    let settings = arguments.settings(&run)?;
    let document = Document::parse(source, format, &run.config.data.source_language)?;
    let (name, lines) = (name_of(file), document.lines().len());
    let mut spelled = SpelledLines::new(run.tokenizers.source(), arguments.special_tokens);
    for (number, line) in (1..).zip(document.lines()) {
        spelled.look(line.text(), || format!("{name}, sentence {number}"));
    }
    let bar = sentence_bar(Some(lines as u64), "translating");
    let found =
        translate_document(&run, &settings, document, |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    let mut faults = Faults::new(arguments.strict);
    for (number, error) in found.faults {
        faults.note(error.context(format!("{name}, sentence {number}, which stays as it is")))?;
    }
    if found.truncated > 0 {
        say(&format!("warning: {}", truncated_translations(found.truncated, found.lines, "")));
    }
    for (number, term) in &found.missing_terms {
        say(&format!("{name}, sentence {number}: the translation lacks the term {term:?}"));
    }
    if found.repaired > 0 {
        say(&format!("placeholders or addresses were put back in {} sentences", found.repaired));
    }
    let bytes = match container {
        Some(container) => container.write(&found.text)?,
        None => found.text.into_bytes(),
    };
    write_whole(output, |to| to.write_all(&bytes))?;
    faults.end(found.lines)
}

/// Refuses an output that exists, or is no place for a document.
fn require_new(output: &Path) -> Result<()> {
    let shown = output.display();
    if is_standard_stream(output) {
        bail!("--file writes a document as a whole: give --output the name of a file");
    }
    if let Some(kind) = not_a_file(output) {
        bail!("--output {shown} is {kind}; choose another");
    }
    if output.exists() {
        bail!("--output {shown} exists already; move it away, or choose another");
    }
    if is_compressed(output) {
        bail!("--output {shown}: the document is not compressed; choose another name");
    }
    Ok(())
}

/// The text of a document, with its byte-order mark if it has one, and the archive that it is in.
fn read(file: &Path, format: DocumentFormat) -> Result<(Option<Docx>, String)> {
    let shown = || format!("--file {}", file.display());
    let bytes = read_regular(file, LARGEST).with_context(shown)?;
    if format == DocumentFormat::Docx {
        let (container, text) = Docx::read(bytes).with_context(shown)?;
        return Ok((Some(container), text));
    }
    let text = text_of(&bytes, file)?;
    Ok((None, if bytes.len() > text.len() { format!("\u{feff}{text}") } else { text }))
}

fn format_of(file: &Path) -> Result<DocumentFormat> {
    DocumentFormat::by_name(file).with_context(|| {
        format!(
            "--file {}: its name does not say what it is: call it .html, .md, .srt, .vtt, .po, .xlf, .docx or \
             .txt; lines of text are translated by --input",
            file.display()
        )
    })
}
