//! See `admittance_fuzz::store`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| admittance_fuzz::store(input));
