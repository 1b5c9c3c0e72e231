//! Authenticates a request by its token, and authorizes it by the permissions of the token's holder.

mod cache;
mod endpoint;
mod file;

use std::{borrow::Cow, sync::Arc};

use admittance_bcs::routes::Permission;
use admittance_net::bearer::bearer_token;
use http::{HeaderMap, HeaderName, Method, header::AUTHORIZATION};
use metrics::{Counter, counter};

use self::endpoint::TokenEndpoint;
pub use self::file::TokenTable;
use super::{GatewayStartError, config::TokensConfig, error::GatewayError};
use crate::{
    accounts::{AccessTarget, Accounts, TokenDenied},
    kubernetes::WatchedRight,
    metric_names,
    namespaces::GatewayNamespaces,
    websocket_tokens,
};

/// The header in which clients of bcs-api send their tokens.
const USER_TOKEN: HeaderName = HeaderName::from_static("x-bcs-user-token");

#[derive(Clone, Copy, Debug)]
pub(super) struct AccessRequest<'a> {
    pub(super) cluster: &'a str,
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) required_permission: Permission,
}

#[derive(Debug)]
pub(super) enum TokenProvider {
    File(TokenTable),
    Endpoint(Box<TokenEndpoint>),
    Accounts(Accounts),
}

#[derive(Default)]
pub(super) struct TokenHolder {
    /// The name of the holder of a token, if it is known.
    pub(super) name: Option<Arc<str>>,
    /// The permission that is checked until the request ends; `None` if it is checked only when the request begins.
    pub(super) watched_right: Option<WatchedRight>,
    /// The namespaces that the holder's token may use; `None` for all.
    pub(super) namespaces: Option<GatewayNamespaces>,
}

impl TokenProvider {
    pub(super) fn new(config: TokensConfig, accounts: Option<&Accounts>) -> Result<Self, GatewayStartError> {
        // The counters begin at zero, so that the first failure shows as an increase.
        for (source, results) in counted_checks(&config) {
            for result in *results {
                check_counter(source, result).absolute(0);
            }
        }
        Ok(match config {
            TokensConfig::File(table) => Self::File(table),
            TokensConfig::Endpoint(config) => Self::Endpoint(Box::new(TokenEndpoint::new(*config))),
            TokensConfig::Accounts => Self::Accounts(accounts.ok_or(GatewayStartError::NoAccounts)?.clone()),
        })
    }

    pub(super) async fn admit(
        &self,
        headers: &HeaderMap,
        access: AccessRequest<'_>,
    ) -> Result<TokenHolder, GatewayError> {
        let token = &*token_of(headers)?;
        let count_admission = |source, admission: &Result<TokenHolder, GatewayError>| {
            let result = if admission.is_ok() { "allowed" } else { "refused" };
            count_check(source, result);
        };
        match self {
            Self::File(table) => {
                let admission = table.admit(token, access).map(|(name, namespaces)| TokenHolder {
                    name: Some(name),
                    watched_right: None,
                    namespaces,
                });
                count_admission("file", &admission);
                admission
            }
            Self::Endpoint(endpoint) => endpoint.admit(token, access).await.map(|()| TokenHolder::default()),
            Self::Accounts(accounts) => {
                let admission = admit_by_accounts(accounts, token, access);
                count_admission("accounts", &admission);
                admission
            }
        }
    }

    /// Reloads the files with tokens and certificates when they change. Never returns.
    pub(super) async fn follow(&self) {
        match self {
            Self::File(table) => table.follow().await,
            Self::Endpoint(endpoint) => endpoint.keep_tls_fresh().await,
            Self::Accounts(_) => std::future::pending().await,
        }
    }
}

fn admit_by_accounts(
    accounts: &Accounts,
    token: &[u8],
    access: AccessRequest<'_>,
) -> Result<TokenHolder, GatewayError> {
    let unread = "users and clusters have not been read from the database yet";
    let directory = accounts
        .directory()
        .map_err(|_| GatewayError::AuthUnavailable(unread))?;
    let target = AccessTarget::Drivers(access.cluster.to_owned());
    let admitted = directory.authenticate(token).and_then(|session| {
        directory.check_access(&session.user, &target, access.required_permission)?;
        Ok(session)
    });
    let session = admitted.map_err(|denied| match denied {
        TokenDenied::Forbidden { .. } => GatewayError::Forbidden(denied.to_string()),
        TokenDenied::Expired(_) => GatewayError::Unauthorized("the token has expired"),
        TokenDenied::Unknown | TokenDenied::NoRegisterToken | TokenDenied::RegisterToken => {
            GatewayError::Unauthorized("unknown token")
        }
    })?;
    Ok(TokenHolder {
        name: Some(session.user.name.as_str().into()),
        watched_right: Some(WatchedRight::new(
            accounts,
            &session,
            target,
            access.required_permission,
            Arc::new(()),
        )),
        namespaces: None,
    })
}

fn counted_checks(config: &TokensConfig) -> &'static [(&'static str, &'static [&'static str])] {
    match config {
        TokensConfig::File(_) => &[("file", &["allowed", "refused"])],
        TokensConfig::Endpoint(_) => &[
            ("endpoint", &["allowed", "refused", "unanswered"]),
            ("cache", &["allowed", "refused"]),
        ],
        TokensConfig::Accounts => &[("accounts", &["allowed", "refused"])],
    }
}

fn count_check(source: &'static str, result: &'static str) {
    check_counter(source, result).increment(1);
}

fn check_counter(source: &'static str, result: &'static str) -> Counter {
    counter!(metric_names::TOKEN_CHECKS, "source" => source, "result" => result)
}

/// Returns the token in the header `Authorization`, or else in bcs-api's own header, or else in a WebSocket protocol.
fn token_of(headers: &HeaderMap) -> Result<Cow<'_, [u8]>, GatewayError> {
    let token = match (
        single_value(headers, &AUTHORIZATION)?,
        single_value(headers, &USER_TOKEN)?,
    ) {
        (Some(value), _) => bearer_token(value).ok_or(GatewayError::Unauthorized(
            "`Authorization` is not `Bearer` and a token",
        ))?,
        (None, Some(token)) => token.trim_ascii(),
        (None, None) => {
            let token = websocket_tokens::bearer_token(headers);
            let missing = GatewayError::Unauthorized("send `Authorization: Bearer TOKEN`");
            return token.map(Cow::Owned).ok_or(missing);
        }
    };
    match token {
        [] => Err(GatewayError::Unauthorized("the token is empty")),
        token => Ok(token.into()),
    }
}

/// Returns the value of a header with a token. If the header has several values, this is an error, because the driver
/// might use another value than the gateway.
fn single_value<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h [u8]>, GatewayError> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(GatewayError::Unauthorized(
            "the request has more than one token; send one",
        )),
        (value, None) => Ok(value.map(|value| value.as_bytes())),
    }
}

pub(super) fn remove_tokens(headers: &mut HeaderMap) {
    headers.remove(AUTHORIZATION);
    headers.remove(USER_TOKEN);
    websocket_tokens::remove_tokens(headers);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn a_token_is_read_from_either_of_two_headers() {
        for (headers, expected) in [
            (&[("authorization", "Bearer abc")][..], Some("abc")),
            (&[("authorization", "bearer  abc ")], Some("abc")),
            (&[("x-bcs-user-token", " abc")], Some("abc")),
            (&[("authorization", "Bearer abc"), ("x-bcs-user-token", "def")], Some("abc")),
            (&[], None),
            (&[("authorization", "Basic YTpi")], None),
            // Although the token in `authorization` is invalid, the token in the other header is not used.
            (&[("authorization", "Basic YTpi"), ("x-bcs-user-token", "def")], None),
            (&[("authorization", "Bearer ")], None),
            (&[("authorization", "Bearer a"), ("authorization", "Bearer b")], None),
            (&[("sec-websocket-protocol", "a, base64url.bearer.authorization.k8s.io.YWJj")], Some("abc")),
            (&[("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.YWJj, base64url.bearer.authorization.k8s.io.ZGVm")], None),
            (&[("x-bcs-user-token", "")], None),
            (&[("x-bcs-user-token", "a"), ("x-bcs-user-token", "a")], None),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(HeaderName::from_static(name), value.parse().unwrap());
            }
            let token = token_of(&map).ok();
            assert_eq!(token.as_deref(), expected.map(str::as_bytes), "{headers:?}");
            remove_tokens(&mut map);
            assert!(map.get("sec-websocket-protocol").is_none_or(|protocols| protocols == "a"));
            map.remove("sec-websocket-protocol");
            assert!(map.is_empty());
        }
    }
}
