//! Which kernel multiplies matrices: what the processor has, or what the user chose of it.

use super::Products;
use std::sync::OnceLock;

/// The kernel of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Intel AMX.
    Tiles,
    /// AVX-512 BF16.
    Dots,
    /// The `gemm` crate.
    Gemm,
}

/// The environment variable by which the user chooses.
const VARIABLE: &str = "TAPER_KERNEL";

/// A choice that cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// No kernel has this name.
    #[error("{VARIABLE}={name}: no such matrix kernel; this processor has {here}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names of what there is.
        here: String,
    },
    /// The processor does not have the instructions.
    #[error("{VARIABLE}={name}: this processor does not have it; it has {here}")]
    Missing {
        /// What was asked for.
        name: &'static str,
        /// The names of what there is.
        here: String,
    },
}

impl Kernel {
    /// All of them, the fastest first.
    pub const ALL: [Self; 3] = [Self::Tiles, Self::Dots, Self::Gemm];

    /// The name that `TAPER_KERNEL` takes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tiles => "tiles",
            Self::Dots => "dots",
            Self::Gemm => "gemm",
        }
    }

    /// The fastest kernel for f32 tensors that this processor has, or the one that was
    /// [chosen](Kernel::chosen) where it serves.
    #[must_use]
    pub fn best(products: Products) -> Self {
        let chosen = Self::chosen().unwrap_or_default();
        [Self::Tiles, Self::Dots]
            .into_iter()
            .filter(|kernel| chosen.is_none_or(|chosen| chosen == *kernel))
            .find(|kernel| kernel.serves(products))
            .unwrap_or(Self::Gemm)
    }

    /// What the environment variable `TAPER_KERNEL` chooses, to compare or to work around a virtual
    /// machine that announces what it does not have. It is read once.
    ///
    /// # Errors
    /// When no kernel has that name, or the processor does not have it.
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

    /// Whether this processor has it.
    #[must_use]
    pub fn is_here(self) -> bool {
        self.serves(Products::Bf16)
    }

    /// Whether this kernel can compute such products here.
    #[must_use]
    pub fn serves(self, products: Products) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Tiles => super::amx::is_available(),
            // Six products at twice the rate of f32 multiply-adds would be slower than those.
            #[cfg(target_arch = "x86_64")]
            Self::Dots => products == Products::Bf16 && super::has_avx512_bf16(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Tiles | Self::Dots => false,
            Self::Gemm => true,
        }
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
        assert_eq!(missing, "TAPER_KERNEL=dots: this processor does not have it; it has gemm");
        let unknown = Kernel::named("tile", |_| true).unwrap_err().to_string();
        assert_eq!(
            unknown,
            "TAPER_KERNEL=tile: no such matrix kernel; this processor has tiles, dots, gemm"
        );
    }

    /// What runs is what the processor has been asked for.
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
