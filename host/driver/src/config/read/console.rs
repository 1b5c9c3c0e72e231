use std::net::IpAddr;

use admittance_definitions::{Mistakes, document::Node};
use ipnet::IpNet;

use crate::config::{ConsoleConfig, ConsoleScheme};

/// `dialect.bcs.console`.
pub(super) fn console(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ConsoleConfig> {
    let mut fields = node.object(mistakes)?;
    let port = match fields.optional("port") {
        Some(node) => node.integer(1..=u16::MAX, mistakes),
        None => Some(ConsoleConfig::DEFAULT_PORT),
    };
    let schemes = [ConsoleScheme::Http, ConsoleScheme::Https].map(|scheme| (scheme.as_str(), scheme));
    let scheme = match fields.optional("scheme") {
        Some(node) => node.one_of("scheme", &schemes, mistakes),
        None => Some(ConsoleScheme::default()),
    };
    let hosts = match fields.optional("hosts") {
        Some(node) => hosts(&node, mistakes).map(Some),
        None => Some(None),
    };
    fields.finish(mistakes);
    Some(ConsoleConfig {
        port: port?,
        scheme: scheme?,
        hosts: hosts?,
    })
}

fn hosts(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Vec<IpNet>> {
    let networks: Vec<Option<IpNet>> = node
        .list(mistakes)?
        .iter()
        .map(|node| node.parse_with(network, mistakes))
        .collect();
    networks.into_iter().collect()
}

/// A network, or one address.
fn network(text: &str) -> Result<IpNet, String> {
    match (text.parse::<IpNet>(), text.parse::<IpAddr>()) {
        (Ok(network), _) => Ok(network),
        (Err(_), Ok(address)) => Ok(IpNet::from(address)),
        (Err(_), Err(_)) => Err(format!(
            "{text:?} is no network: write one such as 10.0.0.0/8, or an address"
        )),
    }
}
