//! Notifies the other processes that train together with this process that this process ends.

use std::sync::Mutex;

use taper_trainer::LeaveHandle;

/// Connection that notifies the other processes if a signal ends this process.
pub(super) static FAREWELL: Mutex<Option<LeaveHandle>> = Mutex::new(None);

/// Notifies the other processes, if any, that this process ends and reports the reason itself.
pub(crate) fn say_farewell() {
    if let Ok(farewell) = FAREWELL.lock()
        && let Some(farewell) = farewell.as_ref()
    {
        farewell.say();
    }
}
