//! Adds containers, volumes and annotations to workloads.
