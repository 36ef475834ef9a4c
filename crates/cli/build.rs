//! Finds the files that are embedded in the program for `taper quickstart`: in the repository or,
//! for a package that was made from the repository, in the package's folder `bundled`.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bundled = package.join("bundled");
    let root = if bundled.is_dir() { bundled } else { package.join("../..") };
    println!("cargo::rustc-env=TAPER_BUNDLED={}", root.display());
}
