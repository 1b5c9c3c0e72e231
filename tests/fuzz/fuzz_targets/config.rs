//! See `admittance_fuzz::config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| admittance_fuzz::config(input));
