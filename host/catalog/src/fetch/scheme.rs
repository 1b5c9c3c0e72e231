use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use super::{Network, failure};
use crate::Error;

/// Whether a registry is spoken to over TLS.
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

/// What was found out about registries that may be without TLS.
#[derive(Debug, Default)]
pub(super) struct Schemes(Mutex<HashMap<String, Scheme>>);

impl Network {
    /// How a registry is spoken to. One that may be without TLS is asked, once, whether it has it, and
    /// a wrong certificate of it is no reason to do without.
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

/// Whether a registry's name can only be this machine's: what is sent there, nobody else hears.
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
