//! See `admittance_fuzz::references`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| admittance_fuzz::references(input));
