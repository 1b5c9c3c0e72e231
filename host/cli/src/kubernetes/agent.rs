//! Makes the objects that install the agent for a gateway.

use std::path::PathBuf;

use admittance_gateway::roles::{AllowedRights, Danger, cluster_roles, rules_of_writer};
use clap::Args;
use serde_json::json;

use super::{
    Installation,
    chart::{ChartFiles, render_manifests},
    manifest::CommentedManifest,
    values::{group, label},
};
use crate::{files, remote::ServerUrl};

/// The groups by which a gateway tells the cluster what a user may do, each with the ClusterRole that is bound to it.
const GATEWAY_GROUPS: [(&str, &str); 3] = [
    ("admittance:view", "view"),
    ("admittance:edit", "edit"),
    ("admittance:super-users", "cluster-admin"),
];

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Agent")]
pub(super) struct AgentArguments {
    /// Print the objects that connect the cluster to a gateway, instead of those that install the webhooks: one Pod of
    /// `admittance agent`, the right to impersonate users, and bindings for the gateway's groups.
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
    /// Bind no roles to the gateway's groups, so that users may do only what the cluster's own role bindings allow.
    #[arg(long, requires = "agent")]
    no_bindings: bool,
    /// A group that the gateway may impersonate, in addition to the groups for its users' permissions. May be given
    /// more than once.
    #[arg(long, value_name = "NAME", value_parser = group, requires = "agent")]
    group: Vec<String>,
    /// Print the ClusterRoles that a gateway with the setting `dialect.gateway.roles` binds to users. The gateway gets
    /// the right to bind these roles, and no other roles.
    #[arg(long, requires = "agent")]
    roles: bool,
    /// A right that the roles of --roles get only if it is given here, as in `dialect.gateway.roles.allow`: exec,
    /// secrets or cluster-manage. May be given more than once.
    #[arg(long, value_name = "RIGHT", requires = "roles")]
    allow: Vec<Danger>,
}

pub(super) fn agent_manifests(installation: &Installation) -> crate::Result<Vec<CommentedManifest>> {
    let agent = &installation.agent;
    let mut files = ChartFiles::new();
    for (name, path) in [
        ("register-token", &agent.register_token_file),
        ("ca.pem", &agent.gateway_ca),
    ] {
        if let Some(path) = path {
            let text = files::read(path)?.trim().to_owned();
            files.insert(format!("secrets/agent/{name}"), text.into_bytes());
        }
    }
    let bindings: Vec<_> = GATEWAY_GROUPS
        .iter()
        .filter(|_| !agent.no_bindings)
        .map(|(group, role)| json!({"group": group, "role": role}))
        .collect();
    let allowed = AllowedRights(agent.allow.iter().copied().collect());
    let values = json!({
        "image": installation.image,
        "cpu": installation.cpu_request,
        "memory": installation.memory_request,
        "gateway": agent.gateway.as_ref().map(ToString::to_string),
        "clusterId": agent.cluster_id,
        "groups": agent.group,
        "bindings": bindings,
        "rulesOfWriter": agent.roles.then(|| rules_of_writer(&allowed)),
    });
    let templates = [
        include_str!("templates/namespace.yaml"),
        include_str!("chart/templates/serviceaccount.yaml"),
        include_str!("templates/agent.yaml"),
    ];
    let mut manifests = render_manifests(installation, &values, templates, &files)?;
    if agent.roles {
        manifests.extend(cluster_roles(&allowed).into_iter().map(CommentedManifest::from));
        manifests.sort_by_key(CommentedManifest::rank);
    }
    Ok(manifests)
}
