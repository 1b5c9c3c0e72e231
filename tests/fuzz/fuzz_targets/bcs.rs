//! See `admittance_fuzz::bcs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| admittance_fuzz::bcs(input));
