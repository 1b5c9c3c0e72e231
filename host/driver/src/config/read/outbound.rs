use std::net::IpAddr;

use admittance_admission::HttpGrant;
use admittance_definitions::{
    Mistakes,
    document::{Node, readers},
    read_http_grant,
};
use admittance_net::tls;
use admittance_outbound::{Credential, OutboundConfig};
use http::HeaderName;

use super::{GIB, KIB, ports::pem_file};

/// Reads the settings of requests, and the grants of policies, whose documents have no place for them.
pub(super) fn plugin_http(
    node: &Node<'_>,
    mistakes: &mut Mistakes,
) -> Option<(OutboundConfig, Vec<HttpGrant>)> {
    let mut fields = node.object(mistakes)?;
    let default = OutboundConfig::default();
    let (limits, sizes) = (readers::size(KIB..=GIB), readers::size(0..=64 * GIB));
    let credentials = fields.get_or_default("credentials", Node::map, mistakes);
    let credentials = credentials.into_iter().filter_map(|(name, node)| {
        credential(&node, mistakes).map(|credential| (name.to_owned(), credential))
    });
    let credentials = credentials.collect();
    let addresses = fields.get_or_default("resolve", Node::map, mistakes);
    let addresses = addresses.into_iter().filter_map(|(host, node)| {
        let address = node.parse_with(address, mistakes)?;
        Some((host.to_owned(), address))
    });
    let resolve = addresses.collect();
    let grants = readers::list_of(read_http_grant);
    let grants = fields.get_or_default("kyverno", grants, mistakes);
    let config = OutboundConfig {
        ca: fields.get_optional("ca", pem_file(tls::certificates), mistakes),
        response_limit: fields.get("responseLimit", default.response_limit, limits, mistakes),
        cache_size: fields.get("cacheSize", default.cache_size, sizes, mistakes),
        credentials,
        resolve,
    };
    fields.finish(mistakes);
    Some((config, grants))
}

fn credential(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Credential> {
    let mut fields = node.object(mistakes)?;
    let file = fields.get_required("file", "name the file with the secret", Node::file, mistakes);
    let fix = "list the origins that it may be sent to, `https://policy.example.com`";
    let origins = readers::filled_list_of(fix, Node::parse);
    let origins = fields.get_required("origins", fix, origins, mistakes);
    let header = fields.get_optional("header", readers::parse_with(header), mistakes);
    fields.finish(mistakes);
    Some(Credential {
        file: file?,
        origins: origins?.into_iter().collect(),
        header,
    })
}

pub(crate) fn header(text: &str) -> Result<HeaderName, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not a valid name of a header; write `X-Api-Key`"))
}

fn address(text: &str) -> Result<IpAddr, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not an IP address; write it without a port"))
}
