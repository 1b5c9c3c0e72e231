//! Tests hot reloading: all ways to change files, changes that cannot go live, startup, full disks, and kills.

mod changes;
mod clock;
mod compilers;
mod disabled;
mod disks;
mod failures;
mod kills;
mod retries;
mod scene;
mod starts;
mod swaps;
