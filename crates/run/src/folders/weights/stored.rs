//! Tensors in files of weights of any format.

/// Place of a tensor's values in a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stored {
    /// Name of the type in safetensors.
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    /// First byte.
    pub(super) start: u64,
}

/// Number of bytes of a value, for types that weights can have; `None` for other types.
pub(super) fn width(dtype: &str) -> Option<usize> {
    Some(match dtype {
        "F32" => 4,
        "F16" | "BF16" => 2,
        "F64" => 8,
        _ => return None,
    })
}
