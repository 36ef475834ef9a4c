//! Entities in sequences of tags, and how many of them are found: precision, recall and F1 as the
//! conlleval of Tjong Kim Sang and Buchholz 2000, "Introduction to the CoNLL-2000 Shared Task:
//! Chunking", counts them, and seqeval after it.
//!
//! A tag is `O` for what is of no entity, or a prefix, `-` and a type: `B` begins an entity and `I`
//! goes on with it (IOB2), `E` ends it and `S` is one alone (IOBES). Wrong sequences have entities
//! too: one begins at any tag that does not go on with the one before.

use std::collections::BTreeMap;

use serde::Serialize;

/// An entity: its type, its first tag and its last one.
pub type Entity<'t> = (&'t str, usize, usize);

/// Prefix and type of a tag; a tag without `-` is its own prefix, of no type.
fn parts(tag: &str) -> (&str, &str) {
    tag.split_once('-').unwrap_or((tag, ""))
}

/// The entities of a sequence of tags, in their order.
pub fn entities<'t, S: AsRef<str>>(tags: &'t [S]) -> Vec<Entity<'t>> {
    let mut found = Vec::new();
    let (mut before, mut type_before, mut start) = ("O", "", 0);
    let ended = std::iter::once("O");
    for (at, tag) in tags.iter().map(AsRef::as_ref).chain(ended).enumerate() {
        let (prefix, kind) = parts(tag);
        let is_other = kind != type_before;
        if before != "O"
            && (is_other || matches!(before, "E" | "S") || matches!(prefix, "B" | "S" | "O"))
        {
            found.push((type_before, start, at - 1));
        }
        if prefix != "O"
            && (is_other || matches!(prefix, "B" | "S") || matches!(before, "O" | "E" | "S"))
        {
            start = at;
        }
        (before, type_before) = (prefix, kind);
    }
    found
}

/// How many entities there are, and how many of them were found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EntityCounts {
    /// Entities that there are.
    pub right: u64,
    /// Entities that were given.
    pub given: u64,
    /// Given ones that are there: of the same type, from the same tag to the same tag.
    pub both: u64,
}

/// Precision, recall and F1: 0 where they are of nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EntityScore {
    /// The share of given entities that are right.
    pub precision: f64,
    /// The share of right entities that are given.
    pub recall: f64,
    /// Their harmonic mean.
    pub f1: f64,
    /// Right entities.
    pub support: u64,
}

impl EntityCounts {
    /// The scores.
    #[must_use]
    pub fn score(&self) -> EntityScore {
        let share = |of: u64| if of == 0 { 0.0 } else { self.both as f64 / of as f64 };
        let (precision, recall) = (share(self.given), share(self.right));
        let sum = precision + recall;
        let f1 = if sum == 0.0 { 0.0 } else { 2.0 * precision * recall / sum };
        EntityScore { precision, recall, f1, support: self.right }
    }
}

/// Counts of entities by type, summed over sequences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EntityReport {
    of_types: BTreeMap<String, EntityCounts>,
}

impl EntityReport {
    /// Counts a sequence: what is `right`, and what was `given` for it.
    pub fn add<S: AsRef<str>, T: AsRef<str>>(&mut self, right: &[S], given: &[T]) {
        let (right, given) = (entities(right), entities(given));
        for entity in &right {
            self.of(entity.0).right += 1;
        }
        for entity in &given {
            let is_right = right.contains(entity);
            let counts = self.of(entity.0);
            counts.given += 1;
            counts.both += u64::from(is_right);
        }
    }

    fn of(&mut self, kind: &str) -> &mut EntityCounts {
        self.of_types.entry(kind.to_owned()).or_default()
    }

    /// The scores of each type, in the order of their names.
    #[must_use]
    pub fn types(&self) -> BTreeMap<String, EntityScore> {
        self.of_types.iter().map(|(kind, counts)| (kind.clone(), counts.score())).collect()
    }

    /// The scores of all entities together.
    #[must_use]
    pub fn micro(&self) -> EntityScore {
        let add = |sum: EntityCounts, one: &EntityCounts| EntityCounts {
            right: sum.right + one.right,
            given: sum.given + one.given,
            both: sum.both + one.both,
        };
        self.of_types.values().fold(EntityCounts::default(), add).score()
    }

    /// The mean of the types' F1; 0 of none.
    #[must_use]
    pub fn macro_f1(&self) -> f64 {
        let sum: f64 = self.of_types.values().map(|counts| counts.score().f1).sum();
        sum / self.of_types.len().max(1) as f64
    }
}
