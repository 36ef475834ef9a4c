//! A file mapped into memory: the one place in this crate with `unsafe`.

use std::fs::File;
use std::io;
use std::ops::Deref;

/// The bytes of a file, read by the system as they are touched.
#[derive(Debug)]
pub(crate) struct Mapping(memmap2::Mmap);

impl Mapping {
    /// Maps the whole of `file`, which nothing may change while the mapping lives.
    #[expect(unsafe_code, reason = "mapping a file is unsafe because another process could change it")]
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the bytes must not change under the shared slice that `Mmap` gives out. Only cache
        // files are mapped. They are written under a temporary name, renamed into place and never
        // opened for writing again; a rebuilt cache is a new file under the old name, which leaves
        // the mapped one intact until it is dropped. No other code in the workspace writes into the
        // cache folder, and the format holds only integers and text that is checked, so that even a
        // foreign writer could not make an invalid value.
        unsafe { memmap2::Mmap::map(file) }.map(Self)
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
