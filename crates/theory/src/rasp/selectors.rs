//! Selectors of RASP programs: a selector tells for each query which keys it attends to. A selector
//! is divided into terms, and each attention head of the compiled encoder computes one term.

/// Largest number of terms of a selector.
pub(super) const MOST_TERMS: usize = 32;

/// A relation between keys and queries, which depends only on their values: for each pair of a
/// value of the key and a value of the query, the relation holds or does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Relation {
    /// Indices of two nodes of the program's graph: the node that computes the keys, and the node
    /// that computes the queries.
    pub(super) between: (usize, usize),
    /// Whether the relation holds: one row for each possible value of the key, one column for each
    /// possible value of the query.
    pub(super) suits: Vec<Vec<bool>>,
}

impl Relation {
    fn combined(mut self, other: &Self, combine: fn(bool, bool) -> bool) -> Self {
        for (row, others) in self.suits.iter_mut().zip(&other.suits) {
            row.iter_mut().zip(others).for_each(|(cell, other)| *cell = combine(*cell, *other));
        }
        self
    }

    fn complement(mut self) -> Self {
        self.suits.iter_mut().flatten().for_each(|cell| *cell = !*cell);
        self
    }

    fn is_empty(&self) -> bool {
        self.suits.iter().flatten().all(|suits| !suits)
    }
}

/// Relations that must all hold. The score of a head counts the relations that hold.
pub(super) type Term = Vec<Relation>;

/// A selector: a relation, or a combination of selectors.
#[derive(Debug, Clone)]
pub(super) enum Selector {
    Relation(Relation),
    And(Box<[Selector; 2]>),
    Or(Box<[Selector; 2]>),
    Not(Box<Selector>),
}

impl Selector {
    pub(super) fn and(left: Self, right: Self) -> Self {
        match (left, right) {
            (Self::Relation(left), Self::Relation(right)) if left.between == right.between => {
                Self::Relation(left.combined(&right, |left, right| left && right))
            }
            parts => Self::And(Box::new(parts.into())),
        }
    }

    pub(super) fn or(left: Self, right: Self) -> Self {
        match (left, right) {
            (Self::Relation(left), Self::Relation(right)) if left.between == right.between => {
                Self::Relation(left.combined(&right, |left, right| left || right))
            }
            parts => Self::Or(Box::new(parts.into())),
        }
    }

    pub(super) fn not(self) -> Self {
        match self {
            Self::Relation(relation) => Self::Relation(relation.complement()),
            Self::Not(inner) => *inner,
            other => Self::Not(Box::new(other)),
        }
    }

    /// Terms of the selector. For a key that is selected, exactly one term holds; for a key that is
    /// not selected, no term holds. `None` if there are more than [`MOST_TERMS`] terms.
    pub(super) fn terms(&self) -> Option<Vec<Term>> {
        let terms = match self {
            Self::Relation(relation) => vec![vec![relation.clone()]],
            Self::And(parts) => {
                let [left, right] = &**parts;
                product(&left.terms()?, &right.terms()?)
            }
            // The terms of `right` are restricted to keys that `left` does not select, so that at
            // most one term holds.
            Self::Or(parts) => {
                let [left, right] = &**parts;
                let mut terms = left.terms()?;
                terms.extend(product(&left.clone().opposite().terms()?, &right.terms()?));
                terms
            }
            Self::Not(inner) => (**inner).clone().opposite().terms()?,
        };
        (terms.len() <= MOST_TERMS).then_some(terms)
    }

    /// Returns the negated selector. Negations are moved inwards, so that only relations are
    /// negated.
    fn opposite(self) -> Self {
        match self {
            Self::Relation(relation) => Self::Relation(relation.complement()),
            Self::And(parts) => Self::Or(Box::new((*parts).map(Self::opposite))),
            Self::Or(parts) => Self::And(Box::new((*parts).map(Self::opposite))),
            Self::Not(inner) => *inner,
        }
    }
}

/// Returns the conjunction of each term of `left` with each term of `right`, without conjunctions
/// that can never hold.
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
    joined.filter(|term| !term.iter().any(Relation::is_empty)).collect()
}
