//! Description in words of how the operations of a model are computed.

use candle_core::Device;
use taper_ops::{Kernel, Products};

use super::device;
use super::dtype_choice::{AUTO_DTYPE, DtypeChoice};

/// Describes, in one line for people, how a model's operations are computed on `device` in the type
/// `dtype`.
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
    fn the_line_of_an_open_type_says_which_it_is_and_why() {
        let DtypeChoice { name, reason } = DtypeChoice::fastest(&Device::Cpu);
        let line = describe_operations(&Device::Cpu, AUTO_DTYPE);
        assert!(line.starts_with(&describe_operations(&Device::Cpu, name)), "{line}");
        assert!(line.ends_with(&format!("; {name}, since {reason}")), "{line}");
    }
}
