//! Farewell to the other processes of a training.

use std::sync::Mutex;

use taper_trainer::Farewell;

/// Connection that says farewell to the other processes if a signal ends this one.
pub(super) static FAREWELL: Mutex<Option<Farewell>> = Mutex::new(None);

/// Tells the other processes, if there are any, that this one ends and says itself why.
pub(crate) fn say_farewell() {
    if let Ok(farewell) = FAREWELL.lock()
        && let Some(farewell) = farewell.as_ref()
    {
        farewell.say();
    }
}
