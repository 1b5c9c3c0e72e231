use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use admittance_bcs::ClusterId;
use admittance_definitions::document::{Node, readers};
use admittance_gateway::{
    ApiGroup, EndpointConfig, GatewayConfig, PeerSecrets, PeersConfig, PlainGroups, TokenTable, TokensConfig,
};
use admittance_net::upstream::UpstreamServer;
use admittance_watch::file;
use http::HeaderValue;

use super::{accounts::read_accounts, roles};
use crate::config::{
    ListenConfig, SectionContext, node_path,
    read::{HOUR, parse_url, read_duration, upstream},
};

pub(super) fn gateway(node: &Node<'_>, sections: SectionContext<'_>) -> Option<GatewayConfig> {
    let mut fields = node.object()?;
    let clusters = fields.get_or_default("clusters", read_clusters);
    let discovery = fields.get_optional("discover", |node| {
        let path = node_path(node, GatewayConfig::DEFAULT_PATH)?;
        sections.ensembles.need_any(node);
        Some(path)
    });
    let services = fields.get_optional("services", |node| {
        node.object()?.refuse_all();
        sections.ensembles.need_any(node);
        Some(())
    });
    if !fields.has("clusters") && !fields.has("discover") && !fields.has("accounts") {
        let fix = "write `clusters: { BCS-MESOS-10001: [ \"http://10.0.0.5:8090\" ] }`, or `discover: {}`, or \
                   `accounts: { sqlite: accounts.db }` for users and clusters of Kubernetes alone";
        node.add_mistake("no drivers are configured", fix);
    }
    let drivers = upstream::read_upstream_config(&mut fields, clusters.values().flatten().any(UpstreamServer::is_tls));
    let has_accounts = fields.has("accounts");
    let tokens = fields.get_optional("tokens", |node| read_tokens(node, has_accounts));
    let accounts = fields.get_optional("accounts", read_accounts);
    let roles = fields.get_optional("roles", roles::roles);
    if let Some(node) = fields.optional("roles")
        && !has_accounts
    {
        let message = "roles are of the users of the gateway, who are in its database";
        node.add_mistake(message, "remove it, or write `accounts`");
    }
    let peers = fields.get_optional("peers", |node| read_peers(node, sections.listen));
    if let Some(node) = fields.optional("peers")
        && !has_accounts
    {
        let message = "gateways share the tunnels of agents, and there are none without `accounts`";
        node.add_mistake(message, "remove it, or write `accounts`");
    }
    let groups = readers::list_of(Node::parse::<ApiGroup>);
    let plain_groups = fields.get_or_default("customResourceGroups", groups);
    let forward_token = fields.get_or_default("forwardToken", Node::boolean);
    let statuses = fields.get_or_default("statuses", Node::word);
    Some(GatewayConfig {
        clusters,
        discovery,
        drivers: drivers?,
        services: services.is_some(),
        tokens,
        accounts: accounts.map(Box::new),
        roles,
        registration: None,
        peers,
        plain_groups: PlainGroups::from_iter(plain_groups),
        forward_token,
        statuses,
    })
}

fn read_peers(node: &Node<'_>, listen: &ListenConfig) -> Option<PeersConfig> {
    let mut fields = node.object()?;
    let fix = "write a secret with `openssl rand -base64 32 > peers.secret`, and name the file";
    let secrets = fields.get_required("secretFile", fix, readers::file_with(PeerSecrets::read));
    let tls = upstream::client_tls(&mut fields, listen.tls.is_some());
    if listen.tls.is_none() && !listen.address.ip().is_loopback() {
        let message = "other machines' gateways connect only with TLS";
        node.add_mistake(message, "configure `listen.tls`");
    }
    Some(PeersConfig {
        secrets: secrets?,
        tls: tls?,
    })
}

fn read_clusters(node: &Node<'_>) -> Option<BTreeMap<ClusterId, Vec<UpstreamServer>>> {
    let mut clusters = BTreeMap::new();
    for (id, node) in node.map()? {
        let id = node.accept(ClusterId::from_node_name(id));
        let servers = node.filled_list_of("write [ \"http://10.0.0.5:8090\" ]", Node::parse);
        clusters.extend(id.zip(servers));
    }
    Some(clusters)
}

fn read_tokens(node: &Node<'_>, has_accounts: bool) -> Option<TokensConfig> {
    let mut fields = node.object()?;
    let sources = fields.present_fields(&["file", "endpoint", "accounts"]);
    match sources.as_slice() {
        [("file", node)] => {
            let table = node.accept_read(TokenTable::read(&node.file_path()?));
            table.map(TokensConfig::File)
        }
        [("endpoint", node)] => read_endpoint(node).map(Box::new).map(TokensConfig::Endpoint),
        [("accounts", node)] => {
            node.object()?.refuse_all();
            if !has_accounts {
                let message = "there are no users without `dialect.gateway.accounts`";
                return node.reject(message, "write it, or another source of tokens");
            }
            Some(TokensConfig::Accounts)
        }
        _ => {
            let message = "exactly one source of tokens is required";
            node.reject(message, "write one of `file`, `endpoint` and `accounts`")
        }
    }
}

fn read_endpoint(node: &Node<'_>) -> Option<EndpointConfig> {
    let mut fields = node.object()?;
    let example = "https://usermanager:8080";
    let parse_url = |text: &str| parse_url(text, EndpointConfig::DEFAULT_PATH, example);
    let url = fields.get_required("url", &format!("write {example}"), readers::parse_with(parse_url));
    let needs_authorities = url.as_ref().is_some_and(|url| url.scheme_str() == Some("https"));
    let tls = upstream::client_tls(&mut fields, needs_authorities);
    let token_file = fields.get_optional("tokenFile", readers::file_with(check_token_file));
    let timeout = fields.get("timeout", EndpointConfig::DEFAULT_TIMEOUT, read_duration);
    // `0s` is allowed, because it turns the cache off.
    let cache_times = readers::duration(Duration::ZERO..=HOUR);
    let cache = fields.get("cache", EndpointConfig::DEFAULT_CACHE, cache_times);
    let default_action = EndpointConfig::DEFAULT_HOOKS_ACTION.to_owned();
    let hooks_action = fields.get("hooksAction", default_action, readers::text);
    Some(EndpointConfig {
        url: url?,
        tls: tls?,
        token_file,
        timeout,
        cache,
        hooks_action,
    })
}

fn check_token_file(path: &Path) -> Result<PathBuf, String> {
    const MAX_TOKEN_SIZE: u64 = 4096;
    let name = path.display();
    let text =
        file::read_secret_to_string(path, MAX_TOKEN_SIZE).map_err(|error| error.describe(path, "the token file"))?;
    let token = text.trim();
    if token.is_empty() || HeaderValue::from_str(token).is_err() || token.contains(char::is_whitespace) {
        return Err(format!("{name}: it contains no token: write it on one line"));
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests;
