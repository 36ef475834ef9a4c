//! Arguments of the commands that apply a model: `translate`, `generate`, `predict`, `evaluate`,
//! `score`.

mod evaluate;
mod generate;
mod predict;
mod translate;

pub(crate) use evaluate::{Evaluate, Score};
pub(crate) use generate::Generate;
pub(crate) use predict::Predict;
pub(crate) use translate::{Form, TextArguments, Translate};
