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
impl Packing {
    /// That of the fastest kernel for such products here; none where this does not pack.
    pub(crate) fn best(products: Products) -> Option<Self> {
        Self::of(Kernel::best(products), products)
    }

    /// As [`Packing::best`], for products of some panels: to split operands in three does not pay
    /// for those.
    pub(crate) fn best_of_panels(products: Products) -> Option<Self> {
        match (Kernel::best(products), products) {
            (Kernel::Tiles, Products::F32) => [Kernel::Fma512, Kernel::Fma256]
                .into_iter()
                .find_map(|kernel| Self::of(kernel, products)),
            (kernel, _) => Self::of(kernel, products),
        }
    }

    /// Whether a product costs less than to keep its result in memory and read it again: on AMX. By
    /// AVX-512 BF16 it does not, for vocabularies of 10,000 to 200,000.
    pub(crate) fn is_cheaper_than_memory(self) -> bool {
        self.kernel == Kernel::Tiles
    }

    /// None where the kernel does not serve, or does not pack.
    pub(crate) fn of(kernel: Kernel, products: Products) -> Option<Self> {
        (kernel != Kernel::Gemm && kernel.serves(products)).then_some(Self { kernel, products })
    }

    /// Whether operands are rounded.
    #[cfg(test)]
    pub(crate) fn rounds(self) -> bool {
        self.products == Products::Bf16
    }

    /// bf16 parts of a value.
    fn parts(self) -> usize {
        if self.products == Products::Bf16 { 1 } else { 3 }
    }

    /// Whether the instructions multiply bf16.
    pub(crate) fn is_bf16(self) -> bool {
        matches!(self.kernel, Kernel::Tiles | Kernel::Dots)
    }

    /// Panels of rows in a block, and steps of their depth: what is packed of the left operand at a
    /// time. No result depends on either.
    ///
    /// By 16 steps a panel of bf16 fits the first-level cache in one part. One of f32 is twice as
    /// large and comes from the second level, which feeds multiply-adds of AVX-512 well enough:
    /// fewer steps would read and write the results more often, which costs more. Eight panels are
    /// 256 KiB of bf16 in one part and 512 KiB of f32.
    ///
    /// Processors without AVX-512 have a second level of 256 or 512 KiB, and half of it must do for
    /// the left operand: a quarter of that block made products on two cores of a Zen 3 a tenth
    /// faster. Their kernel goes through a panel of the right operand once for every three rows, so
    /// that it has to stay in a first level of 32 KiB: four steps of it have a quarter of the misses
    /// that eight have.
    pub(super) fn block(self) -> (usize, usize) {
        if self.kernel == Kernel::Fma256 { (8, 4) } else { (8, 16) }
    }

    /// Lines of one panel at one step.
    pub(super) fn step_lines(self) -> usize {
        if self.is_bf16() { self.parts() * BF16_LINES } else { F32_LINES }
    }

    /// The lines of an operand of one panel that lies in memory as this packing has it: a tile of
    /// f32, with a row for each place of the summed dimension.
    pub(super) fn lines_of<'a>(self, operand: &Operand<'a>) -> Option<&'a [Line]> {
        let Operand { values, offset, outer, inner, count, depth, .. } = *operand;
        let is_packed = !self.is_bf16()
            && self.products == Products::F32
            && (outer, inner) == (1, PANEL)
            && count <= PANEL
            && depth.is_multiple_of(DEPTH);
        let values = values.get(offset..offset + depth * PANEL).filter(|_| is_packed)?;
        // SAFETY: a line is plain numbers, of which any bits are valid.
        match unsafe { values.align_to::<Line>() } {
            ([], lines, []) => Some(lines),
            _ => None,
        }
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
