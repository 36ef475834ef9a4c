//! Course of a score over a training, as blocks on one line.

use taper_trainer::Scores;

/// Most blocks of a course.
const MOST_BLOCKS: usize = 40;
/// Scores for people to judge a training by: name and label. A validation shows the first one that
/// it has.
const JUDGED: [(&str, &str); 4] =
    [("bleu", "BLEU"), ("accuracy", "accuracy"), ("perplexity", "ppl"), ("loss", "loss")];

/// Values of a score in all validations of this process.
#[derive(Debug, Default)]
pub(crate) struct ScoreCourse {
    label: &'static str,
    values: Vec<f64>,
}

impl ScoreCourse {
    /// Adds the value of a validation.
    pub(crate) fn note(&mut self, scores: &Scores) {
        let judged = JUDGED.into_iter().find_map(|(name, label)| Some((label, scores.get(name)?)));
        let Some((label, value)) = judged else { return };
        if self.label != label {
            *self = Self { label, values: Vec::new() };
        }
        self.values.push(value);
    }

    /// The course between its first and its last value, with as many blocks as fit into `width`
    /// columns; `None` for fewer than two values.
    pub(crate) fn line(&self, width: usize) -> Option<String> {
        let (first, last) = (self.values.first()?, self.values.last()?);
        let (before, behind) =
            (format!("validation {}  {first:.4} ", self.label), format!(" {last:.4}"));
        let room = width.saturating_sub(before.len() + behind.len());
        let drawn = blocks(&self.values, room.clamp(2, MOST_BLOCKS));
        (!drawn.is_empty()).then(|| before + &drawn + &behind)
    }
}

/// Values as at most `most` blocks from the lowest to the highest; empty for fewer than two finite
/// values.
fn blocks(values: &[f64], most: usize) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    if values.len() < 2 {
        return String::new();
    }
    let every = values.len().div_ceil(most);
    // The last value is always there.
    let shown: Vec<f64> = values.iter().rev().step_by(every).rev().copied().collect();
    let low = shown.iter().copied().fold(f64::INFINITY, f64::min);
    let high = shown.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let block = |value: f64| match high > low {
        true => BLOCKS[((value - low) / (high - low) * 7.0).round() as usize],
        false => BLOCKS[3],
    };
    shown.into_iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_course_goes_from_the_lowest_block_to_the_highest() {
        assert_eq!(blocks(&[0.0, 7.0, f64::NAN, 3.0, 7.0], MOST_BLOCKS), "▁█▄█");
        assert_eq!(blocks(&[1.0], MOST_BLOCKS), "");
        assert_eq!(blocks(&[2.0, 2.0], MOST_BLOCKS), "▄▄");
        let many: Vec<f64> = (0..1000).map(f64::from).collect();
        let drawn = blocks(&many, MOST_BLOCKS);
        assert!(drawn.chars().count() <= MOST_BLOCKS && drawn.ends_with('█'), "{drawn}");
        let course = ScoreCourse { label: "accuracy", values: many };
        for width in [40, 60, 100] {
            let line = course.line(width).expect("a course");
            assert!(line.chars().count() <= width && line.ends_with("█ 999.0000"), "{line}");
        }
    }
}
