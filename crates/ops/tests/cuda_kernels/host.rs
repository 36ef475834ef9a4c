//! CUDA kernels that are compiled for the host, and memory for them.

use candle_core::{DType, Device, Tensor};
use half::{bf16, f16};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;
use std::process::Command;

/// Number of threads in a block, as in `cuda/launch.rs`.
pub(crate) const THREADS: usize = 256;

type RunKernel = unsafe extern "C" fn(
    *const i8,
    *const [u32; 3],
    *const [u32; 3],
    *const *const c_void,
) -> c_int;

/// The kernels, loaded into this process as a library.
pub(crate) struct Library {
    run_kernel: RunKernel,
}

impl Library {
    /// Compiles the same source that is compiled for a GPU.
    pub(crate) fn build() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda_kernels.so");
        let script = root.join("scripts/check/host_gpu/build.sh");
        let source = root.join("crates/ops/src/cuda/kernels/kernels.cu");
        let output = Command::new(script).arg(&library).arg(source).output().expect("a shell");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let library = CString::new(library.to_str().expect("a name")).expect("a name");
        // SAFETY: the names end with a zero byte. The library stays open, and its function has this
        // type, as `threads.cpp` shows.
        unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
            assert!(!handle.is_null(), "{:?}", CStr::from_ptr(libc::dlerror()));
            let symbol = libc::dlsym(handle, c"run_kernel".as_ptr());
            assert!(!symbol.is_null(), "the library has no function `run_kernel`");
            Self { run_kernel: std::mem::transmute::<*mut c_void, RunKernel>(symbol) }
        }
    }

    /// Runs a kernel on a grid of blocks.
    pub(crate) fn launch(&self, name: &str, grid: (usize, usize), arguments: &[Argument<'_>]) {
        assert!(grid.1 < 1 << 16, "{name}: CUDA cannot launch a grid of {grid:?} blocks");
        let words: Vec<u64> = arguments.iter().map(Argument::word).collect();
        let addresses: Vec<_> = words.iter().map(|word| std::ptr::from_ref(word).cast()).collect();
        let grid = [grid.0 as u32, grid.1 as u32, 1];
        let size = [THREADS as u32, 1, 1];
        let label = CString::new(name).expect("a name");
        // SAFETY: the tests pass the arrays that each kernel requires; writes outside of them are
        // found in their margins.
        let status =
            unsafe { (self.run_kernel)(label.as_ptr().cast(), &grid, &size, addresses.as_ptr()) };
        assert_eq!(status, 0, "there is no kernel {name}");
    }
}

/// An argument of a kernel.
pub(crate) enum Argument<'a> {
    At(&'a Array),
    Null,
    Long(usize),
    Word(usize),
    Real(f64),
    Key(u64),
}

impl Argument<'_> {
    /// Returns a word whose low bytes are those of the argument.
    fn word(&self) -> u64 {
        match *self {
            Self::At(array) => array.first() as u64,
            Self::Null => 0,
            Self::Long(value) | Self::Word(value) => value as u64,
            Self::Real(value) => u64::from((value as f32).to_bits()),
            Self::Key(value) => value,
        }
    }
}

/// Memory for a kernel, between two margins that it must not write to.
pub(crate) struct Array {
    memory: Vec<Cell<u128>>,
    dtype: DType,
    /// Number of bytes before the first element.
    start: usize,
    count: usize,
}

const MARGIN: usize = 8;
const UNTOUCHED: u8 = 0xa5;

impl Array {
    /// Makes an array of `count` NaN values, whose first element is `shift` elements after an
    /// address that is a multiple of 16.
    pub(crate) fn empty(count: usize, dtype: DType, shift: usize) -> Self {
        let bytes = (count + shift) * dtype.size_in_bytes();
        let memory = vec![u128::from_le_bytes([UNTOUCHED; 16]); bytes.div_ceil(16) + 2 * MARGIN];
        let start = MARGIN * 16 + shift * dtype.size_in_bytes();
        let memory = memory.into_iter().map(Cell::new).collect();
        let array = Self { memory, dtype, start, count };
        array.fill(&vec![f64::NAN; count]);
        array
    }

    pub(crate) fn new(values: &[f64], dtype: DType, shift: usize) -> Self {
        let array = Self::empty(values.len(), dtype, shift);
        array.fill(values);
        array
    }

    fn first(&self) -> *mut u8 {
        // SAFETY: within the memory, whose cells allow writes through a shared reference.
        unsafe { self.memory.as_ptr().cast::<u8>().cast_mut().add(self.start) }
    }

    /// Returns the address of the first element, for a kernel that reads this address from another
    /// array.
    pub(crate) fn address(&self) -> u64 {
        self.first() as u64
    }

    fn fill(&self, values: &[f64]) {
        for (index, &value) in values.iter().enumerate() {
            // SAFETY: there is memory for `count` elements, aligned to the size of the type.
            unsafe {
                match self.dtype {
                    DType::F32 => self.first().cast::<f32>().add(index).write(value as f32),
                    DType::F16 => self.first().cast::<f16>().add(index).write(f16::from_f64(value)),
                    DType::BF16 => {
                        self.first().cast::<bf16>().add(index).write(bf16::from_f64(value));
                    }
                    _ => self.first().cast::<u32>().add(index).write(value as u32),
                }
            }
        }
    }

    /// Returns the elements; panics if the margins have been written to.
    pub(crate) fn values(&self) -> Vec<f64> {
        let size = self.count * self.dtype.size_in_bytes();
        for at in 0..self.memory.len() * 16 {
            // SAFETY: within the memory.
            let byte = unsafe { self.memory.as_ptr().cast::<u8>().add(at).read() };
            let is_margin = !(self.start..self.start + size).contains(&at);
            assert!(!is_margin || byte == UNTOUCHED, "byte {at} of {size} was written");
        }
        let value = |index: usize| {
            // SAFETY: as in `fill`.
            unsafe {
                match self.dtype {
                    DType::F32 => f64::from(self.first().cast::<f32>().add(index).read()),
                    DType::F16 => self.first().cast::<f16>().add(index).read().to_f64(),
                    DType::BF16 => self.first().cast::<bf16>().add(index).read().to_f64(),
                    _ => f64::from(self.first().cast::<u32>().add(index).read()),
                }
            }
        };
        (0..self.count).map(value).collect()
    }

    /// Returns the elements as a tensor in f64.
    pub(crate) fn tensor(&self, shape: &[usize]) -> Tensor {
        Tensor::from_vec(self.values(), shape, &Device::Cpu).expect("as many elements")
    }
}
