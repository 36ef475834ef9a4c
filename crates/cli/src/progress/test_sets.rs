//! Progress of decoding test sets.

use anyhow::Result;
use indicatif::ProgressBar;
use taper_run::{RunEvent, RunObserver};

use crate::advice::say_notice;
use crate::bars::sentence_bar;

/// Reporter that shows the progress of decoding test sets, and prints notices.
#[derive(Default)]
pub(crate) struct TestReporter {
    bar: Option<ProgressBar>,
}

impl RunObserver for TestReporter {
    fn observe(&mut self, event: &RunEvent<'_>) -> Result<()> {
        match event {
            RunEvent::Decoding { split, done, total } => {
                let bar = self.bar.get_or_insert_with(|| sentence_bar(Some(*total as u64), split));
                bar.set_position(*done as u64);
            }
            RunEvent::Decoded => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
            }
            RunEvent::Notice(notice) => say_notice(notice),
            _ => {}
        }
        Ok(())
    }
}
