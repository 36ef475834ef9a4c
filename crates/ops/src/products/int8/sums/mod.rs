//! Registers of i32 sums, for each instruction set.

/// Implements [`Sum`] for a type of registers. The first arguments are the number of columns, the
/// type of activations and their shift, and the types of four activations and of four weights. The
/// instructions of each method follow.
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
                // SAFETY: the caller's promise, here and below.
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

/// Sums for some columns of weights. Four products per column are added at a time.
///
/// # Safety
/// Every method needs the instructions of its implementation, and is compiled for them when it is
/// inlined into a function that enables them. A pointer must point to as many values as are read or
/// written. Only pointers to i32 that are written must be aligned.
pub(super) trait Sum: Copy {
    /// A stored activation.
    type Activation: Copy;
    /// Four activations of a row, repeated for each column.
    type Quad: Copy;
    /// Four weights of each column.
    type Weights: Copy;
    /// Number of columns of a register.
    const COLUMNS: usize;
    /// Number that is added to each stored activation.
    const SHIFT: i32;

    /// Converts the low bits of a rounded value to a stored activation.
    fn stored(bits: u32) -> Self::Activation;
    /// Returns the initial sums: zero or, if activations are shifted, these values.
    unsafe fn start(from: *const i32) -> Self;
    unsafe fn quad(from: *const Self::Activation) -> Self::Quad;
    unsafe fn weights(from: *const i8) -> Self::Weights;
    /// Computes `self + Σ quad · weights`, exactly.
    unsafe fn plus(self, quad: Self::Quad, weights: Self::Weights) -> Self;
    unsafe fn store(self, to: *mut i32);

    /// Writes the sums, multiplied by the scale of each column and by the scale of the row.
    #[inline(always)]
    unsafe fn scale(self, scales: *const f32, row_scale: f32, to: *mut f32) {
        const { assert!(Self::COLUMNS <= 16) };
        let mut sums = [0; 16];
        // SAFETY: the caller's promise; there is room for the sums.
        unsafe {
            self.store(sums.as_mut_ptr());
            for (column, sum) in sums.into_iter().enumerate().take(Self::COLUMNS) {
                to.add(column).write(sum as f32 * *scales.add(column) * row_scale);
            }
        }
    }
}
