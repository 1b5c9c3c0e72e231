//! Reads the roles among the manifests, and decides what users may do as Kubernetes' RBAC does.

use admittance_admission::{AccessAttributes, AccessCheckResult, UserInfo};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject};
use serde::de::DeserializeOwned;
use serde_json::Value;

const RBAC: &str = "rbac.authorization.k8s.io/v1";

const MASTERS_GROUP: &str = "system:masters";

#[derive(Debug, Default)]
pub(crate) struct ManifestRoles {
    rules: Vec<(Name, Vec<PolicyRule>)>,
    bindings: Vec<ManifestBinding>,
}

/// The name of a role or a binding. One that belongs to the whole cluster has no namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Name {
    namespace: Option<String>,
    name: String,
}

#[derive(Debug)]
struct ManifestBinding {
    name: Name,
    role: Name,
    subjects: Vec<Subject>,
}

impl ManifestRoles {
    /// Adds an object if it is a role or a binding of roles, and ignores all other objects.
    pub(crate) fn add(&mut self, object: &Value) -> Result<(), String> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        if text("/apiVersion") != Some(RBAC) {
            return Ok(());
        }
        let name = Name {
            namespace: text("/metadata/namespace").map(str::to_owned),
            name: text("/metadata/name").unwrap_or_default().to_owned(),
        };
        match text("/kind") {
            Some("Role") => self.add_role(name, parse_rbac_object::<Role>(object)?.rules),
            Some("ClusterRole") => self.add_role(name, parse_rbac_object::<ClusterRole>(object)?.rules),
            Some("RoleBinding") => {
                let binding = parse_rbac_object::<RoleBinding>(object)?;
                self.bind(name, binding.role_ref, binding.subjects);
            }
            Some("ClusterRoleBinding") => {
                let binding = parse_rbac_object::<ClusterRoleBinding>(object)?;
                self.bind(name, binding.role_ref, binding.subjects);
            }
            _ => {}
        }
        Ok(())
    }

    fn add_role(&mut self, name: Name, rules: Option<Vec<PolicyRule>>) {
        self.rules.push((name, rules.unwrap_or_default()));
    }

    fn bind(&mut self, name: Name, role: RoleRef, subjects: Option<Vec<Subject>>) {
        let is_local = role.kind == "Role";
        let role = Name {
            namespace: name.namespace.clone().filter(|_| is_local),
            name: role.name,
        };
        self.bindings.push(ManifestBinding {
            name,
            role,
            subjects: subjects.unwrap_or_default(),
        });
    }

    pub(crate) fn check_access(&self, user: &UserInfo, action: &AccessAttributes) -> AccessCheckResult {
        let allowed = |reason: String| AccessCheckResult { allowed: true, reason };
        if user.groups.iter().any(|group| group == MASTERS_GROUP) {
            return allowed(format!("the group {MASTERS_GROUP} may do everything"));
        }
        let target_namespace = match action {
            AccessAttributes::Resource { namespace, .. } => namespace.as_str(),
            AccessAttributes::Path { .. } => "",
        };
        for ManifestBinding { name, role, subjects } in &self.bindings {
            let namespace = name.namespace.as_deref();
            if namespace.is_some_and(|namespace| namespace != target_namespace) {
                continue;
            }
            let Some(subject) = subjects.iter().find(|subject| is_user(subject, user, namespace)) else {
                continue;
            };
            let mut rules = self
                .rules
                .iter()
                .filter(|(name, _)| name == role)
                .flat_map(|(_, rules)| rules);
            if rules.any(|rule| allows(rule, action)) {
                let kind = |kind: &str, name: &Name| match name.namespace {
                    Some(_) => kind.to_owned(),
                    None => format!("Cluster{kind}"),
                };
                return allowed(format!(
                    "RBAC: allowed by {} {:?} of {} {:?} to {} {:?}",
                    kind("RoleBinding", name),
                    name.name,
                    kind("Role", role),
                    role.name,
                    subject.kind,
                    subject.name
                ));
            }
        }
        AccessCheckResult::default()
    }
}

fn parse_rbac_object<T: DeserializeOwned>(object: &Value) -> Result<T, String> {
    let name = object.pointer("/metadata/name").unwrap_or(&Value::Null);
    serde_json::from_value(object.clone())
        .map_err(|error| format!("the {} {name} cannot be read: {error}", object["kind"]))
}

fn is_user(subject: &Subject, user: &UserInfo, namespace: Option<&str>) -> bool {
    match subject.kind.as_str() {
        "User" => subject.name == user.username,
        "Group" => user.groups.contains(&subject.name),
        "ServiceAccount" => subject
            .namespace
            .as_deref()
            .or(namespace)
            .is_some_and(|namespace| user.username == format!("system:serviceaccount:{namespace}:{}", subject.name)),
        _ => false,
    }
}

/// Returns whether a rule of a role allows an action, like `RuleAllows` of Kubernetes' RBAC authorizer.
fn allows(rule: &PolicyRule, action: &AccessAttributes) -> bool {
    let contains = |list: &[String], text: &str| list.iter().any(|entry| entry == "*" || entry == text);
    let is_verb = |verb: &str| contains(&rule.verbs, verb);
    match action {
        AccessAttributes::Resource {
            verb,
            group,
            resource,
            subresource,
            name,
            ..
        } => {
            let names = rule.resource_names.as_deref().unwrap_or_default();
            let resources = rule.resources.as_deref().unwrap_or_default();
            let is_resource = match subresource.as_str() {
                "" => contains(resources, resource),
                subresource => {
                    contains(resources, &format!("{resource}/{subresource}"))
                        || contains(resources, &format!("*/{subresource}"))
                }
            };
            is_verb(verb)
                && contains(rule.api_groups.as_deref().unwrap_or_default(), group)
                && is_resource
                && (names.is_empty() || names.contains(name))
        }
        AccessAttributes::Path { verb, path } => {
            let mut urls = rule.non_resource_urls.iter().flatten();
            is_verb(verb)
                && urls.any(|url| match url.strip_suffix('*') {
                    Some(start) => path.starts_with(start),
                    None => url == path,
                })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn test_roles() -> ManifestRoles {
        let mut roles = ManifestRoles::default();
        let role = |kind: &str, namespace: Option<&str>, name: &str, rules: Value| {
            json!({"apiVersion": RBAC, "kind": kind, "metadata": {"name": name, "namespace": namespace},
                   "rules": rules})
        };
        let binding = |kind: &str, namespace: Option<&str>, role: (&str, &str), subjects: Value| {
            json!({"apiVersion": RBAC, "kind": kind, "metadata": {"name": "b", "namespace": namespace},
                   "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1},
                   "subjects": subjects})
        };
        let pods = json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log"]}]);
        for object in [
            role("ClusterRole", None, "pods", pods),
            role(
                "ClusterRole",
                None,
                "scaler",
                json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*/scale"]},
                       {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/logs/*"]}]),
            ),
            role(
                "Role",
                Some("shop"),
                "web",
                json!([{"verbs": ["update"], "apiGroups": ["apps"], "resources": ["deployments"],
                        "resourceNames": ["web"]}]),
            ),
            binding(
                "RoleBinding",
                Some("shop"),
                ("Role", "web"),
                json!([{"kind": "User", "name": "jo"}]),
            ),
            binding(
                "RoleBinding",
                Some("ops"),
                ("ClusterRole", "pods"),
                json!([{"kind": "ServiceAccount", "name": "ci"}]),
            ),
            binding(
                "ClusterRoleBinding",
                None,
                ("ClusterRole", "scaler"),
                json!([{"kind": "Group", "name": "dev"}]),
            ),
            // The next two bindings have no effect: the role `web` is in another namespace, and `gone` does not exist.
            binding(
                "RoleBinding",
                Some("ops"),
                ("Role", "web"),
                json!([{"kind": "User", "name": "jo"}]),
            ),
            binding(
                "RoleBinding",
                Some("ops"),
                ("Role", "gone"),
                json!([{"kind": "User", "name": "jo"}]),
            ),
            json!({"apiVersion": "v1", "kind": "Role", "metadata": {"name": "not one of RBAC"}, "rules": 7}),
        ] {
            roles.add(&object).unwrap();
        }
        roles
    }

    #[test]
    fn roles_decide_what_users_may_do() {
        let roles = test_roles();
        // (user, group, action, whether the user may do it)
        // An action is [verb, API group, resource or path, subresource, namespace, name].
        for (user, group, action, expected) in [
            ("jo", "", ["update", "apps", "deployments", "", "shop", "web"], true),
            ("jo", "", ["update", "apps", "deployments", "", "shop", "api"], false),
            ("jo", "", ["update", "apps", "deployments", "", "shop", ""], false),
            ("jo", "", ["update", "apps", "deployments", "", "ops", "web"], false),
            ("jo", "", ["update", "apps", "deployments", "", "", "web"], false),
            ("jo", "", ["*", "apps", "deployments", "", "shop", "web"], false),
            ("jo", "", ["update", "", "deployments", "", "shop", "web"], false),
            ("al", "", ["update", "apps", "deployments", "", "shop", "web"], false),
            (
                "system:serviceaccount:ops:ci",
                "",
                ["get", "", "pods", "", "ops", "a"],
                true,
            ),
            (
                "system:serviceaccount:ops:ci",
                "",
                ["get", "", "pods", "log", "ops", "a"],
                true,
            ),
            (
                "system:serviceaccount:ops:ci",
                "",
                ["get", "", "pods", "exec", "ops", "a"],
                false,
            ),
            (
                "system:serviceaccount:shop:ci",
                "",
                ["get", "", "pods", "", "ops", "a"],
                false,
            ),
            (
                "al",
                "dev",
                ["patch", "apps", "deployments", "scale", "any", "web"],
                true,
            ),
            ("al", "dev", ["patch", "apps", "deployments", "", "any", "web"], false),
            ("al", "dev", ["get", "", "/healthz", "", "", ""], true),
            ("al", "dev", ["get", "", "/logs/a", "", "", ""], true),
            ("al", "dev", ["get", "", "/healthz/x", "", "", ""], false),
            ("al", "dev", ["post", "", "/healthz", "", "", ""], false),
            ("al", MASTERS_GROUP, ["delete", "", "nodes", "", "", ""], true),
        ] {
            let user = UserInfo {
                username: user.to_owned(),
                groups: vec![group.to_owned()],
                ..UserInfo::default()
            };
            let [verb, group, resource, subresource, namespace, name] = action.map(str::to_owned);
            let attributes = if resource.starts_with('/') {
                AccessAttributes::Path { verb, path: resource }
            } else {
                AccessAttributes::Resource {
                    verb,
                    group,
                    version: "*".to_owned(),
                    resource,
                    subresource,
                    namespace,
                    name,
                    field_selector: String::new(),
                    label_selector: String::new(),
                }
            };
            let access = roles.check_access(&user, &attributes);
            assert_eq!(access.allowed, expected, "{user:?} {action:?}");
            assert_eq!(access.reason.is_empty(), !expected, "{access:?}");
        }
    }

    #[test]
    fn an_unreadable_role_is_reported() {
        let role = json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": "a"}, "rules": 7});
        let error = ManifestRoles::default().add(&role).unwrap_err();
        assert!(error.starts_with(r#"the "Role" "a" cannot be read: "#), "{error}");
    }
}
