//! See `admittance_fuzz::guest`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| admittance_fuzz::guest(input));
