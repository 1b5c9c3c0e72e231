//! Sets the user in whose name a request reaches a cluster, whatever headers the client has sent.

use admittance_bcs::routes::Permission;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{AUTHORIZATION, CONNECTION, COOKIE, PROXY_AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL, UPGRADE},
};

use crate::accounts::Access;

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");

/// The beginnings of headers in which proxies in front of API servers name the client.
const PREFIXES: [&str; 2] = ["impersonate-", "x-remote-"];

/// The headers in which proxies pass on a client's certificate.
const CERTIFICATES: [&str; 9] = [
    "client-cert",
    "client-cert-chain",
    "ssl-client-cert",
    "x-client-cert",
    "x-forwarded-client-cert",
    "x-forwarded-tls-client-cert",
    "x-forwarded-tls-client-cert-info",
    "x-ssl-cert",
    "x-ssl-client-cert",
];

/// A WebSocket protocol that is a bearer token for kube-apiserver.
const TOKEN_PROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// The user of a request in its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) user: String,
    pub(super) groups: Vec<String>,
}

/// The groups of users in every cluster, by their permission for it.
const GROUPS: [(Permission, &str); 3] = [
    (Permission::Read, "admittance:view"),
    (Permission::Write, "admittance:edit"),
    (Permission::Hooks, "admittance:hooks"),
];
pub(super) const SUPER_USERS: &str = "admittance:super-users";

impl Identity {
    /// Adds the groups of the access to the user's own `groups`.
    pub(super) fn new(user: String, groups: &[String], access: Access, is_super_user: bool) -> Self {
        let is_granted = |needed| matches!(access, Access::Permission(permission) if permission >= needed);
        let granted = GROUPS.iter().filter(|(needed, _)| is_granted(*needed));
        let granted = granted.map(|(_, group)| *group);
        let all = granted
            .chain(is_super_user.then_some(SUPER_USERS))
            .map(ToOwned::to_owned);
        Self {
            user,
            groups: groups.iter().cloned().chain(all).collect(),
        }
    }

    /// Replaces every header that names the client. `authorization` is the cluster's own token. Returns whether the names of
    /// the user and the groups can be sent in headers.
    ///
    /// `Connection` is replaced as well, because the next hop would drop the headers that it lists.
    pub(super) fn replace(
        &self,
        headers: &mut HeaderMap,
        authorization: &HeaderValue,
        is_upgrade: bool,
    ) -> bool {
        let named: Vec<_> = headers.keys().filter(|name| is_identity(name)).cloned().collect();
        for name in named {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
        if is_upgrade {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        } else {
            headers.remove(UPGRADE);
        }
        let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
        let protocols = without_tokens(protocols);
        headers.remove(SEC_WEBSOCKET_PROTOCOL);
        if let Some(protocols) = protocols.and_then(|text| HeaderValue::from_str(&text).ok()) {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, protocols);
        }
        let Ok(user) = HeaderValue::from_str(&self.user) else {
            return false;
        };
        let groups: Result<Vec<_>, _> = self
            .groups
            .iter()
            .map(|group| HeaderValue::from_str(group))
            .collect();
        let Ok(groups) = groups else { return false };
        headers.insert(AUTHORIZATION, authorization.clone());
        headers.insert(IMPERSONATE_USER, user);
        headers.extend(groups.into_iter().map(|group| (IMPERSONATE_GROUP, group)));
        true
    }
}

/// Returns whether a header names the client. Some servers do not distinguish `_` from `-`.
fn is_identity(name: &HeaderName) -> bool {
    let text = name.as_str().replace('_', "-");
    [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(name)
        || text == "authorization"
        || text == "x-bcs-user-token"
        || PREFIXES.iter().any(|prefix| text.starts_with(prefix))
        || CERTIFICATES.contains(&text.as_str())
}

/// Returns the protocols of a WebSocket that are not tokens.
fn without_tokens<'a>(values: impl Iterator<Item = &'a HeaderValue>) -> Option<String> {
    let protocols: Vec<_> = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|protocol| !protocol.is_empty() && !is_token(protocol))
        .collect();
    (!protocols.is_empty()).then(|| protocols.join(", "))
}

fn is_token(protocol: &str) -> bool {
    let start = protocol.get(..TOKEN_PROTOCOL.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(TOKEN_PROTOCOL))
}

#[cfg(test)]
mod tests;
