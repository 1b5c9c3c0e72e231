use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use super::{Network, failure};
use crate::Error;

/// Whether a registry is used over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Https,
    Http,
}

impl Scheme {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }
}

/// The detected schemes of registries that may be used without TLS.
#[derive(Debug, Default)]
pub(super) struct Schemes(Mutex<HashMap<String, Scheme>>);

impl Network {
    /// The scheme of a registry. A registry that may be used without TLS is probed once; an invalid
    /// certificate does not cause a fallback to http.
    pub(super) async fn scheme(&self, registry: &str, place: &str) -> Result<Scheme, Error> {
        if !self.may_be_without_tls(registry) {
            return Ok(Scheme::Https);
        }
        let known = || self.schemes.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scheme) = known().get(registry) {
            return Ok(*scheme);
        }
        let scheme = match self.client.get(format!("https://{registry}/v2/")).send().await {
            Ok(_) => Scheme::Https,
            Err(error) if failure::is_without_tls(&error) => Scheme::Http,
            Err(error) => return Err(failure::of_transport(&error, place, &self.config)),
        };
        known().insert(registry.to_owned(), scheme);
        Ok(scheme)
    }

    fn may_be_without_tls(&self, registry: &str) -> bool {
        self.config
            .insecure_registries
            .iter()
            .any(|insecure| insecure == registry)
            || is_this_machine(registry)
    }
}

/// Whether a registry is on this machine, so that traffic to it does not leave the machine.
fn is_this_machine(registry: &str) -> bool {
    let host = match registry.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => host,
        _ => registry,
    };
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine() {
        for (registry, expected) in [
            ("localhost", true),
            ("localhost:5000", true),
            ("127.0.0.1:5000", true),
            ("127.8.0.1", true),
            ("[::1]:5000", true),
            ("[::1]", true),
            ("localhost.example.com", false),
            ("10.0.0.1:5000", false),
            ("[fe80::1]:5000", false),
        ] {
            assert_eq!(is_this_machine(registry), expected, "{registry}");
        }
    }
}
