use admittance_admission::{GroupVersionResource, Operation, suggestion};
use admittance_definitions::document::{Node, readers};
use admittance_dialect::{KindSource, PointerPattern, Rest, RestConfig, RestRoute, StoredRoute, ValueSource};
use http::{
    HeaderName, Method,
    header::{RANGE, TE},
};

use crate::config::read::outbound::parse_header;

pub(super) fn read_dialect(node: &Node<'_>) -> Option<Rest> {
    let before = node.mistake_count();
    let mut fields = node.object()?;
    let spellings = fields.get_or_default("spellings", read_spellings);
    let unmatched = fields.get_or_default("unmatched", Node::word);
    let fix = "list the routes that chains may be for";
    let routes = fields.get_required("routes", fix, readers::filled_list_of(fix, read_route));
    drop(fields);
    // The mistakes that were found while the routes were read are reported already. The dialect can only check routes
    // without mistakes, so its checks are left out.
    if node.mistake_count() > before {
        return None;
    }
    let (routes, nodes): (_, Vec<_>) = routes?.into_iter().unzip();
    let mut config = RestConfig::new(routes);
    config.unmatched_writes = unmatched;
    for route in &mut config.routes {
        route.spellings.extend(spellings.iter().cloned());
    }
    match Rest::new(config) {
        Ok(rest) => Some(rest),
        Err(errors) => {
            for error in errors {
                if let Some(node) = nodes.get(error.route_index) {
                    node.add_mistake(format!("{}: {}", error.field, error.problem), "");
                }
            }
            None
        }
    }
}

fn read_route<'a>(node: &Node<'a>) -> Option<(RestRoute, Node<'a>)> {
    let mut fields = node.object()?;
    let methods = fields.get_required("method", METHODS_ADVICE, read_methods);
    let path = fields.get_required("path", "write /v1/jobs or /v1/job/{id}", readers::text);
    let fix = "write CREATE, UPDATE, DELETE or CONNECT";
    let operation = fields.get_required("operation", fix, Node::parse::<Operation>);
    let resource = fields.get_required("resource", "name the collection as rules do, `jobs`", read_resource);
    let kind = fields.get_required("kind", KIND_ADVICE, read_kind);
    let subresource = fields.get_optional("subresource", readers::text);
    let namespace = fields.get_or_default("namespace", read_sources);
    let name = fields.get_or_default("name", read_sources);
    let object = fields.get_or_default("object", Node::parse);
    let optional = fields.get_or_default("optional", Node::boolean);
    let dry_run = fields.get_or_default("dryRun", Node::boolean);
    let identity = fields.get_optional("identity", readers::list_of(Node::parse));
    let spellings = fields.get_or_default("spellings", read_spellings);
    let get = fields.get_optional("get", read_stored_route);
    let partial = fields.get_or_default("partial", Node::boolean);
    let default_patch_type = fields.get_or_default("patch", Node::word);
    let mut route = RestRoute::new(methods?, path?, operation?, resource?, kind?);
    route.subresource = subresource;
    route.namespace = namespace;
    route.name = name;
    route.object = object;
    route.optional = optional;
    route.dry_run = dry_run;
    route.identity = identity;
    route.spellings = spellings;
    route.get = get;
    route.partial = partial;
    route.default_patch_type = default_patch_type;
    Some((route, node.clone()))
}

/// Reads `spellings`, a list of JSON Pointers to keys. Clients may spell these keys differently, such as `name` instead
/// of `Name`, so the spelling is normalized before chains look at a body.
fn read_spellings(node: &Node<'_>) -> Option<Vec<PointerPattern>> {
    Some(node.list_of(read_spelling)?.into_iter().flatten().collect())
}

fn read_spelling(node: &Node<'_>) -> Option<Vec<PointerPattern>> {
    if node.json().is_string() {
        return node.parse().map(|pattern| vec![pattern]);
    }
    let mut fields = node.object()?;
    let fix = "write pointers to the objects that have the keys, [/Job/TaskGroups/*]";
    let parent_pointers = fields.get_required("in", fix, readers::filled_list_of(fix, Node::parse::<PointerPattern>));
    let fix = "write the keys, [Name, Count]";
    let keys = fields.get_required("keys", fix, readers::filled_list_of(fix, readers::text));
    let (parent_pointers, keys) = (parent_pointers?, keys?);
    let under = |parent: &PointerPattern| keys.iter().map(|key| parent.with_key(key)).collect::<Vec<_>>();
    Some(parent_pointers.iter().flat_map(under).collect())
}

fn read_stored_route(node: &Node<'_>) -> Option<StoredRoute> {
    let mut fields = node.object()?;
    let path = fields.get_optional("path", readers::text);
    let pointer = fields.get_or_default("pointer", Node::parse);
    let headers = fields.get_or_default("headers", readers::list_of(readers::parse_with(header_for_stored)));
    Some(StoredRoute { path, pointer, headers })
}

/// Parses the name of a header for requests that read a stored object. Headers such as `If-None-Match`, `Accept` and
/// `Range` are refused, because they can make the server reply with another version of the object, or a part of it.
fn header_for_stored(text: &str) -> Result<HeaderName, String> {
    let name = parse_header(text)?;
    let starts = ["if-", "accept"].iter().any(|start| name.as_str().starts_with(start));
    if starts || [RANGE, PREFER, TE].contains(&name) {
        return Err(format!(
            "`{text}` can select another version or a part of the object; leave it out"
        ));
    }
    Ok(name)
}

const PREFER: HeaderName = HeaderName::from_static("prefer");
const METHODS_ADVICE: &str = "write [PUT, POST]";

fn read_methods(node: &Node<'_>) -> Option<Vec<Method>> {
    node.filled_list_of(METHODS_ADVICE, readers::parse_with(parse_method))
}

pub(crate) fn parse_method(text: &str) -> Result<Method, String> {
    // Methods are case-sensitive, so a method in lower case would match no request of a client.
    let upper = text.bytes().all(|byte| byte.is_ascii_uppercase());
    let method = upper
        .then(|| text.parse::<Method>().ok())
        .flatten()
        .ok_or_else(|| format!("{text:?} is not a valid method: write it in capitals, PUT"))?;
    // Unknown methods are accepted, unless they look like a misspelling of a known method.
    if !KNOWN_METHODS.contains(&text)
        && let Some(fix) = suggestion(text, KNOWN_METHODS)
    {
        return Err(format!("{text:?} is not a known method: {fix}"));
    }
    Ok(method)
}

/// The methods of HTTP and its extensions.
const KNOWN_METHODS: [&str; 24] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "BIND", "COPY", "LINK", "LIST",
    "LOCK", "MERGE", "MOVE", "PURGE", "QUERY", "REBIND", "REPORT", "SEARCH", "UNBIND", "UNLINK", "UNLOCK",
];

fn read_resource(node: &Node<'_>) -> Option<GroupVersionResource> {
    // The string `jobs` is short for `{ resource: jobs }`.
    if node.json().is_string() {
        return Some(GroupVersionResource {
            resource: node.text()?.to_owned(),
            ..GroupVersionResource::default()
        });
    }
    let mut fields = node.object()?;
    let group = fields.get("group", "", Node::string).to_owned();
    let version = fields.get("version", "", Node::string).to_owned();
    let resource = fields.get_required("resource", "name the collection, `jobs`", readers::text);
    Some(GroupVersionResource {
        group,
        version,
        resource: resource?,
    })
}

const KIND_ADVICE: &str = "write the kind, `Job`, or `{ pointer: /Type }`";

fn read_kind(node: &Node<'_>) -> Option<KindSource> {
    if node.json().is_string() {
        return readers::text(node).map(KindSource::Fixed);
    }
    let mut fields = node.object()?;
    let pointer = fields.get_required("pointer", KIND_ADVICE, Node::parse);
    pointer.map(KindSource::Pointer)
}

fn read_sources(node: &Node<'_>) -> Option<Vec<ValueSource>> {
    if node.json().is_array() {
        return node.list_of(read_source);
    }
    read_source(node).map(|source| vec![source])
}

fn read_source(node: &Node<'_>) -> Option<ValueSource> {
    let mut fields = node.object()?;
    let sources = fields.present_fields(&["value", "path", "query", "header", "pointer"]);
    match sources.as_slice() {
        [("value", node)] => readers::text(node).map(ValueSource::Fixed),
        [("path", node)] => readers::text(node).map(ValueSource::Path),
        [("query", node)] => readers::text(node).map(ValueSource::Query),
        [("header", node)] => node.parse().map(ValueSource::Header),
        [("pointer", node)] => node.parse().map(ValueSource::Pointer),
        _ => {
            let fix = "write one of `value`, `path`, `query`, `header` and `pointer`";
            node.reject("exactly one source is expected", fix)
        }
    }
}
