//! Claims about training. Each claim is tested in minutes, on small models that are trained for
//! this test.
//!
//! **Decision.** The training examples are drawn at random from sources whose best predictions can
//! be computed. What a model has learned can then be compared with all that there is to learn. A
//! batch depends only on the seed, the epoch and the batch's index in the epoch. The alternative is
//! to train on a corpus. With a corpus, it would remain open whether a bad prediction is due to the
//! model or to the text.
//!
//! An experiment is a [`Study`](taper_theory::studies::Study), like the studies of `taper-theory`,
//! whose models are not trained. To add an experiment, add a file here, and add its study to
//! [`EXPERIMENTS`].
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod concepts;
mod lanczos;
mod lesson;
mod parity;
mod path_length;
mod probes;
mod pronoun_heads;
mod pronouns;
mod receptive_field;
mod senses;
mod students;
mod warm_up;
mod word_order;

pub use concepts::{ConceptDecoder, ConceptLesson};
pub use lanczos::largest_eigenvalue;
pub use parity::{BitFunction, learned, right_answers};
pub use path_length::{Carrier, FirstToken};
pub use probes::{Probed, explained, probe, regressor};
pub use pronoun_heads::Ablation;
pub use pronouns::{Gaze, HeldOut, PronounReader, Referred, Understood};
pub use receptive_field::{
    Field, field_by_formula, field_of_text, fields_of_images, layers_of_images,
};
pub use senses::{SenseReader, told_apart};
pub use students::student;
pub use warm_up::{Beginning, UpdateMetrics, Warming, noise_scale};
pub use word_order::{Clause, ClauseTranslator, translated};

use taper_theory::studies::Study;

/// All experiments.
pub const EXPERIMENTS: &[Study] = &[
    concepts::STUDY,
    parity::STUDY,
    probes::STUDY,
    students::STUDY,
    warm_up::STUDY,
    pronoun_heads::STUDY,
    pronoun_heads::HEADS_STUDY,
    senses::STUDY,
    word_order::STUDY,
    path_length::STUDY,
    receptive_field::STUDY,
];
