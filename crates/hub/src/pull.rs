//! Download of the files of one revision. If a call is interrupted, a later call continues where it
//! stopped.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use crate::checksums::{git_blob_of, sha256_of};
use crate::connection::{escaped, owner_and_name};
use crate::lfs::of_models;
use crate::push::INCOMPLETE;
use crate::{Hub, HubError, HubEvent, Result};

/// Number of bytes of a file that are received and written at a time.
const PIECE: usize = 1 << 16;
/// Number of characters of a file's checksum that are in the name of its unfinished download.
const SHOWN: usize = 12;
/// Largest number of bytes of a file's name that are in the name of its unfinished download. File
/// systems limit names to 255 bytes.
const LONGEST_NAME: usize = 200;

/// Result of a download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// Hash of the commit.
    pub commit: String,
    /// Number of files.
    pub files: usize,
    /// Total number of bytes of the files.
    pub bytes: u64,
}

#[derive(Deserialize)]
struct Info {
    sha: String,
    siblings: Vec<Sibling>,
}

/// File in a revision of a repository.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: u64,
    blob_id: String,
    #[serde(default)]
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

impl Sibling {
    fn bytes(&self) -> u64 {
        self.lfs.as_ref().map_or(self.size, |lfs| lfs.size)
    }

    /// Returns the hub's checksum: SHA-256 for a large file, SHA-1 of the Git blob for a small
    /// file.
    fn checksum(&self) -> &str {
        self.lfs.as_ref().map_or(&self.blob_id, |lfs| &lfs.sha256)
    }

    /// True if the file at `path` has the size and the checksum that the hub has for this file.
    fn is(&self, path: &Path) -> Result<bool> {
        let facts = fs::metadata(path).map_err(|error| HubError::file(path, error))?;
        if facts.len() != self.bytes() {
            return Ok(false);
        }
        Ok(match self.lfs {
            Some(_) => sha256_of(path)?,
            None => git_blob_of(path, facts.len())?,
        } == self.checksum())
    }
}

/// Downloads the files of `repository`, given as `owner/name`, into `folder`. `revision` is a
/// branch, tag or commit. Existing files with the same content are kept.
///
/// # Errors
/// When the hub does not answer or refuses a request, a file exists already with different content,
/// a file cannot be written, or a downloaded file does not have the hub's checksum.
pub fn pull(
    hub: &Hub,
    repository: &str,
    folder: &Path,
    revision: &str,
    observer: &mut dyn FnMut(HubEvent<'_>),
) -> Result<Pulled> {
    owner_and_name(repository)?;
    let subject = format!("{repository} at {revision}");
    let place = of_models(repository, "revision", revision);
    let info: Info = hub.ask(&subject, hub.get(&format!("{place}?blobs=true")), 0)?;
    let places = info.siblings.iter().map(|file| within(folder, &file.rfilename));
    let places = places.collect::<Result<Vec<PathBuf>>>()?;
    let mut missing = Vec::new();
    for (file, place) in info.siblings.iter().zip(&places) {
        if !place.exists() {
            missing.push((file, place));
        } else if file.is(place)? {
            observer(HubEvent::IsThere { path: &file.rfilename });
        } else {
            let message =
                "it has another content than the hub's: remove it, or name another folder";
            return Err(HubError::file(place, message));
        }
    }
    for (file, place) in missing {
        download(hub, (repository, &info.sha), file, place, observer)?;
    }
    let bytes = info.siblings.iter().map(Sibling::bytes).fold(0, u64::saturating_add);
    Ok(Pulled { commit: info.sha, files: places.len(), bytes })
}

/// Returns the path of the file `name` in `folder`; an error if `name` leads out of the folder.
fn within(folder: &Path, name: &str) -> Result<PathBuf> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let is_inside = !name.is_empty() && Path::new(name).components().all(is_plain);
    if !is_inside || name.contains(['\\', ':', '\0']) {
        let message = format!("the repository has a file {name:?}, which leads out of the folder");
        return Err(HubError::file(folder, message));
    }
    Ok(folder.join(name))
}

/// Downloads a file. Continues where an earlier call stopped, if there was one.
fn download(
    hub: &Hub,
    (repository, commit): (&str, &str),
    file: &Sibling,
    place: &Path,
    observer: &mut dyn FnMut(HubEvent<'_>),
) -> Result<()> {
    let (path, bytes) = (file.rfilename.as_str(), file.bytes());
    let fault = |error| HubError::file(place, error);
    let parent = place.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|error| HubError::file(parent, error))?;
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let checksum: String = file.checksum().chars().take(SHOWN).collect();
    let name = &name[..name.floor_char_boundary(LONGEST_NAME)];
    let begun = parent.join(format!(".{name}.{checksum}{INCOMPLETE}"));
    let from = fs::metadata(&begun).map_or(0, |facts| facts.len()).min(bytes);
    if from < bytes || bytes == 0 {
        observer(HubEvent::Transfers { path, from, bytes });
        let from_hub = hub.get(&format!("/{repository}/resolve/{commit}/{}", escaped(path, false)));
        let request = match from {
            0 => from_hub,
            from => from_hub.header("Range", format!("bytes={from}-")),
        };
        let mut answer = hub.send(path, request, bytes - from, &[416])?;
        // 206 means that only the missing part is sent. Servers may send the whole file instead.
        let goes_on = answer.status().as_u16() == 206;
        let mut options = OpenOptions::new();
        options.create(true).write(true).append(goes_on).truncate(!goes_on);
        let mut out = options.open(&begun).map_err(fault)?;
        // More bytes than the file has are not read.
        let missing = if goes_on { bytes - from } else { bytes };
        copy(hub, path, &mut answer.by_ref().take(missing), (place, &mut out))?;
        out.sync_all().map_err(fault)?;
    }
    if !file.is(&begun)? {
        fs::remove_file(&begun).map_err(fault)?;
        return Err(HubError::Damaged { path: path.to_owned() });
    }
    fs::rename(&begun, place).map_err(fault)
}

/// Writes the body of an answer to the unfinished file for `place`. If the connection breaks, the
/// received part is kept.
///
/// # Errors
/// [`HubError::Network`] if the connection breaks, and [`HubError::File`] if the disk is full.
fn copy(
    hub: &Hub,
    path: &str,
    answer: &mut impl Read,
    (place, out): (&Path, &mut impl Write),
) -> Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let count = match answer.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => {
                return Err(HubError::Network {
                    subject: path.to_owned(),
                    endpoint: hub.endpoint(),
                    message: error.to_string(),
                });
            }
        };
        out.write_all(&piece[..count]).map_err(|error| HubError::file(place, error))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    /// Connection that breaks after its first bytes, and a disk with room for no bytes.
    struct Broken(bool);

    impl Read for Broken {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                return Err(ErrorKind::ConnectionReset.into());
            }
            bytes[..3].fill(7);
            Ok(3)
        }
    }

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_is_not_an_error_of_the_network() {
        let hub = Hub::new("http://hub.example", None).expect("a connection");
        let place = Path::new("folder/model.bin");
        let mut received = Vec::new();
        let error = copy(&hub, "model.bin", &mut Broken(false), (place, &mut received));
        assert!(matches!(error, Err(HubError::Network { .. })), "{error:?}");
        assert_eq!(received, [7; 3]);
        let error = copy(&hub, "model.bin", &mut Broken(false), (place, &mut Broken(true)));
        let Err(HubError::File { path, .. }) = &error else { panic!("{error:?}") };
        assert_eq!(path, place);
    }
}
