//! Weights in files that are mapped into memory instead of being read.

use std::fs::File;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// A file that is mapped into memory. The system reads a page of it when it is first used, and may
/// share this page with other processes.
#[derive(Debug)]
pub struct MappedFile {
    #[cfg(unix)]
    map: memmap2::Mmap,
}

impl MappedFile {
    /// Maps a file; `None` if the system cannot, or the project does not on this system: on
    /// Windows, a mapped file could be neither replaced nor deleted.
    ///
    /// The file must not be changed in place while it is mapped: the values would change, too, and
    /// if it became shorter, the system would end the process. This is why Taper maps only files of
    /// checkpoints, which are replaced by renaming.
    #[cfg(unix)]
    #[must_use]
    pub fn new(file: &File) -> Option<Arc<Self>> {
        // SAFETY: the memory is only read, as numbers, for which any bits are valid.
        unsafe { memmap2::Mmap::map(file) }.ok().map(|map| Arc::new(Self { map }))
    }

    /// Returns `None`; see above.
    #[cfg(not(unix))]
    #[must_use]
    pub fn new(_: &File) -> Option<Arc<Self>> {
        None
    }

    /// Returns the bytes of the whole file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        #[cfg(unix)]
        return &self.map;
        #[cfg(not(unix))]
        &[]
    }

    /// Returns the f32 values at a range of bytes; `None` if they cannot be used where they are,
    /// because the range is not within the file, its address or length is not a multiple of four,
    /// or the processor is big-endian.
    #[must_use]
    pub fn values(self: &Arc<Self>, range: Range<usize>) -> Option<MappedValues> {
        let bytes = self.bytes().get(range.clone())?;
        let is_usable =
            cfg!(target_endian = "little") && bytemuck::try_cast_slice::<u8, f32>(bytes).is_ok();
        is_usable.then(|| MappedValues { file: self.clone(), range })
    }
}

/// Values in a mapped file.
#[derive(Debug, Clone)]
pub struct MappedValues {
    file: Arc<MappedFile>,
    /// Bytes of the values, which [`MappedFile::values`] has checked.
    range: Range<usize>,
}

impl MappedValues {
    /// Takes the pages of these values out of the process's memory. They are mapped again if they
    /// are used again.
    pub(crate) fn release(&self) {
        #[cfg(target_os = "linux")]
        {
            let (start, length) = (self.range.start, self.range.len());
            // If this fails, the process only uses more memory.
            // SAFETY: the pages of a file that was mapped for reading have no other content than
            // the file, from which they are mapped again.
            let _ = unsafe {
                self.file.map.unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    start,
                    length,
                )
            };
        }
    }
}

impl Deref for MappedValues {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        bytemuck::cast_slice(&self.file.bytes()[self.range.clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[cfg(unix)]
    #[test]
    fn values_are_those_of_the_file_where_they_can_be_read_in_place() {
        let path = std::env::temp_dir().join(format!("taper-mapped-{}", std::process::id()));
        let values: Vec<f32> = (0..5000).map(|i| i as f32 * 0.25 - 3.0).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        File::create(&path).and_then(|mut file| file.write_all(&bytes)).unwrap();
        let file = MappedFile::new(&File::open(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.bytes(), bytes);
        let mapped = file.values(4..16_008).unwrap();
        assert_eq!(*mapped, values[1..4002]);
        mapped.release();
        assert_eq!(*mapped, values[1..4002]);
        for unusable in [1..5, 4..7, 0..20_004] {
            assert!(file.values(unusable.clone()).is_none(), "{unusable:?}");
        }
    }
}
