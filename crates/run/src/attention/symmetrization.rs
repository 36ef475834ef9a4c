//! Combination of two word alignments of the same sentence pair. The two alignments come from two
//! models, which translate in opposite directions (Och and Ney 2003, section 4; Koehn, Och and
//! Marcu 2003, "Statistical Phrase-Based Translation", section 3).

use std::collections::BTreeSet;

use taper_metrics::Link;

/// Method that combines two alignments of a sentence pair, which come from models of opposite
/// directions of translation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Symmetrization {
    /// Links that are in both alignments.
    Intersection,
    /// Links that are in at least one of the alignments.
    Union,
    /// Links that are in both alignments, and some of the links that are in only one of them. Such
    /// a link is added if it is next to a chosen link, also diagonally, and at least one of its two
    /// words has no link yet.
    #[default]
    GrowDiagonal,
}

impl Symmetrization {
    /// Combines two alignments, whose links both have the form (source word, target word). Returns
    /// links in ascending order.
    #[must_use]
    pub fn apply(self, one: &[Link], other: &[Link]) -> Vec<Link> {
        let (one, other): (BTreeSet<Link>, BTreeSet<Link>) =
            (one.iter().copied().collect(), other.iter().copied().collect());
        let both = one.intersection(&other).copied();
        let links = match self {
            Self::Intersection => both.collect(),
            Self::Union => &one | &other,
            Self::GrowDiagonal => grow(both.collect(), &(&one | &other)),
        };
        links.into_iter().collect()
    }
}

/// Adds links of `union` to `links`, until no more can be added. A link can be added if it is next
/// to a link in `links`, also diagonally, and one of its two words is in no link of `links`.
fn grow(mut links: BTreeSet<Link>, union: &BTreeSet<Link>) -> BTreeSet<Link> {
    let mut sources: BTreeSet<u32> = links.iter().map(|link| link.0).collect();
    let mut targets: BTreeSet<u32> = links.iter().map(|link| link.1).collect();
    loop {
        let before = links.len();
        // Links are tried in the order of the words; a link that was just added counts as chosen
        // for those after it.
        for &(source, target) in union {
            let is_beside = || {
                let rows = source.saturating_sub(1)..=source.saturating_add(1);
                rows.into_iter().any(|row| {
                    let columns = target.saturating_sub(1)..=target.saturating_add(1);
                    columns.into_iter().any(|column| links.contains(&(row, column)))
                })
            };
            let is_new = !sources.contains(&source) || !targets.contains(&target);
            if is_new && !links.contains(&(source, target)) && is_beside() {
                links.insert((source, target));
                sources.insert(source);
                targets.insert(target);
            }
        }
        if links.len() == before {
            return links;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_directions_become_one() {
        let (one, other) = ([(0, 0), (1, 1), (2, 1), (4, 4)], [(0, 0), (1, 1), (1, 2), (3, 0)]);
        let apply = |how: Symmetrization| how.apply(&one, &other);
        assert_eq!(apply(Symmetrization::Intersection), [(0, 0), (1, 1)]);
        assert_eq!(apply(Symmetrization::Union).len(), 6);
        // (3, 0) is added because it is next to (2, 1), which was added before; (4, 4) is next to
        // no link.
        let grown = apply(Symmetrization::GrowDiagonal);
        assert_eq!(grown, [(0, 0), (1, 1), (1, 2), (2, 1), (3, 0)]);
        assert_eq!(Symmetrization::GrowDiagonal.apply(&other, &one), grown);
        assert_eq!(Symmetrization::GrowDiagonal.apply(&[], &other), []);
    }
}
