use admittance::catalog::{CatalogConfig, NetworkConfig};
use admittance_definitions::{Mistakes, document::Node};
use admittance_net::tls;
use url::Url;

use super::{GIB, KIB, MIB, duration, if_there, or, parsed_list, ports::pem_file, section};
use crate::config::{HistoryConfig, StoreConfig};

pub(super) fn store(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<StoreConfig> {
    let default = StoreConfig::default();
    let mut fields = node.object(mistakes)?;
    let directory = if_there(fields.optional("directory"), mistakes, Node::file);
    let size_limit = or(
        fields.optional("sizeLimit"),
        default.size_limit,
        mistakes,
        |node, mistakes| node.size(MIB..=1024 * GIB, mistakes),
    );
    fields.finish(mistakes);
    Some(StoreConfig {
        directory: directory?,
        size_limit: size_limit?,
    })
}

pub(super) fn history(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<HistoryConfig> {
    let default = HistoryConfig::default();
    let mut fields = node.object(mistakes)?;
    let directory = if_there(fields.optional("directory"), mistakes, Node::file);
    let keep = or(
        fields.optional("keep"),
        default.keep,
        mistakes,
        |node, mistakes| node.integer(1..=1000, mistakes),
    );
    fields.finish(mistakes);
    Some(HistoryConfig {
        directory: directory?,
        keep: keep?,
    })
}

pub(super) fn modules(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<CatalogConfig> {
    let default = CatalogConfig::default();
    let mut fields = node.object(mistakes)?;
    let ca = if_there(fields.optional("ca"), mistakes, |node, mistakes| {
        pem_file(node, tls::certificates, mistakes)
    });
    let proxy = if_there(fields.optional("proxy"), mistakes, |node, mistakes| {
        node.parse_with(proxy, mistakes)
    });
    let docker_config = if_there(fields.optional("dockerConfig"), mistakes, Node::file);
    let insecure_registries = section(
        fields.optional("insecureRegistries"),
        mistakes,
        parsed_list::<Registry>,
    );
    let size_limit = or(
        fields.optional("sizeLimit"),
        default.size_limit,
        mistakes,
        |node, mistakes| node.size(KIB..=GIB, mistakes),
    );
    let timeout = duration(&mut fields, "timeout", default.network.read_timeout, mistakes);
    let attempts = or(
        fields.optional("attempts"),
        default.network.attempts,
        mistakes,
        |node, mistakes| node.integer(1..=100, mistakes),
    );
    fields.finish(mistakes);
    let mut network = NetworkConfig::default();
    network.ca = ca?;
    network.proxy = proxy?;
    network.docker_config = docker_config?;
    network.insecure_registries = insecure_registries?
        .into_iter()
        .map(|registry| registry.0)
        .collect();
    network.read_timeout = timeout?;
    network.attempts = attempts?;
    Some(CatalogConfig {
        network,
        size_limit: size_limit?,
        ..default
    })
}

fn proxy(text: &str) -> Result<Url, String> {
    text.parse::<Url>()
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| format!("{text:?} is not a valid proxy: write its URL, http://proxy.example.com:3128"))
}

/// Host and port, as references name a registry.
struct Registry(String);

impl std::str::FromStr for Registry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let url = Url::parse(&format!("http://{text}/")).ok();
        // Only host and port: any other part of a URL would change the text.
        url.filter(|url| url.path() == "/" && !text.contains(['/', '?', '#', '@', '\\']))
            .map(|_| Self(text.to_owned()))
            .ok_or_else(|| {
                format!("{text:?} is not a valid registry: write host and port, registry.local:5000")
            })
    }
}
