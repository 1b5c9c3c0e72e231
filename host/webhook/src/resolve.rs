use std::{borrow::Cow, collections::HashMap, str::FromStr};

use http::{
    Uri,
    uri::{Authority, PathAndQuery},
};

use crate::Error;

/// The addresses that replace those in DNS for some host names. TLS and the `Host` header still use the host name.
#[derive(Clone, Debug, Default)]
pub struct AddressOverrides(HashMap<String, Address>);

/// The address of a server: a host name or IP address, and a port.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub struct Address(Authority);

impl Address {
    fn parse(text: &str) -> Option<Self> {
        let authority = Authority::from_str(text).ok()?;
        let has_user = authority.as_str().contains('@');
        // Port 0 is refused, because no client can connect to it.
        let has_port = authority.port_u16().is_some_and(|port| port != 0);
        (!has_user && has_port && !authority.host().is_empty()).then_some(Self(authority))
    }
}

impl AddressOverrides {
    /// Creates the overrides from pairs of a host name and an address, `HOST:PORT`. If the host of an address is a
    /// name, it is looked up in DNS, not in these overrides.
    pub fn parse<H: AsRef<str>, A: AsRef<str>>(entries: impl IntoIterator<Item = (H, A)>) -> Result<Self, Error> {
        entries
            .into_iter()
            .map(|(host, address)| {
                let address = Address::parse(address.as_ref()).ok_or_else(|| Error::Address {
                    host: host.as_ref().to_owned(),
                    address: address.as_ref().to_owned(),
                })?;
                Ok((lookup_key(host.as_ref()).into_owned(), address))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Returns the address that overrides DNS for this host name; `None` if there is none. Case is ignored.
    pub fn get(&self, host: &str) -> Option<&Address> {
        self.0.get(lookup_key(host).as_ref())
    }

    /// Returns the URI to connect to: `uri` with the address that overrides DNS; `None` if there is no override.
    pub(crate) fn dial_uri(&self, uri: &Uri) -> Option<Uri> {
        let Address(authority) = self.get(uri.host()?)?;
        let mut parts = http::uri::Parts::default();
        parts.scheme = uri.scheme().cloned();
        parts.authority = Some(authority.clone());
        parts.path_and_query = Some(PathAndQuery::from_static("/"));
        Uri::from_parts(parts).ok()
    }
}

fn lookup_key(host: &str) -> Cow<'_, str> {
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        host.to_ascii_lowercase().into()
    } else {
        host.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_override_is_a_host_and_a_port() {
        for (text, ok) in [
            ("127.0.0.1:9443", true),
            ("[::1]:9443", true),
            ("hooks.example.com:443", true),
            ("127.0.0.1", false),
            ("hooks.example.com", false),
            (":443", false),
            ("127.0.0.1:0", false),
            ("127.0.0.1:70000", false),
            ("user@127.0.0.1:80", false),
            ("https://127.0.0.1:80", false),
            ("", false),
        ] {
            assert_eq!(Address::parse(text).is_some(), ok, "{text}");
        }
        let error = AddressOverrides::parse([("a.b", "nowhere")]).unwrap_err().to_string();
        assert!(error.contains("`a.b`") && error.contains("`nowhere`"), "{error}");
    }

    #[test]
    fn an_address_override_keeps_the_scheme() {
        let table = AddressOverrides::parse([("Hook.Ns", "127.0.0.1:9443")]).unwrap();
        for (uri, expected) in [
            ("https://hook.ns/x?y", Some("https://127.0.0.1:9443/")),
            ("https://HOOK.ns:8443/x", Some("https://127.0.0.1:9443/")),
            ("http://hook.ns/", Some("http://127.0.0.1:9443/")),
            ("https://hook.ns.svc/", None),
        ] {
            let actual = table.dial_uri(&uri.parse().unwrap()).map(|uri| uri.to_string());
            assert_eq!(actual.as_deref(), expected, "{uri}");
        }
    }
}
