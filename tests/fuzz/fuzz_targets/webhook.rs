//! See `admittance_fuzz::webhook`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| admittance_fuzz::webhook(input));
