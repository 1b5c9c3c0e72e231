//! The ClusterRoles that users can be granted. They contain a dangerous right only if the operator has allowed it.

use std::collections::BTreeSet;

use admittance_admission::keywords;
use serde_json::{Value, json};

use crate::accounts::GrantedRole;

pub(super) const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
/// The label, and its value, of every object that a gateway writes into a cluster.
pub(super) const MANAGED_BY_LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "admittance-gateway");

/// A right with which a user could read secrets, or take over workloads or the cluster. The operator must allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Danger {
    /// The right of the role `workloads-manage` to run commands in containers, attach to them and connect to ports.
    Exec,
    /// The right of the role `cluster-readonly` to read Secrets.
    Secrets,
    /// The full rights of the role `cluster-manage`. Users can get this role only if the operator allows these rights.
    ClusterManage,
}

keywords!(
    Danger,
    "right":
    Exec = "exec",
    Secrets = "secrets",
    ClusterManage = "cluster-manage"
);

/// The dangerous rights that the operator has allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedRights(pub BTreeSet<Danger>);

const READ_VERBS: [&str; 3] = ["get", "list", "watch"];
const MANAGE_VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];
const SERVICE_RESOURCES: [&str; 2] = ["services", "endpoints"];
const WORKLOAD_RESOURCES: [(&str, &[&str]); 4] = [
    ("", &["pods", "replicationcontrollers", "replicationcontrollers/scale"]),
    (
        "apps",
        &[
            "deployments",
            "deployments/scale",
            "deployments/rollback",
            "replicasets",
            "replicasets/scale",
            "daemonsets",
            "statefulsets",
        ],
    ),
    ("batch", &["jobs", "cronjobs"]),
    ("autoscaling", &["horizontalpodautoscalers"]),
];
/// The resources that the roles for workloads may only read.
const READABLE_WITH_WORKLOADS: [&str; 8] = [
    "limitranges",
    "resourcequotas",
    "resourcequotas/status",
    "bindings",
    "pods/log",
    "pods/status",
    "replicationcontrollers/status",
    "events",
];
/// The subresources through which a user reaches into a Pod. To read them is as dangerous as to write them.
const POD_ACCESS_SUBRESOURCES: [&str; 4] = ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy"];
/// The resources of the core group that `cluster-readonly` may read. Secrets and access to Pods and nodes are left out.
const CORE_RESOURCES: [&str; 20] = [
    "bindings",
    "componentstatuses",
    "configmaps",
    "endpoints",
    "events",
    "limitranges",
    "namespaces",
    "namespaces/status",
    "nodes",
    "nodes/status",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "pods/log",
    "pods/status",
    "podtemplates",
    "replicationcontrollers",
    "resourcequotas",
    "serviceaccounts",
    "services",
];
/// The API groups, besides the core group, that the role `cluster-readonly` may read. Their resources contain no
/// secrets, and give no access to Pods.
const OTHER_GROUPS: [&str; 18] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "metrics.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "policy",
    RBAC_GROUP,
    "scheduling.k8s.io",
    "storage.k8s.io",
];

impl AllowedRights {
    fn is_allowed(&self, danger: Danger) -> bool {
        self.0.contains(&danger)
    }

    pub(super) fn check_role(&self, role: GrantedRole) -> Result<(), String> {
        if role == GrantedRole::ClusterManage && !self.is_allowed(Danger::ClusterManage) {
            return Err(format!(
                "{role} may do everything, so it is granted only if `dialect.gateway.roles.allow` names it: write \
                 `allow: [{}]`, or grant other roles",
                Danger::ClusterManage
            ));
        }
        Ok(())
    }
}

pub(super) fn cluster_role_name(role: GrantedRole) -> String {
    format!("admittance:{role}")
}

pub(super) fn cluster_role(role: GrantedRole, allowed: &AllowedRights) -> Value {
    let (label, value) = MANAGED_BY_LABEL;
    json!({
        "apiVersion": format!("{RBAC_GROUP}/v1"),
        "kind": "ClusterRole",
        "metadata": {"name": cluster_role_name(role), "labels": {label: value}},
        "rules": rules_of_role(role, allowed),
    })
}

/// Returns all ClusterRoles that may be granted to users. If the cluster's agent may not create them, an administrator
/// can do so.
pub fn cluster_roles(allowed: &AllowedRights) -> Vec<Value> {
    let roles = GrantedRole::ALL.into_iter();
    let granted = roles.filter(|role| allowed.check_role(*role).is_ok());
    granted.map(|role| cluster_role(role, allowed)).collect()
}

/// Returns the rules that let the agent's account write bindings to these roles, but to no other roles.
pub fn rules_of_writer(allowed: &AllowedRights) -> Vec<Value> {
    let roles = GrantedRole::ALL
        .into_iter()
        .filter(|role| allowed.check_role(*role).is_ok());
    let names: Vec<String> = roles.map(cluster_role_name).collect();
    vec![
        json!({"apiGroups": [RBAC_GROUP], "resources": ["clusterroles"], "verbs": ["get", "bind"], "resourceNames": names}),
        json!({
            "apiGroups": [RBAC_GROUP],
            "resources": ["clusterrolebindings", "rolebindings"],
            "verbs": ["get", "list", "create", "patch", "delete"],
        }),
    ]
}

fn rules_of_role(role: GrantedRole, allowed: &AllowedRights) -> Vec<Value> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let workloads = |verbs: &[&str]| {
        let workloads = WORKLOAD_RESOURCES.map(|(group, resources)| rule(group, resources, verbs));
        let mut rules = Vec::from(workloads);
        rules.push(rule("", &READABLE_WITH_WORKLOADS, &READ_VERBS));
        rules
    };
    match role {
        GrantedRole::ClusterManage => vec![
            rule("*", &["*"], &["*"]),
            json!({"nonResourceURLs": ["*"], "verbs": ["*"]}),
        ],
        GrantedRole::ClusterReadonly => {
            let mut rules = vec![
                rule("", &CORE_RESOURCES, &READ_VERBS),
                json!({"apiGroups": OTHER_GROUPS, "resources": ["*"], "verbs": READ_VERBS}),
            ];
            if allowed.is_allowed(Danger::Secrets) {
                rules.push(rule("", &["secrets"], &READ_VERBS));
            }
            rules
        }
        GrantedRole::ServicesView => vec![rule("", &SERVICE_RESOURCES, &READ_VERBS)],
        GrantedRole::ServicesManage => vec![rule("", &SERVICE_RESOURCES, &MANAGE_VERBS)],
        GrantedRole::WorkloadsView => workloads(&READ_VERBS),
        GrantedRole::WorkloadsManage => {
            let mut rules = workloads(&MANAGE_VERBS);
            if allowed.is_allowed(Danger::Exec) {
                rules.push(rule("", &POD_ACCESS_SUBRESOURCES, &["get", "create"]));
            }
            rules
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules_text(role: GrantedRole, allowed: &[Danger]) -> String {
        let allowed = AllowedRights(allowed.iter().copied().collect());
        cluster_role(role, &allowed)["rules"].to_string()
    }

    #[test]
    fn dangerous_rights_are_granted_only_if_the_operator_allows_them() {
        for role in GrantedRole::ALL {
            if role == GrantedRole::ClusterManage {
                assert!(AllowedRights::default().check_role(role).is_err());
                continue;
            }
            let rules = rules_text(role, &[]);
            for dangerous in ["exec", "attach", "portforward", "proxy", "secrets", "\"\\*\"]"] {
                let is_readonly_of_groups = role == GrantedRole::ClusterReadonly && dangerous.contains('*');
                assert!(
                    is_readonly_of_groups || !rules.contains(dangerous),
                    "{role}: {dangerous}"
                );
            }
            // These verbs would let users extend their own rights. No role except `cluster-manage` contains them.
            for verb in ["bind\"", "escalate", "impersonate", "\"verbs\":[\"*\"]"] {
                assert!(!rules.contains(verb), "{role}: {verb}");
            }
        }
    }

    #[test]
    fn rights_that_the_operator_allows_are_granted() {
        assert!(rules_text(GrantedRole::WorkloadsManage, &[Danger::Exec]).contains("pods/exec"));
        // The role `workloads-view` may only read. But to read `pods/exec` means to run a command in a container, so
        // the role never includes it.
        assert!(!rules_text(GrantedRole::WorkloadsView, &Danger::ALL).contains("pods/exec"));
        assert!(rules_text(GrantedRole::ClusterReadonly, &[Danger::Secrets]).contains("\"secrets\""));
        assert_eq!(cluster_roles(&AllowedRights::default()).len(), 5);
        assert_eq!(cluster_roles(&AllowedRights([Danger::ClusterManage].into())).len(), 6);
    }
}
