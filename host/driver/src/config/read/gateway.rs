use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use admittance_bcs::{
    ApiGroup, ClusterId, EndpointConfig, GatewayConfig, PlainGroups, TokenTable, TokensConfig,
    zookeeper::NodePath,
};
use admittance_definitions::{Mistakes, document::Node};
use admittance_net::upstream::Server;
use admittance_watch::file::{self, SecretError};
use http::{HeaderValue, Uri};

use super::{
    HOUR, duration, if_there, or, owned, parsed_list, section, upstream,
    zookeeper::{Ensembles, path},
};

/// The content of `dialect.gateway`.
pub(super) fn gateway(
    node: &Node<'_>,
    ensembles: Ensembles,
    mistakes: &mut Mistakes,
) -> Option<GatewayConfig> {
    let mut fields = node.object(mistakes)?;
    let clusters_node = fields.optional("clusters");
    let clusters = section(clusters_node, mistakes, clusters);
    let discovery = if_there(fields.optional("discover"), mistakes, |node, mistakes| {
        discovery(node, ensembles, mistakes)
    });
    if !fields.has("clusters") && !fields.has("discover") {
        node.wrong(
            "no drivers are configured",
            "write `clusters: { BCS-MESOS-10001: [ \"http://10.0.0.5:8090\" ] }`, or `discover: {}`",
            mistakes,
        );
    }
    let needs_authorities = clusters
        .iter()
        .flat_map(BTreeMap::values)
        .flatten()
        .any(Server::is_tls);
    let drivers = upstream::reached(&mut fields, needs_authorities, mistakes);
    let tokens = if_there(fields.optional("tokens"), mistakes, tokens);
    let plain_groups = section(
        fields.optional("customResourceGroups"),
        mistakes,
        |node, mistakes| parsed_list::<ApiGroup>(node, mistakes).map(PlainGroups::from_iter),
    );
    let forward_token = section(fields.optional("forwardToken"), mistakes, Node::boolean);
    let statuses = section(fields.optional("statuses"), mistakes, Node::word);
    fields.finish(mistakes);
    Some(GatewayConfig {
        clusters: clusters?,
        discovery: discovery?,
        drivers: drivers?,
        tokens: tokens?,
        plain_groups: plain_groups?,
        forward_token: forward_token?,
        statuses: statuses?,
    })
}

fn clusters(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<BTreeMap<ClusterId, Vec<Server>>> {
    let mut clusters = BTreeMap::new();
    let entries = node.map(mistakes)?;
    let count = entries.len();
    for (id, node) in entries {
        let id = match ClusterId::of_node(id) {
            Ok(id) => Some(id),
            Err(error) => {
                node.wrong(error.to_string(), "", mistakes);
                None
            }
        };
        let servers = node
            .filled_list("write [ \"http://10.0.0.5:8090\" ]", mistakes)
            .and_then(|_| parsed_list::<Server>(&node, mistakes));
        clusters.extend(id.zip(servers));
    }
    // Invalid ones were reported, and are missing.
    (clusters.len() == count).then_some(clusters)
}

fn discovery(node: &Node<'_>, ensembles: Ensembles, mistakes: &mut Mistakes) -> Option<NodePath> {
    let mut fields = node.object(mistakes)?;
    let path = path(&mut fields, GatewayConfig::DEFAULT_PATH, mistakes);
    fields.finish(mistakes);
    ensembles.need_any(node, mistakes)?;
    path
}

fn tokens(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<TokensConfig> {
    let mut fields = node.object(mistakes)?;
    let (file, endpoint_node) = (fields.optional("file"), fields.optional("endpoint"));
    fields.finish(mistakes);
    match (file, endpoint_node) {
        (Some(node), None) => match TokenTable::read(&node.file(mistakes)?) {
            Ok(table) => Some(TokensConfig::File(table)),
            Err(wrong) => {
                mistakes.extend(wrong);
                None
            }
        },
        (None, Some(node)) => endpoint(&node, mistakes).map(TokensConfig::Endpoint),
        _ => {
            let message = "exactly one source of tokens is required";
            node.wrong(message, "write one of `file` and `endpoint`", mistakes);
            None
        }
    }
}

fn endpoint(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<EndpointConfig> {
    let mut fields = node.object(mistakes)?;
    let url = fields.get_required(
        "url",
        "write https://usermanager:8080",
        |node, mistakes| node.parse_with(url, mistakes),
        mistakes,
    );
    let needs_authorities = url.as_ref().is_some_and(|url| url.scheme_str() == Some("https"));
    let tls = upstream::client_tls(&mut fields, needs_authorities, mistakes);
    let token_file = if_there(fields.optional("tokenFile"), mistakes, own_token);
    let timeout = duration(&mut fields, "timeout", EndpointConfig::DEFAULT_TIMEOUT, mistakes);
    // 0s: no cache.
    let cache = or(
        fields.optional("cache"),
        EndpointConfig::DEFAULT_CACHE,
        mistakes,
        |node, mistakes| node.duration(Duration::ZERO..=HOUR, mistakes),
    );
    let default_action = EndpointConfig::DEFAULT_HOOKS_ACTION.to_owned();
    let hooks_action = or(fields.optional("hooksAction"), default_action, mistakes, owned);
    fields.finish(mistakes);
    Some(EndpointConfig {
        url: url?,
        tls: tls?,
        token_file: token_file?,
        timeout: timeout?,
        cache: cache?,
        hooks_action: hooks_action?,
    })
}

/// The URL of the token endpoint, with a path.
fn url(text: &str) -> Result<Uri, String> {
    let wrong = || format!("{text:?} is not a valid URL: write https://usermanager:8080");
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let mut parts = uri.into_parts();
    let is_http = parts
        .scheme
        .as_ref()
        .is_some_and(|scheme| matches!(scheme.as_str(), "http" | "https"));
    let is_plain = parts
        .authority
        .as_ref()
        .is_some_and(|authority| !authority.as_str().contains('@') && !authority.host().is_empty());
    if !is_http || !is_plain {
        return Err(wrong());
    }
    if parts.path_and_query.as_ref().is_none_or(|path| path == "/") {
        parts.path_and_query = EndpointConfig::DEFAULT_PATH.parse().ok();
    }
    Uri::from_parts(parts).map_err(|_| wrong())
}

fn own_token(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<PathBuf> {
    let path = node.file(mistakes)?;
    super::good(check_token(&path), node, mistakes)?;
    Some(path)
}

/// Checks that the file contains a token, and is not world-readable.
fn check_token(path: &Path) -> Result<(), String> {
    /// It must fit into a header.
    const MOST: u64 = 4096;
    let shown = path.display();
    let text = file::read_secret_to_string(path, MOST).map_err(|error| match error {
        SecretError::Unreadable(error) => format!("{shown}: {error}"),
        SecretError::WorldReadable => {
            format!("{shown}: the token file is world-readable: chmod o-r {shown}")
        }
    })?;
    let token = text.trim();
    if token.is_empty() || HeaderValue::from_str(token).is_err() || token.contains(char::is_whitespace) {
        return Err(format!("{shown}: it contains no token: write it on one line"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
