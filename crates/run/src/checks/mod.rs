//! What is asked of the machine before a run begins: a device, memory, room on the disk.

pub mod computation;
pub mod cost;
pub mod device;
pub(crate) mod disk;
pub mod memory;
mod threads;

pub use threads::{choose_threads, use_threads};
