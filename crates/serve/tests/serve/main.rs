//! Servers in this process, tested over sockets: answers, refusals and survival.

mod answers;
mod common;
mod compatible;
mod directions;
mod documents;
mod limits;
mod load;
mod public;
mod services;
mod strangers;
mod survival;
