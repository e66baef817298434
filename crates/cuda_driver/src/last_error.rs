//! The answer of a call in C's form, and the text of the latest failure.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::codes::{self, Answer};
use crate::types::CUresult;

/// What a failed call had to say.
struct LastError {
    text: Option<String>,
    /// The text is of the call that is running now.
    fresh: bool,
}

thread_local! {
    static LAST_ERROR: RefCell<LastError> =
        const { RefCell::new(LastError { text: None, fresh: false }) };
}

/// Runs `f` on the thread's last error; not if a destructor of another thread-local
/// calls in after it is gone: there is then nobody left to read it.
fn with_last_error<R>(f: impl FnOnce(&mut LastError) -> R) -> Option<R> {
    LAST_ERROR.try_with(|last| f(&mut last.borrow_mut())).ok()
}

/// The C form of the answer that `call` gives for the function of this name. The text of
/// an earlier failure does not outlive one that has no text. A panic, which must not
/// leave a C function, is `CUDA_ERROR_UNKNOWN`.
pub(crate) fn answer(function: &str, call: impl FnOnce() -> Answer) -> CUresult {
    let call = || {
        #[cfg(test)]
        tests::panic_if_asked();
        call()
    };
    // A poisoned mutex can be locked. Calls share the handles behind `soft::state::lock`, the
    // software device's memory and the thread's stack of contexts. Each change to one of them is a
    // few operations of its collections, between which nothing can panic.
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or(panic.downcast_ref::<String>().map(String::as_str));
        explain(format!(
            "{function} panicked: {}; this is a defect of cuda_driver, please report it",
            text.unwrap_or("no reason given")
        ));
        Err(CUresult::CUDA_ERROR_UNKNOWN)
    });
    let Err(code) = result else { return CUresult::CUDA_SUCCESS };
    with_last_error(|last| {
        if !std::mem::take(&mut last.fresh) {
            last.text = None;
        }
    });
    code
}

/// A code of the driver in Rust's form, `CUDA_ERROR_UNKNOWN` if `cust_raw` does not
/// have it.
pub(crate) fn checked(code: CUresult) -> Answer {
    if codes::find(code).is_some() {
        return code.ok();
    }
    explain(format!("the NVIDIA driver answered error code {}, which cust does not know", code.0));
    Err(CUresult::CUDA_ERROR_UNKNOWN)
}

/// Keeps `text` for [`last_error`]; the running call is about to fail.
pub(crate) fn explain(text: String) {
    with_last_error(|last| *last = LastError { text: Some(text), fresh: true });
}

/// The details of the latest failed call on this thread.
///
/// For example: why a launch was refused, why PTX did not load, which address a copy missed. `None`
/// if there are none.
pub fn last_error() -> Option<String> {
    with_last_error(|last| last.text.clone()).flatten()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::path::Path;

    use super::*;

    thread_local! {
        static PANIC: Cell<bool> = const { Cell::new(false) };
    }

    /// Panics if the test that called asks for it.
    pub(crate) fn panic_if_asked() {
        if PANIC.take() {
            panic!("as asked");
        }
    }

    /// The exported function `name`, which `call` calls, answers a panic with an error.
    pub(crate) fn answers_a_panic(name: &str, call: impl FnOnce() -> CUresult) {
        PANIC.set(true);
        assert_eq!(call(), CUresult::CUDA_ERROR_UNKNOWN, "{name}");
        assert!(!PANIC.take(), "{name} does not go through `answer`");
        let text = last_error().unwrap();
        assert!(text.starts_with(&format!("{name} panicked: as asked; ")), "{text}");
    }

    /// There is one place that exports functions, by an unsafe attribute or by assembly, and it
    /// makes the test of each.
    #[test]
    fn every_exported_function_is_tested() {
        fn count(folder: &Path, start: &str) -> usize {
            let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            entries
                .map(|path| match path.is_dir() {
                    true => count(&path, start),
                    false => std::fs::read_to_string(path)
                        .unwrap()
                        .lines()
                        .filter(|line| line.trim().trim_start_matches("#[").starts_with(start))
                        .count(),
                })
                .sum()
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        assert_eq!(["unsafe(", "std::arch::"].map(|start| count(&source, start)), [1, 1]);
    }

    #[test]
    fn an_earlier_text_does_not_outlive_a_failure_without_one() {
        let fail = |text: Option<&str>| {
            answer("test", || {
                text.into_iter().for_each(|text| explain(text.to_owned()));
                Err(CUresult::CUDA_ERROR_INVALID_VALUE)
            })
        };
        assert_eq!(fail(Some("why")), CUresult::CUDA_ERROR_INVALID_VALUE);
        assert_eq!(last_error().as_deref(), Some("why"));
        assert_eq!(answer("test", || Ok(())), CUresult::CUDA_SUCCESS);
        assert_eq!(last_error().as_deref(), Some("why"));
        assert_eq!(fail(None), CUresult::CUDA_ERROR_INVALID_VALUE);
        assert_eq!(last_error(), None);
    }
}
