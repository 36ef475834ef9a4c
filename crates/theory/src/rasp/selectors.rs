//! Selectors of RASP programs: a selector tells for each query which keys it attends to. A selector
//! is divided into terms, and each attention head of the compiled encoder computes one term.

use std::rc::Rc;

/// Largest number of terms of a selector.
pub(super) const MOST_TERMS: usize = 32;

/// A relation between keys and queries. Whether it holds depends only on the value of the key and
/// the value of the query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Relation {
    /// Indices of two nodes of the program's graph: the node that computes the keys, and the node
    /// that computes the queries.
    pub(super) between: (usize, usize),
    /// Whether the relation holds: one row for each possible value of the key, one column for each
    /// possible value of the query. A clone shares the table.
    pub(super) suits: Rc<Vec<Vec<bool>>>,
}

impl Relation {
    fn combined(mut self, other: &Self, combine: fn(bool, bool) -> bool) -> Self {
        for (row, others) in Rc::make_mut(&mut self.suits).iter_mut().zip(&*other.suits) {
            row.iter_mut().zip(others).for_each(|(cell, other)| *cell = combine(*cell, *other));
        }
        self
    }

    fn complement(mut self) -> Self {
        let cells = Rc::make_mut(&mut self.suits).iter_mut().flatten();
        cells.for_each(|cell| *cell = !*cell);
        self
    }

    fn is_empty(&self) -> bool {
        self.suits.iter().flatten().all(|suits| !suits)
    }
}

/// Relations that must all hold. The score of a head counts the relations that hold.
pub(super) type Term = Vec<Relation>;

/// Terms of a selector; `None` if there are more than [`MOST_TERMS`]. A clone shares the terms.
type Terms = Option<Rc<[Term]>>;

/// A selector: a relation, or a combination of selectors.
#[derive(Debug, Clone)]
pub(super) enum Selector {
    Relation(Relation),
    Combined {
        /// For a key that is selected, exactly one of these terms holds; for a key that is not
        /// selected, no term holds.
        selected: Terms,
        /// Terms of the negated selector. For a key that is not selected, exactly one of these
        /// terms holds; for a key that is selected, no term holds.
        others: Terms,
    },
}

impl Selector {
    pub(super) fn and(left: Self, right: Self) -> Self {
        match (left, right) {
            (Self::Relation(left), Self::Relation(right)) if left.between == right.between => {
                Self::Relation(left.combined(&right, |left, right| left && right))
            }
            (left, right) => Self::conjunction(left.sides(), right.sides()),
        }
    }

    /// A disjunction is the negated conjunction of the negated selectors.
    pub(super) fn or(left: Self, right: Self) -> Self {
        match (left, right) {
            (Self::Relation(left), Self::Relation(right)) if left.between == right.between => {
                Self::Relation(left.combined(&right, |left, right| left || right))
            }
            (left, right) => Self::conjunction(left.not().sides(), right.not().sides()).not(),
        }
    }

    pub(super) fn not(self) -> Self {
        match self {
            Self::Relation(relation) => Self::Relation(relation.complement()),
            Self::Combined { selected, others } => {
                Self::Combined { selected: others, others: selected }
            }
        }
    }

    /// Terms of the selector. For a key that is selected, exactly one term holds; for a key that is
    /// not selected, no term holds. `None` if there are more than [`MOST_TERMS`] terms.
    pub(super) fn terms(self) -> Option<Vec<Term>> {
        self.sides().0.map(|terms| terms.to_vec())
    }

    /// Returns the terms of the selector and of the negated selector.
    fn sides(self) -> (Terms, Terms) {
        match self {
            Self::Relation(relation) => {
                let others = relation.clone().complement();
                (Some(Rc::new([vec![relation]])), Some(Rc::new([vec![others]])))
            }
            Self::Combined { selected, others } => (selected, others),
        }
    }

    /// Returns the conjunction of two selectors. Each is given as the terms of the selector and the
    /// terms of its negation.
    fn conjunction((left, not_left): (Terms, Terms), (right, not_right): (Terms, Terms)) -> Self {
        let both = |left: &Terms, right: &Terms| Some(product(left.as_ref()?, right.as_ref()?));
        // The terms of `not_right` are restricted to keys that `left` selects, so that at most one
        // term holds.
        let others = not_left.as_ref().zip(both(&left, &not_right));
        let others = others.map(|(terms, more)| terms.iter().cloned().chain(more).collect());
        Self::Combined { selected: limited(both(&left, &right)), others: limited(others) }
    }
}

/// Returns the terms, or `None` if there are more than [`MOST_TERMS`].
fn limited(terms: Option<Vec<Term>>) -> Terms {
    terms.filter(|terms| terms.len() <= MOST_TERMS).map(Rc::from)
}

/// Returns the conjunction of each term of `left` with each term of `right`, without conjunctions
/// that can never hold. At most one more than [`MOST_TERMS`] are returned.
fn product(left: &[Term], right: &[Term]) -> Vec<Term> {
    let pairs = left.iter().flat_map(|left| right.iter().map(move |right| (left, right)));
    let joined = pairs.map(|(left, right)| {
        right.iter().fold(left.clone(), |mut term, relation| {
            match term.iter().position(|one| one.between == relation.between) {
                Some(at) => {
                    let one = term.swap_remove(at);
                    term.push(one.combined(relation, |left, right| left && right));
                }
                None => term.push(relation.clone()),
            }
            term
        })
    });
    joined.filter(|term| !term.iter().any(Relation::is_empty)).take(MOST_TERMS + 1).collect()
}
