//! The tokens and permissions of clients in a file.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use admittance_bcs::{ClusterId, routes::Permission};
use admittance_definitions::{
    Mistakes,
    document::{self, Node, readers},
};
use admittance_net::bearer::TokenDigest;
use admittance_watch::FileValue;
use metrics::gauge;

use super::AccessRequest;
use crate::{error::GatewayError, metric_names, namespaces::GatewayNamespaces};

/// A token has an entry in the file that maps IDs of clusters to permissions. In this map, the key `*` stands for every
/// cluster that the map does not name.
const ANY_CLUSTER: &str = "*";

/// The holders of the tokens in a file, and their permissions for each cluster. The file is reloaded when it changes.
/// Cheap to clone; clones share the table, which lives as long as the gateway.
///
/// The file contains only digests of tokens. If it becomes invalid or is removed, its last valid content is used.
#[derive(Clone, Debug)]
pub struct TokenTable(FileValue<Vec<TokenFileHolder>>);

#[derive(Clone, Debug)]
struct TokenFileHolder {
    name: Arc<str>,
    digest: TokenDigest,
    clusters: BTreeMap<ClusterId, Permission>,
    default_permission: Option<Permission>,
    /// The namespaces that the token may use; `None` for all.
    namespaces: Option<GatewayNamespaces>,
}

impl TokenFileHolder {
    fn permission(&self, cluster: &str) -> Option<Permission> {
        self.clusters.get(cluster).copied().or(self.default_permission)
    }
}

impl TokenTable {
    pub fn read(path: &Path) -> Result<Self, Mistakes> {
        let path = path.to_owned();
        FileValue::load([path.clone()], move || read_holders(&path)).map(Self)
    }

    /// Returns the holder of this token, if the holder may send the request. The time that the search for the token
    /// takes reveals nothing about the tokens.
    pub(super) fn admit(
        &self,
        token: &[u8],
        access: AccessRequest<'_>,
    ) -> Result<(Arc<str>, Option<GatewayNamespaces>), GatewayError> {
        let digest = TokenDigest::of_token(token);
        let holders = self.0.current();
        let mut matching_holder = None;
        for holder in holders.iter() {
            if holder.digest.equals(&digest).into() {
                matching_holder = matching_holder.or(Some(holder));
            }
        }
        let holder = matching_holder.ok_or(GatewayError::Unauthorized("unknown token"))?;
        let (name, cluster) = (&holder.name, access.cluster);
        match holder.permission(cluster) {
            Some(permission) if permission >= access.required_permission => {
                Ok((name.clone(), holder.namespaces.clone()))
            }
            Some(permission) => Err(GatewayError::Forbidden(format!(
                "{name} has the permission {} for the cluster {cluster}, and this needs {}",
                permission.as_str(),
                access.required_permission.as_str(),
            ))),
            None => Err(GatewayError::Forbidden(format!(
                "{name} has no permission for the cluster {cluster}"
            ))),
        }
    }

    /// Reloads the file with the tokens when it changes. Never returns.
    pub(super) async fn follow(&self) {
        let reloaded = gauge!(metric_names::TOKENS_RELOADED);
        reloaded.set(1);
        let report = |loaded: Result<&Vec<TokenFileHolder>, &str>| {
            reloaded.set(f64::from(u8::from(loaded.is_ok())));
            match loaded {
                Ok(holders) => tracing::debug!(tokens = holders.len(), "tokens loaded"),
                Err(mistakes) => {
                    tracing::error!("the changed tokens are invalid, so the previous tokens stay in use: {mistakes}")
                }
            }
        };
        self.0.follow(report).await;
    }

    pub(crate) fn len(&self) -> usize {
        self.0.current().len()
    }

    pub(crate) fn problem(&self) -> Option<String> {
        self.0.problem()
    }
}

fn read_holders(path: &Path) -> Result<Vec<TokenFileHolder>, Mistakes> {
    document::read_value(path, |root| {
        let mut fields = root.object()?;
        let fix = "list the users of the gateway; [] admits no user";
        fields.get_required("tokens", fix, parse_holders)
    })
}

fn parse_holders(node: &Node<'_>) -> Option<Vec<TokenFileHolder>> {
    let mut names = BTreeSet::new();
    let mut digests = BTreeSet::new();
    let mut holders = Vec::new();
    for node in node.list()? {
        let Some((holder, digest)) = parse_holder(&node) else {
            continue;
        };
        if !names.insert(holder.name.clone()) {
            let message = format!("duplicate name {:?}", holder.name);
            node.add_mistake(message, "give each user a unique name");
        }
        if !digests.insert(digest.to_ascii_lowercase()) {
            node.add_mistake("an earlier user has the same token", "give each user a unique token");
        }
        holders.push(holder);
    }
    Some(holders)
}

fn parse_holder<'a>(node: &Node<'a>) -> Option<(TokenFileHolder, &'a str)> {
    let mut fields = node.object()?;
    let name = fields.get_required("name", "say whose it is", Node::text);
    let digest = |node: &Node<'a>| Some((node.parse::<TokenDigest>()?, node.text()?));
    let fix = "write what `printf %s \"$TOKEN\" | sha256sum` prints";
    let digest = fields.get_required("sha256", fix, digest);
    let clusters = fields.get_required("clusters", "write `{ BCS-MESOS-10001: Read }`", parse_clusters);
    let namespaces = fields.get_optional("namespaces", readers::list_of(readers::text));
    let ((digest, digest_text), (clusters, every)) = (digest?, clusters?);
    let holder = TokenFileHolder {
        name: name?.into(),
        digest,
        clusters,
        default_permission: every,
        namespaces: namespaces.map(|names| GatewayNamespaces(Arc::new(names.into_iter().collect()))),
    };
    Some((holder, digest_text))
}

type Permissions = (BTreeMap<ClusterId, Permission>, Option<Permission>);

fn parse_clusters(node: &Node<'_>) -> Option<Permissions> {
    let (mut clusters, mut every) = (BTreeMap::new(), None);
    for (id, node) in node.map()? {
        let permission = node.word::<Permission>();
        if id == ANY_CLUSTER {
            every = permission;
            continue;
        }
        match (ClusterId::from_node_name(id), permission) {
            (Ok(id), Some(permission)) => {
                clusters.insert(id, permission);
            }
            (Err(error), _) => node.add_mistake(error.to_string(), "write `*` for all others"),
            (Ok(_), None) => {}
        }
    }
    Some((clusters, every))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    const TOKENS: &str = "tokens:
- { name: reader, sha256: READER, clusters: { BCS-1: Read } }
- { name: writer, sha256: WRITER, clusters: { BCS-1: Write, '*': Read } }
- { name: admin, sha256: ADMIN, clusters: { '*': Hooks, BCS-2: Read } }
- { name: nobody, sha256: NOBODY, clusters: {} }
";

    fn digest_hex(token: &str) -> String {
        use sha2::{Digest, Sha256};
        hex::encode(Sha256::digest(token))
    }

    fn token_file_text() -> String {
        ["READER", "WRITER", "ADMIN", "NOBODY"]
            .iter()
            .fold(TOKENS.to_owned(), |text, token| text.replace(token, &digest_hex(token)))
    }

    fn read_table(text: &str) -> (tempfile::TempDir, Result<TokenTable, Mistakes>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.yaml");
        std::fs::write(&path, text).unwrap();
        let table = TokenTable::read(&path);
        (directory, table)
    }

    fn access_request(cluster: &str, required_permission: Permission) -> AccessRequest<'_> {
        AccessRequest {
            cluster,
            method: &Method::GET,
            path: "/",
            required_permission,
        }
    }

    #[test]
    fn a_token_in_a_file_has_the_permissions_of_its_entry() {
        use Permission::{Hooks, Read, Write};
        let (_directory, table) = read_table(&token_file_text());
        let table = table.unwrap();
        assert_eq!(table.len(), 4);
        // (token, cluster, greatest permission of the token for the cluster)
        for (token, cluster, greatest_permission) in [
            ("READER", "BCS-1", Some(Read)),
            ("READER", "BCS-2", None),
            ("WRITER", "BCS-1", Some(Write)),
            ("WRITER", "BCS-2", Some(Read)),
            // The file has an entry for the cluster `BCS-1`. IDs of clusters are case-sensitive, so this entry does not
            // apply to `bcs-1`, which gets the permission of the entry `*`.
            ("WRITER", "bcs-1", Some(Read)),
            ("ADMIN", "BCS-1", Some(Hooks)),
            ("ADMIN", "BCS-2", Some(Read)),
            ("NOBODY", "BCS-1", None),
        ] {
            for required_permission in Permission::ALL {
                let admission = table.admit(token.as_bytes(), access_request(cluster, required_permission));
                let is_allowed =
                    greatest_permission.is_some_and(|greatest_permission| greatest_permission >= required_permission);
                match admission {
                    Ok((name, _)) => assert!(
                        is_allowed && *name == token.to_lowercase(),
                        "{token} {cluster} {required_permission:?}"
                    ),
                    Err(GatewayError::Forbidden(reason)) => {
                        assert!(
                            !is_allowed && reason.contains(cluster),
                            "{token} {cluster} {required_permission:?}: {reason}"
                        );
                    }
                    Err(other) => panic!("{token}: {other}"),
                }
            }
        }
        for token in ["", "reader", "READER2", &digest_hex("READER")] {
            let admission = table.admit(token.as_bytes(), access_request("BCS-1", Read));
            assert_eq!(
                admission.unwrap_err(),
                GatewayError::Unauthorized("unknown token"),
                "{token}"
            );
        }
    }

    #[test]
    #[rustfmt::skip]
    fn mistakes_in_a_token_file_are_reported() {
        for (text, part) in [
            ("", "there is no document"),
            ("tokens:\n", "tokens: missing"),
            ("token: []\ntokens: []\n", "token: unknown field; known here: tokens"),
            ("tokens: {}\n", "a list is expected"),
            ("tokens: [{}]\n", "tokens[0].name: missing"),
            ("tokens: [{}]\n", "tokens[0].sha256: missing"),
            ("tokens: [{}]\n", "tokens[0].clusters: missing"),
            ("tokens: [{ name: a, sha256: abc, clusters: {} }]\n", "64 hexadecimal digits"),
            ("tokens: [{ name: a, token: secret }]\n", "unknown field"),
            (&token_file_text().replace("Hooks", "hooks"), "case matters: write Hooks"),
            (&token_file_text().replace("BCS-1", "B S"), "is not a valid cluster ID"),
            (&token_file_text().replace("writer", "reader"), "duplicate name \"reader\""),
            (&token_file_text().replace(&digest_hex("WRITER"), &digest_hex("READER").to_uppercase()), "the same token"),
        ] {
            let (_directory, table) = read_table(text);
            let mistakes = table.unwrap_err().to_string();
            assert!(mistakes.contains(part), "{text}: {mistakes}");
        }
        let (_directory, table) = read_table("tokens: []\n");
        assert_eq!(table.unwrap().len(), 0);
    }
}
