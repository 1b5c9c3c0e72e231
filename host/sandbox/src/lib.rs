//! Plugins as stages: WebAssembly components in instances of their own, with limits.
mod contract;
