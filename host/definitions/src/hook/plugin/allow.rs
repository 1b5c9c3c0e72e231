//! Reads and writes `allow`: the capabilities that a stage grants to its plugin.

use std::collections::BTreeMap;

use admittance_admission::{ClusterKind, Grants, HttpGrant, HttpOrigin, ImageGrant};
use serde_json::{Map, Value as Json, json};

use crate::{
    document::{Node, readers},
    forms::native::write::put,
};

/// Reads `allow` of a stage: the capabilities that are granted to its plugin.
pub fn read_allow(node: &Node<'_>) -> Grants {
    let Some(mut fields) = node.object() else {
        return Grants::default();
    };
    let mut allow = Grants::default();
    for kind in fields.get("cluster", Vec::new(), Node::list) {
        allow.cluster.extend(kind.parse::<ClusterKind>());
    }
    for origin in fields.get("http", Vec::new(), Node::list) {
        allow.http.extend(read_http_grant(&origin));
    }
    for registry in fields.get("images", Vec::new(), Node::list) {
        allow.images.extend(registry.parse::<ImageGrant>());
    }
    allow.environment = fields.get("environment", BTreeMap::new(), Node::string_map);
    allow
}

/// Reads a grant to send HTTP requests: an origin, or an object that limits the requests to the origin.
pub fn read_http_grant(node: &Node<'_>) -> Option<HttpGrant> {
    if !matches!(node.json(), Json::Object(_)) {
        return node.parse::<HttpOrigin>().map(HttpGrant::from);
    }
    let mut fields = node.object()?;
    let fix = "write scheme and host, `https://policy.example.com`";
    let origin = fields.get_required("origin", fix, Node::parse);
    let methods = readers::filled_list_of("list `GET`, `POST` and so on", readers::parse_with(parse_method));
    let methods = fields.get_or_default("methods", methods);
    let paths = readers::filled_list_of("list paths, `/v1/`", Node::parse);
    let paths = fields.get_or_default("paths", paths);
    let networks = readers::filled_list_of("list networks, `10.0.0.0/8`", readers::network);
    let networks = fields.get_or_default("networks", networks);
    let credential = fields.get_optional("credential", readers::text);
    Some(HttpGrant {
        origin: origin?,
        methods: methods.into_iter().collect(),
        paths,
        networks,
        credential,
    })
}

fn parse_method(text: &str) -> Result<String, String> {
    let is_method = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    // CONNECT is refused, because it would open a tunnel instead of sending a request to the origin.
    if is_method && text != "CONNECT" {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?} is not a method that a plugin can send; write it in upper case: `GET`"
        ))
    }
}

/// Writes the grants of a plugin in the format of documents. Grants of HTTP requests are left out.
pub(super) fn grants_json(allow: &Grants) -> Json {
    let mut object = Map::new();
    if !allow.cluster.is_empty() {
        let kinds = allow.cluster.iter().map(ToString::to_string);
        put(&mut object, "cluster", kinds.collect::<Vec<_>>());
    }
    if !allow.images.is_empty() {
        let images = allow.images.iter().map(ToString::to_string);
        put(&mut object, "images", images.collect::<Vec<_>>());
    }
    if !allow.environment.is_empty() {
        put(&mut object, "environment", json!(allow.environment));
    }
    Json::Object(object)
}
