//! Admission hooks as WebAssembly components, inside your own program.
