//! Servers in this process, spoken to over sockets: what they answer, refuse and survive.

mod answers;
mod common;
mod compatible;
mod limits;
mod load;
mod services;
mod strangers;
mod survival;
