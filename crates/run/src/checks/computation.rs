//! Processor and type of a computation, with reasons: the meaning of `dtype = "auto"`.

use candle_core::Device;
use taper_ops::{Kernel, Products};

use super::device;

/// Value of `dtype` that leaves the choice to the machine on which a run begins.
pub const AUTO_DTYPE: &str = "auto";

/// Type of computation chosen for a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DtypeChoice {
    /// Name of the type: f32 or bf16.
    pub name: &'static str,
    /// Reason of the choice.
    pub reason: String,
}

impl DtypeChoice {
    /// Faster of f32 and bf16 on `device`. On a CPU the matrix kernel decides; a CUDA device
    /// multiplies bf16 from compute capability 8.0 on; on Metal only f32 is known to be safe.
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

    /// Faster of f32 and bf16, by whether `kernel` multiplies bf16.
    fn of_kernel(kernel: Kernel) -> Self {
        let instructions = kernel.instructions();
        match kernel {
            Kernel::Tiles | Kernel::Dots => Self {
                name: "bf16",
                reason: format!("{instructions} multiplies it faster than f32"),
            },
            Kernel::Fma512 | Kernel::Fma256 | Kernel::Neon | Kernel::Gemm => {
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

/// Describes the implementation of the operations on `device`, in one line.
#[must_use]
pub fn describe_operations(device: &Device, dtype: &str) -> String {
    if dtype == AUTO_DTYPE {
        let DtypeChoice { name, reason } = DtypeChoice::fastest(device);
        return format!("{}; {name}, since {reason}", describe_operations(device, name));
    }
    if !device.is_cpu() {
        return format!(
            "{}: composed of Candle's, in {dtype}; products by the device's library",
            device::describe(device)
        );
    }
    let Ok(dtype) = device::dtype(dtype, device) else {
        return format!("cpu: none; products in {dtype} need a GPU");
    };
    let products = Products::for_model(dtype, device);
    let rounding = match products {
        Products::Bf16 => "operands rounded to bf16",
        Products::F32 => "in f32",
    };
    let kernel = Kernel::best(products);
    let how = match (kernel, products) {
        (Kernel::Tiles, Products::F32) => ", on operands split in three bf16 parts",
        (Kernel::Tiles | Kernel::Dots, _) | (_, Products::F32) => "",
        (_, Products::Bf16) => ", no faster than f32: this processor has no bf16 products",
    };
    let (instructions, name) = (kernel.instructions(), kernel.name());
    format!("cpu: all fused; products {rounding}, by {instructions} ({name}){how}")
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

    #[test]
    fn the_line_of_an_open_type_says_which_it_is_and_why() {
        let DtypeChoice { name, reason } = DtypeChoice::fastest(&Device::Cpu);
        let line = describe_operations(&Device::Cpu, AUTO_DTYPE);
        assert!(line.starts_with(&describe_operations(&Device::Cpu, name)), "{line}");
        assert!(line.ends_with(&format!("; {name}, since {reason}")), "{line}");
    }
}
