//! Parameters as flat buffers and as safetensors files.
//!
//! Moments, the moving average and gradients have the parameter store's flat layout. In files each
//! parameter has its own name and shape, so that a checkpoint can be inspected and checked tensor
//! by tensor.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use candle_core::{Result as CandleResult, Tensor};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use taper_ops::{Int8Matrix, Parameter, ParameterStore};

use super::files::{HashedFile, failed};
use crate::{CheckpointError, FileEntry};

/// A named tensor of `f32` on the host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

/// A named tensor that can be written.
pub(crate) trait Written {
    /// Name.
    fn name(&self) -> &str;

    /// Shape.
    fn shape(&self) -> &[usize];

    /// Values, in row-major order.
    fn values(&self) -> CandleResult<Cow<'_, [f32]>>;
}

impl Written for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn values(&self) -> CandleResult<Cow<'_, [f32]>> {
        Ok(self.values.as_slice().into())
    }
}

/// A named tensor of a training. Its values are copied to the host when it is written, so that
/// memory never holds a second copy of all tensors. It changes with the training.
#[derive(Debug)]
pub(crate) struct Live {
    name: String,
    shape: Vec<usize>,
    /// Flat tensors that contain its values, one after the other.
    parts: Vec<Tensor>,
}

impl Written for Live {
    fn name(&self) -> &str {
        &self.name
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn values(&self) -> CandleResult<Cow<'_, [f32]>> {
        let copy = |part: &Tensor| {
            // For a view on another device, Candle would copy the whole buffer to the host.
            let part = if part.device().is_cpu() { part } else { &part.force_contiguous()? };
            part.to_vec1::<f32>()
        };
        let values = match self.parts.as_slice() {
            [whole] => copy(whole)?,
            parts => parts.iter().map(copy).collect::<CandleResult<Vec<_>>>()?.concat(),
        };
        Ok(values.into())
    }
}

/// Parameters of a store, each with `prefix` before its name.
pub(crate) fn live_parameters(store: &ParameterStore, prefix: &str) -> CandleResult<Vec<Live>> {
    let live = |parameter: &Parameter| {
        let values = parameter.var().as_detached_tensor().flatten_all()?;
        Ok(Live {
            name: format!("{prefix}{}", parameter.name()),
            shape: parameter.shape().to_vec(),
            parts: vec![values],
        })
    };
    store.parameters().iter().map(live).collect()
}

/// Cuts a flat buffer into tensors, each named like its parameter, preceded by `prefix`; `parts`
/// make up the buffer, one after the other.
pub(crate) fn live_parts(
    store: &ParameterStore,
    prefix: &str,
    parts: &[Tensor],
) -> CandleResult<Vec<Live>> {
    let cut = |parameter: &Parameter| {
        let (first, end) = (parameter.offset(), parameter.offset() + parameter.len());
        let mut start = 0;
        let mut own = Vec::new();
        for part in parts {
            let (from, to) = (first.max(start), end.min(start + part.elem_count()));
            if from < to {
                own.push(part.narrow(0, from - start, to - from)?);
            }
            start += part.elem_count();
        }
        let name = format!("{prefix}{}", parameter.name());
        Ok(Live { name, shape: parameter.shape().to_vec(), parts: own })
    };
    store.parameters().iter().map(cut).collect()
}

/// Writes a safetensors file of f32, tensor by tensor, so that memory never holds more than one
/// tensor.
///
/// `tensors` has names and shapes; `values` is called for the values of each, in ascending order of
/// the names, which is the order of the file.
///
/// # Errors
/// When the file cannot be written, a name occurs twice, or the number of values does not fit a
/// shape, and errors of `values`.
pub fn write_tensors<'a>(
    path: &Path,
    tensors: impl IntoIterator<Item = (String, Vec<usize>)>,
    mut values: impl FnMut(&str) -> Result<Cow<'a, [f32]>, CheckpointError>,
) -> Result<FileEntry, CheckpointError> {
    let corrupt = |reason: String| CheckpointError::Corrupt { path: path.to_owned(), reason };
    let mut tensors: Vec<_> = tensors.into_iter().collect();
    tensors.sort();
    if let Some(twice) = tensors.windows(2).find(|two| two[0].0 == two[1].0) {
        return Err(corrupt(format!("two tensors are called '{}'", twice[0].0)));
    }
    let mut end = 0;
    let info = |(name, shape): &(String, Vec<usize>)| {
        let start = end;
        end += 4 * shape.iter().product::<usize>();
        let data_offsets = (start, end);
        (name.clone(), TensorInfo { dtype: Dtype::F32, shape: shape.clone(), data_offsets })
    };
    let infos = tensors.iter().map(info).collect();
    // There is only one key: the writer puts keys in the order of a hash map, and equal runs must
    // give equal bytes.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let mut header = Metadata::new(Some(metadata), infos)
        .map_err(|error| corrupt(error.to_string()))
        .and_then(|all| serde_json::to_vec(&all).map_err(|error| corrupt(error.to_string())))?;
    // Values begin at a multiple of eight bytes.
    header.resize(header.len().next_multiple_of(HEAD as usize), b' ');
    let mut file = HashedFile::create_large(path)?;
    file.write((header.len() as u64).to_le_bytes().to_vec())?;
    file.write(header)?;
    for (name, shape) in &tensors {
        let values = values(name)?;
        if values.len() != shape.iter().product::<usize>() {
            return Err(corrupt(format!("{} values for '{name}' of {shape:?}", values.len())));
        }
        for piece in values.chunks(PIECE) {
            file.write(little_endian(piece))?;
        }
    }
    file.finish()
}

/// Writes a safetensors file of these tensors.
pub(crate) fn write_named<T: Written>(
    path: &Path,
    all: &[T],
) -> Result<FileEntry, CheckpointError> {
    let by_name: HashMap<&str, &T> = all.iter().map(|tensor| (tensor.name(), tensor)).collect();
    let shapes = all.iter().map(|tensor| (tensor.name().to_owned(), tensor.shape().to_vec()));
    write_tensors(path, shapes, |name| {
        let values = by_name.get(name).map_or_else(|| Ok([].as_slice().into()), |it| it.values());
        values.map_err(|source| CheckpointError::Tensor { path: path.to_owned(), source })
    })
}

/// Parameter of each tensor in the file `path`, and the index of the prefix before its name.
///
/// # Errors
/// If a parameter has no tensor or a tensor of another shape, or if there are other tensors.
pub(crate) fn assigned<'a, S: AsRef<str>>(
    path: &Path,
    tensors: impl IntoIterator<Item = (String, Vec<usize>)>,
    parameters: &'a [Parameter],
    prefixes: &[S],
) -> Result<HashMap<String, (usize, &'a Parameter)>, CheckpointError> {
    let path = path.to_owned();
    let mut left: HashMap<String, Vec<usize>> = tensors.into_iter().collect();
    let mut wanted = HashMap::new();
    for (number, prefix) in prefixes.iter().enumerate() {
        for parameter in parameters {
            let name = format!("{}{}", prefix.as_ref(), parameter.name());
            let expected = parameter.shape().to_vec();
            match left.remove(&name) {
                Some(shape) if shape == expected => wanted.insert(name, (number, parameter)),
                Some(got) => return Err(CheckpointError::Shape { path, name, expected, got }),
                None => return Err(CheckpointError::MissingTensor { path, name, expected }),
            };
        }
    }
    // The first by name is reported, because the order of a hash map is not fixed.
    match left.into_iter().min() {
        Some((name, got)) => Err(CheckpointError::UnexpectedTensor { path, name, got }),
        None => Ok(wanted),
    }
}

/// Safetensors file that is read tensor by tensor, so that memory never holds more than one tensor.
pub(crate) struct Reader {
    path: PathBuf,
    file: File,
    /// Names and shapes in the order of their values in the file. Scales of int8 values are not
    /// separate entries.
    tensors: Vec<(String, Vec<usize>)>,
    /// All parts of the file, in its order.
    stored: Vec<Stored>,
}

/// Part of a tensor in a file.
enum Stored {
    /// Values in f32.
    Float { name: String, shape: Vec<usize> },
    /// Scale of each row of an int8 tensor, by the tensor's name.
    Scales { of: String, count: usize },
    /// Values in int8, after their scales.
    Int8 { name: String, shape: [usize; 2] },
}

/// Suffix of the name of an int8 tensor's scales.
pub(super) const SCALES: &str = ".scales";

impl Reader {
    /// Reads the head of `file`, whose position is at its beginning.
    pub(crate) fn new(path: &Path, mut file: File) -> Result<Self, CheckpointError> {
        let corrupt = |reason: String| CheckpointError::Corrupt { path: path.to_owned(), reason };
        let bytes = file.metadata().map_err(failed("read", path))?.len();
        let mut head = [0; HEAD as usize];
        file.read_exact(&mut head).map_err(failed("read", path))?;
        let length = u64::from_le_bytes(head);
        let Some(data) = bytes.checked_sub(HEAD).and_then(|rest| rest.checked_sub(length)) else {
            return Err(corrupt(format!(
                "its header should have {length} bytes, the whole file has {bytes}"
            )));
        };
        let mut header = Vec::new();
        file.by_ref().take(length).read_to_end(&mut header).map_err(failed("read", path))?;
        // Offsets and sizes are verified by parsing.
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

    /// Whether there is a tensor whose name begins with `prefix`.
    pub(crate) fn has(&self, prefix: &str) -> bool {
        self.tensors.iter().any(|(name, _)| name.starts_with(prefix))
    }

    /// All tensors, by name in ascending order.
    pub(crate) fn all(self) -> Result<Vec<Named>, CheckpointError> {
        let mut all = Vec::with_capacity(self.tensors.len());
        self.each(&mut |tensor| {
            all.push(tensor);
            Ok(())
        })?;
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// Tensors of each prefix, joined in the layout of the store.
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

    /// Passes the values of every parameter to `take`, once for each prefix of its name, with the
    /// index of the prefix.
    ///
    /// Nothing is passed if the file lacks a parameter, has one of another shape, or has other
    /// tensors. If values are not finite, the tensors before them are passed.
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

    /// Refuses a file that does not have exactly the tensors of these parameters.
    pub(crate) fn require(&self, parameters: &[Parameter]) -> Result<(), CheckpointError> {
        assigned(&self.path, self.tensors.iter().cloned(), parameters, &[""]).map(|_| ())
    }

    /// Sets these parameters to the tensors of the file, which must match them. Values in f32 on
    /// the host are read directly to their final place: a copy would take as long as the reading.
    ///
    /// If values are not finite, the tensors before them are still set.
    pub(crate) fn load(self, parameters: &[Parameter]) -> Result<(), CheckpointError> {
        let path = self.path.clone();
        let wanted = assigned(&path, self.tensors.iter().cloned(), parameters, &[""])?;
        let refused = |source| CheckpointError::Tensor { path: path.clone(), source };
        let read = &mut |name: &str, file: &mut File| {
            let Some((_, parameter)) = wanted.get(name) else { return Ok(false) };
            let filled = parameter.fill(|values| read_into(file, values)).map_err(refused)?;
            let Some(is_finite) = filled.transpose().map_err(failed("read", &path))? else {
                return Ok(false);
            };
            require_finite(&path, name, is_finite)?;
            Ok(true)
        };
        self.each_else(read, &mut |Named { name, values, .. }| match wanted.get(&name) {
            Some((_, parameter)) => parameter.set(values).map_err(refused),
            None => Ok(()),
        })
    }

    /// Passes every tensor to `take`, in the order of the file, up to a tensor that is not finite.
    pub(crate) fn each(
        self,
        take: &mut dyn FnMut(Named) -> Result<(), CheckpointError>,
    ) -> Result<(), CheckpointError> {
        self.each_else(&mut |_, _| Ok(false), take)
    }

    /// Passes every tensor to `take`, like [`Self::each`], except the tensors in f32 that `read`
    /// reads from the file itself.
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
                            "tensor '{name}' has not the values, or not the scales in \
                             '{name}{SCALES}', that rounding to int8 gives"
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

/// Bytes before the header of a safetensors file: its length.
const HEAD: u64 = 8;
/// Number of values that are read at once.
const PIECE: usize = 1 << 14;

/// Values in the byte order of files.
fn little_endian(values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; size_of_val(values)];
    for (bytes, value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
        *bytes = value.to_le_bytes();
    }
    bytes
}

/// Reads the values of the tensor `name`, which must be finite.
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

/// Reads little-endian values, and returns whether all are finite.
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
