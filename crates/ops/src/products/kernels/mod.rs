//! Kernels of matrix products, and which of them is used: the fastest of this processor, or the
//! user's choice.

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
pub(super) mod dot;
pub(super) mod fma;
#[cfg(target_arch = "x86_64")]
pub(super) mod tile;
pub(super) mod vector;

use crate::products::Products;
use std::sync::OnceLock;

/// A kernel of matrix products, named after its instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Intel AMX.
    Tiles,
    /// AVX-512 BF16.
    Dots,
    /// Multiply-adds of AVX-512F.
    Fma512,
    /// Multiply-adds of AVX2 and FMA.
    Fma256,
    /// Multiply-adds of NEON.
    Neon,
    /// SIMD of WebAssembly, which rounds products and sums separately.
    Simd128,
    /// The `gemm` crate.
    Gemm,
}

/// Environment variable with the user's choice of a kernel.
const VARIABLE: &str = "TAPER_KERNEL";

/// Error in the user's choice of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// There is no kernel of this name.
    #[error("{VARIABLE}={name}: no such matrix kernel; this processor has {here}")]
    Unknown {
        /// The name that was requested.
        name: String,
        /// Names of the kernels that this processor supports.
        here: String,
    },
    /// The processor does not have the kernel's instructions.
    #[error("{VARIABLE}={name}: this processor does not have this kernel; it has {here}")]
    Missing {
        /// The name that was requested.
        name: &'static str,
        /// Names of the kernels that this processor supports.
        here: String,
    },
}

impl Kernel {
    /// All kernels, the fastest first.
    pub const ALL: [Self; 7] = [
        Self::Tiles,
        Self::Dots,
        Self::Fma512,
        Self::Fma256,
        Self::Neon,
        Self::Simd128,
        Self::Gemm,
    ];

    /// Returns the kernel's name, as a value of `TAPER_KERNEL`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tiles => "tiles",
            Self::Dots => "dots",
            Self::Fma512 => "fma512",
            Self::Fma256 => "fma256",
            Self::Neon => "neon",
            Self::Simd128 => "simd128",
            Self::Gemm => "gemm",
        }
    }

    /// Returns the names of the kernel's instructions, for messages.
    #[must_use]
    pub const fn instructions(self) -> &'static str {
        match self {
            Self::Tiles => "AMX",
            Self::Dots => "AVX-512 BF16",
            Self::Fma512 => "AVX-512F",
            Self::Fma256 => "AVX2 and FMA",
            Self::Neon => "NEON",
            Self::Simd128 => "SIMD of WebAssembly",
            Self::Gemm => "the gemm crate",
        }
    }

    /// Returns the kernel for products of f32 tensors: the [chosen](Kernel::chosen) one if it
    /// supports these products, otherwise the fastest that does.
    #[must_use]
    pub fn best(products: Products) -> Self {
        let chosen = Self::chosen().ok().flatten();
        let all = chosen.into_iter().chain(Self::ALL);
        all.into_iter().find(|kernel| kernel.serves(products)).unwrap_or(Self::Gemm)
    }

    /// Returns the kernel that the environment variable `TAPER_KERNEL` chooses; `None` if it is not
    /// set. A choice is useful for comparisons, and on virtual machines that announce instructions
    /// without supporting them. The variable is read only once.
    ///
    /// # Errors
    /// If no kernel has this name, or the processor does not support the kernel.
    pub fn chosen() -> Result<Option<Self>, KernelError> {
        static CHOSEN: OnceLock<Result<Option<Kernel>, KernelError>> = OnceLock::new();
        let read = || {
            std::env::var_os(VARIABLE)
                .map(|name| Self::named(&name.to_string_lossy(), Self::is_here))
                .transpose()
        };
        CHOSEN.get_or_init(read).clone()
    }

    fn named(name: &str, is_here: impl Fn(Self) -> bool) -> Result<Self, KernelError> {
        let here = || {
            Self::ALL
                .into_iter()
                .filter(|kernel| is_here(*kernel))
                .map(Self::name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        match Self::ALL.into_iter().find(|kernel| kernel.name() == name) {
            Some(kernel) if is_here(kernel) => Ok(kernel),
            Some(kernel) => Err(KernelError::Missing { name: kernel.name(), here: here() }),
            None => Err(KernelError::Unknown { name: name.to_owned(), here: here() }),
        }
    }

    /// True if this processor supports the kernel.
    #[must_use]
    pub fn is_here(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Tiles => amx::is_available(),
            #[cfg(target_arch = "x86_64")]
            Self::Dots => crate::products::has_avx512_bf16(),
            #[cfg(target_arch = "x86_64")]
            Self::Fma512 => std::arch::is_x86_feature_detected!("avx512f"),
            #[cfg(target_arch = "x86_64")]
            Self::Fma256 => {
                std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("fma")
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            Self::Simd128 => cfg!(all(target_arch = "wasm32", target_feature = "simd128")),
            Self::Gemm => true,
            #[allow(unreachable_patterns, reason = "every processor lacks some of them")]
            Self::Tiles | Self::Dots | Self::Fma512 | Self::Fma256 | Self::Neon => false,
        }
    }

    /// Whether this kernel can be used for products of this type on this processor.
    #[must_use]
    pub fn serves(self, products: Products) -> bool {
        // An f32 product would take six bf16 products. With this kernel, they have only twice the
        // speed of f32 multiply-adds, so the product would be slower.
        let splits_in_vain = self == Self::Dots && products == Products::F32;
        self.is_here() && !splits_in_vain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_followed_or_refused() {
        let small = |kernel| kernel == Kernel::Gemm;
        assert_eq!(Kernel::named("gemm", small), Ok(Kernel::Gemm));
        assert_eq!(Kernel::named("tiles", |_| true), Ok(Kernel::Tiles));
        let missing = Kernel::named("dots", small).unwrap_err().to_string();
        assert_eq!(
            missing,
            "TAPER_KERNEL=dots: this processor does not have this kernel; it has gemm"
        );
        let unknown = Kernel::named("tile", |_| true).unwrap_err().to_string();
        assert_eq!(
            unknown,
            "TAPER_KERNEL=tile: no such matrix kernel; this processor has tiles, dots, fma512, \
             fma256, neon, simd128, gemm"
        );
    }

    /// Checks that the kernel that is used supports its products on this processor.
    #[test]
    fn the_best_kernel_is_one_that_serves() {
        for products in [Products::F32, Products::Bf16] {
            assert!(Kernel::best(products).serves(products));
        }
        #[cfg(target_arch = "x86_64")]
        if !std::arch::is_x86_feature_detected!("avx512bf16") {
            assert!(!Kernel::Tiles.is_here() && !Kernel::Dots.is_here());
        }
        #[cfg(not(target_arch = "x86_64"))]
        assert!(!Kernel::Tiles.is_here() && !Kernel::Dots.is_here());
    }
}
