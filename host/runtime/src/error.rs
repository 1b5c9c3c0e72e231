/// Why a host cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {}
