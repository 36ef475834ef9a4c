//! Finds the files that the program brings along, for `taper quickstart`: in the repository, or in
//! `bundled` within a package that was made of it.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bundled = package.join("bundled");
    let root = if bundled.is_dir() { bundled } else { package.join("../..") };
    println!("cargo::rustc-env=TAPER_BUNDLED={}", root.display());
}
