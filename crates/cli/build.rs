//! Finds the files that are embedded in the program for `taper quickstart`. They are in the
//! repository; a package that was made from the repository has them in its folder `bundled`.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bundled = package.join("bundled");
    let root = if bundled.is_dir() { bundled } else { package.join("../..") };
    println!("cargo::rustc-env=TAPER_BUNDLED={}", root.display());
}
