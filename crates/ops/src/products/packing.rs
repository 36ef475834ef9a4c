//! How a kernel wants its operands packed, and what multiplies packed panels.

use super::operand::{DEPTH, Line, Operand, PANEL, Results};
use super::{Kernel, Products};

/// How operands are packed: for which kernel, and how their values are rounded.
///
/// There are two layouts. For the bf16 kernels a step of a panel is one or three parts of two
/// [tiles](super::tile). For kernels of f32 multiply-adds it is `DEPTH` lines of `PANEL` values, of
/// either operand: those of all rows or columns at one place of the summed dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packing {
    kernel: Kernel,
    products: Products,
}

/// Lines of one panel at one step, in one part of bf16 values.
const BF16_LINES: usize = size_of::<[u16; PANEL * DEPTH]>() / size_of::<Line>();
/// The same in f32.
const F32_LINES: usize = 2 * BF16_LINES;
/// Bytes of a panel that stay in the first-level cache while rows pass by.
const CACHED: usize = 32 * 1024;

impl Packing {
    /// That of the fastest kernel for such products here; none where this does not pack.
    pub(crate) fn best(products: Products) -> Option<Self> {
        Self::of(Kernel::best(products), products)
    }

    /// Whether a product costs less than to keep its result in memory and read it again: by the
    /// instructions for bf16.
    pub(crate) fn is_cheaper_than_memory(self) -> bool {
        self.is_bf16()
    }

    /// None where the kernel does not serve, or does not pack.
    pub(crate) fn of(kernel: Kernel, products: Products) -> Option<Self> {
        (kernel != Kernel::Gemm && kernel.serves(products)).then_some(Self { kernel, products })
    }

    /// bf16 parts of a value.
    fn parts(self) -> usize {
        if self.products == Products::Bf16 { 1 } else { 3 }
    }

    fn is_bf16(self) -> bool {
        matches!(self.kernel, Kernel::Tiles | Kernel::Dots)
    }

    /// Lines of one panel at one step.
    pub(super) fn step_lines(self) -> usize {
        if self.is_bf16() { self.parts() * BF16_LINES } else { F32_LINES }
    }

    /// Steps of a block: as many as fit the first-level cache in one part.
    pub(super) fn block_steps(self) -> usize {
        let lines = if self.is_bf16() { BF16_LINES } else { F32_LINES };
        CACHED / (lines * size_of::<Line>())
    }

    /// Packs one step of one panel. What lies outside the operand is zero.
    pub(super) fn pack_step(
        self,
        operand: &Operand<'_>,
        panel: usize,
        step: usize,
        lines: &mut [Line],
    ) {
        assert!(operand.is_in_bounds() && operand.is_packable());
        assert!(panel < operand.panels() && step < operand.steps());
        assert!(lines.len() == self.step_lines());
        let round = self.products == Products::Bf16;
        // SAFETY: a packing exists for kernels that serve here alone, so the processor has their
        // instructions; the assertions are the functions' other preconditions.
        unsafe {
            match self.kernel {
                #[cfg(target_arch = "x86_64")]
                Kernel::Tiles | Kernel::Dots => {
                    super::tile::pack_step(operand, panel, step, self.parts(), lines)
                }
                #[cfg(target_arch = "x86_64")]
                Kernel::Fma512 => super::fma::avx512::pack_step(operand, panel, step, round, lines),
                #[cfg(target_arch = "x86_64")]
                Kernel::Fma256 => super::fma::avx2::pack_step(operand, panel, step, round, lines),
                #[cfg(target_arch = "aarch64")]
                Kernel::Neon => super::fma::neon::pack_step(operand, panel, step, round, lines),
                other => unreachable!("{other:?} does not pack"),
            }
        }
    }
}

/// A kernel made ready on this thread.
pub(super) enum Multiply {
    #[cfg(target_arch = "x86_64")]
    Tiles(super::amx::Tiles, usize),
    #[cfg(target_arch = "x86_64")]
    Dots,
    Fma(super::fma::Multiply),
}

impl Multiply {
    pub(super) fn new(packing: Packing) -> Self {
        match packing.kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Tiles => Self::Tiles(super::amx::Tiles::configure(), packing.parts()),
            #[cfg(target_arch = "x86_64")]
            Kernel::Dots => Self::Dots,
            #[cfg(target_arch = "x86_64")]
            Kernel::Fma512 => Self::Fma(super::fma::avx512::multiply),
            #[cfg(target_arch = "x86_64")]
            Kernel::Fma256 => Self::Fma(super::fma::avx2::multiply),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => Self::Fma(super::fma::neon::multiply),
            other => unreachable!("{other:?} does not pack"),
        }
    }

    /// `results ← [results +] left · right`, of one panel each, packed as the kernel wants it.
    ///
    /// # Safety
    /// As the kernels': lines of `steps` steps, and a destination of 32 rows of 32 values.
    pub(super) unsafe fn run(&self, left: &[Line], right: &[Line], steps: usize, to: Results) {
        let (left, right) = (left.as_ptr(), right.as_ptr());
        // SAFETY: the caller's promise; a packing exists for kernels that serve here alone.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Self::Tiles(tiles, parts) => tiles.multiply(left, right, steps, *parts, to),
                #[cfg(target_arch = "x86_64")]
                Self::Dots => super::dot::multiply(left, right, steps, to),
                Self::Fma(multiply) => multiply(left.cast(), right.cast(), steps * DEPTH, to),
            }
        }
    }
}
