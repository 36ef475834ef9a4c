//! Bands of MinHash signatures, and the table that finds pairs with a common band.
//!
//! A random hash function gives two sets the same smallest hash with a probability equal to the
//! Jaccard index J of the sets. A band consists of the smallest hashes by r different functions. So
//! two sets agree in a whole band with probability J^r. They agree in at least one of b bands with
//! probability 1 - (1 - J^r)^b. This curve is S-shaped: it is near 0 for small J, and near 1 for
//! large J (Leskovec, Rajaraman and Ullman, "Mining of Massive Datasets", section 3.4).

use super::shingles::mixed;
use crate::Draws;

/// Purpose number of the random draws of the hash functions (see [`crate::Draws::new`]).
const PURPOSE: u64 = 14;

/// If the Jaccard index of two pairs equals the threshold, they have a common band with at least
/// this probability. More similar pairs have a higher probability.
const RECALL: f64 = 0.95;

/// Limit of the number of hash functions in all bands together. It is exceeded only if bands of the
/// smallest size, `FEWEST_ROWS`, need more hash functions to reach `RECALL`.
const MOST_FUNCTIONS: usize = 48;

/// Smallest number of rows (hash functions) of a band. With fewer rows, pairs with little in common
/// would be compared.
const FEWEST_ROWS: usize = 3;

/// Largest number of rows (hash functions) of a band.
const MOST_ROWS: usize = 16;

/// Hash functions of all bands.
#[derive(Debug, Clone)]
pub(crate) struct Bands {
    rows: usize,
    /// Odd factor of each hash function. The function multiplies a hash by this factor modulo 2^64.
    factors: Vec<u64>,
}

impl Bands {
    /// Makes bands that find pairs with a Jaccard index of `threshold`, from 0.5 to 1, with a
    /// probability of at least 0.95.
    pub(crate) fn new(threshold: f64) -> Self {
        let bands = |rows: usize| {
            let apart = 1.0 - threshold.clamp(0.5, 1.0).powi(rows as i32);
            // With a threshold of 1, `apart` is 0 and the quotient is 0, but one band is needed.
            ((1.0 - RECALL).ln() / apart.ln()).ceil().max(1.0) as usize
        };
        let is_affordable = |&rows: &usize| rows * bands(rows) <= MOST_FUNCTIONS;
        let rows = (FEWEST_ROWS..=MOST_ROWS).rev().find(is_affordable).unwrap_or(FEWEST_ROWS);
        let draws = Draws::new(0, 0, PURPOSE);
        let factors = (0..rows * bands(rows)).map(|function| draws.bits(function as u64) | 1);
        Self { rows, factors: factors.collect() }
    }

    /// Number of bands.
    fn count(&self) -> usize {
        self.factors.len() / self.rows
    }

    /// Number of keys that [`Self::keys`] returns for a set.
    pub(crate) fn keys_of_a_set(&self) -> usize {
        self.count() + 1
    }

    /// Keys of a set of hashes: one for each band, then one for all hashes together. The last key
    /// finds equal texts even if many other texts have the same bands, as in lists that were made
    /// from a template.
    pub(crate) fn keys(&self, hashes: &[u64]) -> Vec<u32> {
        let mut least = vec![u64::MAX; self.factors.len()];
        for hash in hashes {
            for (least, factor) in least.iter_mut().zip(&self.factors) {
                *least = (*least).min(hash.wrapping_mul(*factor));
            }
        }
        let draws = Draws::new(0, 1, PURPOSE);
        let high = |hash: u64| (draws.bits(hash) >> 32) as u32;
        let band = |(band, rows): (usize, &[u64])| {
            high(rows.iter().fold(band as u64, |hash, &row| mixed(hash, row)))
        };
        // This key must not depend on the order of the hashes.
        let all = high(hashes.iter().fold(0, |sum, hash| hash.wrapping_add(sum)));
        least.chunks(self.rows).enumerate().map(band).chain([all]).collect()
    }
}

/// An entry of the table: a key, and a pair that has this key.
#[derive(Debug, Clone, Copy)]
struct Slot {
    key: u32,
    /// Index of the pair, or [`EMPTY`].
    pair: u32,
}

const EMPTY: u32 = u32::MAX;

/// Largest number of pairs under a key. More pairs with a common key were probably made from a
/// template, and comparing each of them with all others would take quadratic time.
const MOST_UNDER_KEY: usize = 16;

/// Smallest number of slots.
const FEWEST_SLOTS: usize = 1 << 10;

/// A table that finds pairs by the keys of their bands. It needs 8 bytes for each key of a pair.
/// When three quarters of it are full, its size is doubled.
#[derive(Debug)]
pub(crate) struct BandTable {
    slots: Vec<Slot>,
    filled: usize,
}

impl BandTable {
    pub(crate) fn new() -> Self {
        Self { slots: vec![Slot { key: 0, pair: EMPTY }; FEWEST_SLOTS], filled: 0 }
    }

    /// Pairs under a key, in the order in which they were added.
    pub(crate) fn pairs(&self, key: u32) -> impl Iterator<Item = u32> {
        let taken = self.places(key).map(|place| self.slots[place]);
        let taken = taken.take_while(|slot| slot.pair != EMPTY);
        taken.filter(move |slot| slot.key == key).map(|slot| slot.pair)
    }

    /// Adds a pair under a key, unless the key has [`MOST_UNDER_KEY`] pairs.
    pub(crate) fn insert(&mut self, key: u32, pair: u32) {
        if self.pairs(key).count() >= MOST_UNDER_KEY {
            return;
        }
        if 4 * (self.filled + 1) > 3 * self.slots.len() {
            self.grow();
        }
        self.put(Slot { key, pair });
    }

    fn put(&mut self, slot: Slot) {
        let free = self.places(slot.key).find(|&place| self.slots[place].pair == EMPTY);
        if let Some(place) = free {
            self.slots[place] = slot;
            self.filled += 1;
        }
    }

    /// Indices of the slots in which a key may be, in the order in which they are tried.
    fn places(&self, key: u32) -> impl Iterator<Item = usize> + use<> {
        let count = self.slots.len();
        let first = ((u64::from(key) * count as u64) >> 32) as usize;
        (first..count).chain(0..first)
    }

    fn grow(&mut self) {
        let larger = vec![Slot { key: 0, pair: EMPTY }; 2 * self.slots.len()];
        let mut slots = std::mem::replace(&mut self.slots, larger);
        self.filled = 0;
        // Pairs are put into the larger table in their old order. The first slot of a run of filled
        // slots may be at the end of the table, and the rest at its beginning, so the table is
        // first rotated to begin with an empty slot.
        let begin = slots.iter().position(|slot| slot.pair == EMPTY).unwrap_or(0);
        slots.rotate_left(begin);
        slots.into_iter().filter(|slot| slot.pair != EMPTY).for_each(|slot| self.put(slot));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_bands_meet_at_every_threshold() {
        for step in 50..=100 {
            let threshold = f64::from(step) / 100.0;
            let bands = Bands::new(threshold);
            let power = |index: f64| index.powi(bands.rows as i32);
            let meets = |index: f64| 1.0 - (1.0 - power(index)).powi(bands.count() as i32);
            assert!(meets(threshold) >= RECALL, "{threshold}: {bands:?}");
            // Pairs with little in common seldom share a band.
            assert!(meets(0.05) < 0.003, "{threshold}: {}", meets(0.05));
            assert!(bands.factors.len() <= 69, "{threshold}: {}", bands.factors.len());
        }
        assert_eq!((Bands::new(0.8).rows, Bands::new(0.8).count()), (5, 8));
    }

    #[test]
    fn bands_are_shared_as_often_as_the_formula_says() {
        let bands = Bands::new(0.8);
        for common in [20_u64, 60, 80, 90] {
            // Sets with a Jaccard index of `common` / 100.
            let alone = (100 - common) / 2;
            let sets = 2000;
            let mut met = 0;
            for set in 0..sets {
                let draws = Draws::new(5, set, 0);
                let all: Vec<u64> = (0..100).map(|one| draws.bits(one)).collect();
                let (first, second) =
                    (all[..(100 - alone) as usize].to_vec(), &all[alone as usize..]);
                let (first, second) = (bands.keys(&first), bands.keys(second));
                met += u64::from(first.iter().zip(&second).any(|(one, other)| one == other));
            }
            let index = common as f64 / 100.0;
            let expected = 1.0 - (1.0 - index.powi(5)).powi(8);
            let deviation = (expected * (1.0 - expected) / sets as f64).sqrt();
            let found = met as f64 / sets as f64;
            assert!((found - expected).abs() < 5.0 * deviation + 1e-3, "{found} for {expected}");
        }
    }

    #[test]
    fn a_table_has_what_a_map_of_lists_has() {
        let (mut table, mut lists) = (BandTable::new(), std::collections::HashMap::new());
        let draws = Draws::new(1, 1, 1);
        for pair in 0..20_000_u32 {
            // A third of the keys are close to each other, so their slots form long runs. Another
            // third are only 20 different keys, each with many pairs.
            let key = match pair % 3 {
                0 => u32::MAX - draws.bits(u64::from(pair)) as u32 % 2000,
                1 => draws.bits(u64::from(pair)) as u32,
                _ => 77 + pair % 20,
            };
            table.insert(key, pair);
            let list: &mut Vec<u32> = lists.entry(key).or_default();
            if list.len() < MOST_UNDER_KEY {
                list.push(pair);
            }
        }
        for (key, list) in &lists {
            assert_eq!(table.pairs(*key).collect::<Vec<_>>(), *list, "{key}");
        }
        assert_eq!(table.pairs(123_456_789).count(), 0);
        assert!(4 * table.filled <= 3 * table.slots.len());
    }
}
