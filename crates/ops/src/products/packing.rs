//! Packing: copying operands to the order in which a kernel reads them, and products of packed
//! panels. A panel is 32 rows of the left operand, or 32 columns of the right one. A step is 32
//! indices of the summed dimension.

use super::operand::{DEPTH, Line, Operand, PANEL, Results};
use super::{Kernel, Products, Threads};
use crate::profile::{even, region};
use crate::shared::Shared;
use rayon::prelude::*;
use std::ops::Range;

/// How operands are packed: for which kernel, and whether values are rounded.
///
/// There are two layouts. For bf16 kernels, a step of a panel has one or three parts (see
/// [`tile`](super::kernels::tile)), each of two tiles. For kernels of f32 multiply-adds, a step has
/// `DEPTH` lines of `PANEL` values. Each line belongs to one index of the summed dimension, and has
/// the values of all rows (left) or columns (right) of the panel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packing {
    kernel: Kernel,
    products: Products,
}

/// Number of cache lines of one step of a panel, for each bf16 part.
const BF16_LINES: usize = size_of::<[u16; PANEL * DEPTH]>() / size_of::<Line>();
/// Number of cache lines of one step of a panel, in f32.
const F32_LINES: usize = 2 * BF16_LINES;
impl Packing {
    /// Returns the packing of the fastest kernel for products of this type on this processor;
    /// `None` if that kernel does not pack.
    pub(crate) fn best(products: Products) -> Option<Self> {
        Self::for_kernel(Kernel::best(products), products)
    }

    /// Like [`Packing::best`], for products of only some panels at a time. Never returns a packing
    /// that splits values into three bf16 parts, because this would not pay for such products.
    pub(crate) fn best_for_panels(products: Products) -> Option<Self> {
        match (Kernel::best(products), products) {
            (Kernel::Tiles, Products::F32) => [Kernel::Fma512, Kernel::Fma256]
                .into_iter()
                .find_map(|kernel| Self::for_kernel(kernel, products)),
            (kernel, _) => Self::for_kernel(kernel, products),
        }
    }

    /// Whether recomputing a product takes less time than storing its result and reading it. It
    /// does on AMX, but not on AVX-512 BF16. This was measured for the logits of vocabularies of
    /// 10,000 to 200,000 tokens.
    pub(crate) fn is_cheaper_than_memory(self) -> bool {
        self.kernel == Kernel::Tiles
    }

    /// Returns the packing of a kernel; `None` if the kernel does not support the products, or does
    /// not pack.
    pub(crate) fn for_kernel(kernel: Kernel, products: Products) -> Option<Self> {
        (kernel != Kernel::Gemm && kernel.serves(products)).then_some(Self { kernel, products })
    }

    /// True if operands are rounded.
    #[cfg(test)]
    pub(crate) fn rounds(self) -> bool {
        self.products == Products::Bf16
    }

    /// Returns the number of bf16 parts into which a value is split.
    fn parts(self) -> usize {
        if self.products == Products::Bf16 { 1 } else { 3 }
    }

    /// True if the kernel's instructions multiply bf16 values.
    pub(crate) fn is_bf16(self) -> bool {
        matches!(self.kernel, Kernel::Tiles | Kernel::Dots)
    }

    /// Returns the size of a block, which is the part of the left operand that is packed at a time:
    /// its number of panels of rows, and its number of depth steps. No result depends on these
    /// numbers.
    ///
    /// With 16 steps, a panel of bf16 values in one part fits in the first-level cache. A panel of
    /// f32 values is twice as large, so it comes from the second-level cache. This is fast enough
    /// for multiply-adds of AVX-512. With fewer steps, results would be read and written more
    /// often, which costs more time. Eight panels take 256 KiB in bf16 with one part, and 512 KiB
    /// in f32.
    ///
    /// Processors without AVX-512 have a second-level cache of 256 or 512 KiB, half of which is
    /// available for the left operand. With blocks of a quarter of the size, products on two cores
    /// of a Zen 3 were a tenth faster. The kernel for these processors reads a panel of the right
    /// operand once for every three rows, so the panel must stay in a first-level cache of 32 KiB.
    /// With four steps, there are a quarter as many cache misses as with eight.
    pub(super) fn block(self) -> (usize, usize) {
        if self.kernel == Kernel::Fma256 { (8, 4) } else { (8, 16) }
    }

    /// Returns the number of cache lines of one step of a panel.
    pub(super) fn step_lines(self) -> usize {
        if self.is_bf16() { self.parts() * BF16_LINES } else { F32_LINES }
    }

    /// If an operand of one panel already lies in memory in the order of this packing, returns its
    /// lines; it need not be packed. Otherwise returns `None`. For example, an f32 tile of
    /// attention scores already has this order if it has a row for each index of the summed
    /// dimension.
    pub(super) fn lines_of<'a>(self, operand: &Operand<'a>) -> Option<&'a [Line]> {
        let Operand { values, offset, outer, inner, count, depth, .. } = *operand;
        let is_packed = !self.is_bf16()
            && self.products == Products::F32
            && (outer, inner) == (1, PANEL)
            && count <= PANEL
            && depth.is_multiple_of(DEPTH);
        let values = values.get(offset..offset + depth * PANEL).filter(|_| is_packed)?;
        // SAFETY: a line consists of numbers, for which any bits are valid.
        match unsafe { values.align_to::<Line>() } {
            ([], lines, []) => Some(lines),
            _ => None,
        }
    }

    /// Packs one step of one panel into `lines`. Values outside the operand are zero.
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
        // SAFETY: a packing exists only for kernels that this processor supports, so it has their
        // instructions; the assertions check the other requirements.
        unsafe {
            match self.kernel {
                #[cfg(target_arch = "x86_64")]
                Kernel::Tiles | Kernel::Dots => {
                    super::kernels::tile::pack_step(operand, panel, step, self.parts(), lines)
                }
                #[cfg(target_arch = "x86_64")]
                Kernel::Fma512 => {
                    super::kernels::fma::avx512::pack_step(operand, panel, step, round, lines)
                }
                #[cfg(target_arch = "x86_64")]
                Kernel::Fma256 => {
                    super::kernels::fma::avx2::pack_step(operand, panel, step, round, lines)
                }
                #[cfg(target_arch = "aarch64")]
                Kernel::Neon => {
                    super::kernels::fma::neon::pack_step(operand, panel, step, round, lines)
                }
                #[cfg(target_arch = "wasm32")]
                Kernel::Simd128 => {
                    super::kernels::fma::simd128::pack_step(operand, panel, step, round, lines)
                }
                other => unreachable!("{other:?} does not pack"),
            }
        }
    }
}

/// A kernel for packed operands, prepared on this thread.
pub(super) enum Multiply {
    #[cfg(target_arch = "x86_64")]
    Tiles(super::kernels::amx::Tiles, usize),
    #[cfg(target_arch = "x86_64")]
    Dots,
    Fma(super::kernels::fma::Multiply),
}

impl Multiply {
    pub(super) fn new(packing: Packing) -> Self {
        match packing.kernel {
            #[cfg(target_arch = "x86_64")]
            Kernel::Tiles => Self::Tiles(super::kernels::amx::Tiles::configure(), packing.parts()),
            #[cfg(target_arch = "x86_64")]
            Kernel::Dots => Self::Dots,
            #[cfg(target_arch = "x86_64")]
            Kernel::Fma512 => Self::Fma(super::kernels::fma::avx512::multiply),
            #[cfg(target_arch = "x86_64")]
            Kernel::Fma256 => Self::Fma(super::kernels::fma::avx2::multiply),
            #[cfg(target_arch = "aarch64")]
            Kernel::Neon => Self::Fma(super::kernels::fma::neon::multiply),
            #[cfg(target_arch = "wasm32")]
            Kernel::Simd128 => Self::Fma(super::kernels::fma::simd128::multiply),
            other => unreachable!("{other:?} does not pack"),
        }
    }

    /// Computes `left · right` for one panel of each operand, packed for this kernel. Depending on
    /// `to.add`, the product replaces the results or is added to them.
    ///
    /// # Safety
    /// The operands have the lines of `steps` steps, and the destination has 32 rows of 32 values.
    pub(super) unsafe fn run(&self, left: &[Line], right: &[Line], steps: usize, to: Results) {
        let (left, right) = (left.as_ptr(), right.as_ptr());
        // SAFETY: as the caller promises; a packing exists only for kernels that this processor
        // supports.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Self::Tiles(tiles, parts) => tiles.multiply(left, right, steps, *parts, to),
                #[cfg(target_arch = "x86_64")]
                Self::Dots => super::kernels::dot::multiply(left, right, steps, to),
                Self::Fma(multiply) => multiply(left.cast(), right.cast(), steps * DEPTH, to),
            }
        }
    }
}

/// Packs some depth steps of some panels into `lines`, one panel after the other. The loops read
/// the operand in its order in memory.
pub(super) fn pack(
    operand: &Operand<'_>,
    panels: Range<usize>,
    steps: Range<usize>,
    packing: Packing,
    lines: &mut [Line],
    threads: Threads,
) {
    let step_lines = packing.step_lines();
    let panel_lines = steps.len() * step_lines;
    let shared = Shared::new(lines);
    // If the operand is contiguous along the summed dimension, one panel is packed after the other.
    // Otherwise one step of all panels is packed, then the next step.
    let along = operand.inner == 1;
    let (outer, inner) =
        if along { (panels.clone(), steps.clone()) } else { (steps.clone(), panels.clone()) };
    let pack_outer = |index: usize| {
        for other in inner.clone() {
            let (panel, step) = if along { (index, other) } else { (other, index) };
            let start = (panel - panels.start) * panel_lines + (step - steps.start) * step_lines;
            // SAFETY: each pair of a panel and a step has its own lines, and `lines` outlives the
            // loops.
            let lines = unsafe { shared.range(start..start + step_lines) };
            let next =
                if other + 1 < inner.end { (index, other + 1) } else { (index + 1, inner.start) };
            operand.prefetch(if along { next } else { (next.1, next.0) });
            packing.pack_step(operand, panel, step, lines);
        }
    };
    match threads {
        Threads::One => outer.for_each(pack_outer),
        Threads::All => region(even(outer.len().div_ceil(2)), || {
            outer.into_par_iter().with_min_len(2).with_max_len(4).for_each(pack_outer);
        }),
    }
}
