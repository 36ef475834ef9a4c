//! Compiles the kernels for CUDA, where there is that feature.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "cuda")]
    compile();
}

/// Leaves `kernels.ptx` in the folder of the build.
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
