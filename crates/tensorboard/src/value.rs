//! Values of a record.

use crate::histogram::Histogram;
use crate::wire::Message;

/// Number of the type f32 in TensorFlow's `types.proto`.
const FLOAT: u64 = 1;
/// Number of the type of strings in TensorFlow's `types.proto`.
const STRING: u64 = 7;
/// Version of the data that the plugin for hyper-parameters reads.
const PARAMETERS_VERSION: u64 = 0;

/// Value of a hyper-parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter {
    /// A number.
    Number(f64),
    /// A boolean.
    Switch(bool),
    /// Anything else.
    Text(String),
}

/// A value with its tag.
#[derive(Debug, Clone, PartialEq)]
pub struct Value(pub(crate) Message);

impl Value {
    fn tagged(tag: &str) -> Message {
        Message::default().bytes(1, tag.as_bytes())
    }

    /// Makes a scalar.
    #[must_use]
    pub fn scalar(tag: &str, value: f64) -> Self {
        Self(Self::tagged(tag).float(2, value as f32))
    }

    /// Makes a histogram.
    #[must_use]
    pub fn histogram(tag: &str, histogram: &Histogram) -> Self {
        let limits: Vec<f64> = histogram.bins.iter().map(|bin| bin.0).collect();
        let counts: Vec<f64> = histogram.bins.iter().map(|bin| bin.1).collect();
        let message = Message::default()
            .double(1, histogram.least)
            .double(2, histogram.greatest)
            .double(3, histogram.count)
            .double(4, histogram.sum)
            .double(5, histogram.squares)
            .doubles(6, &limits)
            .doubles(7, &counts);
        Self(Self::tagged(tag).message(5, &message))
    }

    /// Makes a text, which TensorBoard shows as Markdown.
    #[must_use]
    pub fn text(tag: &str, text: &str) -> Self {
        let shape = Message::default().message(2, &Message::default().integer(1, 1));
        let tensor =
            Message::default().integer(1, STRING).message(2, &shape).bytes(8, text.as_bytes());
        Self(Self::tagged(tag).message(8, &tensor).message(9, &plugin("text", &[])))
    }

    /// Makes a picture with this width and height, in pixels, from the bytes of a PNG file.
    #[must_use]
    pub fn image(tag: &str, (width, height): (u32, u32), png: &[u8]) -> Self {
        let image = Message::default()
            .integer(1, u64::from(height))
            .integer(2, u64::from(width))
            .integer(3, 3)
            .bytes(4, png);
        Self(Self::tagged(tag).message(4, &image))
    }

    /// Makes the hyper-parameters of a run, for TensorBoard's plugin that compares runs. `began` is
    /// the start of the run, in seconds since 1970.
    #[must_use]
    pub fn parameters(began: f64, parameters: &[(String, Parameter)]) -> Self {
        let mut start = Message::default();
        for (name, parameter) in parameters {
            let value = match parameter {
                Parameter::Number(value) => Message::default().double(2, *value),
                Parameter::Text(text) => Message::default().bytes(3, text.as_bytes()),
                Parameter::Switch(value) => Message::default().integer(4, u64::from(*value)),
            };
            let entry = Message::default().bytes(1, name.as_bytes()).message(2, &value);
            start = start.message(1, &entry);
        }
        let content =
            Message::default().integer(1, PARAMETERS_VERSION).message(3, &start.double(5, began));
        let shape = Message::default().message(2, &Message::default().integer(1, 1));
        let nothing = Message::default().integer(1, FLOAT).message(2, &shape).float(5, 0.0);
        Self(
            Self::tagged("_hparams_/session_start_info")
                .message(8, &nothing)
                .message(9, &plugin("hparams", &content.0)),
        )
    }
}

/// Metadata of a value: the name of the plugin that shows it, and data for this plugin.
fn plugin(name: &str, content: &[u8]) -> Message {
    let data = Message::default().bytes(1, name.as_bytes()).bytes(2, content);
    Message::default().message(1, &data)
}
