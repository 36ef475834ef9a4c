//! Kernels of int8 products: which instructions they use, and their functions.

use super::loops;
use super::parts::Parts;
use crate::products::Kernel;

/// A kernel of int8 products, named after its instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Int8Kernel {
    /// `vpdpbusd` of AVX-512 VNNI: adds four products to each lane at a time.
    Vnni512,
    /// `vpdpbusd` of AVX-VNNI: like [`Vnni512`](Self::Vnni512), with registers of half the width.
    Vnni256,
    /// `vpmaddwd` of AVX-512BW: values are widened to 16 bits, and two products are added in each
    /// lane.
    Words512,
    /// `vpmaddwd` of AVX2: like [`Words512`](Self::Words512), with registers of half the width.
    Words256,
    /// `sdot` of ARM's dot-product extension: adds four products to each lane at a time.
    NeonDot,
    /// `smull` and `sadalp` of NEON: products have 16 bits, and two are added to each lane at a
    /// time.
    Neon,
    /// `i32x4.dot_i16x8_s` of WebAssembly: values are widened to 16 bits, and two products are
    /// added in each lane.
    Simd128,
    /// A loop in plain Rust, for every processor; the other kernels are tested against it.
    Plain,
}

impl Int8Kernel {
    /// All kernels, the fastest first.
    pub const ALL: [Self; 8] = [
        Self::Vnni512,
        Self::Vnni256,
        Self::Words512,
        Self::Words256,
        Self::NeonDot,
        Self::Neon,
        Self::Simd128,
        Self::Plain,
    ];

    /// Returns the name of the kernel, in one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vnni512 => "vnni512",
            Self::Vnni256 => "vnni256",
            Self::Words512 => "words512",
            Self::Words256 => "words256",
            Self::NeonDot => "neon-dot",
            Self::Neon => "neon",
            Self::Simd128 => "simd128",
            Self::Plain => "plain",
        }
    }

    /// Returns the names of the kernel's instructions, for messages.
    #[must_use]
    pub const fn instructions(self) -> &'static str {
        match self {
            Self::Vnni512 => "AVX-512 VNNI",
            Self::Vnni256 => "AVX-VNNI",
            Self::Words512 => "AVX-512BW",
            Self::Words256 => "AVX2",
            Self::NeonDot => "NEON dot products",
            Self::Neon => "NEON",
            Self::Simd128 => "SIMD of WebAssembly",
            Self::Plain => "plain Rust",
        }
    }

    /// Returns the fastest kernel of this processor. The user can [choose](Kernel::chosen) an f32
    /// kernel, for example because a virtual machine reports instructions that it does not have.
    /// Then only those int8 kernels are considered whose instructions every processor with the
    /// chosen kernel also has, and the plain loop. For [`Kernel::Fma512`], for example, the kernels
    /// with VNNI are left out, because the first processors with AVX-512F and AVX-512BW have no
    /// VNNI.
    #[must_use]
    pub fn best() -> Self {
        let chosen = Kernel::chosen().ok().flatten();
        let fits = |kernel: &Self| kernel.is_here() && kernel.goes_with(chosen);
        Self::ALL.into_iter().find(fits).unwrap_or(Self::Plain)
    }

    fn goes_with(self, chosen: Option<Kernel>) -> bool {
        let permitted: &[Self] = match chosen {
            None | Some(Kernel::Tiles) => return true,
            Some(Kernel::Dots) => &[Self::Vnni512, Self::Words512, Self::Words256],
            Some(Kernel::Fma512) => &[Self::Words512, Self::Words256],
            Some(Kernel::Fma256) => &[Self::Words256],
            Some(Kernel::Neon) => &[Self::Neon],
            Some(Kernel::Simd128) => &[Self::Simd128],
            Some(Kernel::Gemm) => &[],
        };
        self == Self::Plain || permitted.contains(&self)
    }

    /// True if this processor supports the kernel.
    #[must_use]
    pub fn is_here(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vnni512 => {
                std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512bw")
                    && std::arch::is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Vnni256 => {
                std::arch::is_x86_feature_detected!("avx2")
                    && std::arch::is_x86_feature_detected!("avxvnni")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Words512 => {
                std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("avx512bw")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Words256 => std::arch::is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot => std::arch::is_aarch64_feature_detected!("dotprod"),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            Self::Simd128 => cfg!(all(target_arch = "wasm32", target_feature = "simd128")),
            Self::Plain => true,
            #[allow(unreachable_patterns, reason = "every processor lacks some of them")]
            _ => false,
        }
    }

    /// Returns the functions of the kernel. Calling them is allowed only if [`Self::is_here`] is
    /// true.
    pub(super) fn parts(self) -> Parts {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vnni512 => loops::vnni512::PARTS,
            #[cfg(target_arch = "x86_64")]
            Self::Vnni256 => loops::vnni256::PARTS,
            #[cfg(target_arch = "x86_64")]
            Self::Words512 => loops::words512::PARTS,
            #[cfg(target_arch = "x86_64")]
            Self::Words256 => loops::words256::PARTS,
            #[cfg(target_arch = "aarch64")]
            Self::NeonDot => loops::neon_dot::PARTS,
            #[cfg(target_arch = "aarch64")]
            Self::Neon => loops::neon::PARTS,
            #[cfg(target_arch = "wasm32")]
            Self::Simd128 => loops::simd128::PARTS,
            _ => loops::plain::PARTS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_kernel_limits_the_instructions() {
        for kernel in Int8Kernel::ALL {
            assert!(kernel.goes_with(None));
            assert_eq!(kernel.goes_with(Some(Kernel::Gemm)), kernel == Int8Kernel::Plain);
        }
        for (chosen, fastest) in [
            (Kernel::Tiles, Int8Kernel::Vnni512),
            (Kernel::Dots, Int8Kernel::Vnni512),
            (Kernel::Fma512, Int8Kernel::Words512),
            (Kernel::Fma256, Int8Kernel::Words256),
            (Kernel::Neon, Int8Kernel::Neon),
            (Kernel::Simd128, Int8Kernel::Simd128),
        ] {
            let permits = |kernel: &Int8Kernel| kernel.goes_with(Some(chosen));
            assert_eq!(Int8Kernel::ALL.into_iter().find(permits), Some(fastest), "{chosen:?}");
            assert!(permits(&Int8Kernel::Plain));
        }
        // AVX-VNNI is later than AVX2 and AVX-512F.
        assert!(!Int8Kernel::Vnni256.goes_with(Some(Kernel::Fma256)));
        assert!(!Int8Kernel::Vnni256.goes_with(Some(Kernel::Fma512)));
        assert!(Int8Kernel::best().is_here());
        #[cfg(target_arch = "x86_64")]
        if Kernel::chosen() == Ok(None) && std::arch::is_x86_feature_detected!("avx2") {
            assert_ne!(Int8Kernel::best(), Int8Kernel::Plain);
        }
    }
}
