//! Where translations go: standard output, a pipe or a device, or a file that appears whole or not
//! at all.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};

use super::is_stream;
use crate::signals::{end, on_signal};
use crate::text::{is_standard_stream, say, standard_output};
use taper_run::folder::files::{put_in_place, with_suffix};

/// Where translations go.
pub(super) struct Output(Target);

enum Target {
    /// What takes them as they come, and its name.
    Stream(RefCell<Box<dyn Write>>, String),
    /// A file, which the handler of signals knows too.
    File(Arc<Mutex<Partial>>),
}

impl Output {
    /// Standard output, also called `-`, a pipe or a device, or the file at `path`, which must not
    /// exist and which is made at once under another name: that the disk refuses it is to be
    /// known before hours of work.
    ///
    /// # Errors
    /// When the file exists or cannot be made.
    pub(super) fn open(path: Option<&Path>) -> Result<Self> {
        let stream = |to: Box<dyn Write>, name| Ok(Self(Target::Stream(RefCell::new(to), name)));
        let Some(path) = path.filter(|path| !is_standard_stream(path)) else {
            return stream(Box::new(standard_output()?), "standard output".to_owned());
        };
        if is_stream(path) {
            let shown = path.display();
            return match OpenOptions::new().write(true).open(path) {
                Ok(to) => stream(Box::new(to), shown.to_string()),
                Err(error) => {
                    bail!("--output {shown} cannot be written: {error}; choose another --output")
                }
            };
        }
        let file = Arc::new(Mutex::new(Partial::create(path)?));
        let of_handler = Arc::clone(&file);
        on_signal(move || {
            let partial = lock(&of_handler);
            say(if partial.lines > 0 || partial.whole {
                "\nstopped"
            } else {
                "\nstopped before the first lines were done; nothing is kept"
            });
            partial.give_up();
            end();
        })?;
        Ok(Self(Target::File(file)))
    }

    /// Writes the translations of the next line of the text, so that they outlive the process.
    ///
    /// # Errors
    /// When the disk or the stream refuses.
    pub(super) fn write(&self, text: &str) -> Result<()> {
        match &self.0 {
            Target::File(file) => lock(file).append(text),
            Target::Stream(to, name) => {
                let mut to = to.borrow_mut();
                to.write_all(text.as_bytes())
                    .and_then(|()| to.flush())
                    .with_context(|| format!("cannot write to {name}"))
            }
        }
    }

    /// Gives the file its name, now that it is whole.
    ///
    /// # Errors
    /// When the disk refuses.
    pub(super) fn finish(&self) -> Result<()> {
        match &self.0 {
            Target::File(file) => lock(file).finish(),
            Target::Stream(..) => Ok(()),
        }
    }

    /// Says what there is of a translation that failed.
    pub(super) fn give_up(&self) {
        if let Target::File(file) = &self.0 {
            lock(file).give_up();
        }
    }
}

/// A panic of the other thread leaves what it guards as it was: each change comes after what may
/// fail.
fn lock(file: &Mutex<Partial>) -> MutexGuard<'_, Partial> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file that is not whole yet.
#[derive(Debug)]
struct Partial {
    /// The name that it is to have.
    path: PathBuf,
    /// The name that it has.
    partial: PathBuf,
    file: File,
    /// Lines of the text whose translations it holds.
    lines: usize,
    /// The bytes of those.
    bytes: u64,
    whole: bool,
}

impl Partial {
    fn create(path: &Path) -> Result<Self> {
        let shown = path.display();
        let Some(name) = path.file_name() else {
            bail!("--output {shown} is not the name of a file")
        };
        if path.exists() {
            bail!(
                "{shown} exists already and is left as it is: choose another --output or remove it"
            );
        }
        if path.extension().is_some_and(|extension| extension == "gz" || extension == "zst") {
            bail!(
                "--output {shown}: the text is not compressed, and would not be read again under this name; choose another"
            );
        }
        // `name/` is the file `name`.
        let path = path.with_file_name(name);
        // Not the suffix of a run's own files, of which `taper resume` clears up what is not whole.
        let partial = with_suffix(&path, ".part");
        let file = match File::create_new(&partial) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!(
                "{} exists already: another translation to {shown} was stopped, or is going on; move it away, or choose another --output",
                partial.display()
            ),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!(
                    "--output {shown}: there is no such folder; make it, or choose another --output"
                )
            }
            Err(error) => {
                bail!("--output {shown} cannot be written: {error}; choose another --output")
            }
        };
        Ok(Self { path, partial, file, lines: 0, bytes: 0, whole: false })
    }

    fn append(&mut self, text: &str) -> Result<()> {
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            // A full disk may take a part: what stays is whole lines, as many as will be said.
            let _ = self.file.set_len(self.bytes);
            return Err(error).with_context(|| format!("cannot write {}", self.partial.display()));
        }
        self.lines += 1;
        self.bytes += text.len() as u64;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let Self { path, partial, file, .. } = self;
        put_in_place(file, partial, path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        self.whole = true;
        Ok(())
    }

    /// Says what there is; a file with nothing in it is removed.
    fn give_up(&self) {
        let (path, partial, lines) = (self.path.display(), self.partial.display(), self.lines);
        if self.whole {
            say(&format!("{path} is complete"));
        } else if lines > 0 {
            say(&format!(
                "{lines} lines were translated and are in {partial}; line {} is the next",
                lines + 1
            ));
        } else {
            // Should it stay, the next attempt says so.
            let _ = fs::remove_file(&self.partial);
        }
    }
}
