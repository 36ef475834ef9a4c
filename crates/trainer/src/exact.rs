//! Floating-point numbers in JSON without loss of bits.

/// Serialises a number as a string from which the same bits are read again. JSON numbers are not
/// used, because a reader can round their last bit, and because JSON has no number for infinity.
pub(crate) mod number {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{value:?}"))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| D::Error::custom(format!("'{text}' is not a number")))
    }
}

/// Serialises an optional number in the same way as [`number`].
pub(crate) mod option {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Exact(#[serde(with = "super::number")] f64);

    pub(crate) fn serialize<S: Serializer>(
        value: &Option<f64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(Exact).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<f64>, D::Error> {
        Ok(Option::<Exact>::deserialize(deserializer)?.map(|exact| exact.0))
    }
}
