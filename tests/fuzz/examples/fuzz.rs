//! The program that `cargo task fuzz` compiles with libFuzzer. An environment variable names its fuzz target.
#![no_main]

use std::{env, sync::LazyLock};

use admittance_fuzz::{FuzzTarget, TARGETS};

static TARGET: LazyLock<FuzzTarget> = LazyLock::new(|| {
    let target_name = env::var("ADMITTANCE_FUZZ_TARGET").unwrap_or_default();
    match TARGETS.iter().find(|(name, _)| *name == target_name) {
        Some((_, target)) => *target,
        None => panic!("ADMITTANCE_FUZZ_TARGET names no fuzz target: `{target_name}`"),
    }
});

libfuzzer_sys::fuzz_target!(|input: &[u8]| TARGET(input));
