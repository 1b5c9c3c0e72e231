//! Sets the user in whose name a request reaches a cluster, whatever headers the client has sent.

use admittance_bcs::routes::Permission;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{AUTHORIZATION, CONNECTION, COOKIE, PROXY_AUTHORIZATION, UPGRADE},
};

use crate::{accounts::Access, websocket_tokens};

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");

/// The prefixes of the headers that can tell an API server or a server behind it who the client is.
const IDENTITY_HEADER_PREFIXES: [&str; 2] = ["impersonate-", "x-remote-"];

/// The headers in which proxies pass on the certificate of a client.
const CERTIFICATE_HEADERS: [&str; 9] = [
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

/// The user in whose name a request reaches its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ImpersonatedUser {
    pub(super) user: String,
    pub(super) groups: Vec<String>,
}

/// The groups that the gateway adds to a user's groups. A user with the permission `Write` for a cluster, for example,
/// gets the groups of `Read` and `Write`.
const GROUPS_BY_PERMISSION: [(Permission, &str); 3] = [
    (Permission::Read, "admittance:view"),
    (Permission::Write, "admittance:edit"),
    (Permission::Hooks, "admittance:hooks"),
];
/// The groups of super users in a cluster whose agent may not impersonate `system:masters`.
pub(super) const SUPER_USER_GROUPS: &[&str] = &["admittance:super-users"];
/// The groups of super users in a cluster whose agent may impersonate `system:masters`. Members of `system:masters` may
/// do everything without a role binding.
pub(super) const SUPER_USER_AND_MASTERS_GROUPS: &[&str] = &["admittance:super-users", "system:masters"];

impl ImpersonatedUser {
    /// Creates the identity of a user. Its groups are `groups`, the groups for the access, and `super_user_groups`.
    pub(super) fn new(user: String, groups: &[String], access: Access, super_user_groups: &[&str]) -> Self {
        let is_granted = |required| matches!(access, Access::Permission(permission) if permission >= required);
        let granted = GROUPS_BY_PERMISSION
            .iter()
            .filter(|(required, _)| is_granted(*required));
        let all = granted
            .map(|(_, group)| *group)
            .chain(super_user_groups.iter().copied())
            .map(ToOwned::to_owned);
        Self {
            user,
            groups: groups.iter().cloned().chain(all).collect(),
        }
    }

    /// Replaces all headers that say who the client is. Afterwards, the request contains the token of the cluster's
    /// agent (`authorization`), and the names of the user and the groups that the API server should use instead of the
    /// agent's. Returns `false` if one of these names cannot be sent in a header.
    ///
    /// `Connection` is replaced, too. If a client listed the new headers in it, the next server would drop them.
    pub(super) fn replace_headers(
        &self,
        headers: &mut HeaderMap,
        authorization: &HeaderValue,
        is_upgrade: bool,
    ) -> bool {
        let header_names: Vec<_> = headers
            .keys()
            .filter(|name| is_identity_header(name))
            .cloned()
            .collect();
        for name in header_names {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
        if is_upgrade {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        } else {
            headers.remove(UPGRADE);
        }
        websocket_tokens::remove_tokens(headers);
        let Ok(user) = HeaderValue::from_str(&self.user) else {
            return false;
        };
        let groups: Result<Vec<_>, _> = self.groups.iter().map(|group| HeaderValue::from_str(group)).collect();
        let Ok(groups) = groups else { return false };
        headers.insert(AUTHORIZATION, authorization.clone());
        headers.insert(IMPERSONATE_USER, user);
        headers.extend(groups.into_iter().map(|group| (IMPERSONATE_GROUP, group)));
        true
    }
}

/// Returns whether a header with this name can tell a server who the client is. Some servers treat `_` as `-`.
fn is_identity_header(name: &HeaderName) -> bool {
    let text = name.as_str().replace('_', "-");
    [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(name)
        || text == "authorization"
        || text == "x-bcs-user-token"
        || IDENTITY_HEADER_PREFIXES.iter().any(|prefix| text.starts_with(prefix))
        || CERTIFICATE_HEADERS.contains(&text.as_str())
}

#[cfg(test)]
mod tests;
