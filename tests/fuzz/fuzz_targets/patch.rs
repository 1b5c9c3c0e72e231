//! See `admittance_fuzz::patch`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| admittance_fuzz::patch(input));
