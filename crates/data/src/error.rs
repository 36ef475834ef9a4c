//! Errors about data. Their messages name the file, the line or the key that is wrong, and give
//! advice.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::file_names::is_compressed;

/// Result of the fallible functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error in the text, the configuration, a tokenizer or the disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that the configuration names does not exist.
    #[error("{path}: no such file{tried}; {hint}", path = .path.display())]
    Missing {
        /// Path of the missing file.
        path: PathBuf,
        /// Other names that were tried; may be empty.
        tried: String,
        /// Advice.
        hint: String,
    },
    /// The operating system refused an operation on a file.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A line is not UTF-8.
    #[error("{path}, line {line}: not valid UTF-8; convert the file, for example with iconv, or remove the line", path = .path.display())]
    InvalidUtf8 {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
    },
    /// The two sides of a corpus have different numbers of lines.
    #[error(
        "{source_path} has {source_lines} lines but {target_path} has {target_lines}; line i of \
         one must translate line i of the other (only \\n ends a line)",
        source_path = .source_path.display(), target_path = .target_path.display()
    )]
    UnequalLines {
        /// The source side.
        source_path: PathBuf,
        /// Number of lines.
        source_lines: u64,
        /// The target side.
        target_path: PathBuf,
        /// Number of lines.
        target_lines: u64,
    },
    /// A split has no pairs at all.
    #[error("split {split:?} is empty: {files} hold no sentence pair")]
    EmptyCorpus {
        /// Name of the split.
        split: String,
        /// The files that were read.
        files: String,
    },
    /// A split of running text has no text, or a single token.
    #[error("split {split:?} is empty: {files} hold no text")]
    EmptyText {
        /// Name of the split.
        split: String,
        /// The files that were read.
        files: String,
    },
    /// A split has no questions.
    #[error("split {split:?} is empty: {files} hold no question")]
    NoQuestions {
        /// Name of the split.
        split: String,
        /// The files that were read.
        files: String,
    },
    /// A split has no images.
    #[error("split {split:?} is empty: {files} hold no image")]
    EmptyImages {
        /// Name of the split.
        split: String,
        /// The files that were read.
        files: String,
    },
    /// Files were written to while they were read.
    #[error("{files}: changed while they were read; repeat the command once they are complete")]
    Changed {
        /// The files of the split.
        files: String,
    },
    /// Cleaning dropped all pairs.
    #[error(
        "split {split:?}: all {read} pairs were dropped ({reasons}); loosen data.cleaning or \
         check the files"
    )]
    AllDropped {
        /// Name of the split.
        split: String,
        /// Number of pairs that were read.
        read: u64,
        /// Number of dropped pairs for each reason.
        reasons: String,
    },
    /// One record of a file, such as a line of a TSV file, a row of a Parquet file or an image,
    /// cannot be read as an example.
    #[error("{path}, {unit} {line}: {message}", path = .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Kind of the record, such as `line`, `row` or `image`.
        unit: &'static str,
        /// Number of the record, counted from 1.
        line: u64,
        /// Faulty text, and the expected form.
        message: String,
    },
    /// A line of input does not have the expected form.
    #[error("line {line}: {message}")]
    Line {
        /// Number of the line, counted from 1.
        line: u64,
        /// Faulty text, and the expected form.
        message: String,
    },
    /// The content of a file is not in the format that is expected of the file.
    #[error("{path}: {message}", path = .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Fault and advice.
        message: String,
    },
    /// A data set on the Hugging Face hub is not available.
    #[error("hub data set {dataset:?}: {message}")]
    Hub {
        /// The data set's id.
        dataset: String,
        /// Fault and advice.
        message: String,
    },
    /// The configuration requests something impossible.
    #[error("{key}: {message}")]
    Config {
        /// Dotted key, from the root of the configuration.
        key: &'static str,
        /// Description of the wrong value, and possible values.
        message: String,
    },
    /// A model does not translate in a direction.
    #[error("the run {message}")]
    Direction {
        /// Unsupported part of the direction, and what the model supports.
        message: String,
    },
    /// Training, encoding or decoding failed inside the tokenizer.
    #[error("tokenizer: could not {action}: {message}")]
    Tokenizer {
        /// Action that failed.
        action: &'static str,
        /// The tokenizer's reason.
        message: String,
    },
    /// A text spells a special token where this is not allowed.
    #[error(
        "spells the special token {token}, which is refused here: leave the token out, or have \
         special tokens taken as text (text) or as tokens (read)"
    )]
    SpelledSpecial {
        /// The token.
        token: String,
    },
    /// The thread that makes batches panicked.
    #[error("the thread that makes batches panicked: {reason}; this is a fault in the program")]
    BatchThread {
        /// Message of the panic.
        reason: String,
    },
    /// A tokenizer lacks a special token, or the token has another id than
    /// [`Batch`](crate::Batch)es need.
    #[error(
        "{path}: the token {token} must have id {expected} but {found}; train a tokenizer here or renumber the file", path = .path.display()
    )]
    SpecialToken {
        /// The tokenizer file.
        path: PathBuf,
        /// The token.
        token: &'static str,
        /// The id that the token must have.
        expected: u32,
        /// Id or text in the file.
        found: String,
    },
}

impl Error {
    /// Error for a line that is not UTF-8. If the file is of a known kind that is not text, the
    /// error names the kind.
    pub fn not_text(path: &Path, line: u64) -> Self {
        match kind_of(path) {
            Some((kind, remedy)) => {
                let message = format!("is {kind}, where lines of text are expected; {remedy}");
                Self::Malformed { path: path.to_owned(), message }
            }
            None => Self::InvalidUtf8 { path: path.to_owned(), line },
        }
    }

    /// An error of the operating system about `path`.
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}

/// If the first bytes of a file belong to a known format other than text, returns the name of the
/// format, and advice. Otherwise returns `None`; also if the path is not a regular file, or if its
/// name ends like that of a compressed file.
fn kind_of(path: &Path) -> Option<(&'static str, &'static str)> {
    const NAME_TEXT: &str = "name a file of text";
    const KINDS: [(&[u8], &str, &str); 9] = [
        (b"PAR1", "a Parquet file", "write the column of texts to a file, one a line"),
        (b"\x1f\x8b", "compressed by gzip", "end its name with .gz"),
        (b"\x28\xb5\x2f\xfd", "compressed by zstd", "end its name with .zst"),
        (b"\xfd7zXZ\0", "compressed by xz", "end its name with .xz"),
        (b"BZh", "compressed by bzip2", "end its name with .bz2"),
        (
            b"PK\x03\x04",
            "a ZIP archive, or a document of an office program",
            "end the name of an archive with .zip, or name a file of text",
        ),
        (b"%PDF", "a PDF", NAME_TEXT),
        (b"\x89PNG", "a PNG image", NAME_TEXT),
        (b"\xff\xd8\xff", "a JPEG image", NAME_TEXT),
    ];
    if is_compressed(path) || !path.is_file() {
        return None;
    }
    let mut begin = Vec::new();
    File::open(path).and_then(|file| file.take(8).read_to_end(&mut begin)).ok()?;
    let known = KINDS.into_iter().find(|(magic, ..)| begin.starts_with(magic));
    known.map(|(_, kind, remedy)| (kind, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_text_is_named_for_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let message_for = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let mut lines = crate::LineReader::open(&path).unwrap();
            lines.find_map(Result::err).unwrap().to_string()
        };
        let parquet = message_for("texts", b"PAR1\x15\x04\n\xff\xfe\n");
        assert!(parquet.contains("is a Parquet file") && !parquet.contains("iconv"), "{parquet}");
        let utf16 = message_for("texts", b"\xff\xfeh\0i\0\n\0");
        assert!(utf16.contains("is UTF-16") && utf16.contains("iconv"), "{utf16}");
        let latin = message_for("texts", b"sch\xf6n\n");
        assert!(latin.contains("line 1: not valid UTF-8"), "{latin}");
    }
}
