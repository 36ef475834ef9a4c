//! Weights of a model folder: one file, or several with an index. When they are opened, only the
//! headers of the files are read. Values are read when they are needed, tensor by tensor, so that
//! only one tensor is in memory at a time.

mod model_bin;
mod pickle;
mod pieces;
mod safetensors;
mod stored;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use taper_data::{hexadecimal, not_a_file, read_regular};

use super::json::without_mark;
use super::{CONFIG, MOST_BYTES, WEIGHTS};
pub(super) use model_bin::{Attribute, MODEL_BIN, ModelBin};
use pieces::Pieces;
use safetensors::{Unique, heads};
use stored::Stored;

/// Names of the file with the weights or of an index, in the order of the search. If weights are
/// divided among several files, an index lists these.
const FILES: [&str; 4] =
    [WEIGHTS, "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"];
/// Ending of the file name of an index.
const INDEX: &str = ".index.json";
/// Ending of the name of a file that PyTorch has saved, as a pickle.
const PICKLED: &str = ".bin";

/// Tensors of a folder. Their values are still in the files.
#[derive(Debug)]
pub(super) struct Weights {
    /// Path of the file with the weights, or of the index.
    path: PathBuf,
    files: Vec<(PathBuf, File)>,
    /// Tensors by name, each with the index of its file in `files`.
    tensors: BTreeMap<String, (usize, Stored)>,
    /// Name of the file that determines which shapes the tensors must have, for errors.
    described_by: &'static str,
}

impl Weights {
    /// Opens the files of the folder `source`, and reads their headers.
    ///
    /// # Errors
    /// When the folder has no weights, a file is missing or damaged, a tensor is in two files, or
    /// it is not in the file that the index names.
    pub(super) fn open(source: &Path) -> Result<Self> {
        let Some(path) = FILES.map(|name| source.join(name)).into_iter().find(|path| path.exists())
        else {
            bail!(
                "{}: cannot read its weights: there is no {}; Transformers' save_pretrained writes \
                 the first",
                source.display(),
                FILES.join(", ")
            );
        };
        let (files, tensors) = (Vec::new(), BTreeMap::new());
        let mut weights = Self { path: path.clone(), files, tensors, described_by: CONFIG };
        if !path.to_string_lossy().ends_with(INDEX) {
            weights.add(path)?;
            return Ok(weights);
        }
        let map = weight_map(&path)?;
        let shown = || path.display().to_string();
        let mut names: Vec<&String> = map.iter().map(|(_, file)| file).collect();
        names.sort();
        names.dedup();
        for file in names {
            let (tensor, _) =
                map.iter().find(|(_, tensor_file)| tensor_file == file).expect("it is of the map");
            let shard = within(source, file)
                .with_context(|| format!("weight_map.{tensor:?} is {file:?}"))
                .with_context(shown)?;
            weights.add(shard)?;
        }
        for (tensor, file) in &map {
            let file_of_tensor =
                weights.tensors.get(tensor).map(|&(number, _)| &weights.files[number].0);
            if file_of_tensor.is_none_or(|file_of_tensor| *file_of_tensor != source.join(file)) {
                bail!("{}: weight_map says that {tensor} is in {file}, but it is not", shown());
            }
        }
        Ok(weights)
    }

    /// Whether the folder `source` has weights in a format of the library Transformers.
    pub(super) fn are_in(source: &Path) -> bool {
        FILES.iter().any(|name| source.join(name).exists())
    }

    /// Opens the `model.bin` of a folder of CTranslate2; slashes in the names of its variables
    /// become dots.
    ///
    /// # Errors
    /// When the file is missing or damaged.
    pub(super) fn open_model_bin(source: &Path) -> Result<(Self, ModelBin)> {
        let path = source.join(MODEL_BIN);
        if let Some(problem) = not_a_file(&path) {
            bail!("{}: {problem}, but a file of weights is expected", path.display());
        }
        let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let read = model_bin::read(&file).with_context(|| path.display().to_string())?;
        let (described, stored) = read;
        let tensors = stored.into_iter().map(|(name, stored)| (name, (0, stored))).collect();
        let files = vec![(path.clone(), file)];
        Ok((Self { path, files, tensors, described_by: MODEL_BIN }, described))
    }

    /// If there is a tensor `name`, appends a row to it. All elements of the row are `value`.
    pub(super) fn append_row(&mut self, name: &str, value: f32) {
        let Some((_, stored)) = self.tensors.get_mut(name) else { return };
        let [rows, columns @ ..] = stored.shape.as_mut_slice() else { return };
        *rows += 1;
        let row = vec![value; columns.iter().product()];
        stored.appended.extend(row);
    }

    /// Adds a tensor that is in no file: a vector with these values.
    pub(super) fn add_vector(&mut self, name: &str, values: Vec<f32>) {
        let shape = vec![values.len()];
        let stored = Stored { appended: values, ..Stored::new("F32".to_owned(), shape, 0) };
        self.tensors.insert(name.to_owned(), (0, stored));
    }

    /// Type of a tensor, as the format safetensors calls it, such as `F32`; `None` if there is no
    /// such tensor.
    pub(super) fn dtype(&self, name: &str) -> Option<&str> {
        self.tensors.get(name).map(|(_, stored)| stored.dtype.as_str())
    }

    /// Name of the file that determines which shapes the tensors must have.
    pub(super) fn described_by(&self) -> &'static str {
        self.described_by
    }

    /// Opens the file of weights at `path`, and adds its tensors.
    fn add(&mut self, path: PathBuf) -> Result<()> {
        let shown = || path.display().to_string();
        if let Some(problem) = not_a_file(&path) {
            bail!("{}: {problem}, but a file of weights is expected", path.display());
        }
        let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let stored = match path.to_string_lossy().ends_with(PICKLED) {
            true => pickle::heads(&file),
            false => heads(&file),
        };
        let number = self.files.len();
        for (name, stored) in stored.with_context(shown)? {
            if let Some((other, _)) = self.tensors.get(&name) {
                let other = if *other == number { &path } else { &self.files[*other].0 };
                bail!("{}: has a tensor {name}, which {} has too", shown(), other.display());
            }
            self.tensors.insert(name, (number, stored));
        }
        self.files.push((path, file));
        Ok(())
    }

    /// Gives each tensor the name that `renamed` returns for its name.
    ///
    /// # Errors
    /// When two tensors get the same name.
    pub(super) fn rename(&mut self, renamed: impl Fn(&str) -> String) -> Result<()> {
        for (name, stored) in std::mem::take(&mut self.tensors) {
            let whole = renamed(&name);
            if let Some((number, _)) = self.tensors.insert(whole.clone(), stored) {
                let path = self.files[number].0.display();
                bail!("{path}: has two tensors that are {whole}, one of them as {name}");
            }
        }
        Ok(())
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Shape of a tensor; `None` if there is no such tensor.
    pub(super) fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|(_, stored)| stored.shape.as_slice())
    }

    /// Whether there is a tensor of this name whose type can be read as weights.
    pub(super) fn is_float(&self, name: &str) -> bool {
        self.tensors.get(name).is_some_and(|(_, stored)| stored.width().is_some())
    }

    /// Path of the file with a tensor, for errors; if there is no such tensor, the path of the
    /// weights or of their index.
    pub(super) fn path_of(&self, name: &str) -> String {
        let number = self.tensors.get(name).map(|&(number, _)| number);
        number.map_or(&self.path, |number| &self.files[number].0).display().to_string()
    }

    /// Checks that there is a tensor of this name with the shape `expected` and a type that can be
    /// read as weights.
    ///
    /// # Errors
    /// When this is not the case; the message names the tensor.
    pub(super) fn require(&self, name: &str, expected: &[usize]) -> Result<()> {
        let Some((_, stored)) = self.tensors.get(name) else {
            bail!("has no tensor {name}, which {} asks for", self.described_by);
        };
        if stored.shape != expected {
            bail!(
                "tensor {name} has shape {:?}, but {} asks for {expected:?}",
                stored.shape,
                self.described_by
            );
        }
        if stored.width().is_none() {
            bail!(
                "tensor {name} has type {}: weights are read in F32, F16, BF16 and F64",
                stored.dtype
            );
        }
        Ok(())
    }

    /// Values of a tensor, converted to f32.
    ///
    /// # Errors
    /// When the tensor cannot be read, or a value is not finite.
    pub(super) fn values(&self, name: &str) -> Result<Vec<f32>> {
        let mut values = Vec::new();
        let mut pieces = self.pieces(name)?;
        values.reserve_exact(pieces.remaining());
        while pieces.next(&mut values)? {}
        if !taper_ops::all_finite(&values) {
            bail!(
                "tensor {name} has a value that is NaN or infinite, with which nothing can be computed"
            );
        }
        Ok(values)
    }

    /// Whether two tensors have the same shape and values.
    ///
    /// # Errors
    /// When a tensor cannot be read.
    pub(super) fn are_equal(&self, one: &str, other: &str) -> Result<bool> {
        if self.shape(one) != self.shape(other) {
            return Ok(false);
        }
        if self.tensors.get(one) == self.tensors.get(other) {
            return Ok(true);
        }
        let (mut one, mut other) = (self.pieces(one)?, self.pieces(other)?);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        while one.next(&mut left)? && other.next(&mut right)? {
            if left != right {
                return Ok(false);
            }
            left.clear();
            right.clear();
        }
        Ok(true)
    }

    fn pieces(&self, name: &str) -> Result<Pieces<'_>> {
        let (number, stored) =
            self.tensors.get(name).with_context(|| format!("has no tensor {name}"))?;
        Pieces::new(&self.files[*number].1, stored)
    }

    /// SHA-256 of the file with the weights in hexadecimal. For several files, it is the SHA-256 of
    /// the list of their hashes and names that the command `sha256sum` would print.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn sha256(&self) -> Result<String> {
        let mut list = String::new();
        for (path, _) in &self.files {
            // Opens the file again, because tensors may be read from the open one at the same time.
            let hash = File::open(path).and_then(sha256_of);
            let hash = hash.with_context(|| format!("cannot read {}", path.display()))?;
            if self.files.len() == 1 {
                return Ok(hash);
            }
            let name = path.file_name().unwrap_or_default().display();
            list.push_str(&format!("{hash}  {name}\n"));
        }
        Ok(hexadecimal(&Sha256::digest(list)))
    }
}

fn sha256_of(mut file: File) -> std::io::Result<String> {
    let (mut hash, mut piece) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hexadecimal(&hash.finalize())),
            count => hash.update(&piece[..count]),
        }
    }
}

/// Reads the index at `path`. Returns the name of each tensor and the name of its file.
fn weight_map(path: &Path) -> Result<Vec<(String, String)>> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: Unique<Value>,
    }
    let shown = || path.display().to_string();
    let bytes = read_regular(path, MOST_BYTES)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let index: Index = serde_json::from_slice(without_mark(&bytes))
        .context("not an index of weights: weight_map names the file of each tensor")
        .with_context(shown)?;
    let named = |(tensor, file): (String, Value)| match file {
        Value::String(file) => Ok((tensor, file)),
        other => bail!("{}: weight_map.{tensor:?} is {other}, expected a file", shown()),
    };
    let map: Vec<_> = index.weight_map.0.into_iter().map(named).collect::<Result<_>>()?;
    if map.is_empty() {
        bail!("{}: weight_map is empty", path.display());
    }
    Ok(map)
}

/// Path of the file `name`, which an index in `folder` names. The path must not lead out of the
/// folder. The only exceptions are links from a snapshot in the cache of the Hugging Face hub to
/// the folder `blobs` of the same cache.
fn within(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if name.is_empty() || name.contains('\\') || !Path::new(name).components().all(is_plain) {
        bail!("this leads out of the folder: expected the name of a file in it");
    }
    if !path.exists() {
        bail!("there is no such file");
    }
    let (real, home) = (path.canonicalize()?, folder.canonicalize()?);
    let snapshots = home.parent().filter(|parent| parent.ends_with("snapshots"));
    let blobs = snapshots.and_then(Path::parent).map(|cache| cache.join("blobs"));
    if !real.starts_with(&home) && !blobs.is_some_and(|blobs| real.starts_with(blobs)) {
        bail!("a link leads out of the folder, to {}", real.display());
    }
    Ok(path)
}
