//! See `admittance_fuzz::review`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| admittance_fuzz::review(input));
