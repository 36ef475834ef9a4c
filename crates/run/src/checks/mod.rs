//! Checks of the machine before a training begins: its device, memory and disk.

pub mod computation;
pub mod cost;
pub mod counting;
pub mod device;
pub mod disk;
pub(crate) mod dtype_choice;
pub mod limits;
pub mod memory;
mod threads;

pub use threads::{choose_threads, use_threads};
