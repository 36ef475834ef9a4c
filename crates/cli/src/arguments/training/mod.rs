//! Arguments of the commands that make a recipe, train, and tune a trained model.

mod finetune;
mod init;
mod train;
mod tune;

pub(crate) use finetune::Finetune;
pub(crate) use init::Init;
pub(crate) use train::{Resume, Train, TrainOutput, Transport};
pub(crate) use tune::Tune;
