//! See `admittance_fuzz::rest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| admittance_fuzz::rest(input));
