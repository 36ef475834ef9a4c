//! Output of translations: standard output, a pipe or a device, or a file that appears only when it
//! is complete.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::continuation::{self, Progress};
use super::is_stream;
use crate::arguments::Form;
use crate::signals::on_signal;
use crate::text::{is_standard_stream, say, standard_output};
use taper_data::put_in_new_place;
use taper_run::folder::files::{is_at, with_suffix};
use taper_run::translation::Order;

/// Output of translations.
pub(super) struct Output(Target);

enum Target {
    /// A stream and its name. Translations are written to the stream at once.
    Stream(RefCell<Box<dyn Write>>, String),
    /// A file, which the signal handler shares.
    File(Arc<Mutex<Partial>>),
}

impl Output {
    /// Opens the output at `path`: a file, a pipe or a device. `None` and `-` are standard output.
    ///
    /// An output file must not exist yet. It is created at once under a temporary name, so that an
    /// error of the disk is found before hours of work. If `continued` is not `None`, the existing
    /// file with the temporary name is continued instead, and its lines must have the given form.
    ///
    /// # Errors
    /// When the file exists or cannot be created, or there is nothing to continue.
    pub(super) fn open(path: Option<&Path>, continued: Option<Form>) -> Result<Self> {
        let stream = |to: Box<dyn Write>, name| Ok(Self(Target::Stream(RefCell::new(to), name)));
        let Some(path) = path.filter(|path| !is_standard_stream(path)) else {
            if continued.is_some() {
                bail!("--continue needs --output FILE with an existing FILE.part");
            }
            return stream(Box::new(standard_output()?), "standard output".to_owned());
        };
        if is_stream(path) && continued.is_none() {
            let shown = path.display();
            return match OpenOptions::new().write(true).open(path) {
                Ok(to) => stream(Box::new(to), shown.to_string()),
                Err(error) => {
                    bail!("--output {shown} cannot be written: {error}; choose another --output")
                }
            };
        }
        let partial = match continued {
            Some(form) => Partial::reopen(path, form)?,
            None => Partial::create(path)?,
        };
        let file = Arc::new(Mutex::new(partial));
        let of_handler = Arc::clone(&file);
        let handled = on_signal(move |signal| {
            let partial = lock(&of_handler);
            say(if partial.lines > 0 || partial.whole || partial.is_untouched() {
                "\nstopped"
            } else {
                "\nstopped before the first lines were done; nothing is kept"
            });
            partial.give_up();
            signal.end();
        });
        handled.inspect_err(|_| lock(&file).give_up())?;
        Ok(Self(Target::File(file)))
    }

    /// Returns the number of lines of the text that are translated already.
    pub(super) fn lines(&self) -> usize {
        match &self.0 {
            Target::File(file) => lock(file).lines,
            Target::Stream(..) => 0,
        }
    }

    /// Records the conditions of a new translation. For a continued translation, compares them with
    /// the record.
    ///
    /// # Errors
    /// When the translation is continued under other conditions, or the record cannot be read or
    /// written.
    pub(super) fn begin(&self, order: &Order) -> Result<()> {
        match &self.0 {
            Target::File(file) => lock(file).begin(order),
            Target::Stream(..) => Ok(()),
        }
    }

    /// Writes the translations of the next line of the text. They are not held back in a buffer of
    /// this process, so they are not lost if the process is killed.
    ///
    /// # Errors
    /// When the text cannot be written.
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

    /// Renames the complete file to its final name.
    ///
    /// # Errors
    /// When the file cannot be stored or renamed.
    pub(super) fn finish(&self) -> Result<()> {
        match &self.0 {
            Target::File(file) => lock(file).finish(),
            Target::Stream(..) => Ok(()),
        }
    }

    /// Reports the incomplete file of a translation that failed.
    pub(super) fn give_up(&self) {
        if let Target::File(file) = &self.0 {
            lock(file).give_up();
        }
    }
}

/// Locks the value that the signal handler shares. If a thread panicked while it held the lock, the
/// value is still consistent, because it is changed only after the steps that may fail.
fn lock(file: &Mutex<Partial>) -> MutexGuard<'_, Partial> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the file; fails if another process writes to it.
fn lock_file(file: &File, path: &Path) -> Result<()> {
    // Other errors are ignored, because the file system may not support locks.
    if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        bail!("{}: another process is writing to it; wait for it", path.display());
    }
    Ok(())
}

/// Error for an output `path` at which another file has appeared during the translation. The whole
/// translation is in `other`.
pub(super) fn appeared(path: &Path, other: &Path) -> anyhow::Error {
    anyhow!(
        "{} appeared in the meantime and is left as it is; the whole translation is in {}: move \
         one of the two to another name",
        path.display(),
        other.display()
    )
}

/// A file that is not complete yet.
#[derive(Debug)]
struct Partial {
    /// Final path.
    path: PathBuf,
    /// Temporary path, which the file has until it is complete.
    partial: PathBuf,
    file: File,
    /// Whether the file was begun by an earlier process, and is continued by this one.
    continued: bool,
    /// Number of lines of the text whose translations are complete in the file.
    lines: usize,
    /// Number of bytes of the complete translations.
    bytes: u64,
    /// Whether the translation is complete and is in its place.
    whole: bool,
    /// Whether the record of the conditions has been written or, for a continued file, has been
    /// compared with the present conditions and found equal.
    has_begun: bool,
    /// Whether the file is left as it is, because it was begun under other conditions, the record
    /// of its conditions cannot be read, or it is complete but its final path is taken.
    is_refused: bool,
}

impl Partial {
    /// Returns the final path for `path`, and the temporary path until the file is complete. Fails
    /// if `path` exists.
    fn names(path: &Path) -> Result<(PathBuf, PathBuf)> {
        let shown = path.display();
        let Some(name) = path.file_name() else {
            bail!("--output {shown} is not the name of a file")
        };
        // A link is not followed, because the complete file would replace the link.
        ensure!(
            path.symlink_metadata().is_err(),
            "{shown} exists already and is left as it is: choose another --output or remove it"
        );
        // Removes the slash of `name/`.
        let path = path.with_file_name(name);
        // The suffix differs from the suffix of temporary files in the folder of a run. `taper
        // resume` removes temporary files, and the output may be in that folder.
        let partial = with_suffix(&path, ".part");
        Ok((path, partial))
    }

    /// Opens the incomplete file that a stopped process has left for the output `path`. Nothing in
    /// it is changed before [`Self::begin`].
    fn reopen(path: &Path, form: Form) -> Result<Self> {
        let (path, partial) = Self::names(path)?;
        let shown = partial.display();
        if let Some(kind) = taper_data::not_a_file(&partial) {
            bail!("--continue: {shown} is {kind}");
        }
        let mut file = match OpenOptions::new().read(true).write(true).open(&partial) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("--continue: there is no {shown}; leave the option out to begin")
            }
            Err(error) => bail!("--continue: {shown} cannot be written: {error}"),
        };
        lock_file(&file, &partial)?;
        ensure!(
            is_at(&file, &partial),
            "--continue: {shown} was completed or removed by another process a moment ago"
        );
        let Progress { lines, bytes } =
            Progress::measure(&mut file, form).with_context(|| format!("--continue: {shown}"))?;
        Ok(Self { continued: true, lines, bytes, ..Self::new(path, partial, file) })
    }

    /// Makes the value for a new file.
    fn new(path: PathBuf, partial: PathBuf, file: File) -> Self {
        Self {
            path,
            partial,
            file,
            continued: false,
            lines: 0,
            bytes: 0,
            whole: false,
            has_begun: false,
            is_refused: false,
        }
    }

    /// Whether an earlier process has begun the file, and this process has not changed it.
    fn is_untouched(&self) -> bool {
        self.continued && !self.has_begun
    }

    fn create(path: &Path) -> Result<Self> {
        let shown = path.display();
        let (path, partial) = Self::names(path)?;
        ensure!(
            !taper_data::is_compressed(&path),
            "--output {shown}: the text is written uncompressed, so it could not be read again \
             under this name; choose another name"
        );
        let file = match File::create_new(&partial) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => bail!(
                "{} exists already: another translation to {shown} was stopped, or is going on; \
                 go on with it by --continue, move it away, or choose another --output",
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
        lock_file(&file, &partial)?;
        Ok(Self::new(path, partial, file))
    }

    /// Path of the record of the conditions under which the translation began.
    fn order(&self) -> PathBuf {
        with_suffix(&self.partial, ".json")
    }

    /// Records the conditions of a new translation. For a continued translation, compares its
    /// conditions with the record. An incomplete end after the complete lines of a continued file
    /// is then cut off.
    fn begin(&mut self, order: &Order) -> Result<()> {
        if self.continued {
            let checked = continuation::require(order, &self.order());
            self.is_refused = checked.is_err();
            checked?;
            self.file
                .set_len(self.bytes)
                .and_then(|()| self.file.seek(SeekFrom::Start(self.bytes)))
                .with_context(|| format!("cannot write {}", self.partial.display()))?;
        } else {
            continuation::save(order, &self.order())?;
        }
        self.has_begun = true;
        Ok(())
    }

    fn append(&mut self, text: &str) -> Result<()> {
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            // If the disk is full, a part of the text may have been written. It is removed, so that
            // the file has exactly the number of lines that is reported.
            let _ = self.file.set_len(self.bytes);
            return Err(error).with_context(|| format!("cannot write {}", self.partial.display()));
        }
        self.lines += 1;
        self.bytes += text.len() as u64;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let Self { path, partial, file, .. } = self;
        if let Err(error) = put_in_new_place(file, partial, path) {
            if error.kind() == ErrorKind::AlreadyExists {
                self.is_refused = true;
                return Err(appeared(path, partial));
            }
            return Err(error).with_context(|| format!("cannot write {}", path.display()));
        }
        self.whole = true;
        // The translation is complete, so its record is no longer needed.
        let _ = fs::remove_file(self.order());
        Ok(())
    }

    /// Reports the incomplete file and how to continue it. Removes a file without complete lines,
    /// unless an earlier process made it and this process has not changed it. If the file was
    /// refused, the error says what to do.
    fn give_up(&self) {
        let (path, partial, lines) = (self.path.display(), self.partial.display(), self.lines);
        if self.whole {
            say(&format!("{path} is complete"));
        } else if self.is_refused {
            say(&format!("{partial} is left as it is"));
        } else if lines > 0 {
            say(&format!(
                "{lines} lines were translated and are in {partial}; line {} is the next: the \
                 same command with --continue goes on there",
                lines + 1
            ));
        } else if !self.is_untouched() {
            // If the file cannot be removed, the next attempt reports it.
            let _ = fs::remove_file(&self.partial);
            let _ = fs::remove_file(self.order());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_appears_in_the_meantime_is_not_replaced() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("out.txt");
        let mut partial = Partial::create(&path).expect("a free name");
        partial.append("eins\n").expect("written");
        fs::write(&path, "another's").expect("written");
        let error = partial.finish().expect_err("the name is taken").to_string();
        assert!(error.contains("out.txt appeared") && error.contains("out.txt.part"), "{error}");
        partial.give_up();
        assert_eq!(fs::read_to_string(&path).expect("there"), "another's");
        assert_eq!(fs::read_to_string(&partial.partial).expect("there"), "eins\n");
        fs::remove_file(&path).expect("removed");
        partial.finish().expect("the name is free again");
        assert_eq!(fs::read_to_string(&path).expect("there"), "eins\n");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
