//! See `admittance_fuzz::selectors`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| admittance_fuzz::selectors(input));
