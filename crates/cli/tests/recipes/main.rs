//! Tests of recipes, and of the runs that are made from them.

#[path = "../common/mod.rs"]
mod common;

mod changes;
mod dtype;
mod edited;
mod embeddings;
mod explain;
mod fine_tuning;
mod finetune;
mod init;
mod languages;
mod lora;
mod own_files;
mod regression;
mod runs;
