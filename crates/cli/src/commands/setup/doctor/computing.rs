//! Examines processor, kernels, cores, memory, limits and devices.

use std::fs;
use std::num::NonZero;
use std::path::Path;

use taper_ops::{Int8Kernel, Kernel, Products};
use taper_run::checks::limits::Limit;
use taper_run::checks::{device, memory};
use taper_run::numbers::bytes;

use super::finding::Finding;

/// Number of bytes of memory. With less memory, only small models can be used.
const LITTLE: u64 = 1 << 30;
/// Number of open files that a training of many shards, or a server, may need.
const FILES: u64 = 256;

/// Reports the name of the processor, and its features that kernels use.
pub(super) fn processor() -> Vec<Finding> {
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = information
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    let features = features();
    let description = match features.as_slice() {
        [] => format!("{name}, without features that kernels use"),
        some => format!("{name}, with {}", some.join(", ")),
    };
    vec![if fastest(Products::F32) == Kernel::Gemm {
        let advice = "matrices are multiplied by the `gemm` crate alone; processors with AVX2, \
                      AVX-512 or NEON are several times as fast";
        Finding::warn("processor", description, advice)
    } else {
        Finding::ok("processor", description)
    }]
}

/// Returns the features of this processor that kernels use.
fn features() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    let all = [
        ("avx2", std::arch::is_x86_feature_detected!("avx2")),
        ("fma", std::arch::is_x86_feature_detected!("fma")),
        ("avx-vnni", std::arch::is_x86_feature_detected!("avxvnni")),
        ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
        ("avx512bw", std::arch::is_x86_feature_detected!("avx512bw")),
        ("avx512-vnni", std::arch::is_x86_feature_detected!("avx512vnni")),
        ("avx512-bf16", std::arch::is_x86_feature_detected!("avx512bf16")),
        ("amx-bf16", Kernel::Tiles.is_here()),
    ];
    #[cfg(target_arch = "aarch64")]
    let all = [
        ("neon", std::arch::is_aarch64_feature_detected!("neon")),
        ("dotprod", std::arch::is_aarch64_feature_detected!("dotprod")),
    ];
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let all: [(&'static str, bool); 0] = [];
    all.into_iter().filter_map(|(name, is_here)| is_here.then_some(name)).collect()
}

/// Returns the fastest kernel of this processor, regardless of the user's choice.
fn fastest(products: Products) -> Kernel {
    let mut all = Kernel::ALL.into_iter();
    all.find(|kernel| kernel.serves(products)).unwrap_or(Kernel::Gemm)
}

/// Reports the kernels of matrix products; warns if `TAPER_KERNEL` chooses a slower kernel.
pub(super) fn kernels() -> Vec<Finding> {
    let chosen = match Kernel::chosen() {
        Ok(chosen) => chosen,
        Err(error) => {
            let advice = "unset TAPER_KERNEL, or choose one of these";
            return vec![Finding::fail("kernels", error.to_string(), advice)];
        }
    };
    let by = |products| Kernel::best(products).instructions();
    let description = format!(
        "f32 by {}, bf16 by {}, int8 by {}",
        by(Products::F32),
        by(Products::Bf16),
        Int8Kernel::best().instructions()
    );
    vec![match chosen {
        Some(kernel) if kernel != fastest(Products::F32) => Finding::warn(
            "kernels",
            format!("{description}, since TAPER_KERNEL={}", kernel.name()),
            format!("unset TAPER_KERNEL for {}", fastest(Products::F32).instructions()),
        ),
        _ => Finding::ok("kernels", description),
    }]
}

/// Reports the cores that this process may use; warns if the load of the machine is high.
pub(super) fn cores() -> Vec<Finding> {
    let usable = std::thread::available_parallelism().map_or(1, NonZero::get);
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let all = information.lines().filter(|line| line.starts_with("processor")).count();
    let mut description = format!("{usable}");
    if all > usable {
        description += &format!(" of {all}, by a limit of a container, batch system or `taskset`");
    }
    let nodes = fs::read_dir("/sys/devices/system/node").map_or(0, |entries| {
        let names = entries.flatten().map(|entry| entry.file_name());
        let is_node = |name: &str| {
            name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok())
        };
        names.filter(|name| name.to_str().is_some_and(is_node)).count()
    });
    if nodes > 1 {
        description += &format!(", memory in {nodes} NUMA nodes");
    }
    if let Some(threads) = std::env::var_os("RAYON_NUM_THREADS") {
        description += &format!(", RAYON_NUM_THREADS={}", threads.display());
    }
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().and_then(|load| load.parse::<f64>().ok());
    vec![match load {
        Some(load) if load > 1.5 * all.max(usable) as f64 => Finding::warn(
            "cores",
            format!("{description}, with a load of {load:.1}"),
            "other programs compute: training is slower, and no measurement of speed holds",
        ),
        _ => Finding::ok("cores", description),
    }]
}

/// Reports the memory of the machine, and the part that is available to this process.
pub(super) fn memory() -> Vec<Finding> {
    let Some(free) = memory::available() else {
        return vec![Finding::ok("memory", "not reported by this system")];
    };
    let mut description = format!("{} available", bytes(free));
    if let Some(total) = memory::total() {
        description += &format!(" of {}", bytes(total));
    }
    if let Some(addresses) = Limit::Addresses.value() {
        description += &format!(", {} of addresses by `ulimit -v`", bytes(addresses));
    }
    vec![if free < LITTLE {
        let advice = "small models only: end other programs, or raise the limit of the container \
                      or of `ulimit -v`";
        Finding::warn("memory", description, advice)
    } else {
        Finding::ok("memory", description)
    }]
}

/// Reports the limits on the number of open files and on the size of a file.
pub(super) fn limits() -> Vec<Finding> {
    let files = Limit::OpenFiles.value();
    let mut description = match files {
        Some(files) => format!("{files} open files"),
        None => "open files without limit".to_owned(),
    };
    let mut advice = Vec::new();
    if files.is_some_and(|files| files < FILES) {
        advice.push("raise the number of open files, as by `ulimit -n 1024`");
    }
    if let Some(size) = Limit::FileSize.value() {
        description += &format!(", {} a file", bytes(size));
        advice.push("no larger checkpoint can be saved: `ulimit -f unlimited`");
    }
    vec![match advice.as_slice() {
        [] => Finding::ok("limits", description),
        some => Finding::warn("limits", description, some.join("; ")),
    }]
}

/// Reports whether the supported devices of this build can be opened, which device `auto` chooses,
/// and which GPUs of this machine this build cannot use.
pub(super) fn devices() -> Vec<Finding> {
    let mut findings = Vec::new();
    let driver = fs::read_to_string("/proc/driver/nvidia/version").ok();
    let gpus = fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, Iterator::count);
    if cfg!(feature = "cuda") {
        findings.push(opened("cuda", if driver.is_some() { "" } else { NO_DRIVER }));
        if gpus > 1 {
            findings
                .push(Finding::ok("device", format!("{gpus} GPUs: cuda:0 to cuda:{}", gpus - 1)));
        }
    } else if driver.is_some() || Path::new("/dev/nvidia0").exists() {
        findings.push(Finding::warn(
            "device",
            "a GPU of NVIDIA's, and this build computes on the CPU alone",
            "build with `cargo build --release --features cuda`",
        ));
    }
    if cfg!(feature = "metal") {
        findings.push(opened("metal", ""));
    } else if cfg!(all(target_os = "macos", target_arch = "aarch64")) {
        findings.push(Finding::warn(
            "device",
            "a GPU of Apple's, and this build computes on the CPU alone",
            "build with `cargo build --release --features metal`",
        ));
    }
    findings.push(match device::open("auto") {
        Ok(chosen) => {
            Finding::ok("device", format!("device = \"auto\" is {}", device::describe(&chosen)))
        }
        Err(error) => {
            Finding::fail("device", crate::advice::one_line(&error), "give another with --device")
        }
    });
    findings
}

/// Advice if CUDA's driver is not installed.
const NO_DRIVER: &str = "install NVIDIA's driver, which /proc/driver/nvidia would tell of; ";

/// Opens the first device of the kind `name`, and reports the device's memory. `advice` is given if
/// it does not open.
fn opened(name: &str, advice: &str) -> Finding {
    let memory = device::open(name).and_then(|one| Ok(taper_ops::device::memory(&one)?));
    match memory {
        Ok(Some(memory)) => {
            let free = bytes(memory.available);
            Finding::ok("device", format!("{name}:0 opens, {free} of its memory available"))
        }
        Ok(None) => Finding::ok("device", format!("{name}:0 opens")),
        Err(error) => Finding::warn(
            "device",
            crate::advice::one_line(&error),
            format!("{advice}until it opens, `--device cpu` computes"),
        ),
    }
}
