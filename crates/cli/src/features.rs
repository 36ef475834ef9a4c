//! Cargo features of this build, and errors for requests that need a feature which this build
//! lacks.

use std::path::PathBuf;

use anyhow::{Error, anyhow};
use clap::builder::{PathBufValueParser, TypedValueParser};

/// A cargo feature.
struct Feature {
    name: &'static str,
    is_built: bool,
    /// Noun phrase that completes the sentence "this program was built without …".
    gives: &'static str,
    /// Advice for users without the feature; may be empty.
    instead: &'static str,
}

macro_rules! feature {
    ($name:tt, $gives:literal, $instead:literal) => {
        Feature { name: $name, is_built: cfg!(feature = $name), gives: $gives, instead: $instead }
    };
}

const FEATURES: [Feature; 12] = [
    feature!("kinds", "kinds of attention other than a softmax over keys", ""),
    feature!("parquet", "Parquet", "convert the file to JSON lines"),
    feature!("png", "PNG figures", "write SVG"),
    feature!("serve", "the server", ""),
    feature!("top", "the screen of runs", "print the same as lines with `taper runs`"),
    feature!("cuda", "GPUs of NVIDIA's", ""),
    feature!("metal", "GPUs of Apple's", ""),
    feature!("accelerate", "Apple's matrix library", ""),
    feature!("mkl", "Intel's matrix library", ""),
    feature!("mpi", "MPI", "leave the option out"),
    feature!("nccl", "NCCL", "leave the option out"),
    feature!(
        "hub",
        "access to the hub",
        "use `hf upload` and `hf download` of the package huggingface_hub"
    ),
];

/// Names of the features of this build.
pub(crate) fn built() -> Vec<&'static str> {
    FEATURES.iter().filter(|feature| feature.is_built).map(|feature| feature.name).collect()
}

/// Error of a request that needs the feature `name`, which this build lacks.
pub(crate) fn lacking(name: &str) -> Error {
    let found = FEATURES.iter().find(|feature| feature.name == name);
    let (gives, instead) = found.map_or((name, ""), |feature| (feature.gives, feature.instead));
    let or = if instead.is_empty() { "" } else { ", or " };
    anyhow!(
        "this program was built without {gives}; build it with the cargo feature `{name}` (cargo \
         install --path crates/cli --features {name}){or}{instead}"
    )
}

/// Calls a function with its arguments. If this build lacks the feature `$name`, to which the
/// function belongs, returns the error of [`lacking`] instead.
macro_rules! with_feature {
    ($name:tt, $function:path, $arguments:expr) => {{
        #[cfg(feature = $name)]
        let result = $function($arguments);
        #[cfg(not(feature = $name))]
        let result = {
            let _ = $arguments;
            Err(crate::features::lacking($name))
        };
        result
    }};
}
pub(crate) use with_feature;

/// Parses the path of PNG figures; refuses it if this build draws none.
pub(crate) fn png_path() -> impl TypedValueParser<Value = PathBuf> {
    let of_build = |path| if cfg!(feature = "png") { Ok(path) } else { Err(lacking("png")) };
    PathBufValueParser::new().try_map(of_build)
}

#[cfg(test)]
mod tests {
    use super::lacking;

    #[test]
    fn an_error_says_how_to_get_a_feature_and_what_to_do_without_it() {
        assert_eq!(
            lacking("png").to_string(),
            "this program was built without PNG figures; build it with the cargo feature `png` \
             (cargo install --path crates/cli --features png), or write SVG"
        );
        assert!(lacking("serve").to_string().ends_with("--features serve)"));
    }
}
