//! The commands that write recipes, train models and choose the settings of their search.

pub(super) mod finetune;
pub(super) mod init;
pub(super) mod resume;
pub(super) mod train;
pub(super) mod tune;
