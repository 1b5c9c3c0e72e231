//! See `admittance_fuzz::registry`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| admittance_fuzz::registry(input));
