//! Compiles the CUDA kernels, if the feature is enabled.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "cuda")]
    compile();
}

/// Writes `kernels.ptx` to the build folder.
#[cfg(feature = "cuda")]
fn compile() {
    println!("cargo::rerun-if-changed=src/cuda/kernels.cu");
    let compiled = cudaforge::KernelBuilder::new()
        .source_files(vec!["src/cuda/kernels.cu"])
        .arg("-std=c++17")
        .arg("-O3")
        .build_ptx();
    if let Err(error) = compiled {
        panic!("the kernels for CUDA do not compile: {error}");
    }
}
