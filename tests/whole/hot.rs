//! What runs is changed while requests flow: modules and definitions, by every way in which files change;
//! what cannot go live, and what is served then; starts, full disks and kills.

mod changes;
mod clock;
mod disks;
mod failures;
mod kills;
mod retries;
mod scene;
mod starts;
mod swaps;
