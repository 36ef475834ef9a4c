//! Devices and types of computation: conversion of the names in `--device` and `dtype` to devices
//! and number types of Candle.

use anyhow::{Context, Result, bail, ensure};
use candle_core::{DType, Device};

use super::dtype_choice::{AUTO_DTYPE, DtypeChoice};

/// Opens the device called `name`: `auto`, `cpu`, `cuda`, `cuda:N`, `metal` or `metal:N`.
///
/// `auto` takes a GPU if this build supports one and it can be opened, and otherwise the CPU.
/// [`unusable_gpu`] tells if there is a GPU that does not open.
///
/// # Errors
/// When the name is unknown, the build lacks the backend (the message names
/// the cargo feature) or the device does not open.
pub fn open(name: &str) -> Result<Device> {
    let (kind, ordinal) = split(name)?;
    match kind {
        "auto" => Ok(automatic()),
        "cpu" => Ok(Device::Cpu),
        "cuda" if !cfg!(feature = "cuda") => bail!(lacking("cuda", name)),
        "metal" if !cfg!(feature = "metal") => bail!(lacking("metal", name)),
        "cuda" => taper_ops::device::cuda(ordinal)
            .with_context(|| format!("device `{name}` does not open; is the driver installed?")),
        "metal" => taper_ops::device::metal(ordinal)
            .with_context(|| format!("device `{name}` does not open")),
        _ => bail!("unknown device `{name}`: expected auto, cpu, cuda, cuda:N, metal or metal:N"),
    }
}

/// Checks the names of a device and of a number type without opening the device.
///
/// # Errors
/// When the device or the type is unknown, or the device does not compute in the type.
pub fn check_names(device: &str, dtype: &str) -> Result<()> {
    let (kind, _) = split(device).context("key `device`")?;
    ensure!(
        matches!(kind, "auto" | "cpu" | "cuda" | "metal"),
        "key `device`: unknown device `{device}`: expected auto, cpu, cuda, cuda:N, metal or \
             metal:N"
    );
    if dtype == AUTO_DTYPE { Ok(()) } else { parse_dtype(dtype, kind == "cpu").map(drop) }
}

fn parse_dtype(name: &str, on_cpu: bool) -> Result<DType> {
    match name {
        "f32" => Ok(DType::F32),
        "bf16" => Ok(DType::BF16),
        "f16" if on_cpu => {
            bail!(
                "key `dtype`: f16 needs a cuda or metal device; the CPU computes in f32, or with \
                 bf16 in its matrix products"
            )
        }
        "f16" => Ok(DType::F16),
        _ => bail!("key `dtype`: unknown value `{name}`, expected auto, f32, bf16 or f16"),
    }
}

fn split(name: &str) -> Result<(&str, usize)> {
    match name.split_once(':') {
        None => Ok((name, 0)),
        Some((kind @ ("cuda" | "metal"), ordinal)) => {
            let ordinal = ordinal.parse().with_context(|| {
                format!("device `{name}`: `{ordinal}` is not a device number (0, 1, …)")
            })?;
            Ok((kind, ordinal))
        }
        Some(_) => bail!("unknown device `{name}`: only cuda and metal take a number"),
    }
}

/// Device that `auto` stands for.
pub(crate) fn automatic() -> Device {
    first_gpu().ok().flatten().unwrap_or(Device::Cpu)
}

/// Reason why the machine's first GPU does not open, so that `auto` stands for the CPU. `None` if
/// it opens, if the machine has none, or if this build supports none.
#[must_use]
pub fn unusable_gpu() -> Option<String> {
    first_gpu().err().map(|error| format!("{error:#}"))
}

/// Opens the machine's first GPU; `None` if it has none, or if this build supports none.
fn first_gpu() -> Result<Option<Device>> {
    let cuda = cfg!(feature = "cuda").then(|| taper_ops::device::cuda(0));
    let metal = || cfg!(feature = "metal").then(|| taper_ops::device::metal(0));
    match cuda.or_else(metal) {
        None => Ok(None),
        Some(Ok(device)) => Ok(Some(device)),
        Some(Err(error)) if is_absence(&error.to_string()) => Ok(None),
        Some(Err(error)) => Err(error.into()),
    }
}

/// Whether the error of a driver means that the machine has no GPU, or hides it from this process.
fn is_absence(error: &str) -> bool {
    [
        "CUDA_ERROR_NO_DEVICE",
        "CUDA_ERROR_INVALID_DEVICE",
        "CUDA_ERROR_STUB_LIBRARY",
        "no metal device",
    ]
    .iter()
    .any(|absence| error.to_lowercase().contains(&absence.to_lowercase()))
}

fn lacking(feature: &str, name: &str) -> String {
    format!(
        "device `{name}`: this build lacks {feature}; build with `cargo build --release \
         --features {feature}`, or use the device cpu"
    )
}

/// Number type with the name `f32`, `bf16` or `f16`. `auto` stands for the
/// [fastest](DtypeChoice::fastest) type on `device`.
///
/// # Errors
/// When the name is unknown, or the device does not compute in this type.
pub fn dtype(name: &str, device: &Device) -> Result<DType> {
    match name {
        AUTO_DTYPE => parse_dtype(DtypeChoice::fastest(device).name, device.is_cpu()),
        _ => parse_dtype(name, device.is_cpu()),
    }
}

/// Short name of the device for reports: `cpu`, `cuda:0`, `metal:0`.
pub fn describe(device: &Device) -> String {
    match device.location() {
        candle_core::DeviceLocation::Cpu => "cpu".to_owned(),
        candle_core::DeviceLocation::Cuda { gpu_id } => format!("cuda:{gpu_id}"),
        candle_core::DeviceLocation::Metal { gpu_id } => format!("metal:{gpu_id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(matches!(open("cpu"), Ok(Device::Cpu)));
        assert!(open("auto").is_ok());
        assert!(open("gpu").is_err());
        assert!(open("cpu:1").is_err());
        assert!(open("cuda:x").is_err());
    }

    #[test]
    fn a_gpu_that_is_not_there_is_not_broken() {
        let driver = |code: &str| format!("DriverError({code}, \"a description\")");
        assert!(is_absence(&driver("CUDA_ERROR_NO_DEVICE")));
        // What a packaged build says where there is no driver, and where a library is missing.
        assert!(is_absence(&driver("CUDA_ERROR_STUB_LIBRARY")));
        assert!(!is_absence(&driver("CUDA_ERROR_SHARED_OBJECT_INIT_FAILED")));
        assert!(!is_absence(&driver("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")));
        assert!(!is_absence(&driver("CUDA_ERROR_OUT_OF_MEMORY")));
        if cfg!(not(any(feature = "cuda", feature = "metal"))) {
            assert_eq!(unusable_gpu(), None);
        }
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_lacking_backend_names_the_feature() {
        let message = open("cuda:1").expect_err("no cuda here").to_string();
        assert!(message.contains("--features cuda"), "{message}");
    }

    #[test]
    fn f16_is_refused_on_the_cpu() {
        assert!(dtype("f16", &Device::Cpu).is_err());
        assert!(check_names("cpu", "f16").is_err());
        assert!(check_names("cuda", "f16").is_ok() && check_names("auto", "f16").is_ok());
        assert_eq!(dtype("bf16", &Device::Cpu).ok(), Some(DType::BF16));
        assert!(dtype("float", &Device::Cpu).is_err());
        assert!(check_names("cpu", "auto").is_ok() && dtype("auto", &Device::Cpu).is_ok());
        assert_eq!(dtype("f32", &Device::Cpu).ok(), Some(DType::F32));
    }
}
