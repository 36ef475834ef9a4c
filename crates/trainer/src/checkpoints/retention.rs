//! Choice of the checkpoints to delete, without the code that deletes them.

use std::cmp::Ordering;

use crate::Metric;

/// Properties of a checkpoint that decide whether it is deleted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Candidate {
    /// Number of updates after which the checkpoint was saved.
    pub(crate) step: u64,
    /// Validation score; `None` if the checkpoint was not validated.
    pub(crate) score: Option<f64>,
}

/// Steps of the checkpoints to delete, in ascending order.
///
/// Three groups of checkpoints are kept:
/// - the newest `keep_last`
/// - the `keep_best` with the best scores by `metric`; of two checkpoints with equal scores, the
///   newer one counts as better
/// - those of the steps in `protected`, because the pointer files name them
pub(crate) fn to_delete(
    candidates: &[Candidate],
    keep_last: usize,
    keep_best: usize,
    metric: Metric,
    protected: &[u64],
) -> Vec<u64> {
    let mut newest: Vec<u64> = candidates.iter().map(|candidate| candidate.step).collect();
    newest.sort_unstable_by(|a, b| b.cmp(a));
    let mut best: Vec<(f64, u64)> = candidates
        .iter()
        .filter_map(|candidate| candidate.score.map(|score| (score, candidate.step)))
        .collect();
    best.sort_by(|a, b| by_rank(metric, a.0, b.0).then(b.1.cmp(&a.1)));
    let mut to_keep: Vec<u64> = newest.iter().take(keep_last).copied().collect();
    to_keep.extend(best.iter().take(keep_best).map(|&(_, step)| step));
    to_keep.extend_from_slice(protected);
    let mut deleted: Vec<u64> = newest.into_iter().filter(|step| !to_keep.contains(step)).collect();
    deleted.sort_unstable();
    deleted
}

/// Order of two scores `a` and `b`: the better score comes first, and a score that is not a number
/// comes last.
fn by_rank(metric: Metric, a: f64, b: f64) -> Ordering {
    match (a.is_nan(), b.is_nan()) {
        (false, false) if metric.higher_is_better() => b.total_cmp(&a),
        (false, false) => a.total_cmp(&b),
        (a, b) => a.cmp(&b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(scores: &[(u64, Option<f64>)]) -> Vec<Candidate> {
        scores.iter().map(|&(step, score)| Candidate { step, score }).collect()
    }

    #[test]
    fn the_newest_and_the_best_are_kept() {
        let all = candidates(&[
            (1, Some(3.0)),
            (2, Some(1.0)),
            (3, Some(2.0)),
            (4, None),
            (5, Some(4.0)),
        ]);
        assert_eq!(to_delete(&all, 2, 1, Metric::Loss, &[]), [1, 3]);
        assert_eq!(to_delete(&all, 1, 2, Metric::Loss, &[]), [1, 4]);
        assert_eq!(to_delete(&all, 1, 2, Metric::Bleu, &[]), [2, 3, 4]);
    }

    #[test]
    fn nothing_is_deleted_that_a_pointer_points_at() {
        let all = candidates(&[(1, Some(3.0)), (2, Some(1.0)), (3, Some(2.0))]);
        assert_eq!(to_delete(&all, 1, 1, Metric::Loss, &[1]), Vec::<u64>::new());
        assert_eq!(to_delete(&all, 1, 0, Metric::Loss, &[]), [1, 2]);
    }

    #[test]
    fn of_equal_scores_the_newer_is_kept_and_order_does_not_matter() {
        let all = candidates(&[(9, None), (4, Some(1.0)), (2, Some(1.0))]);
        assert_eq!(to_delete(&all, 1, 1, Metric::Accuracy, &[]), [2]);
    }

    #[test]
    fn a_score_that_is_not_a_number_is_worst_either_way() {
        let all = candidates(&[(1, Some(f64::NAN)), (2, Some(1.0)), (3, None)]);
        for metric in [Metric::Loss, Metric::Bleu] {
            assert_eq!(to_delete(&all, 1, 1, metric, &[]), [1]);
        }
    }
}
