//! Documents to chain definitions: native YAML and BCS admissionwebhook JSON, with every mistake found at once.

pub mod document;

pub use document::{Location, Mistake, Mistakes};
