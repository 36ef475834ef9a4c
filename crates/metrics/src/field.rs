//! Fields of signatures. A signature is a text that states the settings of a score. A field has the
//! name and the value of one setting.

use std::fmt;

/// One field of a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name in long signatures.
    pub name: &'static str,
    /// Name in short signatures.
    pub short: &'static str,
    /// Value, as text.
    pub value: String,
}

impl Field {
    /// Makes a field with a printed value.
    pub fn new(name: &'static str, short: &'static str, value: impl ToString) -> Self {
        Self { name, short, value: value.to_string() }
    }

    /// Makes a field that is `yes` or `no`.
    pub(crate) fn flag(name: &'static str, short: &'static str, value: bool) -> Self {
        Self::new(name, short, if value { "yes" } else { "no" })
    }

    /// Makes the `case` field.
    pub(crate) fn case(lowercase: bool) -> Self {
        Self::new("case", "c", if lowercase { "lc" } else { "mixed" })
    }
}

/// Writes `name:value`. With the alternate flag, `{field:#}`, the short name is written.
impl fmt::Display for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{}:{}",
            if formatter.alternate() { self.short } else { self.name },
            self.value
        )
    }
}
