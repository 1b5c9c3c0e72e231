use admittance::catalog::CatalogConfig;
use admittance_definitions::document::{Node, readers};
use admittance_net::tls;
use url::Url;

use super::{GIB, KIB, MIB, ports::pem_file_reader, read_duration};
use crate::config::{HistoryConfig, StoreConfig};

pub(super) fn store(node: &Node<'_>) -> Option<StoreConfig> {
    let mut fields = node.object()?;
    let default = StoreConfig::default();
    Some(StoreConfig {
        directory: fields.get_optional("directory", Node::file_path),
        size_limit: fields.get("sizeLimit", default.size_limit, readers::size(MIB..=1024 * GIB)),
    })
}

pub(super) fn history(node: &Node<'_>) -> Option<HistoryConfig> {
    let mut fields = node.object()?;
    Some(HistoryConfig {
        directory: fields.get_optional("directory", Node::file_path),
        max_revisions: fields.get(
            "keep",
            HistoryConfig::default().max_revisions,
            readers::integer(1..=1000),
        ),
    })
}

pub(super) fn modules(node: &Node<'_>) -> Option<CatalogConfig> {
    let mut fields = node.object()?;
    let mut config = CatalogConfig::default();
    config.size_limit = fields.get("sizeLimit", config.size_limit, readers::size(KIB..=GIB));
    let network = &mut config.network;
    network.ca = fields.get_optional("ca", pem_file_reader(tls::certificates));
    network.proxy = fields.get_optional("proxy", readers::parse_with(parse_proxy));
    network.docker_config = fields.get_optional("dockerConfig", Node::file_path);
    let registries = readers::list_of(readers::parse_with(parse_registry));
    network.insecure_registries = fields.get_or_default("insecureRegistries", registries);
    network.read_timeout = fields.get("timeout", network.read_timeout, read_duration);
    network.attempts = fields.get("attempts", network.attempts, readers::integer(1..=100));
    Some(config)
}

fn parse_proxy(text: &str) -> Result<Url, String> {
    text.parse::<Url>()
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| format!("{text:?} is not a valid proxy: write its URL, http://proxy.example.com:3128"))
}

fn parse_registry(text: &str) -> Result<String, String> {
    let url = Url::parse(&format!("http://{text}/")).ok();
    // A path, query or user in the URL would be ignored, so a URL that has one is refused.
    url.filter(|url| url.path() == "/" && !text.contains(['/', '?', '#', '@', '\\']))
        .map(|_| text.to_owned())
        .ok_or_else(|| format!("{text:?} is not a valid registry: write host and port, registry.local:5000"))
}
