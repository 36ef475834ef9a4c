//! Reading of documents from the bytes of a file, and writing of translated documents as bytes.

use std::path::Path;

use anyhow::Result;
use taper_data::text_of;
use taper_documents::{Document, DocumentFormat, Docx};

/// File of a document, in the format that its name indicates.
#[derive(Debug, Clone)]
pub struct DocumentFile {
    format: DocumentFormat,
    /// Archive that contains the text, if the format is an archive.
    container: Option<Docx>,
    /// Text of the document, with its byte-order mark if it has one.
    text: String,
}

impl DocumentFile {
    /// Reads the content `bytes` of the file `name`. `most`: largest number of bytes of the text in
    /// an archive, which can be much larger than the archive.
    ///
    /// # Errors
    /// If the name indicates no known format, the bytes are not text in UTF-8, or an archive is
    /// damaged or has more than `most` bytes of text.
    pub fn read(name: &Path, bytes: Vec<u8>, most: u64) -> Result<Self> {
        let format = DocumentFormat::by_name(name)?;
        if format == DocumentFormat::Docx {
            let (container, text) = Docx::read_within(bytes, most)?;
            return Ok(Self { format, container: Some(container), text });
        }
        let text = text_of(&bytes, name)?;
        let has_mark = bytes.len() > text.len();
        let text = if has_mark { format!("\u{feff}{text}") } else { text };
        Ok(Self { format, container: None, text })
    }

    /// Endings of the names of files that can be read, in lower case and without the dot.
    pub fn endings() -> impl Iterator<Item = &'static str> {
        DocumentFormat::endings()
    }

    /// Media type of the file.
    #[must_use]
    pub fn media_type(&self) -> &'static str {
        self.format.media_type()
    }

    /// Parses the document. Text is divided into sentences by the rules of the language `language`.
    ///
    /// # Errors
    /// If the text is not valid in its format. The message names the line.
    pub fn document(&self, language: &str) -> Result<Document> {
        Ok(Document::parse(self.text.clone(), self.format, language)?)
    }

    /// Bytes of a copy of the file. In the copy, the text of the document is replaced by `text`,
    /// the text of the translated document.
    ///
    /// # Errors
    /// If `text` belongs to another document.
    pub fn write(&self, text: String) -> Result<Vec<u8>> {
        match &self.container {
            Some(container) => Ok(container.write(&text)?),
            None => Ok(text.into_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_back_to_the_byte() {
        let read =
            |name: &str, bytes: &[u8]| DocumentFile::read(Path::new(name), bytes.to_vec(), 1 << 20);
        for text in ["\u{feff}a b\r\n", "a b", ""] {
            let file = read("a.txt", text.as_bytes()).expect("a text");
            let document = file.document("en").expect("a document");
            assert_eq!(file.write(document.write(&[])).expect("bytes"), text.as_bytes());
        }
        let letter =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../documents/tests/golden/letter.docx");
        let letter = std::fs::read(letter).expect("a letter");
        let file = read("Letter.DOCX", &letter).expect("a letter");
        let text = file.document("en").expect("a document").write(&[]);
        let written = file.write(text.clone()).expect("bytes");
        let again = read("again.docx", &written).expect("a letter");
        assert_eq!(again.document("en").expect("a document").write(&[]), text);
        for (name, bytes, phrase) in [
            ("a.doc", &b"x"[..], "must end in one of .html"),
            ("a.docx", b"PK", "not a readable DOCX file"),
            ("a.txt", b"\xff\xfea\0", "UTF-16"),
            ("a.md", b"a\n\xff", "line 2"),
        ] {
            let error = format!("{:#}", read(name, bytes).expect_err(name));
            assert!(error.contains(phrase), "{name}: {error}");
        }
        let error = DocumentFile::read(Path::new("a.docx"), letter, 10).expect_err("too large");
        assert!(format!("{error:#}").contains("larger than 10 bytes"), "{error:#}");
    }
}
