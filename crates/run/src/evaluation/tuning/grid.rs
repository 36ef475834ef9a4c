//! Grid of search settings to try when tuning, and the extension of the grid by values larger than
//! its largest ones.

use taper_decoding::{DecodingConfig, LengthSettings};

use super::Trial;

/// Largest number of times that a grid is extended.
const MOST_EXTENSIONS: usize = 6;
/// Largest beam size to which a grid is extended.
const WIDEST_BEAM: usize = 32;

/// Values to try for one setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Values<T> {
    /// The values, to which more can be added if `extends`.
    pub list: Vec<T>,
    /// Whether larger values are tried if the largest value of the list is the best.
    pub extends: bool,
}

impl<T> Values<T> {
    /// Values to which no larger ones are added.
    #[must_use]
    pub fn only(list: Vec<T>) -> Self {
        Self { list, extends: false }
    }

    fn usual(list: Vec<T>) -> Self {
        Self { list, extends: true }
    }
}

impl Values<f64> {
    /// Copy whose list also has `of_run`, the value in the configuration of the run that is tuned.
    /// The list is sorted.
    fn with(&self, of_run: f64) -> Self {
        let mut list = [self.list.as_slice(), &[of_run]].concat();
        list.sort_by(f64::total_cmp);
        list.dedup();
        Self { list, ..*self }
    }

    /// Value to try beyond the largest value in the list. The step to it is as large as the last
    /// step in the list that is not below a thousandth. `None` unless `best` is the largest value
    /// and larger values may be tried.
    fn beyond(&self, best: f64) -> Option<f64> {
        let (&last, others) = self.list.split_last()?;
        // The value of a run can be nearly equal to a value of the list.
        let before = others.iter().rev().find(|&&value| last - value >= 1e-3)?;
        // Rounded to thousandths, so that rounding errors do not accumulate: after 1.4 comes
        // exactly 1.6.
        let next = ((2.0 * last - before) * 1e3).round() / 1e3;
        (self.extends && best == last).then_some(next)
    }
}

/// Grid of search settings to try, in addition to the settings of the run. Each beam size is
/// combined with each length penalty. Each of these pairs is combined with each length reward, and
/// also with each shortfall penalty (for translations that are shorter than expected). A length
/// reward and a shortfall penalty have the same purpose, so they are not tried together.
#[derive(Debug, Clone, PartialEq)]
pub struct TuningGrid {
    /// Values of `decoding.beam_size`.
    pub beam_sizes: Values<usize>,
    /// Values of `decoding.length_penalty`.
    pub length_penalties: Values<f64>,
    /// Values of `decoding.length_reward`.
    pub length_rewards: Values<f64>,
    /// Values of `decoding.shortfall_penalty`.
    pub shortfall_penalties: Values<f64>,
}

impl Default for TuningGrid {
    fn default() -> Self {
        Self {
            beam_sizes: Values::usual(vec![2, 4, 8]),
            length_penalties: Values::usual(vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4]),
            length_rewards: Values::usual(vec![0.0, 0.1, 0.2, 0.3]),
            shortfall_penalties: Values::usual(vec![0.0, 1.0, 2.0, 4.0, 8.0]),
        }
    }
}

impl TuningGrid {
    /// Grid with the values of `decoding`, the settings of the run, added to each list. The lists
    /// are sorted. If larger beam sizes may be tried, the list has only beam sizes that the run's
    /// diverse groups divide evenly; a list that a user names is kept as it is.
    pub(super) fn with(&self, decoding: &DecodingConfig) -> Self {
        let mut beams = [self.beam_sizes.list.as_slice(), &[decoding.beam_size]].concat();
        beams.sort_unstable();
        beams.dedup();
        if self.beam_sizes.extends {
            beams.retain(|beam| beam.is_multiple_of(decoding.diverse_groups));
        }
        Self {
            beam_sizes: Values { list: beams, ..self.beam_sizes },
            length_penalties: self.length_penalties.with(decoding.length_penalty),
            length_rewards: self.length_rewards.with(decoding.length_reward),
            shortfall_penalties: self.shortfall_penalties.with(decoding.shortfall_penalty),
        }
    }

    /// Whether a value in the grid needs the expected length of translations: a shortfall penalty
    /// above 0.
    pub(super) fn expects_lengths(&self) -> bool {
        self.shortfall_penalties.list.iter().any(|&value| value > 0.0)
    }

    /// All combinations of length settings to try, in ascending order. Of equally good
    /// combinations, the first is preferred, so the order favours a smaller shortfall penalty and a
    /// smaller reward. The run's own settings, `of_run`, are included even if they have both a
    /// reward and a shortfall penalty.
    pub(super) fn lengths(&self, of_run: LengthSettings) -> Vec<LengthSettings> {
        let mut all = Vec::new();
        for &shortfall_penalty in &self.shortfall_penalties.list {
            for &length_reward in &self.length_rewards.list {
                all.extend(self.length_penalties.list.iter().map(|&length_penalty| {
                    LengthSettings { length_penalty, length_reward, shortfall_penalty }
                }));
            }
        }
        all.retain(|one| {
            one.length_reward == 0.0 || one.shortfall_penalty == 0.0 || *one == of_run
        });
        all
    }
}

/// Search for better settings beyond the largest values of a grid.
#[derive(Debug)]
pub(super) struct Extensions {
    /// Grid with all values that were tried so far.
    pub(super) grid: TuningGrid,
    made: usize,
}

impl Extensions {
    /// Begins with `grid`. Its values have been tried already.
    pub(super) fn new(grid: TuningGrid) -> Self {
        Self { grid, made: 0 }
    }

    /// Beam size and grid of length settings to try next, if the settings `best` have the largest
    /// value of a list that may be extended; `None` if `best` has no such value, or if the grid has
    /// been extended often enough.
    pub(super) fn next(&mut self, best: &Trial) -> Option<(usize, TuningGrid)> {
        if self.made == MOST_EXTENSIONS {
            return None;
        }
        self.made += 1;
        let mut grid = self.grid.clone();
        let Trial { beam_size, lengths, .. } = *best;
        let lists = [
            (&mut grid.length_penalties, &mut self.grid.length_penalties, lengths.length_penalty),
            (&mut grid.length_rewards, &mut self.grid.length_rewards, lengths.length_reward),
            (
                &mut grid.shortfall_penalties,
                &mut self.grid.shortfall_penalties,
                lengths.shortfall_penalty,
            ),
        ];
        let mut is_extended = false;
        for (new, all, best) in lists {
            if let Some(next) = all.beyond(best) {
                all.list.push(next);
                new.list = vec![best, next];
                is_extended = true;
            } else if best == 0.0 {
                // A setting whose best value is 0, which switches it off, stays off.
                new.list = vec![0.0];
            }
        }
        if is_extended {
            return Some((beam_size, grid));
        }
        let beams = &mut self.grid.beam_sizes;
        let widest = beams.list.last().copied().filter(|&last| beams.extends && last == beam_size);
        let wider = widest.map(|last| 2 * last).filter(|&wider| wider <= WIDEST_BEAM)?;
        beams.list.push(wider);
        Some((wider, grid))
    }
}

#[cfg(test)]
mod tests {
    use super::super::TrialScores;
    use super::*;

    fn best(beam_size: usize, lengths: (f64, f64, f64)) -> Trial {
        let (length_penalty, length_reward, shortfall_penalty) = lengths;
        Trial {
            beam_size,
            lengths: LengthSettings { length_penalty, length_reward, shortfall_penalty },
            scores: TrialScores { bleu: 1.0, brevity_penalty: 1.0, length_ratio: 1.0, chrf: 1.0 },
        }
    }

    #[test]
    fn the_grid_has_every_combination_and_the_runs_own() {
        let of_run = DecodingConfig {
            beam_size: 5,
            length_penalty: 0.7,
            length_reward: 0.1,
            ..DecodingConfig::default()
        };
        let grid = TuningGrid::default().with(&of_run);
        assert_eq!(grid.beam_sizes.list, [2, 4, 5, 8]);
        assert_eq!(grid.length_rewards, TuningGrid::default().length_rewards);
        let of_run = LengthSettings::from_config(&of_run);
        let lengths = grid.lengths(of_run);
        // There are nine length penalties. Each is combined with four rewards and with four
        // shortfall penalties.
        assert_eq!(lengths.len(), 9 * (4 + 4));
        assert!(lengths.contains(&of_run));
        let both = LengthSettings { shortfall_penalty: 1.0, ..of_run };
        assert!(!lengths.contains(&both) && grid.lengths(both).contains(&both));
    }

    #[test]
    fn only_beams_that_the_groups_divide_are_tried() {
        let groups = |beam_size, diverse_groups| DecodingConfig {
            beam_size,
            diverse_groups,
            ..DecodingConfig::default()
        };
        let beams = |grid: &TuningGrid, of_run| grid.with(&of_run).beam_sizes.list;
        assert_eq!(beams(&TuningGrid::default(), groups(6, 3)), [6]);
        assert_eq!(beams(&TuningGrid::default(), groups(12, 4)), [4, 8, 12]);
        // A beam size that a user names is tried, and refused later.
        let named = TuningGrid { beam_sizes: Values::only(vec![4]), ..TuningGrid::default() };
        assert_eq!(beams(&named, groups(6, 3)), [4, 6]);
    }

    #[test]
    fn a_value_that_nearly_equals_the_largest_is_no_step() {
        for of_run in [1.39999, 1.3996, 1.4] {
            let decoding = DecodingConfig { length_penalty: of_run, ..DecodingConfig::default() };
            let mut extensions = Extensions::new(TuningGrid::default().with(&decoding));
            let (_, grid) = extensions.next(&best(4, (1.4, 0.0, 0.0))).expect("an end");
            assert_eq!(grid.length_penalties.list, [1.4, 1.6], "{of_run}");
        }
        let decoding = DecodingConfig { length_penalty: 1.40001, ..DecodingConfig::default() };
        let mut extensions = Extensions::new(TuningGrid::default().with(&decoding));
        let (_, grid) = extensions.next(&best(4, (1.40001, 0.0, 0.0))).expect("an end");
        assert_eq!(grid.length_penalties.list, [1.40001, 1.6]);
    }

    #[test]
    fn a_best_setting_at_an_end_is_followed_until_it_is_none() {
        let mut extensions = Extensions::new(TuningGrid::default());
        assert_eq!(extensions.next(&best(4, (1.0, 0.1, 0.0))), None);
        let (beam, grid) = extensions.next(&best(4, (1.4, 0.0, 0.0))).expect("an end");
        assert_eq!((beam, &grid.length_penalties.list[..]), (4, &[1.4, 1.6][..]));
        assert_eq!(
            (&grid.length_rewards.list[..], &grid.shortfall_penalties.list[..]),
            (&[0.0][..], &[0.0][..])
        );
        let (_, grid) = extensions.next(&best(4, (1.6, 0.0, 0.0))).expect("an end");
        assert_eq!(grid.length_penalties.list, [1.6, 1.8]);
        assert_eq!(extensions.next(&best(4, (1.6, 0.0, 0.0))), None);
        // The beam size is extended when no other setting has its largest value.
        let (beam, _) = extensions.next(&best(8, (1.0, 0.0, 2.0))).expect("an end");
        assert_eq!(beam, 16);
        // After six extensions, there are no more.
        assert_eq!(extensions.next(&best(16, (1.0, 0.0, 8.0))).map(|next| next.0), Some(16));
        assert_eq!(extensions.next(&best(16, (1.0, 0.0, 12.0))), None);
        // Values that a user names are not extended.
        let grid =
            TuningGrid { length_penalties: Values::only(vec![0.0, 1.0]), ..TuningGrid::default() };
        assert_eq!(Extensions::new(grid).next(&best(4, (1.0, 0.0, 0.0))), None);
    }
}
