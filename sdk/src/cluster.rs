//! Reads resources of the control plane, of the kinds that the stage grants.
//!
//! The plugin requests a kind with `capabilities = [cluster("v1/Node")]`; the operator grants it with
//! `allow: { cluster: ["v1/Node"] }`. Reading a kind that is not granted ends the call.
//!
//! In native builds there is no control plane: every function returns [`Error::Unavailable`], unless a test provides
//! objects with [`testing::with_cluster`](crate::testing::with_cluster).

use serde::de::DeserializeOwned;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host has no control plane to read from, or cannot reach it.
    #[error("the control plane is unavailable: {0}")]
    Unavailable(String),
    /// The control plane did not answer before the deadline of the call.
    #[error("timeout: the control plane did not answer in time")]
    Timeout,
    /// The control plane refused; contains its message.
    #[error("the control plane refused: {0}")]
    Refused(String),
    /// The object cannot be parsed as the plugin's type.
    #[error("an object of the control plane cannot be parsed as the plugin's type: {0}")]
    Read(String),
}

/// Returns one object, or `None` if it does not exist.
///
/// `api_version` is `v1` or `apps/v1`; `namespace` is `None` for cluster-scoped kinds.
///
/// # Errors
/// The call failed, or the object cannot be parsed as the type.
pub fn get<T: DeserializeOwned>(
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<T>, Error> {
    source::get(api_version, kind, namespace, name)?
        .map(|text| read(&text))
        .transpose()
}

/// Returns the objects of a kind whose labels match the selector (`app=web,tier!=cache`; empty for all); without a
/// namespace, those of all namespaces.
///
/// # Errors
/// The call failed, or an object cannot be parsed as the type.
pub fn list<T: DeserializeOwned>(
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
    label_selector: &str,
) -> Result<Vec<T>, Error> {
    source::list(api_version, kind, namespace, label_selector)?
        .iter()
        .map(|text| read(text))
        .collect()
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| Error::Read(crate::pointer::message(&error)))
}

#[cfg(target_family = "wasm")]
mod source {
    use super::Error;
    use crate::bindings::admittance::plugin::cluster;

    pub(super) fn get(
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<String>, Error> {
        cluster::get(api_version, kind, namespace, name).map_err(error)
    }

    pub(super) fn list(
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        label_selector: &str,
    ) -> Result<Vec<String>, Error> {
        cluster::list(api_version, kind, namespace, label_selector).map_err(error)
    }

    fn error(error: cluster::Error) -> Error {
        match error {
            cluster::Error::Unavailable(why) => Error::Unavailable(why),
            cluster::Error::Timeout => Error::Timeout,
            cluster::Error::Refused(why) => Error::Refused(why),
        }
    }
}

#[cfg(not(target_family = "wasm"))]
use crate::testing::cluster as source;
