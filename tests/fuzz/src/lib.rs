//! Fuzz targets. Each is a function for a parser of untrusted input: it gets arbitrary bytes, and panics if an
//! invariant does not hold.
//!
//! The targets call the same public functions as the program. `examples/fuzz.rs` is the program for libFuzzer,
//! `corpus/` has the inputs with which it begins, and the test `corpus` runs each of them once, without
//! instrumentation.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a target fails by panicking"
)]

mod bcs;
mod cel;
mod config;
mod definitions;
mod guest;
mod http1;
mod patch;
mod references;
mod registry;
mod rest;
mod review;
mod selectors;
mod signatures;
mod store;
mod tunnel;
mod verdict;
mod webhook;
mod yaml;

use std::{cell::RefCell, future::Future, path::Path};

pub use self::{
    bcs::bcs, cel::cel, config::config, definitions::definitions, guest::guest, patch::patch, references::references,
    registry::registry, rest::rest, review::review, selectors::selectors, signatures::signatures, store::store,
    tunnel::tunnel, webhook::webhook, yaml::yaml,
};

/// A fuzz target, which gets arbitrary bytes and panics if an invariant does not hold.
pub type FuzzTarget = fn(&[u8]);

/// All fuzz targets: (name of the directory with the target's inputs, target).
pub const TARGETS: [(&str, FuzzTarget); 16] = [
    ("bcs", bcs),
    ("cel", cel),
    ("config", config),
    ("definitions", definitions),
    ("guest", guest),
    ("patch", patch),
    ("references", references),
    ("registry", registry),
    ("rest", rest),
    ("review", review),
    ("selectors", selectors),
    ("signatures", signatures),
    ("store", store),
    ("tunnel", tunnel),
    ("webhook", webhook),
    ("yaml", yaml),
];

/// Splits an input at its first empty lines into `N` parts. The last part is the rest of the input. If there are too
/// few empty lines, the remaining parts are empty.
fn parts<const N: usize>(input: &[u8]) -> [&[u8]; N] {
    const SEPARATOR: &[u8] = b"\n\n";
    let mut rest = input;
    std::array::from_fn(|index| {
        let end = rest.windows(SEPARATOR.len()).position(|window| window == SEPARATOR);
        match end.filter(|_| index + 1 < N) {
            Some(end) => {
                let part = &rest[..end];
                rest = &rest[end + SEPARATOR.len()..];
                part
            }
            None => std::mem::take(&mut rest),
        }
    })
}

/// Runs a future on the runtime of this thread. Servers and connections on it stay open for the next inputs.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime can be made");
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}

fn in_directory<T>(work: impl FnOnce(&Path) -> T) -> T {
    thread_local! {
        static PARENT: RefCell<tempfile::TempDir> =
            RefCell::new(tempfile::tempdir().expect("a directory can be made"));
    }
    PARENT.with_borrow(|parent| {
        let directory = parent.path().join("input");
        // The directory may have files of the previous input.
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).expect("a directory can be made");
        work(&directory)
    })
}
