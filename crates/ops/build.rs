//! Compiles the CUDA kernels, if the feature `cuda` is enabled.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "cuda")]
    compile();
}

/// Compiles the kernels to `kernels.ptx` in the build folder.
#[cfg(feature = "cuda")]
fn compile() {
    println!("cargo::rerun-if-changed=src/cuda/kernels");
    let compiled = cudaforge::KernelBuilder::new()
        .source_files(vec!["src/cuda/kernels/kernels.cu"])
        // The builder caches its result. If a header that the source file includes changes, the
        // kernels must be compiled again.
        .watch(included())
        .arg("-std=c++17")
        .arg("-O3")
        .build_ptx();
    if let Err(error) = compiled {
        panic!("the kernels for CUDA do not compile: {error}");
    }
}

/// Returns the paths of the kernels' headers.
#[cfg(feature = "cuda")]
fn included() -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir("src/cuda/kernels").into_iter().flatten().flatten();
    let mut headers: Vec<_> = files.map(|file| file.path()).collect();
    headers.retain(|path| path.extension().is_some_and(|extension| extension == "cuh"));
    headers.sort();
    headers
}
