//! Reads and writes documents, such as HTML, and files of translation tools. The texts of a
//! document can be replaced by translations; every other byte stays as it was.
//!
//! This crate uses neither models nor tensors, and opens no files. For training, it reads sentence
//! pairs from TMX files (translation memories, [`Tmx`]), from PO files (message catalogs of
//! gettext, [`po_pairs`]), and from XLIFF files (exchange files of translation tools,
//! [`xliff_pairs`]). For translation, a [`Document`] gives its sentences without markup as
//! [`Line`]s, and takes their translations. In the result, tags follow their words, placeholders
//! stay, and everything but text is identical byte for byte.
//!
//! XML is read with `quick-xml`, which gives the bytes of each tag. Other crates parse XML to a
//! tree. A tree would have to be written as new XML, with other bytes than those of the document.
//!
//! ```
//! let catalog = "msgid \"Open\"\nmsgstr \"Öffnen\"\n";
//! let pairs = taper_documents::po_pairs(catalog, ["en", "de"])?;
//! assert_eq!(pairs[0].1, ["Open", "Öffnen"]);
//! # Ok::<(), taper_documents::Error>(())
//! ```
#![forbid(unsafe_code)]

mod bilingual;
mod container;
mod division;
mod document;
mod element;
mod emphasis;
mod error;
mod formats;
mod languages;
mod layout;
mod line;
mod line_part;
mod marks;
mod markup;
mod placeholders;
mod placement;
mod references;
mod scripts;
mod segment;
mod sentences;
mod syntax;
mod translated;
mod units;
mod without_placeholders;
mod words;
mod writer;
mod xml;

pub use bilingual::{Message, PoString, Tmx, parse_po, po_pairs, xliff_pairs};
pub use container::Docx;
pub use document::Document;
pub use error::{Error, Result};
pub use formats::DocumentFormat;
pub use languages::is_language;
pub use line::Line;
pub use placeholders::placeholders;
pub use scripts::is_unspaced;
pub use sentences::sentences;
pub use translated::Translated;
pub use xml::utf8_of;
