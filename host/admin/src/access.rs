//! Authenticates and authorizes clients: by address, by token, or by certificate.

use std::{fmt, sync::Arc};

use admittance_net::{
    bearer::{TokenDigest, bearer_token},
    listener::{ClientCertificate, ConnectedClient, host_address},
    tls::subject_names,
};
use http::{
    HeaderName, Method,
    header::{AUTHORIZATION, HOST, ORIGIN},
    request::Parts,
    uri::Authority,
};

use crate::{
    config::{AdminConfig, AdminRole, CertificateHolder},
    token::{self, AdminToken},
};

/// The header in which a browser reports whether a page of another site caused the request.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The header in which a browser reports whether a request opens a page or loads a part of one.
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Decides which clients may use the API of the admin port. Cheap to clone; lives as long as the port.
#[derive(Clone, Debug)]
pub struct AdminAccess(Arc<AccessPolicy>);

#[derive(Debug)]
enum AccessPolicy {
    /// No authentication is configured, and the port is on loopback: all programs on this machine have the role Admin.
    Open,
    /// No authentication is configured, but other machines can reach the port: every request to the API is refused.
    Closed,
    /// Clients authenticate, and their role decides what they may do.
    Guarded {
        tokens: Vec<AdminToken>,
        clients: Vec<CertificateHolder>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, derive_more::Display)]
pub enum Caller {
    #[display("loopback")]
    Loopback,
    /// A client that presented the token with this name.
    #[display("token {_0}")]
    Token(Arc<str>),
    /// A client that presented a certificate with this name.
    #[display("certificate {_0}")]
    Certificate(Arc<str>),
}

/// The reason why a request to the admin port is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessDenied {
    #[error(
        "no authentication is configured, so the API and the console are refused on an address that is not loopback: set \
         `admin.tokens` or `admin.clients`, or listen on 127.0.0.1"
    )]
    Closed,
    #[error("requests from web pages are refused")]
    Browser,
    #[error("requests of other web pages are refused: open the console's own address and use its forms")]
    OtherPage,
    #[error("the host `{0}` is not a loopback address: use 127.0.0.1 or localhost, or set `admin.tokens`")]
    ForeignHost(String),
    #[error("unauthenticated: send `Authorization: Bearer TOKEN`")]
    NoToken,
    #[error("unauthenticated: use a client certificate that is listed in `admin.clients`")]
    NoCertificate,
    #[error("`Authorization` must be `Bearer` and a token")]
    OtherScheme,
    #[error("unknown token")]
    UnknownToken,
    #[error("the client certificate is not listed in `admin.clients`; its names: {0}")]
    UnknownCertificate(String),
    #[error("{caller} has the role Read, but the role Admin is required")]
    OnlyReads { caller: Caller },
}

impl AccessDenied {
    /// Returns whether to write the refusal to the log. It is not written if the client sent no credentials, or if the
    /// port refuses every client.
    pub(crate) fn is_notable(&self) -> bool {
        !matches!(self, Self::Closed | Self::NoToken | Self::NoCertificate)
    }
}

pub(crate) fn log_refusal(head: &Parts, reason: &dyn fmt::Display) {
    let address = head.extensions.get::<ConnectedClient>().map(|client| client.address);
    let client = address.map(tracing::field::display);
    let (method, path) = (&head.method, head.uri.path());
    tracing::info!(target: "admittance::audit", client, %method, path, "refused: {reason}");
}

impl AdminAccess {
    pub fn new(config: &AdminConfig) -> Self {
        let clients = config.tls().map(|tls| tls.clients.clone()).unwrap_or_default();
        let tokens = config.tokens().to_vec();
        let policy = if !tokens.is_empty() || !clients.is_empty() {
            AccessPolicy::Guarded { tokens, clients }
        } else if config.refusal().is_some() {
            AccessPolicy::Closed
        } else {
            AccessPolicy::Open
        };
        Self(Arc::new(policy))
    }

    /// Authenticates and returns the client of a request, with its role. Fails if the role is below `required_role`.
    pub(crate) fn admit(&self, head: &Parts, required_role: AdminRole) -> Result<(Caller, AdminRole), AccessDenied> {
        let (caller, role) = match &*self.0 {
            AccessPolicy::Closed => return Err(AccessDenied::Closed),
            AccessPolicy::Open => {
                refuse_browser(head)?;
                require_loopback_host(head)?;
                (Caller::Loopback, AdminRole::Admin)
            }
            AccessPolicy::Guarded { tokens, clients } => authenticate(head, tokens, clients)?,
        };
        if role < required_role {
            return Err(AccessDenied::OnlyReads { caller });
        }
        Ok((caller, role))
    }

    /// Returns the user and the role of a console client that has not signed in: it is on loopback and no
    /// authentication is configured, or it has a client certificate. The caller must also check with [`check_own_page`]
    /// that no other site's page sent the request.
    pub(crate) fn identify_without_sign_in(&self, head: &Parts) -> Result<(Caller, AdminRole), AccessDenied> {
        match &*self.0 {
            AccessPolicy::Closed => Err(AccessDenied::Closed),
            AccessPolicy::Open => {
                require_loopback_host(head)?;
                Ok((Caller::Loopback, AdminRole::Admin))
            }
            AccessPolicy::Guarded { tokens, clients } => authenticate_certificate(head, tokens, clients),
        }
    }

    /// Returns the name and role of the client whose token has this digest; `None` if no accepted token has it.
    pub(crate) fn caller_of_token(&self, presented: &TokenDigest) -> Option<(Caller, AdminRole)> {
        match &*self.0 {
            AccessPolicy::Guarded { tokens, .. } => {
                let token = token::find_token(tokens, presented)?;
                Some((Caller::Token(token.name.as_str().into()), token.role))
            }
            AccessPolicy::Open | AccessPolicy::Closed => None,
        }
    }

    pub(crate) fn has_tokens(&self) -> bool {
        matches!(&*self.0, AccessPolicy::Guarded { tokens, .. } if !tokens.is_empty())
    }

    /// Reloads token files when they change. Never completes.
    pub async fn follow(&self) {
        match &*self.0 {
            AccessPolicy::Guarded { tokens, .. } => token::follow(tokens).await,
            AccessPolicy::Open | AccessPolicy::Closed => std::future::pending().await,
        }
    }
}

/// A token takes precedence over a certificate, because clients send tokens on purpose, but certificates automatically.
fn authenticate(
    head: &Parts,
    tokens: &[AdminToken],
    clients: &[CertificateHolder],
) -> Result<(Caller, AdminRole), AccessDenied> {
    if let Some(value) = head.headers.get(AUTHORIZATION) {
        let presented = bearer_token(value.as_bytes()).ok_or(AccessDenied::OtherScheme)?;
        let token = token::find_token(tokens, &TokenDigest::of_token(presented)).ok_or(AccessDenied::UnknownToken)?;
        return Ok((Caller::Token(token.name.as_str().into()), token.role));
    }
    if head.extensions.get::<ClientCertificate>().is_some() {
        // A browser presents the client certificate by itself, even if a page of another site makes it send the
        // request. Requests from browsers are therefore refused here.
        refuse_browser(head)?;
    }
    authenticate_certificate(head, tokens, clients)
}

fn authenticate_certificate(
    head: &Parts,
    tokens: &[AdminToken],
    clients: &[CertificateHolder],
) -> Result<(Caller, AdminRole), AccessDenied> {
    let Some(ClientCertificate(certificate)) = head.extensions.get() else {
        return Err(if tokens.is_empty() {
            AccessDenied::NoCertificate
        } else {
            AccessDenied::NoToken
        });
    };
    let names = subject_names(certificate);
    let client = clients
        .iter()
        .find(|client| names.contains(&client.name))
        .ok_or_else(|| AccessDenied::UnknownCertificate(names.join(", ")))?;
    Ok((Caller::Certificate(client.name.as_str().into()), client.role))
}

/// Refuses a request that a page of another site made a browser send. If `changes` is true, accepts only requests from
/// the console's own pages.
pub(crate) fn check_own_page(head: &Parts, changes: bool) -> Result<(), AccessDenied> {
    let text = |name: &HeaderName| head.headers.get(name).map(|value| value.as_bytes());
    let site = text(&SEC_FETCH_SITE);
    let origin = text(&ORIGIN);
    let is_own_origin = origin.is_some_and(|origin| is_own_origin(head, origin));
    let allowed = match site {
        // The header `Origin` is not checked for `same-origin`. It may be `null`, because the console's pages ask
        // browsers to send no referrer.
        Some(b"same-origin") => true,
        Some(b"none") => !changes,
        Some(_) => !changes && is_link_from_other_site(head),
        // There is no `Sec-Fetch-Site`, so the client is an old browser or no browser. Old browsers send `Origin` with
        // every form; a program such as curl sends no `Origin`.
        None => is_own_origin || (!changes && origin.is_none()),
    };
    if allowed { Ok(()) } else { Err(AccessDenied::OtherPage) }
}

/// Returns whether a request follows a link on another site. Browsers send it without the session's cookie.
pub(crate) fn is_link_from_other_site(head: &Parts) -> bool {
    let has_value = |name: &HeaderName, values: &[&str]| {
        let value = head.headers.get(name);
        value.is_some_and(|value| values.iter().any(|expected| value == expected))
    };
    head.method == Method::GET
        && has_value(&SEC_FETCH_SITE, &["cross-site", "same-site"])
        && has_value(&SEC_FETCH_MODE, &["navigate"])
}

/// The scheme is not compared, because a proxy in front of this program may terminate TLS.
fn is_own_origin(head: &Parts, origin: &[u8]) -> bool {
    let authority = match head.headers.get(HOST) {
        Some(host) => host.as_bytes(),
        None => head
            .uri
            .authority()
            .map_or(b"".as_slice(), |uri_authority| uri_authority.as_str().as_bytes()),
    };
    let origin_authority = [b"https://".as_slice(), b"http://"]
        .into_iter()
        .find_map(|scheme| origin.strip_prefix(scheme));
    origin_authority.is_some_and(|origin_authority| {
        !origin_authority.is_empty() && origin_authority.eq_ignore_ascii_case(authority)
    })
}

/// Refuses requests from browsers, because any site's page can make a browser on this machine send them.
fn refuse_browser(head: &Parts) -> Result<(), AccessDenied> {
    let is_of_page =
        head.headers.contains_key(ORIGIN) || head.headers.get(&SEC_FETCH_SITE).is_some_and(|site| site != "none");
    if is_of_page { Err(AccessDenied::Browser) } else { Ok(()) }
}

/// Protects against DNS rebinding: a page can make its host name resolve to this machine.
fn require_loopback_host(head: &Parts) -> Result<(), AccessDenied> {
    let host_names = head
        .headers
        .get(HOST)
        .map(|host| String::from_utf8_lossy(host.as_bytes()).into_owned())
        .into_iter()
        .chain(head.uri.authority().map(ToString::to_string));
    for host in host_names {
        if !is_loopback_name(&host) {
            return Err(AccessDenied::ForeignHost(host));
        }
    }
    Ok(())
}

fn is_loopback_name(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else {
        return false;
    };
    let name = authority.host();
    match host_address(name) {
        Some(address) => address.to_canonical().is_loopback(),
        None => name.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_of_the_loopback_address_are_accepted_as_hosts() {
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost:9090", true),
            ("127.0.0.1", true),
            ("127.1.2.3:1", true),
            ("[::1]", true),
            ("[::1]:9090", true),
            ("[::ffff:127.0.0.1]:9090", true),
            ("localhost.example.com", false),
            ("127.0.0.1.example.com", false),
            ("example.com:9090", false),
            ("10.0.0.1", false),
            ("[::2]:9090", false),
            ("user@localhost", true),
            ("", false),
            ("local host", false),
        ] {
            assert_eq!(is_loopback_name(host), expected, "{host}");
        }
    }
}
