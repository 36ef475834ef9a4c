//! `taper embeddings train|resume`: training of word vectors.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use taper_embeddings::training::{self, Event, Limits, Outcome};
use taper_run::checks::memory;
use taper_run::folder::RunLock;
use taper_run::numbers::grouped;
use taper_run::{FolderNotice, Notice, RunEvent};

use crate::arguments::{EmbeddingsResume, EmbeddingsTrain};
use crate::bars::{clock, word_bar};
use crate::error::Interrupted;
use crate::signals::{Received, Request, on_signal};
use crate::text::{print_line, quoted, report_line, say};

/// Time between lines of progress if there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

pub(super) fn train(arguments: &EmbeddingsTrain) -> Result<()> {
    let limits = arguments.limits.limits(arguments.format.into(), memory::available());
    let (files, settings) = (&arguments.files, arguments.settings());
    in_folder(&arguments.output, &limits, |limits, observe, stop| {
        Ok(training::start(files, &arguments.output, &settings, limits, observe, stop)?)
    })
}

pub(super) fn resume(arguments: &EmbeddingsResume) -> Result<()> {
    let limits = arguments.limits.limits(taper_embeddings::Format::default(), memory::available());
    let folder = &arguments.folder;
    in_folder(folder, &limits, |limits, observe, stop| {
        Ok(training::resume(folder, limits, observe, stop)?)
    })
}

/// Locks a folder, so that no other process trains in it, and calls `work`, which trains. Shows its
/// progress, and stops it at a signal.
fn in_folder(
    folder: &Path,
    limits: &Limits,
    work: impl FnOnce(&Limits, &mut dyn FnMut(&Event), &AtomicBool) -> Result<Outcome>,
) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut notices = |event: &RunEvent<'_>| {
        if let RunEvent::Notice(notice @ Notice::Folder(FolderNotice::NoLocks(_))) = event {
            say(&notice.to_string());
        }
        Ok(())
    };
    let _lock = RunLock::acquire(folder, &mut notices)?;
    let (stop, code) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU8::new(0)));
    let (stops, codes, again) = (Arc::clone(&stop), Arc::clone(&code), quoted(folder));
    let mut received = Received::default();
    on_signal(move |signal| match received.request(signal, Instant::now()) {
        Request::Nothing => {}
        Request::Stop => {
            codes.store(signal.exit_code(), Ordering::SeqCst);
            stops.store(true, Ordering::SeqCst);
            say("\nstopping and saving a checkpoint; again to stop at once");
        }
        Request::StopStill => {
            say("\nstill stopping and saving a checkpoint; again to stop at once");
        }
        Request::End => {
            say(&format!("\nstopped; continue with: taper embeddings resume {again}"));
            signal.end();
        }
    })?;
    let mut shown = Shown { bar: ProgressBar::hidden(), last: Instant::now() };
    let outcome = work(limits, &mut |event| shown.show(event), &stop);
    shown.bar.finish_and_clear();
    match outcome? {
        Outcome::Interrupted => {
            say(&format!("interrupted; continue with: taper embeddings resume {}", quoted(folder)));
            Err(Interrupted(code.load(Ordering::SeqCst)).into())
        }
        Outcome::Complete(path) => print_line(&format!(
            "{}\n\nnext:\n  taper embeddings nearest {} WORD   the words nearest to one",
            path.display(),
            quoted(folder)
        )),
    }
}

/// Progress display of a training: a bar at a terminal, otherwise a line from time to time.
struct Shown {
    bar: ProgressBar,
    last: Instant,
}

impl Shown {
    fn show(&mut self, event: &Event) {
        match event {
            Event::Forgotten { most } => say(&format!(
                "memory ran short while words were counted: words with at most {most} occurrences \
                 so far were forgotten"
            )),
            Event::Counted { words, vocabulary, covered } => report_line(&format!(
                "{} words, {} of which ({:.1}%) are among the {} with a vector",
                grouped(*words),
                grouped(*covered),
                100.0 * *covered as f64 / *words as f64,
                grouped(*vocabulary as u64)
            )),
            Event::Progress { epoch, done, total, rate, loss, learning_rate } => {
                if std::io::stderr().is_terminal() {
                    if self.bar.is_hidden() {
                        self.bar = word_bar(*total);
                    }
                    self.bar.set_position(*done);
                    self.bar.set_message(format!("epoch {epoch}  loss {loss:.3}"));
                } else if self.last.elapsed() >= LINE_EVERY || done == total {
                    self.last = Instant::now();
                    let left = Duration::try_from_secs_f64((total - done) as f64 / rate);
                    report_line(&format!(
                        "{:.1}%  epoch {epoch}  loss {loss:.4}  lr {learning_rate:.2e}  \
                         {rate:.0} words/s  eta {}",
                        100.0 * *done as f64 / *total as f64,
                        clock(left.unwrap_or_default())
                    ));
                }
            }
            Event::Saved { .. } => {}
        }
    }
}
