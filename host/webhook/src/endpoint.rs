use admittance_admission::{Protocol, ServiceNaming, WebhookTarget};
use http::{
    Uri,
    uri::{Authority, Parts, PathAndQuery, Scheme},
};
use rustls_pki_types::{InvalidDnsNameError, ServerName};
use url::Url;

use crate::Error;

#[derive(Clone, Debug, derive_more::Display)]
// The displayed URL has no query, because the query may contain a secret.
#[display("{scheme}://{authority}{}", path.path())]
pub(crate) struct WebhookEndpoint {
    scheme: Scheme,
    authority: Authority,
    path: PathAndQuery,
}

impl WebhookEndpoint {
    pub(crate) fn new(target: &WebhookTarget, protocol: &Protocol) -> Result<Self, Error> {
        match target {
            WebhookTarget::Url(url) => Self::from_url(url, protocol),
            WebhookTarget::Service {
                namespace,
                name,
                port,
                path,
                naming,
            } => {
                let host = match naming {
                    ServiceNaming::Bcs => format!("{name}.{namespace}"),
                    ServiceNaming::Kubernetes => format!("{name}.{namespace}.svc"),
                };
                Self::from_service(&host, *port, path, protocol)
            }
        }
    }

    fn from_url(url: &Url, protocol: &Protocol) -> Result<Self, Error> {
        let refuse = |reason| {
            let mut redacted = url.clone();
            // The setters return an error only if the URL has no host. A URL without a host cannot contain a user name
            // or password, so the error is ignored.
            let _ = redacted.set_username("");
            let _ = redacted.set_password(None);
            Error::Url {
                url: redacted.to_string(),
                reason,
            }
        };
        let scheme = match (url.scheme(), protocol) {
            ("https", _) => Scheme::HTTPS,
            ("http", Protocol::BcsResource) => Scheme::HTTP,
            ("http", Protocol::AdmissionReview { .. }) => {
                return Err(refuse(
                    "AdmissionReview webhooks are called over https only; write https://",
                ));
            }
            _ => return Err(refuse("the scheme must be https")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse("user and password are not allowed; remove them"));
        }
        if url.fragment().is_some() {
            return Err(refuse("a fragment is never sent; remove it"));
        }
        if url.query().is_some() && matches!(protocol, Protocol::AdmissionReview { .. }) {
            return Err(refuse(
                "a query is not allowed for AdmissionReview (it is `timeout=` there); remove it",
            ));
        }
        let uri: Uri = url
            .as_str()
            .parse()
            .map_err(|_| refuse("it has characters that are not valid in a URL; percent-encode them"))?;
        let parts = uri.into_parts();
        let authority = parts
            .authority
            .filter(|authority| !authority.host().is_empty())
            .ok_or_else(|| refuse("it has no host"))?;
        check_host(authority.host())?;
        Ok(Self {
            scheme,
            authority,
            path: parts.path_and_query.unwrap_or(PathAndQuery::from_static("/")),
        })
    }

    fn from_service(host: &str, port: u16, path: &str, protocol: &Protocol) -> Result<Self, Error> {
        // The host name of a BCS service is `{name}.{namespace}`. Without a namespace, it would end with a dot, which
        // DNS allows. Such a name is refused here.
        if host.ends_with('.') {
            return Err(Error::Host {
                host: host.to_owned(),
                source: InvalidDnsNameError,
            });
        }
        check_host(host)?;
        let refuse = |reason: String| Error::Path {
            path: path.to_owned(),
            reason,
        };
        let path = match path {
            "" => PathAndQuery::from_static("/"),
            path if !path.starts_with('/') => return Err(refuse("it must begin with `/`".into())),
            path if path.contains('?') && matches!(protocol, Protocol::AdmissionReview { .. }) => {
                return Err(refuse(
                    "a query is not allowed for AdmissionReview (it is `timeout=` there); remove it".into(),
                ));
            }
            path => path
                .parse()
                .map_err(|error: http::uri::InvalidUri| refuse(error.to_string()))?,
        };
        let authority = if port == WebhookTarget::DEFAULT_PORT {
            host.parse()
        } else {
            format!("{host}:{port}").parse()
        };
        Ok(Self {
            scheme: Scheme::HTTPS,
            // This cannot fail, because every valid host name for TLS is valid in a URI.
            authority: authority.map_err(|error: http::uri::InvalidUri| refuse(error.to_string()))?,
            path,
        })
    }

    /// Returns the URI to which a request is sent. This is the address of the webhook, with `query` in place of the
    /// query in the address. If `query` is `None`, as with the BCS protocol, the address is used unchanged.
    pub(crate) fn uri(&self, query: Option<&str>) -> Uri {
        let mut parts = Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(
            query
                .and_then(|query| format!("{}?{query}", self.path.path()).parse().ok())
                .unwrap_or_else(|| self.path.clone()),
        );
        // This cannot fail, because the scheme, the authority and the path are all set.
        Uri::from_parts(parts).unwrap_or_default()
    }

    pub(crate) fn host(&self) -> &str {
        self.authority.host()
    }
}

fn check_host(host: &str) -> Result<(), Error> {
    let name = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    ServerName::try_from(name).map(|_| ()).map_err(|source| Error::Host {
        host: host.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use admittance_admission::ReviewVersion;

    fn review() -> Protocol {
        Protocol::AdmissionReview {
            versions: vec![ReviewVersion::V1],
        }
    }

    /// Cases that begin with "BCS" follow the BCS driver. Others follow kube-apiserver's validation of `clientConfig`.
    #[test]
    fn urls_of_webhooks_are_checked() {
        use Protocol::BcsResource;
        for (case, protocol, url, expected) in [
            (
                "https",
                review(),
                "https://hooks.example.com/x",
                Ok("https://hooks.example.com/x?timeout=1s"),
            ),
            (
                "no path",
                review(),
                "https://hooks.example.com",
                Ok("https://hooks.example.com/?timeout=1s"),
            ),
            (
                "port",
                review(),
                "https://hooks.example.com:8443/x/",
                Ok("https://hooks.example.com:8443/x/?timeout=1s"),
            ),
            (
                "address",
                review(),
                "https://[::1]:8443/",
                Ok("https://[::1]:8443/?timeout=1s"),
            ),
            ("http", review(), "http://hooks.example.com/x", Err("https only")),
            ("query", review(), "https://hooks.example.com/x?a=b", Err("query")),
            (
                "user",
                review(),
                "https://me:secret@hooks.example.com/",
                Err("user and password"),
            ),
            ("fragment", review(), "https://hooks.example.com/#a", Err("fragment")),
            (
                "other scheme",
                review(),
                "ftp://hooks.example.com/",
                Err("must be https"),
            ),
            (
                "BCS http",
                BcsResource,
                "http://hooks.example.com/x",
                Ok("http://hooks.example.com/x"),
            ),
            (
                "BCS query",
                BcsResource,
                "https://hooks.example.com/x?a=b",
                Ok("https://hooks.example.com/x?a=b"),
            ),
        ] {
            let target = WebhookTarget::Url(Url::parse(url).unwrap());
            let outcome = WebhookEndpoint::new(&target, &protocol);
            match (outcome, expected) {
                (Ok(endpoint), Ok(uri)) => {
                    let query = matches!(protocol, Protocol::AdmissionReview { .. }).then_some("timeout=1s");
                    assert_eq!(endpoint.uri(query).to_string(), uri, "{case}");
                }
                (Err(error), Err(part)) => {
                    let text = error.to_string();
                    assert!(text.contains(part) && !text.contains("secret"), "{case}: {text}");
                }
                (outcome, _) => panic!("{case}: {outcome:?}"),
            }
        }
    }

    #[test]
    fn addresses_of_services_are_checked() {
        use Protocol::BcsResource;
        use ServiceNaming::{Bcs, Kubernetes};
        let (bcs, kubernetes) = ((BcsResource, Bcs), (review(), Kubernetes));
        // (protocol and naming, namespace, port, path, expected URI or part of the error)
        for ((protocol, naming), namespace, port, path, expected) in [
            (&bcs, "ns", 443, "", Ok("https://hook.ns/")),
            (&bcs, "ns", 8443, "/x?y=z", Ok("https://hook.ns:8443/x?y=z")),
            (&kubernetes, "ns", 443, "/x", Ok("https://hook.ns.svc/x")),
            (&bcs, "ns", 443, "x", Err("begin with `/`")),
            (&kubernetes, "ns", 443, "/x?y", Err("query")),
            (&bcs, "", 443, "", Err("not a valid host name")),
            (&bcs, "ns:1", 443, "", Err("not a valid host name")),
            (&bcs, "ns/x", 443, "", Err("not a valid host name")),
        ] {
            let target = WebhookTarget::Service {
                namespace: namespace.into(),
                name: "hook".into(),
                port,
                path: path.into(),
                naming: *naming,
            };
            match (WebhookEndpoint::new(&target, protocol), expected) {
                (Ok(endpoint), Ok(uri)) => assert_eq!(endpoint.uri(None).to_string(), uri, "{target:?}"),
                (Err(error), Err(part)) => {
                    assert!(error.to_string().contains(part), "{target:?}: {error}");
                }
                (outcome, _) => panic!("{target:?}: {outcome:?}"),
            }
        }
    }
}
