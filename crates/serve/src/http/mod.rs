//! HTTP: checks for every request, reading of bodies and writing of answers.

mod body;
mod connection;
mod guard;
mod multipart;
mod origin;
mod places;
mod respond;
mod stream;

pub(crate) use body::{file_of, form_or_json_of, json_of};
pub(crate) use connection::{Client, serve_connection};
pub(crate) use guard::{guard, is_key};
pub(crate) use multipart::{Form, Part, multipart_of};
pub(crate) use places::{Places, turn_away};
pub(crate) use respond::{html, json, openai_refusal, text};
pub(crate) use stream::{EventSender, event_stream};
