//! Ctrl-C: the first one asks for an orderly end, the second one ends at once.

use std::sync::atomic::{AtomicBool, Ordering};

/// The exit code of a run that was interrupted, as shells count: 128 and SIGINT's number.
pub(crate) const EXIT_CODE: u8 = 130;

static STOP: AtomicBool = AtomicBool::new(false);

/// Raised at the first Ctrl-C from now on, or when the process is asked to terminate.
pub(crate) fn watch() -> &'static AtomicBool {
    // Without a handler Ctrl-C ends the process at once, which does no harm: files are never there by half.
    let _ = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(EXIT_CODE.into());
        }
    });
    &STOP
}
