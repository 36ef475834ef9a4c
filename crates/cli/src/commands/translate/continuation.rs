//! Record of the conditions under which a text is translated to a file: weights, settings and
//! texts. The record is stored next to the incomplete file. A stopped translation can be continued
//! only under the same conditions; otherwise the file would mix two different translations.

use std::fs;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result, bail};
use taper_run::folder::files::write_atomically;
use taper_run::translation::Order;

use crate::arguments::Form;

/// Writes the record of a translation to `path`.
///
/// # Errors
/// When the record cannot be written.
pub(super) fn save(order: &Order, path: &Path) -> Result<()> {
    write_atomically(path, &serde_json::to_vec_pretty(order)?)
}

/// Refuses to continue a translation whose record at `path` differs from `order`.
///
/// # Errors
/// When the record cannot be read, or differs.
pub(super) fn require(order: &Order, path: &Path) -> Result<()> {
    let shown = path.display();
    let text = taper_data::read_regular(path, 1 << 20).with_context(|| {
        format!(
            "--continue: cannot read {shown}, the record of the translation that was begun; begin \
             anew with another --output"
        )
    })?;
    let begun: Order = serde_json::from_slice(&text).with_context(|| {
        format!("--continue: {shown} is damaged; begin anew with another --output")
    })?;
    let (other, advice) = if begun.weights != order.weights {
        ("with other weights", "name the same checkpoint with --checkpoint")
    } else if begun.settings != order.settings {
        ("with other settings", "repeat the first command as it was")
    } else if begun.texts != order.texts {
        ("of another text", "give the same text")
    } else {
        return Ok(());
    };
    bail!(
        "--continue: {shown} belongs to a translation {other}; {advice}, or begin anew with \
         another --output"
    )
}

/// Progress of a translation that was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Progress {
    /// Number of lines of the text whose translations are complete.
    pub(super) lines: usize,
    /// Number of bytes of these translations.
    pub(super) bytes: u64,
}

impl Progress {
    /// Measures the progress of `file`, whose lines have the given form.
    ///
    /// # Errors
    /// When the file cannot be read, or its lines have another form.
    pub(super) fn measure(file: &mut fs::File, form: Form) -> Result<Self> {
        file.seek(SeekFrom::Start(0))?;
        let mut reader = BufReader::new(file);
        let mut whole = Self { lines: 0, bytes: 0 };
        let (mut before, mut bytes, mut line) = (whole, 0, Vec::new());
        let mut number = 0;
        while reader.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
            bytes += line.len() as u64;
            match form {
                Form::Best | Form::Json => whole = Self { lines: whole.lines + 1, bytes },
                Form::NBest => {
                    let current = line_number(&line).context("its lines are not n-best lists")?;
                    if current != number {
                        // Some of the n-best translations of the last source line may be missing,
                        // so this line is translated again.
                        before = whole;
                        number = current;
                    }
                    whole = Self { lines: current, bytes };
                }
            }
            line.clear();
        }
        Ok(if form == Form::NBest { before } else { whole })
    }
}

/// Returns the number of the source line at the beginning of a line of an n-best list.
fn line_number(line: &[u8]) -> Option<usize> {
    let number = line.split(|&byte| byte == b'\t').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn only_whole_lines_count() {
        let measured = |text: &str, form: Form| {
            let mut file = tempfile::tempfile().expect("a file");
            file.write_all(text.as_bytes()).expect("write");
            Progress::measure(&mut file, form).map(|progress| (progress.lines, progress.bytes)).ok()
        };
        assert_eq!(measured("", Form::Best), Some((0, 0)));
        assert_eq!(measured("eins\n\nzw", Form::Best), Some((2, 6)));
        assert_eq!(measured("{}\n{}\n", Form::Json), Some((2, 6)));
        // The second line may have had more translations.
        assert_eq!(measured("1\t-1\ta\n1\t-2\tb\n2\t-1\tc\n2\t-3", Form::NBest), Some((1, 14)));
        assert_eq!(measured("1\t-1\ta\n", Form::NBest), Some((0, 0)));
        assert_eq!(measured("eins\n", Form::NBest), None);
    }
}
