//! The roles of users in the file that the configuration names.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use admittance_definitions::{
    Mistakes,
    document::{self, Node, readers},
};
use admittance_watch::FileValue;
use tokio::sync::watch;

use super::AllowedRights;
use crate::accounts::{GrantScope, GrantSource, GrantedClusters, GrantedRole, RoleGrant, UserName};

/// The roles of users in a file. The file is reloaded when it changes. While it is invalid, its last valid content is
/// used.
#[derive(Clone, Debug)]
pub struct RoleTable(FileValue<BTreeSet<RoleGrant>>);

impl RoleTable {
    /// Reads a file with roles. It is a mistake if a role contains a dangerous right that is not in `allowed`.
    ///
    /// # Errors
    ///
    /// Returns the mistakes in the file.
    pub fn read(path: &Path, allowed: &AllowedRights) -> Result<Self, Mistakes> {
        let (path, allowed) = (path.to_owned(), allowed.clone());
        FileValue::load([path.clone()], move || read_grants(&path, &allowed)).map(Self)
    }

    pub(super) fn contents(&self) -> watch::Receiver<Arc<BTreeSet<RoleGrant>>> {
        self.0.subscribe()
    }

    /// Returns why the current content of the file is not in use; `None` if it is in use.
    pub(super) fn problem(&self) -> Option<String> {
        self.0.problem()
    }

    /// Reloads the file when it changes. Never returns.
    pub(super) async fn follow(&self) {
        self.0
            .follow(|loaded| match loaded {
                Ok(grants) => tracing::info!(roles = grants.len(), "the roles of the configuration changed"),
                Err(mistakes) => {
                    tracing::error!("the changed roles are invalid, so the previous ones stay in use: {mistakes}");
                }
            })
            .await;
    }
}

fn read_grants(path: &Path, allowed: &AllowedRights) -> Result<BTreeSet<RoleGrant>, Mistakes> {
    document::read_value(path, |root| {
        let mut fields = root.object()?;
        let entries = readers::list_of(|node: &Node<'_>| parse_entry(node, allowed));
        let fix = "list the roles of users; [] takes all roles of the configuration away";
        let grants = fields.get_required("roles", fix, entries);
        Some(grants?.into_iter().flatten().collect())
    })
}

fn parse_entry(node: &Node<'_>, allowed: &AllowedRights) -> Option<Vec<RoleGrant>> {
    let mut fields = node.object()?;
    let fix = "write the name of a user, such as plain:alice";
    let user = fields.get_required("user", fix, readers::parse_with(UserName::plain));
    let fix = "write the ID of a cluster, or \"*\"";
    let clusters = fields.get_required("cluster", fix, Node::parse::<GrantedClusters>);
    let role = |node: &Node<'_>| {
        let role = node.word::<GrantedRole>()?;
        node.accept(allowed.check_role(role).map(|()| role))
    };
    let fix = "list roles, such as [workloads-view]";
    let roles = fields.get_required("roles", fix, readers::list_of(role));
    let namespaces = readers::filled_list_of("name a namespace, or leave the key out", Node::parse::<GrantScope>);
    let scopes = fields
        .get_optional("namespaces", namespaces)
        .unwrap_or_else(|| vec![GrantScope::Cluster]);
    let (user, clusters) = (user?, clusters?);
    let grants = roles?.into_iter().flat_map(|role| {
        let (user, clusters) = (&user, &clusters);
        scopes.iter().map(move |scope| RoleGrant {
            user: user.clone(),
            role,
            clusters: clusters.clone(),
            scope: scope.clone(),
            source: GrantSource::Configuration,
        })
    });
    Some(grants.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roles::Danger;

    fn parse(text: &str, allowed: &[Danger]) -> Result<BTreeSet<RoleGrant>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("roles.yaml");
        std::fs::write(&path, text).unwrap();
        read_grants(&path, &AllowedRights(allowed.iter().copied().collect())).map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn entries_of_the_role_file_become_grants() {
        let text = "roles:
- { user: alice, cluster: BCS-K8S-1, roles: [workloads-manage, services-view], namespaces: [team, test] }
- { user: 'bk:bob', cluster: '*', roles: [cluster-readonly] }
- { user: carol, cluster: plain-dev, roles: [] }
";
        let grants = parse(text, &[]).unwrap();
        let texts: Vec<_> = grants.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "cluster-readonly of bk:bob in *",
                "services-view of plain:alice in BCS-K8S-1/team",
                "services-view of plain:alice in BCS-K8S-1/test",
                "workloads-manage of plain:alice in BCS-K8S-1/team",
                "workloads-manage of plain:alice in BCS-K8S-1/test",
            ]
        );
    }

    #[test]
    #[rustfmt::skip]
    fn mistakes_in_the_role_file_are_reported() {
        for (entry, part) in [
            ("{ user: 'a b', cluster: c, roles: [] }", "is not a name of a user"),
            ("{ user: a, cluster: '', roles: [] }", "empty; write a value"),
            ("{ user: a, cluster: 'c%', roles: [] }", "is not a valid ID of a cluster"),
            ("{ user: a, cluster: c, roles: [admin] }", "workloads-manage"),
            ("{ user: a, cluster: c, roles: [cluster-manage] }", "may do everything"),
            ("{ user: a, cluster: c, roles: [], namespaces: [] }", "name a namespace"),
            ("{ user: a, cluster: c, roles: [], namespaces: ['a/b'] }", "is not a valid name of a namespace"),
            ("{ user: a, cluster: c, roles: [], namespace: n }", "unknown field"),
        ] {
            let mistakes = parse(&format!("roles: [{entry}]\n"), &[]).unwrap_err();
            assert!(mistakes.contains(part), "{entry}: {mistakes}");
        }
        assert!(parse("roles: [{ user: a, cluster: c, roles: [cluster-manage] }]\n", &[Danger::ClusterManage]).is_ok());
    }
}
