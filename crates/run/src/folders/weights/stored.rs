//! Tensors in files of weights of any format.

/// Place of a tensor's values in a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Stored {
    /// Name of the type in safetensors.
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    /// Position of its first byte in the file.
    pub(super) start: u64,
    /// Scales of integers; `None` for floating-point values.
    pub(super) scales: Option<Scales>,
    /// Values that follow those of the file; `shape` counts them.
    pub(super) appended: Vec<f32>,
}

/// Scales of a tensor of integers: an integer divided by its scale is the value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scales {
    /// One f32 for each row; the field is the position of the first one in the file.
    Rows(u64),
    /// One scale for all rows.
    All(f32),
}

impl Stored {
    /// Tensor without scales and appended values.
    pub(super) fn new(dtype: String, shape: Vec<usize>, start: u64) -> Self {
        Self { dtype, shape, start, ..Self::default() }
    }

    /// Number of bytes of a value; `None` for a type that weights cannot have.
    pub(super) fn width(&self) -> Option<usize> {
        match (&self.scales, self.dtype.as_str()) {
            (Some(_), "I8") => Some(1),
            (Some(_), "I16") => Some(2),
            _ => width(&self.dtype),
        }
    }

    /// Number of values in the file.
    pub(super) fn count(&self) -> usize {
        self.shape.iter().product::<usize>().saturating_sub(self.appended.len())
    }
}

/// Number of bytes of a value, for floating-point types; `None` for other types.
pub(super) fn width(dtype: &str) -> Option<usize> {
    Some(match dtype {
        "F32" => 4,
        "F16" | "BF16" => 2,
        "F64" => 8,
        _ => return None,
    })
}
