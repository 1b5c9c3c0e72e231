//! The program that `cargo task fuzz` compiles with libFuzzer. An environment variable names its fuzz target.
#![no_main]

use std::{env, sync::LazyLock};

use admittance_fuzz::{FuzzTarget, TARGETS};

static TARGET: LazyLock<FuzzTarget> = LazyLock::new(|| {
    let wanted = env::var("ADMITTANCE_FUZZ_TARGET").unwrap_or_default();
    match TARGETS.iter().find(|(name, _)| *name == wanted) {
        Some((_, target)) => *target,
        None => panic!("ADMITTANCE_FUZZ_TARGET names no fuzz target: `{wanted}`"),
    }
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET(input));
