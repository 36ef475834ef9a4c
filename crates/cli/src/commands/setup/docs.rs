//! `taper docs`: the manual that is installed beside the program.

use std::env;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::arguments::Docs;
use crate::program;
use crate::text::print_line;

/// Folder of the manual, relative to the folder of the program.
const BOOK: &str = "../share/taper/book";

/// Runs the command: prints the address of a page, and opens the page in the browser if the
/// output is a terminal.
///
/// # Errors
/// If no manual is installed, or it has no such page.
pub(crate) fn run(arguments: &Docs) -> Result<()> {
    let book = program::get().folder.join(BOOK);
    let page = page(&book, arguments.page.as_deref())?;
    print_line(&format!("file://{}", page.display()))?;
    if std::io::stdout().is_terminal() {
        open(&page);
    }
    Ok(())
}

/// Finds a page by its name: `scores` is `docs/scores.html`.
fn page(book: &Path, name: Option<&str>) -> Result<PathBuf> {
    let Ok(book) = book.canonicalize() else {
        bail!(
            "no manual is installed beside this program: wheels and archives bring one; in the \
             repository, read docs/README.md, or build it with scripts/package/book.py --to FOLDER"
        );
    };
    let Some(name) = name else { return Ok(book.join("index.html")) };
    let file = |folder: &str| book.join(format!("docs/{folder}{name}.html"));
    let folders = ["", "models/", "layers/", "seeing/", "mathematics/"];
    // Together with the check for `..`, this keeps the path inside the manual.
    let is_name = name.chars().all(|one| one.is_alphanumeric() || matches!(one, '-' | '.' | '/'));
    folders
        .into_iter()
        .map(file)
        .find(|path| is_name && !name.contains("..") && path.is_file())
        .with_context(|| format!("the manual has no page `{name}`; {}", listed(&book)))
}

/// Returns a clause that says where all pages are listed.
fn listed(book: &Path) -> String {
    format!("file://{} lists them", book.join("index.html").display())
}

/// Opens a page in the default browser. A failure is ignored, since the address of the page has
/// already been printed.
fn open(page: &Path) {
    let opener = match env::consts::OS {
        "macos" => "open",
        "windows" => "explorer",
        _ => "xdg-open",
    };
    let _ = Command::new(opener).arg(page).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
}
