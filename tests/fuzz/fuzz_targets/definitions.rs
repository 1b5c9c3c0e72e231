//! See `admittance_fuzz::definitions`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| admittance_fuzz::definitions(input));
