//! See `admittance_fuzz::cel`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| admittance_fuzz::cel(input));
