//! Entities in sequences of tags, with precision, recall and F1 as in conlleval (Tjong Kim Sang and
//! Buchholz 2000, "Introduction to the CoNLL-2000 Shared Task: Chunking") and seqeval.
//!
//! A tag is `O` outside of entities; otherwise it is a prefix, `-` and a type. The prefix `B`
//! begins an entity, and `I` continues it (IOB2); `E` ends an entity, and `S` is an entity of one
//! tag (IOBES). Invalid sequences have entities too: an entity begins at any tag that does not
//! continue the previous one.

use std::collections::BTreeMap;

use serde::Serialize;

/// An entity: its type, its first tag and its last tag.
pub type Entity<'t> = (&'t str, usize, usize);

/// Returns the prefix and the type of a tag. A tag without `-` is a prefix without a type.
fn parts(tag: &str) -> (&str, &str) {
    tag.split_once('-').unwrap_or((tag, ""))
}

/// Finds the entities of a sequence of tags, in their order.
pub fn entities<'t, S: AsRef<str>>(tags: &'t [S]) -> Vec<Entity<'t>> {
    let mut entities = Vec::new();
    let (mut before, mut type_before, mut start) = ("O", "", 0);
    let ended = std::iter::once("O");
    for (at, tag) in tags.iter().map(AsRef::as_ref).chain(ended).enumerate() {
        let (prefix, kind) = parts(tag);
        let is_other = kind != type_before;
        if before != "O"
            && (is_other || matches!(before, "E" | "S") || matches!(prefix, "B" | "S" | "O"))
        {
            entities.push((type_before, start, at - 1));
        }
        if prefix != "O"
            && (is_other || matches!(prefix, "B" | "S") || matches!(before, "O" | "E" | "S"))
        {
            start = at;
        }
        (before, type_before) = (prefix, kind);
    }
    entities
}

/// Numbers of entities in the reference, of predicted entities, and of entities in both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EntityCounts {
    /// Number of entities in the reference.
    pub right: u64,
    /// Number of predicted entities.
    pub given: u64,
    /// Number of predicted entities that are correct: same type, same first and last tag.
    pub both: u64,
}

/// Precision, recall and F1; 0 where undefined.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EntityScore {
    /// Share of predicted entities that are correct.
    pub precision: f64,
    /// Share of entities in the reference that are predicted.
    pub recall: f64,
    /// Harmonic mean of precision and recall.
    pub f1: f64,
    /// Number of entities in the reference.
    pub support: u64,
}

impl EntityCounts {
    /// Computes scores from these counts.
    #[must_use]
    pub fn score(&self) -> EntityScore {
        let share = |total: u64| if total == 0 { 0.0 } else { self.both as f64 / total as f64 };
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
    /// Counts a sequence: its correct tags, `right`, and its predicted tags, `given`.
    pub fn add<S: AsRef<str>, T: AsRef<str>>(&mut self, right: &[S], given: &[T]) {
        let (right, given) = (entities(right), entities(given));
        for entity in &right {
            self.counts(entity.0).right += 1;
        }
        for entity in &given {
            let is_right = right.contains(entity);
            let counts = self.counts(entity.0);
            counts.given += 1;
            counts.both += u64::from(is_right);
        }
    }

    fn counts(&mut self, kind: &str) -> &mut EntityCounts {
        self.of_types.entry(kind.to_owned()).or_default()
    }

    /// Scores by type, sorted by the names of the types.
    #[must_use]
    pub fn types(&self) -> BTreeMap<String, EntityScore> {
        self.of_types.iter().map(|(kind, counts)| (kind.clone(), counts.score())).collect()
    }

    /// Scores of all entities together.
    #[must_use]
    pub fn micro(&self) -> EntityScore {
        let add = |sum: EntityCounts, one: &EntityCounts| EntityCounts {
            right: sum.right + one.right,
            given: sum.given + one.given,
            both: sum.both + one.both,
        };
        self.of_types.values().fold(EntityCounts::default(), add).score()
    }

    /// Mean F1 over types; 0 without types.
    #[must_use]
    pub fn macro_f1(&self) -> f64 {
        let sum: f64 = self.of_types.values().map(|counts| counts.score().f1).sum();
        sum / self.of_types.len().max(1) as f64
    }
}
