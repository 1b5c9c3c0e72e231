//! Reads and writes `allow`: the capabilities that a stage grants its plugin.

use std::collections::BTreeMap;

use admittance_admission::{ClusterKind, Grants, HttpGrant, HttpOrigin, ImageGrant};
use serde_json::{Map, Value as Json, json};

use crate::{
    document::{Mistakes, Node, readers},
    forms::native::write::put,
};

/// Reads the grants of a plugin from `allow` of a stage.
pub fn read_allow(node: &Node<'_>, mistakes: &mut Mistakes) -> Grants {
    let Some(mut fields) = node.object(mistakes) else {
        return Grants::default();
    };
    let mut allow = Grants::default();
    for kind in fields.get("cluster", Vec::new(), Node::list, mistakes) {
        allow.cluster.extend(kind.parse::<ClusterKind>(mistakes));
    }
    for origin in fields.get("http", Vec::new(), Node::list, mistakes) {
        allow.http.extend(read_http_grant(&origin, mistakes));
    }
    for registry in fields.get("images", Vec::new(), Node::list, mistakes) {
        allow.images.extend(registry.parse::<ImageGrant>(mistakes));
    }
    allow.environment = fields.get("environment", BTreeMap::new(), Node::string_map, mistakes);
    fields.finish(mistakes);
    allow
}

/// Reads an origin, or an object that grants only some requests to an origin.
pub fn read_http_grant(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<HttpGrant> {
    if !matches!(node.json(), Json::Object(_)) {
        return node.parse::<HttpOrigin>(mistakes).map(HttpGrant::from);
    }
    let mut fields = node.object(mistakes)?;
    let fix = "write scheme and host, `https://policy.example.com`";
    let origin = fields.get_required("origin", fix, Node::parse, mistakes);
    let methods = readers::filled_list_of("list `GET`, `POST` and so on", readers::parse_with(method));
    let methods = fields.get_or_default("methods", methods, mistakes);
    let paths = readers::filled_list_of("list paths, `/v1/`", Node::parse);
    let paths = fields.get_or_default("paths", paths, mistakes);
    let networks = readers::filled_list_of("list networks, `10.0.0.0/8`", readers::network);
    let networks = fields.get_or_default("networks", networks, mistakes);
    let credential = fields.get_optional("credential", readers::text, mistakes);
    fields.finish(mistakes);
    Some(HttpGrant {
        origin: origin?,
        methods: methods.into_iter().collect(),
        paths,
        networks,
        credential,
    })
}

fn method(text: &str) -> Result<String, String> {
    let is_method = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    // CONNECT opens a tunnel instead of sending a request to the origin.
    if is_method && text != "CONNECT" {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?} is not a method that a plugin can send; write it in upper case: `GET`"
        ))
    }
}

/// Writes grants, except for HTTP requests.
pub(super) fn write_allow(allow: &Grants) -> Json {
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
