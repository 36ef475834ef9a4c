//! Registers of i32 sums of int8 products, for each instruction set.

/// Implements [`Sum`] for a type of registers. The first line of the macro's input describes the
/// type, for example `Vnni512(__m512i): 16 columns of u8 + 128, __m512i, __m512i`. It has the name
/// of the new type, the type of its register, and the number of columns. Activations are stored as
/// u8 here, after 128 has been added. The last two types hold four activations and four weights of
/// each column. The other lines are the methods, with their instructions.
#[allow(unused_macros, reason = "some processors have none but the plain loop")]
macro_rules! sum {
    (
        $(#[$about:meta])*
        $name:ident($register:ty): $columns:literal columns of $activation:ident + $shift:literal,
        $four_activations:ty, $four_weights:ty;
        start($start_from:ident) $start:expr;
        quad($quad_from:ident) $quad:expr;
        weights($weights_from:ident) $weights:expr;
        plus($before:ident, $activations:ident, $factors:ident) $plus:expr;
        store($stored:ident, $store_to:ident) $store:expr;
        $(scale($scaled:ident, $scales:ident, $row_scale:ident, $scale_to:ident) $scale:expr;)?
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy)]
        pub(in super::super) struct $name($register);

        #[allow(unused_unsafe, reason = "in WebAssembly, what touches registers alone is safe")]
        impl super::Sum for $name {
            type Activation = $activation;
            type Quad = $four_activations;
            type Weights = $four_weights;
            const COLUMNS: usize = $columns;
            const SHIFT: i32 = $shift;

            #[inline(always)]
            fn stored(bits: u32) -> $activation {
                (bits ^ $shift) as $activation
            }

            #[inline(always)]
            unsafe fn start($start_from: *const i32) -> Self {
                // SAFETY: as the caller promises, here and below.
                Self(unsafe { $start })
            }

            #[inline(always)]
            unsafe fn quad($quad_from: *const $activation) -> $four_activations {
                // SAFETY: as above.
                unsafe { $quad }
            }

            #[inline(always)]
            unsafe fn weights($weights_from: *const i8) -> $four_weights {
                // SAFETY: as above.
                unsafe { $weights }
            }

            #[inline(always)]
            unsafe fn plus(self, $activations: $four_activations, $factors: $four_weights) -> Self {
                let $before = self.0;
                // SAFETY: as above.
                Self(unsafe { $plus })
            }

            #[inline(always)]
            unsafe fn store(self, $store_to: *mut i32) {
                let $stored = self.0;
                // SAFETY: as above.
                unsafe { $store };
            }

            $(
                #[inline(always)]
                unsafe fn scale(self, $scales: *const f32, $row_scale: f32, $scale_to: *mut f32) {
                    let $scaled = self.0;
                    // SAFETY: as above.
                    unsafe { $scale };
                }
            )?
        }
    };
}

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "wasm32")]
mod wasm32;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(super) use aarch64::{Neon, NeonDot};
#[cfg(target_arch = "wasm32")]
pub(super) use wasm32::Simd128;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{Vnni256, Vnni512, Words256, Words512};

/// Sums of products for some columns of weights. Four products are added for each column at a time.
///
/// # Safety
/// Every method needs the instructions of its implementation. It must be inlined into a function
/// that enables them, so that it is compiled with them. A pointer must point to as many values as
/// are read or written. Only pointers to i32 that are written must be aligned.
pub(super) trait Sum: Copy {
    /// Type in which an activation is stored.
    type Activation: Copy;
    /// Four activations of a row, repeated for each column.
    type Quad: Copy;
    /// Four weights of each column.
    type Weights: Copy;
    /// Number of columns whose sums are in a register.
    const COLUMNS: usize;
    /// Number that is added to each stored activation.
    const SHIFT: i32;

    /// Converts the low bits of a rounded value to an activation as it is stored.
    fn stored(bits: u32) -> Self::Activation;
    /// Returns the initial sums: zero or, if activations are shifted, the values at `from`.
    unsafe fn start(from: *const i32) -> Self;
    unsafe fn quad(from: *const Self::Activation) -> Self::Quad;
    unsafe fn weights(from: *const i8) -> Self::Weights;
    /// Computes `self + Σ quad · weights`, exactly.
    unsafe fn plus(self, quad: Self::Quad, weights: Self::Weights) -> Self;
    unsafe fn store(self, to: *mut i32);

    /// Multiplies each sum by the scale of its column and by the scale of the row, and writes the
    /// products.
    #[inline(always)]
    unsafe fn scale(self, scales: *const f32, row_scale: f32, to: *mut f32) {
        const { assert!(Self::COLUMNS <= 16) };
        let mut sums = [0; 16];
        // SAFETY: as the caller promises; `sums` has room for all columns.
        unsafe {
            self.store(sums.as_mut_ptr());
            for (column, sum) in sums.into_iter().enumerate().take(Self::COLUMNS) {
                to.add(column).write(sum as f32 * *scales.add(column) * row_scale);
            }
        }
    }
}
