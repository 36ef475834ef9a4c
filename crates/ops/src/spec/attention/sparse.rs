//! Sparse patterns of the keys that a query sees: a window (with gaps if dilated), global tokens,
//! and random blocks.

use super::AttentionSpec;
use crate::rng::{Counter, mix};
use std::ops::Range;

/// Sparse pattern of the keys that a query sees in its own sequence. A causal mask can restrict
/// them further.
///
/// The pattern is defined in blocks of tokens: position `p` is in block `⌊p / block⌋`. A query in
/// block `I` sees the keys in block `J` if one of these conditions holds:
///
/// - `|I − J| = k · dilation` for an integer `0 ≤ k < window`. With blocks of one token, this is
///   the sliding window of Beltagy et al. 2020 ("Longformer", section 3.1), dilated if
///   `dilation > 1`;
/// - `I` or `J` is one of the `first` blocks at the beginning, or of the `last` blocks at the end.
///   The tokens of these blocks are the global tokens of Longformer, but here they have no separate
///   projection matrices;
/// - `J` is one of the `random` blocks that are drawn for `I` and the head (Zaheer et al. 2020,
///   "Big Bird", section 2 and appendix D). They are drawn from the blocks for which neither of the
///   first two conditions holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sparse {
    /// Number of tokens in a block.
    pub block: usize,
    /// Number of blocks in one direction that the window includes, counting the query's own block.
    pub window: usize,
    /// Distance, in blocks, from one block of the window to the next.
    pub dilation: usize,
    /// Number of global blocks at the beginning.
    pub first: usize,
    /// Number of global blocks at the end. Must be 0 with a causal mask, because which blocks are
    /// the last ones changes with each new token.
    pub last: usize,
    /// Number of random blocks that are drawn for each block of queries and each head.
    pub random: usize,
    /// Seed for drawing the random blocks.
    pub seed: u64,
}

impl Sparse {
    /// Makes a window of `tokens` tokens: the query's own token and those before it. Without a
    /// causal mask, it also has as many tokens after the query's own.
    #[must_use]
    pub const fn window(tokens: usize) -> Self {
        Self { block: 1, window: tokens, dilation: 1, first: 0, last: 0, random: 0, seed: 0 }
    }

    /// Returns the reason why the pattern is impossible; `None` if it is possible. `causal` says
    /// whether there is a causal mask.
    pub(crate) fn fault(&self, causal: bool) -> Option<&'static str> {
        if self.block == 0 || self.window == 0 || self.dilation == 0 {
            return Some("block, window and dilation must be at least 1");
        }
        (causal && self.last > 0).then_some("a causal mask allows no global tokens at the end")
    }

    /// Whether block `i` sees block `j` because `j` is in the window, or because one of the two is
    /// global. The sequence has `blocks` blocks.
    fn is_near(&self, i: usize, j: usize, blocks: usize) -> bool {
        let is_global =
            |block: usize| block < self.first || block.saturating_add(self.last) >= blocks;
        let distance = i.abs_diff(j);
        is_global(i)
            || is_global(j)
            || (distance.is_multiple_of(self.dilation) && distance / self.dilation < self.window)
    }

    /// Returns the random blocks for block `i` of `blocks`, ascending. With a causal mask they are
    /// drawn from the blocks before `i`, and so do not depend on what follows.
    fn drawn(&self, head: usize, i: usize, blocks: usize, causal: bool) -> Vec<usize> {
        let mut drawn = Vec::new();
        let candidates = if causal { i } else { blocks };
        let wanted = self.random.min(candidates);
        if wanted == 0 {
            return drawn;
        }
        let counter = Counter::new(mix(self.seed, &[head as u64, i as u64]));
        let attempts = (0..16 * wanted as u64)
            .map(|attempt| (counter.u64_at(attempt) % candidates as u64) as usize);
        // If too few attempts succeed, because nearly all blocks are seen already, the first blocks
        // that are not seen are added.
        for j in attempts.chain(0..candidates) {
            if drawn.len() == wanted {
                break;
            }
            if !self.is_near(i, j, blocks) && !drawn.contains(&j) {
                drawn.push(j);
            }
        }
        drawn.sort_unstable();
        drawn
    }
}

/// The pattern of [`Sparse`], for one head and one sequence.
#[derive(Debug, Clone)]
pub(crate) struct Sight {
    rule: Sparse,
    head: usize,
    causal: bool,
    /// Number of blocks of the sequence.
    blocks: usize,
    /// Two lists: the random blocks of each block of queries, and the inverse, the blocks of
    /// queries that drew each block. Both are empty if random blocks are drawn on demand.
    drawn: [Vec<Vec<usize>>; 2],
}

impl Sight {
    /// Makes the pattern for a sequence of `keys` keys, for calls with only a few queries: random
    /// blocks are drawn on demand.
    pub(crate) fn for_few(rule: Sparse, causal: bool, head: usize, keys: usize) -> Self {
        let blocks = keys.div_ceil(rule.block);
        Self { rule, head, causal, blocks, drawn: Default::default() }
    }

    /// Makes the pattern for a sequence of `keys` keys, with all random blocks drawn; `None` if
    /// `spec` has no sparse pattern.
    pub(crate) fn new(spec: &AttentionSpec, head: usize, keys: usize) -> Option<Self> {
        let mut sight = Self::for_few(spec.sparse?, spec.causal, head, keys);
        if sight.rule.random > 0 {
            let of_queries: Vec<Vec<usize>> = (0..sight.blocks)
                .map(|i| sight.rule.drawn(head, i, sight.blocks, sight.causal))
                .collect();
            let mut of_keys = vec![Vec::new(); sight.blocks];
            for (i, drawn) in of_queries.iter().enumerate() {
                drawn.iter().for_each(|&j| of_keys[j].push(i));
            }
            sight.drawn = [of_queries, of_keys];
        }
        Some(sight)
    }

    /// Whether the query at position `query` sees the key at position `key`, computed directly from
    /// the definition of [`Sparse`]. If random blocks are drawn on demand, each call draws those of
    /// the query's block again.
    pub(crate) fn sees(&self, query: usize, key: usize) -> bool {
        let (i, j) = (query / self.rule.block, key / self.rule.block);
        if self.causal && key > query {
            return false;
        }
        self.rule.is_near(i, j, self.blocks)
            || match self.drawn[0].get(i) {
                Some(drawn) => drawn.contains(&j),
                None => self.rule.drawn(self.head, i, self.blocks, self.causal).contains(&j),
            }
    }

    /// Writes to `ranges` the keys in `within` that at least one of `queries` sees, as ascending
    /// ranges that do not touch. For a single query they are exact; for several queries they can
    /// include more keys, which none of them sees.
    pub(crate) fn keys_of(
        &self,
        queries: Range<usize>,
        within: Range<usize>,
        ranges: &mut Vec<Range<usize>>,
    ) {
        let end = if self.causal { within.end.min(queries.end) } else { within.end };
        self.seen_across(queries, within.start..end.max(within.start), 0, ranges);
    }

    /// Writes to `ranges` the queries in `within` that see at least one of `keys`, like
    /// [`keys_of`](Self::keys_of).
    pub(crate) fn queries_of(
        &self,
        keys: Range<usize>,
        within: Range<usize>,
        ranges: &mut Vec<Range<usize>>,
    ) {
        let start = if self.causal { within.start.max(keys.start) } else { within.start };
        self.seen_across(keys, start.min(within.end)..within.end, 1, ranges);
    }

    /// Writes to `ranges` the positions in `within` that positions in `from` see (`side` 0), or
    /// that see them (`side` 1). The two sides differ only in the random blocks, because windows
    /// and global tokens are symmetric.
    fn seen_across(
        &self,
        from: Range<usize>,
        within: Range<usize>,
        side: usize,
        ranges: &mut Vec<Range<usize>>,
    ) {
        ranges.clear();
        let Sparse { block, window, dilation, first, last, .. } = self.rule;
        if from.is_empty() || within.is_empty() {
            return;
        }
        let (least, most) = (from.start / block, (from.end - 1) / block);
        let last_begins = self.blocks.saturating_sub(last);
        if least < first || most >= last_begins {
            ranges.push(within);
            return;
        }
        let mut add = |blocks: Range<usize>| {
            let start = blocks.start.saturating_mul(block).max(within.start);
            let end = blocks.end.saturating_mul(block).min(within.end);
            if start < end {
                ranges.push(start..end);
            }
        };
        add(0..first);
        add(last_begins..self.blocks);
        if dilation <= most - least + 1 {
            let reach = (window - 1).saturating_mul(dilation);
            add(least.saturating_sub(reach)..most.saturating_add(reach).saturating_add(1));
        } else {
            // Here the blocks of `from`, shifted by different multiples of the dilation, neither
            // overlap nor touch. So each shifted range is added by itself, if it can lie in
            // `within`.
            let (low, high) = (within.start / block, (within.end - 1) / block);
            let before = (window - 1).min(most.saturating_sub(low) / dilation);
            let least_before = least.saturating_sub(high).div_ceil(dilation);
            for k in least_before..=before {
                let shift = k * dilation;
                if most >= shift {
                    add(least.saturating_sub(shift)..most - shift + 1);
                }
            }
            let after = (window - 1).min(high.saturating_sub(least) / dilation);
            for k in low.saturating_sub(most).div_ceil(dilation)..=after {
                add(least + k * dilation..most + k * dilation + 1);
            }
        }
        if self.rule.random > 0 {
            for i in least..=most {
                match self.drawn[side].get(i) {
                    Some(drawn) => drawn.iter().for_each(|&j| add(j..j + 1)),
                    // Only the random blocks of queries can be drawn on demand, for one block of
                    // queries at a time.
                    None => {
                        let drawn = self.rule.drawn(self.head, i, self.blocks, self.causal);
                        drawn.iter().for_each(|&j| add(j..j + 1));
                    }
                }
            }
        }
        merge(ranges);
    }

    /// Returns `true` only if each of `queries` sees each of `keys`. The test is incomplete: it can
    /// also return `false` although each query sees each key.
    pub(crate) fn sees_all(&self, queries: &Range<usize>, keys: &Range<usize>) -> bool {
        let Sparse { block, window, dilation, .. } = self.rule;
        let farthest =
            (queries.end - 1).abs_diff(keys.start).max((keys.end - 1).abs_diff(queries.start));
        let blocks = farthest.div_ceil(block);
        dilation == 1 && blocks < window && (!self.causal || keys.end <= queries.start + 1)
    }

    /// Calls `hide` with each range of keys in `within` that the query does not see.
    pub(crate) fn gaps(
        &self,
        query: usize,
        within: Range<usize>,
        scratch: &mut Vec<Range<usize>>,
        mut hide: impl FnMut(Range<usize>),
    ) {
        self.keys_of(query..query + 1, within.clone(), scratch);
        let mut key = within.start;
        for seen in &*scratch {
            if key < seen.start {
                hide(key..seen.start);
            }
            key = seen.end;
        }
        if key < within.end {
            hide(key..within.end);
        }
    }
}

/// Sorts the ranges, and merges those that touch or overlap.
pub(crate) fn merge(ranges: &mut Vec<Range<usize>>) {
    if ranges.is_sorted_by(|left, right| left.end < right.start) {
        return;
    }
    ranges.sort_unstable_by_key(|range| range.start);
    let mut kept = 0;
    for at in 1..ranges.len() {
        let range = ranges[at].clone();
        if range.start <= ranges[kept].end {
            ranges[kept].end = ranges[kept].end.max(range.end);
        } else {
            kept += 1;
            ranges[kept] = range;
        }
    }
    ranges.truncate(kept + 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Vec<Sparse> {
        let window = Sparse::window;
        vec![
            window(1),
            window(5),
            window(100),
            Sparse { dilation: 3, ..window(4) },
            Sparse { dilation: 7, first: 2, ..window(3) },
            Sparse { first: 3, ..window(2) },
            Sparse { block: 4, random: 2, seed: 5, first: 1, ..window(2) },
            Sparse { block: 3, random: 1, seed: 6, dilation: 2, ..window(2) },
            Sparse { block: 2, random: 40, seed: 7, ..window(1) },
            Sparse { random: usize::MAX, dilation: usize::MAX, ..window(usize::MAX) },
            Sparse { block: usize::MAX, first: usize::MAX, ..window(1) },
        ]
    }

    /// Compares ranges with the definition, for single queries and for several queries at once.
    #[test]
    fn ranges_are_the_rule() {
        let with_last = rules().into_iter().map(|rule| Sparse { last: 1, ..rule });
        let all = rules().into_iter().flat_map(|rule| [(rule, true), (rule, false)]);
        for (rule, causal) in all.chain(with_last.map(|rule| (rule, false))) {
            for keys in [1, 6, 29, 40] {
                let spec =
                    AttentionSpec { causal, sparse: Some(rule), ..AttentionSpec::single_head() };
                let (few, all) =
                    (Sight::for_few(rule, causal, 1, keys), Sight::new(&spec, 1, keys).unwrap());
                let mut visible = Vec::new();
                let name = format!("{rule:?}, causal {causal}, {keys} keys");
                for i in 0..keys {
                    let seen: Vec<usize> = (0..keys).filter(|&j| few.sees(i, j)).collect();
                    assert!((0..keys).all(|j| all.sees(i, j) == seen.contains(&j)), "{name}");
                    for sight in [&few, &all] {
                        sight.keys_of(i..i + 1, 0..keys, &mut visible);
                        let ranges: Vec<usize> = visible.iter().cloned().flatten().collect();
                        assert_eq!(ranges, seen, "{name}: query {i}");
                    }
                    let seeing: Vec<usize> = (0..keys).filter(|&j| all.sees(j, i)).collect();
                    all.queries_of(i..i + 1, 0..keys, &mut visible);
                    let ranges: Vec<usize> = visible.iter().cloned().flatten().collect();
                    // Checks only that the ranges have all of these queries; they can have more.
                    assert!(seeing.iter().all(|query| ranges.contains(query)), "{name}: key {i}");
                }
                for from in (0..keys).step_by(5) {
                    let some = from..(from + 5).min(keys);
                    for within in [0..keys, keys / 3..keys / 2] {
                        all.keys_of(some.clone(), within.clone(), &mut visible);
                        assert!(visible.windows(2).all(|pair| pair[0].end < pair[1].start));
                        assert!(visible.iter().all(|range| !range.is_empty()));
                        let has = |key| visible.iter().any(|range| range.contains(&key));
                        for key in 0..keys {
                            let is_seen = some.clone().any(|query| all.sees(query, key));
                            assert!(!is_seen || !within.contains(&key) || has(key), "{name}");
                            assert!(!has(key) || within.contains(&key), "{name}");
                            let one = key..key + 1;
                            let each = some.clone().all(|query| all.sees(query, key));
                            assert!(!all.sees_all(&some, &one) || each, "{name}: {some:?} {key}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_are_drawn_once_evenly_and_whatever_follows() {
        let rule = Sparse { random: 3, seed: 1, first: 1, ..Sparse::window(2) };
        let mut counts = [0; 40];
        for head in 0..2000 {
            let drawn = rule.drawn(head, 20, 40, false);
            assert!(drawn.len() == 3 && drawn.windows(2).all(|pair| pair[0] < pair[1]));
            drawn.iter().for_each(|&block| counts[block] += 1);
        }
        assert!([0, 19, 20, 21].iter().all(|&seen| counts[seen] == 0));
        let far = counts.iter().filter(|&&count| count > 0);
        // In 6,000 draws of 36 blocks, each block is drawn about 167 times, with a standard
        // deviation of 13.
        assert!(far.clone().count() == 36 && far.clone().all(|count| (100..240).contains(count)));
        assert_eq!(rule.drawn(3, 20, 21, true), rule.drawn(3, 20, 900, true));
        assert_ne!(rule.drawn(3, 20, 40, false), rule.drawn(4, 20, 40, false));
    }
}
