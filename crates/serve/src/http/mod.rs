//! HTTP: what every request passes through, and how bodies are read and answers written.

mod body;
mod connection;
mod guard;
mod respond;
mod stream;

pub(crate) use body::{file_of, form_or_json_of, json_of};
pub(crate) use connection::{Client, serve_connection};
pub(crate) use guard::{guard, is_key};
pub(crate) use respond::{html, json, openai_refusal, text};
pub(crate) use stream::{EventSender, event_stream};
