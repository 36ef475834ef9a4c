//! Draws the values of a score during a training with block characters, on one line.

use taper_trainer::Scores;

/// Largest number of block characters in a drawing.
const MOST_BLOCKS: usize = 40;
/// Scores by which people judge a training: name and label. The first of these scores that a
/// validation has is drawn.
const JUDGED: [(&str, &str); 4] =
    [("bleu", "BLEU"), ("accuracy", "accuracy"), ("perplexity", "ppl"), ("loss", "loss")];

/// Values of a score in all validations of this process.
#[derive(Debug, Default)]
pub(crate) struct ScoreCourse {
    label: &'static str,
    values: Vec<f64>,
}

impl ScoreCourse {
    /// Adds the score of a validation.
    pub(crate) fn note(&mut self, scores: &Scores) {
        let judged = JUDGED.into_iter().find_map(|(name, label)| Some((label, scores.get(name)?)));
        let Some((label, value)) = judged else { return };
        if self.label != label {
            *self = Self { label, values: Vec::new() };
        }
        self.values.push(value);
    }

    /// Formats the first finite value, the drawing and the last finite value in one line of at most
    /// `width` columns. The line is wider if the drawing would have fewer than two blocks. `None`
    /// for fewer than two finite values.
    pub(crate) fn line(&self, width: usize) -> Option<String> {
        let mut finite = self.values.iter().filter(|value| value.is_finite());
        let (first, last) = (finite.next()?, finite.next_back()?);
        let (before, behind) =
            (format!("validation {}  {first:.4} ", self.label), format!(" {last:.4}"));
        let room = width.saturating_sub(before.len() + behind.len());
        let drawn = blocks(&self.values, room.clamp(2, MOST_BLOCKS));
        (!drawn.is_empty()).then(|| before + &drawn + &behind)
    }
}

/// Draws values as at most `most` blocks: the lowest value as the lowest block, the highest value
/// as the highest block. Returns an empty string for fewer than two finite values.
fn blocks(values: &[f64], most: usize) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let values: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    if values.len() < 2 {
        return String::new();
    }
    let every = values.len().div_ceil(most);
    // Counts from the end, so that the last value is always shown.
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
        let values = vec![f64::INFINITY, 7.0, f64::NAN, 3.0, f64::NAN];
        let line = ScoreCourse { label: "ppl", values }.line(60).expect("a course");
        assert_eq!(line, "validation ppl  7.0000 █▁ 3.0000");
        let course = ScoreCourse { label: "accuracy", values: many };
        for width in [40, 60, 100] {
            let line = course.line(width).expect("a course");
            assert!(line.chars().count() <= width && line.ends_with("█ 999.0000"), "{line}");
        }
    }
}
