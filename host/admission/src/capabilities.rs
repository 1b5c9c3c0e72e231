//! Capabilities of plugins: what a stage may be granted, and the traits that the host implements for it.

pub(crate) mod cluster;
pub(crate) mod grants;
pub(crate) mod http;
pub(crate) mod images;
pub(crate) mod log;
pub(crate) mod tape;
