//! See `admittance_fuzz::signatures`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| admittance_fuzz::signatures(input));
