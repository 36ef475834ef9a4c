//! Reading of safetensors files, tensor by tensor.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use safetensors::Dtype;
use safetensors::tensor::Metadata;
use taper_model::Model;
use taper_ops::{Int8Matrix, MappedFile, MappedValues, Parameter, ParameterStore};

use super::files::failed;
use super::tensors::{HEAD, Named, PIECE, assigned};
use crate::CheckpointError;

/// Safetensors file that is read one tensor after the other, so that only one tensor is in memory
/// at a time.
pub(crate) struct Reader {
    path: PathBuf,
    file: File,
    /// Names and shapes of the tensors, in the order of their values in the file. The scales of an
    /// int8 tensor (a factor for each row) have no entry of their own.
    tensors: Vec<(String, Vec<usize>)>,
    /// All tensors as they are stored, in the order of the file.
    stored: Vec<Stored>,
}

/// Tensor in the file. An int8 tensor is stored as two tensors: scales and values.
enum Stored {
    /// Values in f32.
    Float { name: String, shape: Vec<usize> },
    /// Scales of the int8 tensor with the name `of`, one for each row.
    Scales { of: String, count: usize },
    /// Values in int8; their scales stand before them in the file.
    Int8 { name: String, shape: [usize; 2] },
}

/// Suffix that is added to the name of an int8 tensor to form the name of its scales.
pub(super) const SCALES: &str = ".scales";

impl Reader {
    /// Reads the header of `file`, whose position must be at its beginning.
    pub(crate) fn new(path: &Path, mut file: File) -> Result<Self, CheckpointError> {
        let corrupt = |reason: String| CheckpointError::Corrupt { path: path.to_owned(), reason };
        let bytes = file.metadata().map_err(failed("read", path))?.len();
        let mut head = [0; HEAD as usize];
        file.read_exact(&mut head).map_err(failed("read", path))?;
        let length = u64::from_le_bytes(head);
        let Some(data) = bytes.checked_sub(HEAD).and_then(|rest| rest.checked_sub(length)) else {
            return Err(corrupt(format!(
                "its header should have {length} bytes, but the whole file has only {bytes}"
            )));
        };
        let mut header = Vec::new();
        file.by_ref().take(length).read_to_end(&mut header).map_err(failed("read", path))?;
        // Parsing also verifies offsets and sizes.
        let header: Metadata = serde_json::from_slice(&header)
            .map_err(|error| corrupt(format!("its header: {error}")))?;
        if header.data_len() as u64 != data {
            return Err(corrupt(format!(
                "its header describes {} bytes of values, but the file has {data}",
                header.data_len()
            )));
        }
        let is_int8 = |name: &str| header.info(name).is_some_and(|info| info.dtype == Dtype::I8);
        let tensor = |name: String| match header.info(&name) {
            Some(info) if info.dtype == Dtype::F32 => Ok(match name.strip_suffix(SCALES) {
                Some(of) if is_int8(of) => {
                    Stored::Scales { of: of.to_owned(), count: info.shape.iter().product() }
                }
                _ => Stored::Float { shape: info.shape.clone(), name },
            }),
            Some(info) if info.dtype == Dtype::I8 => match info.shape[..] {
                [rows, width] => Ok(Stored::Int8 { name, shape: [rows, width] }),
                _ => Err(corrupt(format!("tensor '{name}' of type I8 is not a matrix"))),
            },
            Some(info) => {
                Err(corrupt(format!("tensor '{name}' has type {:?}, expected F32", info.dtype)))
            }
            None => Err(corrupt(format!("tensor '{name}' has no shape"))),
        };
        let stored: Vec<Stored> =
            header.offset_keys().into_iter().map(tensor).collect::<Result<_, _>>()?;
        let named = |stored: &Stored| match stored {
            Stored::Float { name, shape } => Some((name.clone(), shape.clone())),
            Stored::Int8 { name, shape } => Some((name.clone(), shape.to_vec())),
            Stored::Scales { .. } => None,
        };
        let tensors = stored.iter().filter_map(named).collect();
        Ok(Self { path: path.to_owned(), file, tensors, stored })
    }

    /// Names and shapes of all tensors.
    pub(crate) fn shapes(&self) -> &[(String, Vec<usize>)] {
        &self.tensors
    }

    /// True if there is a tensor whose name begins with `prefix`.
    pub(crate) fn has(&self, prefix: &str) -> bool {
        self.tensors.iter().any(|(name, _)| name.starts_with(prefix))
    }

    /// Returns all tensors, sorted by name.
    pub(crate) fn all(self) -> Result<Vec<Named>, CheckpointError> {
        let mut all = Vec::with_capacity(self.tensors.len());
        self.each(&mut |tensor| {
            all.push(tensor);
            Ok(())
        })?;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Returns one vector for each prefix: the values of all parameters, one parameter after the
    /// other, in the order of `store`. The name of a parameter's tensor in the file is the prefix
    /// followed by the parameter's name.
    pub(crate) fn flat<S: AsRef<str>>(
        self,
        store: &ParameterStore,
        prefixes: &[S],
    ) -> Result<Vec<Vec<f32>>, CheckpointError> {
        let mut flat = vec![vec![0f32; store.len()]; prefixes.len()];
        self.parameters(store.parameters(), prefixes, |prefix, parameter, values| {
            flat[prefix][parameter.offset()..parameter.offset() + parameter.len()]
                .copy_from_slice(&values);
            Ok(())
        })?;
        Ok(flat)
    }

    /// Passes the values of each parameter to `take`, once for each prefix, together with the index
    /// of the prefix. The name of the tensor in the file is the prefix followed by the parameter's
    /// name.
    ///
    /// If a tensor is missing or has another shape than its parameter, or there are other tensors,
    /// there is an error before anything is passed. If a tensor has values that are not finite,
    /// there is an error after the tensors before it have been passed.
    pub(crate) fn parameters<S: AsRef<str>>(
        self,
        parameters: &[Parameter],
        prefixes: &[S],
        mut take: impl FnMut(usize, &Parameter, Vec<f32>) -> Result<(), CheckpointError>,
    ) -> Result<(), CheckpointError> {
        let tensors = self.tensors.iter().cloned();
        let wanted = assigned(&self.path, tensors, parameters, prefixes)?;
        self.each(&mut |Named { name, values, .. }| match wanted.get(&name) {
            Some((number, parameter)) => take(*number, parameter, values),
            None => Ok(()),
        })
    }

    /// Returns an error if the file does not have exactly the tensors of `parameters`.
    pub(crate) fn require(&self, parameters: &[Parameter]) -> Result<(), CheckpointError> {
        assigned(&self.path, self.tensors.iter().cloned(), parameters, &[""]).map(|_| ())
    }

    /// Sets `parameters` to the tensors of the file, which must have exactly the tensors of these
    /// parameters. If a parameter is in main memory, f32 values are read directly into its memory,
    /// because an additional copy would take as long as the reading. If the parameters are those of
    /// `model`, it can leave their values in the file instead, and completes the loading of each.
    ///
    /// If a tensor has values that are not finite, there is an error, but the tensors before it
    /// have been set. If `is_finite` is true, the values are known to be finite.
    pub(crate) fn load(
        self,
        parameters: &[Parameter],
        model: Option<&dyn Model>,
        is_finite: bool,
    ) -> Result<(), CheckpointError> {
        let path = self.path.clone();
        let wanted = assigned(&path, self.tensors.iter().cloned(), parameters, &[""])?;
        let refused = |source| CheckpointError::Tensor { path: path.clone(), source };
        let finish = |parameter| model.map_or(Ok(()), |model| model.finish_loading(parameter));
        let mapped = model.and_then(|_| MappedFile::new(&self.file));
        let read = &mut |name: &str, file: &mut File| {
            let Some((_, parameter)) = wanted.get(name) else { return Ok(false) };
            if let (Some(model), Some(mapped)) = (model, &mapped) {
                let values = next_values(mapped, file, parameter).map_err(failed("read", &path))?;
                if let Some(values) = values
                    && model.leave_in_file(parameter, &values).map_err(refused)?
                {
                    let is_finite = is_finite || taper_ops::all_finite(&values);
                    require_finite(&path, name, is_finite)?;
                    skip(file, &values).map_err(failed("read", &path))?;
                    return Ok(true);
                }
            }
            let filled = parameter.fill(|values| read_into(file, values)).map_err(refused)?;
            let Some(is_finite) = filled.transpose().map_err(failed("read", &path))? else {
                return Ok(false);
            };
            require_finite(&path, name, is_finite)?;
            finish(parameter).map_err(refused)?;
            Ok(true)
        };
        self.each_else(read, &mut |Named { name, values, .. }| match wanted.get(&name) {
            Some((_, parameter)) => {
                parameter.set(values).and_then(|()| finish(parameter)).map_err(refused)
            }
            None => Ok(()),
        })
    }

    /// Passes all tensors to `take`, in the order of the file. There is an error at a tensor with a
    /// value that is not finite.
    pub(crate) fn each(
        self,
        take: &mut dyn FnMut(Named) -> Result<(), CheckpointError>,
    ) -> Result<(), CheckpointError> {
        self.each_else(&mut |_, _| Ok(false), take)
    }

    /// Passes all tensors to `take`, like [`Self::each`], except those that `read` has read itself.
    /// `read` is called for each tensor in f32, with the tensor's name, and with the file at the
    /// position of the tensor's values. It returns `true` if it has read these values.
    fn each_else(
        mut self,
        read: &mut dyn FnMut(&str, &mut File) -> Result<bool, CheckpointError>,
        take: &mut dyn FnMut(Named) -> Result<(), CheckpointError>,
    ) -> Result<(), CheckpointError> {
        let mut scales = HashMap::new();
        for stored in self.stored {
            match stored {
                Stored::Float { name, shape } => {
                    if !read(&name, &mut self.file)? {
                        let count = shape.iter().product();
                        let values = read_values(&self.path, &mut self.file, &name, count)?;
                        take(Named { name, shape, values })?;
                    }
                }
                Stored::Scales { of, count } => {
                    let name = format!("{of}{SCALES}");
                    let values = read_values(&self.path, &mut self.file, &name, count)?;
                    scales.insert(of, values);
                }
                Stored::Int8 { name, shape: [rows, width] } => {
                    let mut values = vec![0; rows * width];
                    self.file.read_exact(&mut values).map_err(failed("read", &self.path))?;
                    let values = values.into_iter().map(u8::cast_signed).collect();
                    let scales = scales.remove(&name).unwrap_or_default();
                    let matrix = Int8Matrix::from_parts(values, scales, width);
                    let Some(matrix) = matrix.filter(|matrix| matrix.rows() == rows) else {
                        let reason = format!(
                            "tensor '{name}', or its scales '{name}{SCALES}', have values that \
                             rounding to int8 never gives"
                        );
                        return Err(CheckpointError::Corrupt { path: self.path, reason });
                    };
                    take(Named { name, shape: vec![rows, width], values: matrix.to_f32() })?;
                }
            }
        }
        Ok(())
    }
}

/// Reads the `count` values of the tensor `name`. Returns an error if one of them is not finite.
fn read_values(
    path: &Path,
    file: &mut File,
    name: &str,
    count: usize,
) -> Result<Vec<f32>, CheckpointError> {
    let mut values = vec![0.0; count];
    let is_finite = read_into(file, &mut values).map_err(failed("read", path))?;
    require_finite(path, name, is_finite)?;
    Ok(values)
}

fn require_finite(path: &Path, name: &str, is_finite: bool) -> Result<(), CheckpointError> {
    match is_finite {
        true => Ok(()),
        false => Err(CheckpointError::NotFinite { path: path.to_owned(), name: name.to_owned() }),
    }
}

/// Returns the values of `parameter` in the mapped file, which begin at the position of `file`;
/// `None` if they cannot be used in place.
fn next_values(
    mapped: &Arc<MappedFile>,
    file: &mut File,
    parameter: &Parameter,
) -> io::Result<Option<MappedValues>> {
    let start = usize::try_from(file.stream_position()?).unwrap_or(usize::MAX);
    let end = parameter.len().saturating_mul(size_of::<f32>()).saturating_add(start);
    Ok(mapped.values(start..end))
}

/// Moves the position of `file` to the end of `values`.
fn skip(file: &mut File, values: &MappedValues) -> io::Result<()> {
    file.seek(SeekFrom::Current(size_of_val(&**values) as i64)).map(|_| ())
}

/// Reads little-endian values from `file` into `values`, and returns whether all are finite.
fn read_into(file: &mut File, values: &mut [f32]) -> io::Result<bool> {
    let mut is_finite = true;
    for piece in values.chunks_mut(PIECE) {
        file.read_exact(bytemuck::cast_slice_mut(piece))?;
        if cfg!(target_endian = "big") {
            piece
                .iter_mut()
                .for_each(|value| *value = f32::from_bits(value.to_bits().swap_bytes()));
        }
        is_finite &= taper_ops::all_finite(piece);
    }
    Ok(is_finite)
}
