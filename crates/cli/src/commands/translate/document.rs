//! `taper translate --file`: translates a whole document and writes it in the same format.

use std::io;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use taper_data::{is_compressed, not_a_file, read_regular, write_new};
use taper_documents::DocumentFormat;
use taper_run::folder::files::with_suffix;
use taper_run::translation::{DocumentFile, translate_document};
use taper_run::truncated_translations;

use super::load;
use super::output::appeared;
use crate::advice::one_line;
use crate::arguments::Translate;
use crate::bars::sentence_bar;
use crate::items::{Faults, SpelledLines};
use crate::text::{is_standard_stream, name_of, say};

/// Largest document, in bytes.
const LARGEST: u64 = 1 << 28;

/// Largest number of other names that are tried for a document whose name is taken.
const MOST_NAMES: u32 = 99;

/// Translates the document `file` to `--output`, which appears as a whole or not at all. Sentences
/// without a translation stay in the source language. With `--strict`, a document with such
/// sentences gets the suffix `.part`, so that nothing takes it for a finished translation.
///
/// # Errors
/// When the document or the name of the output is refused, the run cannot be loaded, or a sentence
/// has no translation.
pub(super) fn translate_file(arguments: &Translate, file: &Path) -> Result<()> {
    let Some(output) = arguments.text.output.as_deref() else {
        bail!("--file needs --output FILE");
    };
    let partial = with_suffix(output, ".part");
    require_new(output)?;
    ensure!(
        !arguments.items.strict.strict || !partial.exists(),
        "{} exists already, from an earlier translation; move it away, or choose another --output",
        partial.display()
    );
    let source = read(file)?;
    // Parses the document here, so that errors in it are found before the model is loaded.
    source.document("").with_context(|| file.display().to_string())?;
    let run = load(arguments, false)?;
    let settings = arguments.settings(&run)?;
    let document = source.document(&run.config.data.source_language)?;
    let (name, lines) = (name_of(file), document.lines().len());
    let mut spelled = SpelledLines::new(run.tokenizers.source(), arguments.items.special_tokens);
    for (number, line) in (1..).zip(document.lines()) {
        spelled.look(line.text(), || format!("{name}, sentence {number}"));
    }
    let bar = sentence_bar(Some(lines as u64), "translating");
    let found =
        translate_document(&run, &settings, document, |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    let mut faults = Faults::new(arguments.items.strict);
    let (count, mut strict) = (found.faults.len(), None);
    for (number, error) in found.faults {
        let error = error.context(format!("{name}, sentence {number}, which is not translated"));
        match strict {
            // The first one is the error of the command.
            None => strict = faults.note(error).err(),
            Some(_) => say(&one_line(&error)),
        }
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
    let bytes = source.write(found.text)?;
    if let Some(error) = strict {
        write(&partial, &bytes)?;
        say(&format!(
            "{} has the translation, in which {count} of {} sentences are still in the source \
             language",
            partial.display(),
            found.lines
        ));
        return Err(error);
    }
    write(output, &bytes)?;
    faults.end(found.lines)
}

/// Writes the new file `path`. If a file has appeared there in the meantime, it is left as it is,
/// and the translation is written to the first free path with `.1` to `.99` at its end.
///
/// # Errors
/// When the file cannot be written, is written to another path, or all these paths are taken.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
    let shown = path.display();
    match write_new(path, bytes) {
        Err(error) if is_taken(&error) => {}
        written => return written.with_context(|| format!("cannot write {shown}")),
    }
    for number in 1..=MOST_NAMES {
        let other = with_suffix(path, &format!(".{number}"));
        match write_new(&other, bytes) {
            Err(error) if is_taken(&error) => continue,
            written => written.with_context(|| format!("cannot write {}", other.display()))?,
        }
        return Err(appeared(path, &other));
    }
    bail!(
        "{shown} appeared in the meantime and is left as it is, and so are {shown}.1 to \
         {shown}.{MOST_NAMES}, so the translation is written nowhere; move them away"
    )
}

/// Refuses an output that exists, or that cannot be a document.
fn require_new(output: &Path) -> Result<()> {
    let shown = output.display();
    if is_standard_stream(output) {
        bail!("--file writes a document as a whole: give --output the name of a file");
    }
    if let Some(kind) = not_a_file(output) {
        bail!("--output {shown} is {kind}; choose another");
    }
    ensure!(!output.exists(), "--output {shown} exists already; move it away, or choose another");
    if is_compressed(output) {
        bail!(
            "--output {shown}: the name ends as that of a compressed file, but documents are written uncompressed; choose another name"
        );
    }
    Ok(())
}

/// Reads a document, after checking its name.
fn read(file: &Path) -> Result<DocumentFile> {
    let shown = || format!("--file {}", file.display());
    if let Err(error) = DocumentFormat::by_name(file) {
        bail!("{}: {error}; lines of text are translated by --input", shown());
    }
    let bytes = read_regular(file, LARGEST).with_context(shown)?;
    DocumentFile::read(file, bytes, LARGEST).with_context(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_that_appears_in_the_meantime_is_not_replaced() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("out.html");
        write(&path, b"first").expect("a free name");
        for (number, text) in [(1, "second"), (2, "third")] {
            let error = write(&path, text.as_bytes()).expect_err("the name is taken").to_string();
            let other = folder.path().join(format!("out.html.{number}"));
            assert!(error.contains(&other.display().to_string()), "{error}");
            assert_eq!(std::fs::read_to_string(other).expect("there"), text);
        }
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "first");
    }

    #[test]
    fn not_every_name_of_a_document_is_tried() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("out.html");
        for number in 0..=MOST_NAMES {
            let _ = write(&path, number.to_string().as_bytes());
        }
        let error = write(&path, b"one more").expect_err("all are taken").to_string();
        assert!(error.contains("out.html.99, so the translation is written nowhere"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 100);
    }
}
