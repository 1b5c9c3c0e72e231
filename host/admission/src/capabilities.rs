//! The capabilities that a stage can grant to a plugin, and the traits through which the host provides them.

pub(crate) mod cluster;
pub(crate) mod grants;
pub(crate) mod http;
pub(crate) mod images;
pub(crate) mod log;
pub(crate) mod response_recorder;
