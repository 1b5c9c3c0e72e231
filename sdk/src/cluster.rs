//! Reading the control plane's own resources, of the kinds that the stage grants.
//!
//! The plugin asks for a kind with `capabilities = [cluster("v1/Node")]`; the operator grants it with
//! `allow: { cluster: ["v1/Node"] }`. Asking for a kind that is not granted ends the call.
//!
//! Natively there is no control plane: every function answers [`Error::Unavailable`], unless a test gave objects to
//! [`testing::with_cluster`](crate::testing::with_cluster).

use serde::de::DeserializeOwned;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This host reads from no control plane, or cannot reach it now.
    #[error("the control plane's resources cannot be read: {0}")]
    Unavailable(String),
    /// The control plane did not answer within the call's time.
    #[error("the control plane did not answer in time")]
    Timeout,
    /// The control plane refused; its own words.
    #[error("the control plane refused: {0}")]
    Refused(String),
    /// The object does not have the shape that the plugin reads it as.
    #[error("an object of the control plane is not what this plugin can read: {0}")]
    Read(String),
}

/// One object; `None` when there is none of that name.
///
/// `api_version` is `v1` or `apps/v1`; `namespace` is `None` for kinds that are in none.
///
/// # Errors
/// There is no answer, or it does not have the type's shape.
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

/// The objects of a kind: of all namespaces without a namespace, and of those only the ones whose
/// labels match the selector (`app=web,tier!=cache`; empty for all).
///
/// # Errors
/// There is no answer, or one of the objects does not have the type's shape.
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
