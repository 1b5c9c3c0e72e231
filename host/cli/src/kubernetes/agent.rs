//! Makes the objects that install the agent of a gateway.

use std::path::PathBuf;

use admittance_gateway::roles::{AllowedRights, Danger, cluster_roles, rules_of_writer};
use base64::{Engine, prelude::BASE64_STANDARD};
use clap::Args;
use serde_json::{Map, Value as Json, json};

use super::{
    Installation,
    deployment::{pod_restrictions, restrictions},
    manifest::Manifest,
    objects::{namespace, service_account},
    roles::{account_subject, cluster_role, cluster_role_binding},
    values::{group, label},
};
use crate::{files, remote::ServerUrl};

const TOKEN_FILE: &str = "register-token";
const CA_FILE: &str = "ca.pem";
const DIRECTORY: &str = "/etc/admittance/gateway";

/// The groups by which a gateway passes on the permissions of its users, and the ClusterRoles that they get.
const GATEWAY_GROUPS: [(&str, &str); 3] = [
    ("admittance:view", "view"),
    ("admittance:edit", "edit"),
    ("admittance:super-users", "cluster-admin"),
];
/// The group of users who may configure webhooks, for which the manifests have a ClusterRole of their own.
const HOOKS_GROUP: &str = "admittance:hooks";

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Agent")]
pub(super) struct AgentArguments {
    /// Print the objects that connect the cluster to a gateway instead: one Pod of `admittance agent`, the right to
    /// impersonate users, and roles for the gateway's groups.
    #[arg(long, requires_all = ["gateway", "cluster_id", "register_token_file"], conflicts_with_all = ["definitions", "config"])]
    pub(super) agent: bool,
    /// The URL of the gateway.
    #[arg(long, value_name = "URL", requires = "agent")]
    gateway: Option<ServerUrl>,
    /// The ID of the cluster at the gateway.
    #[arg(long, value_name = "ID", value_parser = label, requires = "agent")]
    cluster_id: Option<String>,
    /// The file with the register token of the cluster.
    #[arg(long, value_name = "FILE", requires = "agent")]
    register_token_file: Option<PathBuf>,
    /// The CAs of the gateway, as PEM [default: the CAs of the image].
    #[arg(long, value_name = "FILE", requires = "agent")]
    gateway_ca: Option<PathBuf>,
    /// Bind no roles to the gateway's groups: users may do what the role bindings of the cluster give them.
    #[arg(long, requires = "agent")]
    no_bindings: bool,
    /// A group of users that the gateway may impersonate, besides the groups of its permissions. May be given more than
    /// once.
    #[arg(long, value_name = "NAME", value_parser = group, requires = "agent")]
    group: Vec<String>,
    /// Print the roles that a gateway binds to users with `dialect.gateway.roles`, and let it bind these and no others.
    #[arg(long, requires = "agent")]
    roles: bool,
    /// A right that these roles have only if it is named, as in `dialect.gateway.roles.allow`: exec, secrets or
    /// cluster-manage. May be given more than once.
    #[arg(long, value_name = "RIGHT", requires = "roles")]
    allow: Vec<Danger>,
}

pub(super) fn manifests(installation: &Installation) -> crate::Result<Vec<Manifest>> {
    let agent = &installation.agent;
    let mut data = Map::new();
    for (name, path) in [
        (TOKEN_FILE, &agent.register_token_file),
        (CA_FILE, &agent.gateway_ca),
    ] {
        if let Some(path) = path {
            let text = files::read(path)?;
            data.insert(name.to_owned(), BASE64_STANDARD.encode(text.trim()).into());
        }
    }
    let has_ca = data.contains_key(CA_FILE);
    let secret = installation.object(
        "v1",
        "Secret",
        &installation.named("agent"),
        [("data", data.into())],
    );
    let mut objects = vec![namespace(installation), service_account(installation)];
    objects.extend(roles(installation));
    objects.extend([secret, deployment(installation, has_ca)]);
    Ok(objects.into_iter().map(Manifest::from).collect())
}

fn roles(installation: &Installation) -> Vec<Json> {
    let own = format!("{}-{}-agent", installation.namespace, installation.name);
    let hooks = format!("{own}-hooks");
    let groups = GATEWAY_GROUPS
        .iter()
        .map(|(group, _)| *group)
        .chain([HOOKS_GROUP]);
    let groups: Vec<&str> = groups
        .chain(installation.agent.group.iter().map(String::as_str))
        .collect();
    let role = |name: &str, rules: Json| cluster_role(installation, name, rules);
    let binding =
        |name: &str, role: &str, subject: Json| cluster_role_binding(installation, name, role, subject);
    let group = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name});
    let impersonation = json!([
        {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["groups"], "verbs": ["impersonate"], "resourceNames": groups},
        // The addresses of the API servers.
        {"apiGroups": [""], "resources": ["endpoints"], "verbs": ["get"], "resourceNames": ["kubernetes"]},
    ]);
    let registration = json!([
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]},
    ]);
    let mut objects = vec![
        role(&own, impersonation),
        binding(&own, &own, account_subject(installation)),
    ];
    if installation.agent.roles {
        let allowed = AllowedRights(installation.agent.allow.iter().copied().collect());
        let writer = format!("{own}-roles");
        objects.extend(cluster_roles(&allowed));
        objects.extend([
            role(&writer, rules_of_writer(&allowed).into()),
            binding(&writer, &writer, account_subject(installation)),
        ]);
    }
    if installation.agent.no_bindings {
        return objects;
    }
    objects.extend([
        role(&hooks, registration),
        binding(&hooks, &hooks, group(HOOKS_GROUP)),
    ]);
    let bindings = GATEWAY_GROUPS
        .iter()
        .map(|(name, role)| binding(&format!("{own}-{role}"), role, group(name)));
    objects.extend(bindings);
    objects
}

fn deployment(installation: &Installation, has_ca: bool) -> Json {
    let agent = &installation.agent;
    let gateway = agent
        .gateway
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let mut arguments = vec![
        "agent".to_owned(),
        format!("--gateway={gateway}"),
        format!("--cluster-id={}", agent.cluster_id.clone().unwrap_or_default()),
        format!("--register-token-file={DIRECTORY}/{TOKEN_FILE}"),
    ];
    arguments.extend(has_ca.then(|| format!("--ca={DIRECTORY}/{CA_FILE}")));
    let selector = json!({
        "app.kubernetes.io/name": "admittance-agent",
        "app.kubernetes.io/instance": installation.name,
    });
    let Installation {
        cpu_request: cpu,
        memory_request: memory,
        ..
    } = installation;
    let pod = json!({
        "serviceAccountName": installation.name,
        "automountServiceAccountToken": true,
        "securityContext": pod_restrictions(),
        "containers": [{
            "name": "agent",
            "image": installation.image,
            "args": arguments,
            "resources": {"requests": {"cpu": cpu, "memory": memory}},
            "securityContext": restrictions(),
            "volumeMounts": [{"name": "gateway", "mountPath": DIRECTORY, "readOnly": true}],
        }],
        "volumes": [{"name": "gateway", "secret": {"secretName": installation.named("agent"), "defaultMode": 0o440}}],
    });
    let spec = json!({
        "replicas": 1,
        "selector": {"matchLabels": selector},
        "template": {"metadata": {"labels": selector}, "spec": pod},
    });
    installation.object(
        "apps/v1",
        "Deployment",
        &installation.named("agent"),
        [("spec", spec)],
    )
}
