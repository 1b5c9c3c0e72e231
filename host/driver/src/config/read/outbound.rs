use std::net::IpAddr;

use admittance_admission::HttpGrant;
use admittance_definitions::{
    document::{Node, readers},
    read_http_grant,
};
use admittance_net::tls;
use admittance_outbound::{Credential, OutboundConfig};
use http::HeaderName;

use super::{GIB, KIB, ports::pem_file_reader};

/// Reads the settings for HTTP requests by plugins, and the grants for Kyverno policies.
pub(super) fn plugin_http(node: &Node<'_>) -> Option<(OutboundConfig, Vec<HttpGrant>)> {
    let mut fields = node.object()?;
    let default = OutboundConfig::default();
    let (limits, sizes) = (readers::size(KIB..=GIB), readers::size(0..=64 * GIB));
    let credentials = fields
        .get_or_default("credentials", Node::map)
        .into_iter()
        .filter_map(|(name, node)| read_credential(&node).map(|credential| (name.to_owned(), credential)))
        .collect();
    let entries = fields.get_or_default("resolve", Node::map);
    let addresses = entries.into_iter().filter_map(|(host, node)| {
        let address = node.parse_with(parse_address)?;
        Some((host.to_owned(), address))
    });
    let resolve = addresses.collect();
    let grants = fields.get_or_default("kyverno", readers::list_of(read_http_grant));
    let config = OutboundConfig {
        ca: fields.get_optional("ca", pem_file_reader(tls::certificates)),
        response_limit: fields.get("responseLimit", default.response_limit, limits),
        cache_size: fields.get("cacheSize", default.cache_size, sizes),
        credentials,
        resolve,
    };
    Some((config, grants))
}

fn read_credential(node: &Node<'_>) -> Option<Credential> {
    let mut fields = node.object()?;
    let file = fields.get_required("file", "name the file with the secret", Node::file_path);
    let fix = "list the origins that it may be sent to, `https://policy.example.com`";
    let origins = fields.get_required("origins", fix, readers::filled_list_of(fix, Node::parse));
    let header = fields.get_optional("header", readers::parse_with(parse_header));
    Some(Credential {
        file: file?,
        origins: origins?.into_iter().collect(),
        header,
    })
}

pub(crate) fn parse_header(text: &str) -> Result<HeaderName, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not a valid name of a header; write `X-Api-Key`"))
}

fn parse_address(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not an IP address; write it without a port"))
}
