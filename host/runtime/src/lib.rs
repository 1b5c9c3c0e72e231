//! Admission hooks as WebAssembly components, inside your own program.

mod builder;
mod error;
mod host;
mod measure;
mod table;

pub use builder::HostBuilder;
pub use error::Error;
pub use host::Host;
pub use measure::{DURATION_BUCKETS, describe_metrics};
pub use table::Table;

pub use admittance_admission as admission;
pub use admittance_definitions as definitions;
pub use admittance_dialect as dialect;
