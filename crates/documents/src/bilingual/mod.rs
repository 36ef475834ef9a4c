//! Files with two languages: message catalogs, translation memories, and exchange files of
//! translation tools.

mod plurals;
mod po;
mod tmx;
mod xliff;

pub(crate) use po::form_of_one;
pub use po::{Message, PoString, parse_po, po_pairs};
pub use tmx::Tmx;
pub use xliff::xliff_pairs;
pub(crate) use xliff::{Content, parse_xliff};
