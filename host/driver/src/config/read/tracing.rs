use std::path::PathBuf;

use admittance_definitions::document::{Node, readers};
use http::HeaderName;

use super::{outbound::parse_header, parse_url, read_duration, upstream::client_tls};
use crate::config::TracingConfig;

const EXAMPLE: &str = "https://collector.example.com:4318";

pub(super) fn tracing(node: &Node<'_>) -> Option<TracingConfig> {
    let mut fields = node.object()?;
    let endpoint = |text: &str| parse_url(text, TracingConfig::PATH, EXAMPLE);
    let fix = format!("write {EXAMPLE}");
    let endpoint = fields.get_required("endpoint", &fix, readers::parse_with(endpoint));
    let is_tls = endpoint.as_ref().is_some_and(|url| url.scheme_str() == Some("https"));
    let protocol = fields.get_or_default("protocol", Node::word);
    let files = fields.get_or_default("headers", Node::map);
    let pairs = files.into_iter().filter_map(|(name, node)| {
        let name = node.accept(parse_header(name));
        let file = node.file_path();
        Some((name?, file?))
    });
    let headers: Vec<(HeaderName, PathBuf)> = pairs.collect();
    let sampling = fields.get_optional("sampling", Node::parse);
    let timeout = fields.get_optional("timeout", read_duration);
    let tls = client_tls(&mut fields, is_tls);
    Some(TracingConfig {
        endpoint: endpoint?,
        protocol,
        headers,
        sampling,
        timeout,
        tls: tls?,
    })
}
