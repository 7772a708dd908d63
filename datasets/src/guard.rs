//! Code of other crates that may panic on damaged or odd input becomes code that returns an error.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs code whose panics are caught and become errors. A panic hook that reports panics, or ends the process,
/// should leave those alone.
pub fn is_guarded() -> bool {
    GUARDED.get()
}

/// Runs `code`; a panic becomes its message.
pub(crate) fn guarded<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    let before = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(code));
    GUARDED.set(before);
    result.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "the decoder failed".to_owned())
    })
}
