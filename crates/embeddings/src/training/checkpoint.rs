//! Training on disk: a folder with the settings, the vocabulary and the state of training.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use sha2::{Digest, Sha256};
use taper_data::{hexadecimal, write_whole};

use super::TrainingSettings;
use super::blocks::{BLOCKS, Blocks};
use super::corpus::Place;
use super::vocabulary::Counted;
use crate::lanes::{LANES, Lanes};
use crate::{Error, Format, Result};

/// File with the settings of the training.
pub(super) const RECORD: &str = "embeddings.json";
/// File with the words and their counts.
pub(super) const VOCABULARY: &str = "vocabulary.txt";
/// File with the state of an unfinished training; it is removed when training is complete.
pub(super) const CHECKPOINT: &str = "checkpoint.safetensors";
/// Largest number of bytes of a record, and of the header of a checkpoint.
const MOST_BYTES: u64 = 1 << 20;

/// Record of a training: its settings, its text and its vocabulary. These must be the same when the
/// training is resumed.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct Record {
    /// Version of the layout of the record's file.
    pub(super) format: u32,
    pub(super) settings: TrainingSettings,
    pub(super) files: Vec<PathBuf>,
    pub(super) text: Counted,
    /// SHA-256 of the vocabulary's file.
    pub(super) vocabulary: String,
    pub(super) output: Format,
}

/// Version of the layout of a record that this program writes, and the only version that it reads.
pub(super) const FORMAT: u32 = 1;

/// Position of training in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Position {
    pub(super) epoch: u64,
    /// Number of completed chunks of the epoch.
    pub(super) chunk: u64,
    /// Number of words of the epoch read so far.
    pub(super) words: u64,
    pub(super) place: Place,
}

impl Record {
    /// Reads the record of a folder.
    ///
    /// # Errors
    /// When the folder has no record, or an invalid one.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(RECORD);
        let bytes = taper_data::read_regular(&path, MOST_BYTES).map_err(Error::io(&path))?;
        let record: Self = serde_json::from_slice(&bytes)
            .map_err(|error| Error::malformed(&path, "", error.to_string()))?;
        if record.format != FORMAT {
            let message = format!(
                "it is of layout {}, and this program reads {FORMAT}: use the program that wrote it",
                record.format
            );
            return Err(Error::malformed(&path, "", message));
        }
        record.settings.check()?;
        if record.files.is_empty() {
            return Err(Error::malformed(&path, "", "it names no file of text"));
        }
        Ok(record)
    }

    /// Writes the record to a folder.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(RECORD);
        let bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::malformed(&path, "", error.to_string()))?;
        Ok(write_whole(&path, |out| out.write_all(&bytes).and_then(|()| out.write_all(b"\n")))?)
    }
}

/// Names of the tensors in a checkpoint, in the order in which they are stored. Each tensor is a
/// block of one of the two matrices.
fn names() -> impl Iterator<Item = String> {
    ["inputs", "outputs"]
        .into_iter()
        .flat_map(|name| (0..BLOCKS).map(move |block| format!("{name}.{block:02}")))
}

/// Writes a checkpoint, block after block. It is a safetensors file that appears only when it is
/// complete.
pub(super) fn save(path: &Path, matrices: [&Blocks; 2], position: Position) -> Result<()> {
    let mut infos = Vec::new();
    let (mut end, mut hash) = (0, Sha256::new());
    let all = || matrices.iter().flat_map(|matrix| matrix.blocks.iter());
    for (name, block) in names().zip(all()) {
        let start = end;
        end += size_of_val(block.as_slice());
        let (dtype, shape) =
            (Dtype::F32, vec![block.len() / matrices[0].groups, matrices[0].groups * LANES]);
        infos.push((name, TensorInfo { dtype, shape, data_offsets: (start, end) }));
        hash.update(bytes_of(block));
    }
    let broken = |error: &dyn std::fmt::Display| Error::malformed(path, "", error.to_string());
    let about = HashMap::from([
        ("position".to_owned(), serde_json::to_string(&position).map_err(|error| broken(&error))?),
        ("sha256".to_owned(), hexadecimal(&hash.finalize())),
    ]);
    let head = Metadata::new(Some(about), infos).map_err(|error| broken(&error))?;
    let head = serde_json::to_vec(&head).map_err(|error| broken(&error))?;
    // Tensors begin at a multiple of eight bytes.
    let filling = head.len().next_multiple_of(8) - head.len();
    Ok(write_whole(path, |out| {
        out.write_all(&((head.len() + filling) as u64).to_le_bytes())?;
        out.write_all(&head)?;
        out.write_all(&b"        "[..filling])?;
        all().try_for_each(|block| out.write_all(&bytes_of(block)))
    })?)
}

/// Returns the numbers of a block as little-endian bytes.
fn bytes_of(block: &[Lanes]) -> Vec<u8> {
    block.iter().flat_map(|group| group.0).flat_map(f32::to_le_bytes).collect()
}

/// Reads a checkpoint into `matrices`, which must have the shape of the saved matrices. Returns the
/// position of training.
///
/// # Errors
/// When the file is damaged, or is the checkpoint of another vocabulary or other settings.
pub(super) fn load(path: &Path, matrices: [&mut Blocks; 2]) -> Result<Position> {
    let broken =
        |message: &str| Error::malformed(path, "", format!("{message}; remove it to begin again"));
    let mut file = File::open(path).map_err(Error::io(path))?;
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(|_| broken("it ends early"))?;
    let length = u64::from_le_bytes(length);
    if length > MOST_BYTES {
        return Err(broken("its head is too long for a checkpoint"));
    }
    file.seek(SeekFrom::Start(0)).map_err(Error::io(path))?;
    let mut head = Vec::new();
    (&file).take(8 + length).read_to_end(&mut head).map_err(Error::io(path))?;
    let head = head.get(8..).unwrap_or_default();
    let head: Metadata =
        serde_json::from_slice(head).map_err(|error| broken(&error.to_string()))?;
    let about = head.metadata().clone().unwrap_or_default();
    let position = about.get("position").and_then(|text| serde_json::from_str(text).ok());
    let position = position.ok_or_else(|| broken("its head has no position"))?;
    let mut hash = Sha256::new();
    let blocks = matrices.into_iter().flat_map(|matrix| matrix.blocks.iter_mut());
    for (name, block) in names().zip(blocks) {
        let size = size_of_val(block.as_slice());
        let info = head.info(&name).ok_or_else(|| broken("it lacks a block"))?;
        if info.dtype != Dtype::F32
            || info.data_offsets.0.checked_add(size) != Some(info.data_offsets.1)
        {
            return Err(broken("it is of another vocabulary or other settings"));
        }
        let start = 8 + length + info.data_offsets.0 as u64;
        file.seek(SeekFrom::Start(start)).map_err(Error::io(path))?;
        let mut bytes = vec![0; size];
        file.read_exact(&mut bytes).map_err(|_| broken("it ends early"))?;
        hash.update(&bytes);
        let (quads, _) = bytes.as_chunks::<4>();
        for (lane, bytes) in block.iter_mut().flat_map(|group| &mut group.0).zip(quads) {
            *lane = f32::from_le_bytes(*bytes);
        }
    }
    if about.get("sha256") != Some(&hexadecimal(&hash.finalize())) {
        return Err(broken("its numbers are not those that were saved"));
    }
    Ok(position)
}
