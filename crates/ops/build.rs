//! Compiles the CUDA kernels, if the feature `cuda` is enabled.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "cuda")]
    compile();
}

/// Compute capabilities, such as `80,90`, for which the kernels are compiled: by default the one for
/// which Candle's are.
#[cfg(feature = "cuda")]
const CAPABILITIES: &str = "TAPER_CUDA_CAPABILITIES";

/// Compiles the kernels to `kernels.fatbin` in the build folder: machine code for each compute
/// capability, and PTX of the last one, which drivers compile for later GPUs.
#[cfg(feature = "cuda")]
fn compile() {
    const SOURCE: &str = "src/cuda/kernels/kernels.cu";
    println!("cargo::rerun-if-changed=src/cuda/kernels");
    for variable in [CAPABILITIES, "CUDA_COMPUTE_CAP", "NVCC", "NVCC_CCBIN"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let toolkit = cudaforge::CudaToolkit::detect()
        .unwrap_or_else(|error| panic!("the kernels for CUDA need the toolkit's nvcc: {error}"));
    let folder = std::env::var("OUT_DIR").expect("Cargo names the build folder");
    let mut nvcc = std::process::Command::new(&toolkit.nvcc_path);
    nvcc.args(["-fatbin", "-std=c++17", "-O3", "--default-stream", "per-thread", "--output-file"])
        .arg(std::path::Path::new(&folder).join("kernels.fatbin"))
        .args(targets(&capabilities()));
    if let Ok(compiler) = std::env::var("NVCC_CCBIN") {
        nvcc.args(["-allow-unsupported-compiler", "-ccbin", &compiler]);
    }
    match nvcc.arg(SOURCE).status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("the kernels for CUDA do not compile: {nvcc:?}: {status}"),
        Err(error) => panic!("the kernels for CUDA do not compile: {nvcc:?}: {error}"),
    }
}

/// Returns the compute capabilities for which the kernels are compiled, such as 80 for 8.0.
#[cfg(feature = "cuda")]
fn capabilities() -> Vec<usize> {
    let Ok(list) = std::env::var(CAPABILITIES) else {
        return match cudaforge::detect_compute_cap() {
            Ok(capability) => vec![capability.base()],
            Err(error) => panic!("the kernels for CUDA need a compute capability: {error}"),
        };
    };
    let parse = |one: &str| match one.trim().parse() {
        Ok(capability) => capability,
        Err(_) => panic!("{CAPABILITIES}={list}: `{one}` is no compute capability such as 80"),
    };
    list.split(',').map(parse).collect()
}

/// Returns the arguments with which `nvcc` compiles for these compute capabilities.
#[cfg(feature = "cuda")]
fn targets(capabilities: &[usize]) -> Vec<String> {
    let machine_code = capabilities.iter().map(|one| format!("arch=compute_{one},code=sm_{one}"));
    let ptx = capabilities.last().map(|last| format!("arch=compute_{last},code=compute_{last}"));
    machine_code.chain(ptx).map(|target| format!("-gencode={target}")).collect()
}
