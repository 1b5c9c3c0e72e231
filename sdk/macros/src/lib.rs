//! Macros of admittance-sdk.
