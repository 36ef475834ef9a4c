//! Negative samples: random words. The probability of a word is proportional to its count to the
//! power of 3/4 (Mikolov et al. 2013, section 2.2).

/// A table for Walker's alias method (Walker 1977; Vose 1991). A draw reads only one entry, however
/// many words there are.
#[derive(Debug)]
pub(super) struct Negatives {
    /// One column for each word. A column has a threshold and a second word. A draw chooses a
    /// column and a random number below 2³². If the number is below the threshold, the draw gives
    /// the word to which the column belongs, otherwise the second word.
    columns: Vec<(u32, u32)>,
}

impl Negatives {
    /// Makes the table for words with these counts. There must be at least one word.
    pub(super) fn new(counts: &[u64]) -> Self {
        let weights: Vec<f64> = counts.iter().map(|&count| (count as f64).powf(0.75)).collect();
        let scale = weights.len() as f64 / weights.iter().sum::<f64>();
        let mut left: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
        let mut columns: Vec<(u32, u32)> = (0..).take(left.len()).map(|i| (u32::MAX, i)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..left.len()).partition(|&word| left[word] < 1.0);
        while let (Some(&low), Some(&high)) = (small.last(), large.last()) {
            small.pop();
            columns[low] = ((left[low] * 2.0_f64.powi(32)) as u32, high as u32);
            left[high] -= 1.0 - left[low];
            if left[high] < 1.0 {
                large.pop();
                small.push(high);
            }
        }
        Self { columns }
    }

    /// Returns the word that 64 random bits choose.
    #[inline(always)]
    pub(super) fn draw(&self, bits: u64) -> u32 {
        // The high half of the product is uniform, except for a bias of at most the number of words
        // divided by 2³².
        let column = ((bits >> 32) * self.columns.len() as u64) >> 32;
        let (threshold, other) = self.columns[column as usize];
        if (bits as u32) < threshold { column as u32 } else { other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taper_data::Draws;

    #[test]
    fn words_are_drawn_in_proportion_to_a_power_of_their_counts() {
        let counts = [10_000, 810, 16, 1, 1];
        let negatives = Negatives::new(&counts);
        let (draws, total) = (Draws::new(1, 2, 3), 1_000_000);
        let mut drawn = [0_u32; 5];
        (0..total).for_each(|i| drawn[negatives.draw(draws.bits(i)) as usize] += 1);
        let sum: f64 = counts.iter().map(|&count| (count as f64).powf(0.75)).sum();
        for (drawn, count) in drawn.into_iter().zip(counts) {
            let expected = (count as f64).powf(0.75) / sum;
            let error = (f64::from(drawn) / total as f64 - expected).abs();
            assert!(error < 4.0 * (expected / total as f64).sqrt(), "{drawn} of {count}");
        }
    }
}
