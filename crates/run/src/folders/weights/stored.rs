//! Description of tensors in files of weights, for all file formats.

/// Type and shape of a tensor, and where its values are in a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Stored {
    /// Name of its type in the format safetensors.
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    /// Position of the first byte of its values in the file.
    pub(super) start: u64,
    /// Scales of a tensor of integers; `None` if its values are floating-point numbers.
    pub(super) scales: Option<Scales>,
    /// Values that are not in the file. They come after the values in the file, and `shape`
    /// includes them.
    pub(super) appended: Vec<f32>,
}

/// Scales of a tensor of integers. The value of an element is its integer divided by the scale.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scales {
    /// One scale for each row, as f32 in the file; the field is the position of the first scale in
    /// the file.
    Rows(u64),
    /// One scale for the whole tensor.
    All(f32),
}

impl Stored {
    /// Tensor without scales or appended values.
    pub(super) fn new(dtype: String, shape: Vec<usize>, start: u64) -> Self {
        Self { dtype, shape, start, ..Self::default() }
    }

    /// Size of a value in the file in bytes; `None` if the tensor has a type that weights cannot
    /// have.
    pub(super) fn width(&self) -> Option<usize> {
        match (&self.scales, self.dtype.as_str()) {
            (Some(_), "I8") => Some(1),
            (Some(_), "I16") => Some(2),
            _ => width(&self.dtype),
        }
    }

    /// Number of values that are in the file.
    pub(super) fn count(&self) -> usize {
        self.shape.iter().product::<usize>().saturating_sub(self.appended.len())
    }
}

/// Size in bytes of a value of a floating-point type; `None` for other types.
pub(super) fn width(dtype: &str) -> Option<usize> {
    Some(match dtype {
        "F32" => 4,
        "F16" | "BF16" => 2,
        "F64" => 8,
        _ => return None,
    })
}
