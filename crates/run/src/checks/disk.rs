//! Check, before a training begins, that the disk has room for the files of its run (the folder
//! that it writes).

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use taper_trainer::{LEFT, TrainingConfig};

use crate::numbers::bytes;

/// Size of one f32 in bytes.
const F32: u64 = 4;
/// Allowance in bytes for the small files: configuration, metrics, state, scores.
const SMALL_FILES: u64 = 1 << 20;

/// Largest total size in bytes that the checkpoints of a run can have at any time, for a model of
/// `parameters` scalars. It includes the checkpoints that are kept (never more than the run makes),
/// the checkpoint that is being written, and the average of the last checkpoints.
pub(crate) fn checkpoint_bytes(training: &TrainingConfig, parameters: u64) -> u64 {
    let weights = F32 * parameters;
    let checkpoint = weights * (1 + training.state_buffers());
    let average = if training.average_last > 0 { weights } else { 0 };
    let kept = (training.keep_last as u64).saturating_add(training.keep_best as u64);
    let times = |every: u64| training.max_updates.checked_div(every).unwrap_or(0);
    // A run makes checkpoints on schedule, at validations with the best score so far, and at its
    // end.
    let checkpoints = match training.max_updates {
        0 => u64::MAX,
        _ => times(training.checkpoint_every)
            .saturating_add(times(training.validate_every))
            .saturating_add(1),
    };
    checkpoint.saturating_mul(kept.min(checkpoints).saturating_add(1)).saturating_add(average)
}

/// Refuses to begin a run in `folder` if the disk has no room for its further checkpoints.
/// `checkpoints` is the folder of the checkpoints, whose present files are already on the disk.
///
/// # Errors
/// When the checkpoints would not fit; the message has the bytes needed, the bytes free, and
/// advice.
pub(crate) fn check(
    folder: &Path,
    checkpoints: &Path,
    training: &TrainingConfig,
    parameters: u64,
) -> Result<()> {
    let needed = checkpoint_bytes(training, parameters)
        .saturating_sub(size_of(checkpoints))
        .saturating_add(SMALL_FILES);
    // If the system does not report the free space, only a failing write shows that the disk is
    // full.
    let Some(free) = available(folder) else { return Ok(()) };
    if free < needed {
        bail!(
            "{}: the disk has {} free, but the checkpoints of this run need {} more; make room, \
             lower training.keep_last ({}) or training.keep_best ({}), or use a folder \
             on another disk",
            folder.display(),
            bytes(free),
            bytes(needed),
            training.keep_last,
            training.keep_best
        );
    }
    Ok(())
}

/// Free space in bytes for this user on the disk of `path`, which need not exist. `None` if the
/// system does not report the free space.
#[cfg(unix)]
#[must_use]
pub fn available(path: &Path) -> Option<u64> {
    let folder = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    let figures = rustix::fs::statvfs(folder).ok()?;
    figures.f_bavail.checked_mul(figures.f_frsize)
}

/// Returns `None`, because this system does not report the free space.
#[cfg(not(unix))]
#[must_use]
pub fn available(_path: &Path) -> Option<u64> {
    None
}

/// Total size in bytes of the files under `path`. Files that cannot be read do not count. Neither
/// do checkpoints that were set aside. A checkpoint is set aside, under another name, when training
/// continues from an earlier one.
fn size_of(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    entries
        .flatten()
        // New checkpoints replace old ones, but never one that was set aside, whose space therefore
        // does not become free.
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with(LEFT))
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use taper_trainer::OptimizerKind;

    #[test]
    fn checkpoints_are_counted_by_hand() {
        let training = TrainingConfig {
            keep_last: 3,
            keep_best: 1,
            average_last: 2,
            ..TrainingConfig::default()
        };
        // Five checkpoints, each with weights and two moments, and an average of the weights.
        assert_eq!(checkpoint_bytes(&training, 1000), 5 * 12_000 + 4000);
        let training = TrainingConfig { ema_decay: 0.999, average_last: 0, ..training };
        assert_eq!(checkpoint_bytes(&training, 1000), 5 * 16_000);
        let mut lion = training.clone();
        lion.optimizer.kind = OptimizerKind::Lion;
        assert_eq!(checkpoint_bytes(&lion, 1000), 5 * 12_000, "one momentum and the average");
        // Four checkpoints: two at validations, one at the end, and the one that is being written.
        // `keep_last` would allow more.
        let training = TrainingConfig { keep_last: usize::MAX, max_updates: 2500, ..training };
        assert_eq!(checkpoint_bytes(&training, 1000), 4 * 16_000);
        let training = TrainingConfig { max_updates: 0, ..training };
        assert_eq!(checkpoint_bytes(&training, 1000), u64::MAX);
    }

    #[test]
    fn a_run_that_does_not_fit_is_refused_with_the_figures() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let training = TrainingConfig::default();
        check(folder.path(), &folder.path().join("checkpoints"), &training, 1000).expect("fits");
        if cfg!(unix) {
            let error = check(folder.path(), folder.path(), &training, u64::MAX >> 8)
                .expect_err("does not fit")
                .to_string();
            assert!(error.contains("free") && error.contains("training.keep_last (3)"), "{error}");
        }
    }
}
