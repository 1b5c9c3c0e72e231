use std::path::{Path, PathBuf};

use admittance_definitions::document::{Node, readers};
use admittance_gateway::roles::{AllowedRights, Danger, RoleTable, RolesConfig, SubscriptionConfig};
use admittance_net::listener::is_loopback_host;
use http::uri::Scheme;

use crate::config::read::{parse_url, upstream};

pub(super) fn roles(node: &Node<'_>) -> Option<RolesConfig> {
    let mut fields = node.object()?;
    let allowed = fields.get_or_default("allow", readers::list_of(Node::word::<Danger>));
    let allowed = AllowedRights(allowed.into_iter().collect());
    let file = |node: &Node<'_>| node.accept_read(RoleTable::read(&node.file_path()?, &allowed));
    let file = fields.get_optional("file", file);
    let subscription = fields.get_optional("subscription", read_subscription);
    Some(RolesConfig {
        file,
        subscription,
        allowed,
    })
}

fn read_subscription(node: &Node<'_>) -> Option<SubscriptionConfig> {
    let mut fields = node.object()?;
    let example = "wss://auth.example.com";
    let parse_url = |text: &str| {
        // A WebSocket is opened by an HTTP request, so `ws` and `wss` are replaced with `http` and `https`.
        let text = match text.strip_prefix("ws") {
            Some(rest) => format!("http{rest}"),
            None => text.to_owned(),
        };
        let url = parse_url(&text, SubscriptionConfig::DEFAULT_PATH, example)?;
        if url.scheme() != Some(&Scheme::HTTPS) && !is_loopback_host(&url) {
            return Err(format!(
                "the roles and the secret would be sent unencrypted: write {example}"
            ));
        }
        Ok(url)
    };
    let url = fields.get_required("url", &format!("write {example}"), readers::parse_with(parse_url));
    let fix = "write the code by which the authorization system knows the gateway";
    let app_code = fields.get_required("appCode", fix, readers::text);
    let fix = "write the secret of the code to a file, and name the file";
    let secret_file = fields.get_required("secretFile", fix, readers::file_with(check_secret_file));
    let needs_authorities = url.as_ref().is_some_and(|url| url.scheme() == Some(&Scheme::HTTPS));
    let tls = upstream::client_tls(&mut fields, needs_authorities);
    Some(SubscriptionConfig {
        url: url?,
        app_code: app_code?,
        secret_file: secret_file?,
        tls: tls?,
    })
}

fn check_secret_file(path: &Path) -> Result<PathBuf, String> {
    let secret = SubscriptionConfig::read_secret(path);
    secret.map_err(|reason| format!("{}: {reason}", path.display()))?;
    Ok(path.to_owned())
}
