//! Choice of the number type in which a model is trained: the type whose matrix products are
//! fastest on the machine.

use candle_core::Device;
use taper_ops::{Kernel, Products};

/// Value of the key `dtype` in the settings of a training. With this value, the type is chosen when
/// the training begins, to suit the machine.
pub(crate) const AUTO_DTYPE: &str = "auto";

/// Number type that was chosen for the computation on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DtypeChoice {
    /// Name of the type: f32 or bf16.
    pub name: &'static str,
    /// Reason of the choice.
    pub reason: String,
}

impl DtypeChoice {
    /// Chooses the faster of f32 and bf16 on `device`. On a CPU, this depends on the instructions
    /// of its kernel for matrix products. A CUDA device multiplies bf16 faster from compute
    /// capability 8.0 on. On Metal, it chooses f32, because bf16 has not been tried.
    #[must_use]
    pub fn fastest(device: &Device) -> Self {
        match device {
            Device::Cpu => Self::of_kernel(Kernel::best(Products::Bf16)),
            Device::Cuda(_) if has_bf16_units(device) => {
                Self { name: "bf16", reason: "this GPU multiplies it faster than f32".to_owned() }
            }
            Device::Cuda(_) => {
                Self { name: "f32", reason: "this GPU has no bf16 products".to_owned() }
            }
            Device::Metal(_) => {
                Self { name: "f32", reason: "bf16 has not been tried on Metal".to_owned() }
            }
        }
    }

    /// Chooses bf16 if `kernel` multiplies matrices in bf16 faster than in f32, and otherwise f32.
    fn of_kernel(kernel: Kernel) -> Self {
        let instructions = kernel.instructions();
        match kernel {
            Kernel::Tiles | Kernel::Dots => Self {
                name: "bf16",
                reason: format!("{instructions} multiplies it faster than f32"),
            },
            Kernel::Fma512 | Kernel::Fma256 | Kernel::Neon | Kernel::Simd128 | Kernel::Gemm => {
                Self { name: "f32", reason: format!("by {instructions}, bf16 would be no faster") }
            }
        }
    }
}

#[cfg(feature = "cuda")]
fn has_bf16_units(device: &Device) -> bool {
    let Ok(cuda) = device.as_cuda_device() else { return false };
    cuda.cuda_stream().context().compute_capability().is_ok_and(|(major, _)| major >= 8)
}

#[cfg(not(feature = "cuda"))]
fn has_bf16_units(_: &Device) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_is_chosen_where_it_has_instructions_of_its_own() {
        for kernel in Kernel::ALL {
            let is_faster = matches!(kernel, Kernel::Tiles | Kernel::Dots);
            let expected = if is_faster { "bf16" } else { "f32" };
            assert_eq!(DtypeChoice::of_kernel(kernel).name, expected, "{kernel:?}");
        }
    }
}
