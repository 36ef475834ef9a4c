//! `taper push` and `taper pull`: folders of models on the Hugging Face hub.

use anyhow::Result;
use taper_hub::{Hub, HubEvent, PushSettings};

use crate::arguments::{Pull, Push};
use crate::text::{print_line, quoted, say};

/// Uploads a folder.
pub(crate) fn push(arguments: &Push) -> Result<()> {
    let Push { folder, repository, revision, private, message } = arguments;
    let settings =
        PushSettings { revision: revision.clone(), private: *private, message: message.clone() };
    let hub = Hub::from_environment()?;
    let pushed = taper_hub::push(&hub, folder, repository, &settings, &mut tell)?;
    print_line(&format!(
        "{}: {} files, {:.1} MB, commit {}",
        pushed.url,
        pushed.files,
        pushed.bytes as f64 / 1e6,
        pushed.commit
    ))
}

/// Downloads a folder.
pub(crate) fn pull(arguments: &Pull) -> Result<()> {
    let Pull { repository, folder, revision } = arguments;
    let hub = Hub::from_environment()?;
    let pulled = taper_hub::pull(&hub, repository, folder, revision, &mut tell)?;
    print_line(&format!(
        "{}: {} files, {:.1} MB, commit {}; next: taper import {} RUN",
        folder.display(),
        pulled.files,
        pulled.bytes as f64 / 1e6,
        pulled.commit,
        quoted(folder)
    ))
}

/// Reports on standard error which file is transferred.
fn tell(event: HubEvent<'_>) {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    match event {
        HubEvent::Transfers { path, from: 0, bytes } => {
            say(&format!("{path}: {:.1} MB", megabytes(bytes)));
        }
        HubEvent::Transfers { path, from, bytes } => {
            let (from, bytes) = (megabytes(from), megabytes(bytes));
            say(&format!("{path}: {bytes:.1} MB, from {from:.1} MB on"));
        }
        HubEvent::IsThere { path } => say(&format!("{path}: is there already")),
        _ => {}
    }
}
