//! Servers in this process, tested over sockets: answers, refusals and survival.

mod answers;
mod common;
mod compatible;
mod limits;
mod load;
mod services;
mod strangers;
mod survival;
