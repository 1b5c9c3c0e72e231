//! Parses the path and query of a webhook call. The path selects the chains, the query the timeout.

use std::time::Duration;

use admittance_admission::{Phase, Scope, Selection};
use http::Uri;
use percent_encoding::percent_decode_str;

/// The chains that a webhook call selects, and the timeout of its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewAddress {
    /// The selected chains. `None` if the call is about the definition of a chain: the API server asks whether the
    /// definition is valid before it stores the definition.
    pub selection: Option<Selection>,
    /// The time after which the caller gives up, if the query has it.
    pub timeout: Option<Duration>,
}

/// The error for a webhook call whose path or query is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The path is not an address of a webhook.
    #[error(
        "{0:?} is not a path for reviews: use /mutate, /validate or /admit, a chain's own /mutate/{{chain}} or /validate/{{chain}}, or /definitions for definitions"
    )]
    Path(String),
    /// The parameter `timeout` of the query is not a valid duration.
    #[error("the timeout {0:?} in the query is not a valid duration: write `timeout=5s`")]
    Timeout(String),
}

impl ReviewAddress {
    /// Parses the path and query of a webhook call.
    ///
    /// The path selects the chains:
    ///
    /// - `/admit` selects all chains, `/mutate` the mutating ones, and `/validate` the validating ones.
    /// - `/mutate-namespaced` and `/validate-namespaced` select only chains that belong to a namespace.
    /// - `/mutate-cluster` and `/validate-cluster` select only chains that belong to no namespace.
    /// - `/mutate/{chain}` and `/validate/{chain}` select one chain.
    /// - `/definitions` selects no chains, and checks definitions instead.
    ///
    /// The query may have a timeout, such as the `?timeout=5s` that kube-apiserver adds.
    ///
    /// # Errors
    ///
    /// Returns an error if the path is none of these, or the timeout is invalid.
    pub fn parse(uri: &Uri) -> Result<Self, AddressError> {
        let path = uri.path();
        let unknown = || AddressError::Path(path.to_owned());
        let (root, chain) = match path.trim_start_matches('/').split_once('/') {
            None => (path.trim_start_matches('/'), None),
            Some((root, "")) => (root, None),
            Some((root, chain)) => {
                let chain = percent_decode_str(chain).decode_utf8().map_err(|_| unknown())?;
                (root, Some(chain.into_owned()))
            }
        };
        let selection = match (root, chain) {
            ("admit", None) => Some(Selection::All),
            ("mutate", None) => Some(Selection::Phase(Phase::Mutating, Scope::Any)),
            ("mutate-cluster", None) => Some(Selection::Phase(Phase::Mutating, Scope::Cluster)),
            ("mutate-namespaced", None) => Some(Selection::Phase(Phase::Mutating, Scope::Namespaced)),
            ("validate", None) => Some(Selection::Phase(Phase::Validating, Scope::Any)),
            ("validate-cluster", None) => Some(Selection::Phase(Phase::Validating, Scope::Cluster)),
            ("validate-namespaced", None) => Some(Selection::Phase(Phase::Validating, Scope::Namespaced)),
            ("mutate", Some(chain)) => Some(Selection::Chain(Phase::Mutating, chain)),
            ("validate", Some(chain)) => Some(Selection::Chain(Phase::Validating, chain)),
            ("definitions", None) => None,
            _ => return Err(unknown()),
        };
        let timeout = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
            .find(|(name, _)| name == "timeout")
            .map(|(_, value)| humantime::parse_duration(&value).map_err(|_| AddressError::Timeout(value.into_owned())))
            .transpose()?;
        Ok(Self { selection, timeout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn the_address_of_a_review_selects_chains_and_timeout() {
        let all = Some(Some(Selection::All));
        let scoped = |phase, scope| Some(Some(Selection::Phase(phase, scope)));
        let phase = |phase| scoped(phase, Scope::Any);
        let chain = |phase, name: &str| Some(Some(Selection::Chain(phase, name.to_owned())));
        for (uri, selection, timeout) in [
            ("/admit", all.clone(), None),
            ("/admit?timeout=10s", all, Some(10_000)),
            ("/mutate?timeout=1m30s", phase(Phase::Mutating), Some(90_000)),
            ("/mutate/?x=y", phase(Phase::Mutating), None),
            ("/validate", phase(Phase::Validating), None),
            ("/mutate-cluster?timeout=1s", scoped(Phase::Mutating, Scope::Cluster), Some(1_000)),
            ("/mutate-namespaced", scoped(Phase::Mutating, Scope::Namespaced), None),
            ("/validate-cluster", scoped(Phase::Validating, Scope::Cluster), None),
            ("/validate-namespaced", scoped(Phase::Validating, Scope::Namespaced), None),
            ("/mutate-namespaced/shop", None, None),
            ("/mutate/pods", chain(Phase::Mutating, "pods"), None),
            ("/validate/a.b%2Fc?timeout=500ms", chain(Phase::Validating, "a.b/c"), Some(500)),
            ("/mutate/bcs/web", chain(Phase::Mutating, "bcs/web"), None),
            ("/definitions?timeout=5s", Some(None), Some(5_000)),
            ("/definitions/pods", None, None),
            ("/", None, None),
            ("/admit/pods", None, None),
            ("/Mutate", None, None),
            ("/mutate/%ff", None, None),
            ("/mutate?timeout=soon", None, None),
        ] {
            let parsed = ReviewAddress::parse(&uri.parse().unwrap());
            let expected = selection.map(|selection| ReviewAddress {
                selection,
                timeout: timeout.map(Duration::from_millis),
            });
            assert_eq!(parsed.ok(), expected, "{uri}");
        }
    }
}
