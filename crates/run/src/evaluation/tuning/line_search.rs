//! Exact search for the best value of a single weight, if weights choose among candidate
//! translations (Och 2003, "Minimum Error Rate Training in Statistical Machine Translation",
//! section 4).
//!
//! For each text, the candidate with the highest total is chosen. The total is the weighted sum of
//! the candidate's scores. If only one weight changes, each total is a linear function of this
//! weight, a line. For each text, the choice changes only at the corners of the upper envelope of
//! the candidates' lines. So the chosen candidates, and with them the score of the corpus, are
//! known for every value of the weight.

use taper_metrics::Metric;

/// Candidate translations of all texts. Each has a score by each criterion, and counts from which a
/// metric computes the score of a corpus.
#[derive(Debug)]
pub(super) struct CountedCandidates {
    /// Candidates of each text, at least one. A candidate has its scores by the four criteria, and
    /// the index of its row in `counts`.
    pub(super) texts: Vec<Vec<([f64; 4], usize)>>,
    /// One row of counts for each candidate. The metric computes the score of a corpus from the sum
    /// of the rows of its chosen candidates.
    pub(super) counts: Vec<Vec<f64>>,
}

/// Weighted sum of the scores of a candidate.
pub(super) fn total(scores: &[f64; 4], weights: &[f64; 4]) -> f64 {
    scores.iter().zip(weights).map(|(score, weight)| score * weight).sum()
}

/// Change of the chosen candidate of a text. When the weight reaches `at`, the candidate with the
/// row of counts `to` is chosen instead of the candidate with the row `from`.
struct Corner {
    at: f64,
    from: usize,
    to: usize,
}

impl CountedCandidates {
    /// Best value, at least 0, of the weight with the index `axis` if the other `weights` stay the
    /// same. Also returns the corpus score of the candidates chosen with this value.
    pub(super) fn best_value(
        &self,
        metric: &dyn Metric,
        weights: &[f64; 4],
        axis: usize,
    ) -> (f64, f64) {
        let without = std::array::from_fn(|one| if one == axis { 0.0 } else { weights[one] });
        let mut sums = vec![0.0; metric.columns()];
        let mut corners = Vec::new();
        for text in &self.texts {
            let lines = text.iter().map(|(scores, _)| (total(scores, &without), scores[axis]));
            let envelope = envelope(&lines.collect::<Vec<_>>());
            let rows: Vec<usize> = envelope.iter().map(|&(line, _)| text[line].1).collect();
            add(&mut sums, &self.counts[rows[0]], 1.0);
            for (pair, &(_, at)) in rows.windows(2).zip(&envelope[1..]) {
                corners.push(Corner { at, from: pair[0], to: pair[1] });
            }
        }
        corners.sort_by(|one, other| one.at.total_cmp(&other.at));
        // At the value 0, several candidates of a text can have the highest total. The first of
        // them is chosen at 0, and the one with the steepest line above 0. So 0 is scored
        // separately.
        let mut best = (0.0, self.score(metric, &without));
        let score = metric.value(&sums);
        if score > best.1 {
            best = (corners.first().map_or(1.0, |first| first.at / 2.0), score);
        }
        let mut rest = &corners[..];
        while let Some(first) = rest.first() {
            let at = first.at;
            let together = rest.iter().take_while(|corner| corner.at == at).count();
            for corner in &rest[..together] {
                add(&mut sums, &self.counts[corner.from], -1.0);
                add(&mut sums, &self.counts[corner.to], 1.0);
            }
            rest = &rest[together..];
            let score = metric.value(&sums);
            if score > best.1 {
                // The score is the same between two corners. The value is midway between them, or
                // beyond the last corner.
                let value = rest.first().map_or(2.0 * at + 1.0, |next| f64::midpoint(at, next.at));
                best = (value, score);
            }
        }
        best
    }

    /// Corpus score of the candidates that are chosen with `weights`.
    pub(super) fn score(&self, metric: &dyn Metric, weights: &[f64; 4]) -> f64 {
        let mut sums = vec![0.0; metric.columns()];
        for text in &self.texts {
            let chosen = highest(text.iter().map(|(scores, _)| total(scores, weights)));
            add(&mut sums, &self.counts[text[chosen].1], 1.0);
        }
        metric.value(&sums)
    }
}

/// Index of the highest value; the first one if several are equal.
pub(super) fn highest(values: impl Iterator<Item = f64>) -> usize {
    let mut best = (0, f64::NEG_INFINITY);
    for (number, value) in values.enumerate() {
        if value > best.1 {
            best = (number, value);
        }
    }
    best.0
}

/// Upper envelope for x ≥ 0 of `lines`, which are pairs (a, b) for `a + b·x`. Returns the indices
/// of the lines that are highest for some x, each with the smallest such x.
fn envelope(lines: &[(f64, f64)]) -> Vec<(usize, f64)> {
    let mut current = 0;
    for (number, line) in lines.iter().enumerate() {
        let best = lines[current];
        if line.0 > best.0 || (line.0 == best.0 && line.1 > best.1) {
            current = number;
        }
    }
    let mut envelope = vec![(current, 0.0)];
    loop {
        let (intercept, slope) = lines[current];
        let steeper = lines.iter().enumerate().filter(|(_, line)| line.1 > slope);
        let crossing = |line: &(f64, f64)| (intercept - line.0) / (line.1 - slope);
        let next = steeper.min_by(|(_, one), (_, other)| {
            crossing(one).total_cmp(&crossing(other)).then(other.1.total_cmp(&one.1))
        });
        let Some((number, line)) = next else { return envelope };
        envelope.push((number, crossing(line).max(0.0)));
        current = number;
    }
}

fn add(sums: &mut [f64], row: &[f64], times: f64) {
    for (sum, count) in sums.iter_mut().zip(row) {
        *sum += times * count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taper_metrics::{Bleu, Segment, Statistics};

    /// Candidates with random scores. Each has the words of the reference, but some of the words
    /// are randomly replaced by a wrong word.
    fn candidates(metric: &Bleu) -> CountedCandidates {
        let reference = "a b c d e f g h";
        let mut state = 7u64;
        let mut draw = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as f64 / (1u64 << 31) as f64
        };
        let mut all = CountedCandidates { texts: Vec::new(), counts: Vec::new() };
        for _ in 0..12 {
            let mut text = Vec::new();
            for _ in 0..6 {
                let words = reference.split(' ').map(|word| if draw() < 0.7 { word } else { "x" });
                let hypothesis = words.collect::<Vec<_>>().join(" ");
                let segment = Segment { hypothesis: &hypothesis, references: vec![reference] };
                let counted = Statistics::count(metric, &[segment]).expect("counted");
                text.push(([draw(), draw(), draw() - 1.0, 0.0], all.counts.len()));
                all.counts.push(counted.rows().next().expect("a row").to_vec());
            }
            all.texts.push(text);
        }
        all
    }

    #[test]
    fn no_value_of_a_weight_is_better_than_the_one_that_is_found() {
        let metric = Bleu::default();
        let candidates = candidates(&metric);
        let weights = [0.4, 0.3, 0.2, 0.0];
        let mut gained = 0;
        for axis in 0..3 {
            let (value, score) = candidates.best_value(&metric, &weights, axis);
            let with = |value| {
                let mut weights = weights;
                weights[axis] = value;
                candidates.score(&metric, &weights)
            };
            assert_eq!(with(value), score, "axis {axis}");
            let tried = (0..4000).map(|step| with(f64::from(step) * 1e-3));
            let best = tried.fold(f64::NEG_INFINITY, f64::max);
            assert!(best <= score, "axis {axis}: {best}, {score}");
            gained += usize::from(score > with(weights[axis]));
        }
        assert!(gained > 0, "no weight could be improved");
    }

    #[test]
    fn the_score_of_the_value_0_is_that_of_the_first_of_equal_candidates() {
        let metric = Bleu::default();
        let reference = "a b c d e";
        let counts = |hypothesis| {
            let segment = Segment { hypothesis, references: vec![reference] };
            let counted = Statistics::count(&metric, &[segment]).expect("counted");
            counted.rows().next().expect("a row").to_vec()
        };
        let (good, bad) = (counts(reference), counts("a b c d x"));
        let weights = [1.0, 0.5, 0.0, 0.0];
        // The candidates differ only in their score by the first criterion.
        for (scores, counts) in [([0.0, 1.0], [&bad, &good]), ([1.0, 0.0], [&good, &bad])] {
            let scored = |score| [score, 0.3, 0.0, 0.0];
            let text = vec![(scored(scores[0]), 0), (scored(scores[1]), 1)];
            let counts = counts.map(Clone::clone).to_vec();
            let candidates = CountedCandidates { texts: vec![text], counts };
            let (value, score) = candidates.best_value(&metric, &weights, 0);
            assert_eq!(candidates.score(&metric, &[value, 0.5, 0.0, 0.0]), score, "{value}");
            assert!((score - 100.0).abs() < 1e-9, "{score}");
        }
    }

    #[test]
    fn an_envelope_has_the_lines_that_are_highest_somewhere() {
        // The third line is never the highest, and the last line only for negative x.
        let lines = [(1.0, 0.0), (0.0, 1.0), (0.4, 0.5), (-3.0, 2.0), (0.5, -5.0)];
        assert_eq!(envelope(&lines), [(0, 0.0), (1, 1.0), (3, 3.0)]);
        // Where several lines meet in one point, the steepest is the highest from there on.
        assert_eq!(envelope(&[(1.0, 0.0), (0.5, 0.5), (0.0, 1.0)]), [(0, 0.0), (2, 1.0)]);
        assert_eq!(envelope(&[(1.0, 1.0), (1.0, 1.0)]), [(0, 0.0)]);
    }
}
