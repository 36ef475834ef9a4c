//! Files of one side of a corpus, or of a table with both sides.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// List of files that are read one after another, as if they were a single file; may be empty.
///
/// In a recipe (the TOML file with all settings of a training), one file is a string, and several
/// files are a list of strings. Each string may be a pattern such as `train.*.gz`, which
/// [`Task::expand`](crate::Task::expand) replaces by the matching files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileList(Vec<PathBuf>);

impl FileList {
    /// First file, or an empty path if the list is empty.
    pub(crate) fn first_path(&self) -> &Path {
        self.0.first().map_or(Path::new(""), PathBuf::as_path)
    }
}

impl Deref for FileList {
    type Target = [PathBuf];

    fn deref(&self) -> &[PathBuf] {
        &self.0
    }
}

impl DerefMut for FileList {
    fn deref_mut(&mut self) -> &mut [PathBuf] {
        &mut self.0
    }
}

impl From<PathBuf> for FileList {
    fn from(path: PathBuf) -> Self {
        Self(if path.as_os_str().is_empty() { Vec::new() } else { vec![path] })
    }
}

impl From<&str> for FileList {
    fn from(path: &str) -> Self {
        Self::from(PathBuf::from(path))
    }
}

impl From<Vec<PathBuf>> for FileList {
    fn from(paths: Vec<PathBuf>) -> Self {
        Self(paths)
    }
}

impl Serialize for FileList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [] => serializer.serialize_str(""),
            [one] => one.serialize(serializer),
            several => several.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for FileList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Paths;

        impl<'de> Visitor<'de> for Paths {
            type Value = FileList;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("the path of a file, or a list of such paths")
            }

            fn visit_str<E: serde::de::Error>(self, path: &str) -> Result<FileList, E> {
                Ok(FileList::from(path))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<FileList, A::Error> {
                let mut paths = Vec::new();
                while let Some(path) = list.next_element::<PathBuf>()? {
                    if path.as_os_str().is_empty() {
                        return Err(serde::de::Error::custom("a file in a list has a path"));
                    }
                    paths.push(path);
                }
                Ok(FileList(paths))
            }
        }

        deserializer.deserialize_any(Paths)
    }
}

impl JsonSchema for FileList {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FileList".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-values": "a path, a pattern or a list of them",
            "anyOf": [
                { "type": "string" },
                { "type": "array", "items": { "type": "string" } }
            ]
        })
    }
}
