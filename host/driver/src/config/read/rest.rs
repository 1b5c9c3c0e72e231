use admittance_admission::{GroupVersionResource, Operation};
use admittance_definitions::{Mistakes, document::Node};
use admittance_dialect::{KindSource, Pattern, Pointer, Rest, RestConfig, Route, ValueSource};
use http::{HeaderName, Method};

use super::{each, if_there, only, owned, parsed_list, section};

pub(super) fn dialect(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Rest> {
    const FIX: &str = "list the routes that chains may be for";
    let mut fields = node.object(mistakes)?;
    // Those of every route, so that they need not be repeated.
    let spellings: Option<Vec<Pattern>> = section(fields.optional("spellings"), mistakes, parsed_list);
    let unmatched = section(fields.optional("unmatched"), mistakes, Node::word);
    let nodes = fields.get_required(
        "routes",
        FIX,
        |list, mistakes| list.filled_list(FIX, mistakes),
        mistakes,
    );
    fields.finish(mistakes);
    let nodes = nodes?;
    let mut routes = each(&nodes, mistakes, route)?;
    let (spellings, unmatched) = (spellings?, unmatched?);
    for route in &mut routes {
        route.spellings.extend(spellings.iter().cloned());
    }
    match Rest::new(RestConfig { routes, unmatched }) {
        Ok(rest) => Some(rest),
        Err(errors) => {
            for error in errors {
                if let Some(node) = nodes.get(error.route) {
                    node.wrong(format!("{}: {}", error.field, error.problem), "", mistakes);
                }
            }
            None
        }
    }
}

fn route(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Route> {
    let mut fields = node.object(mistakes)?;
    let methods = fields.get_required("method", "write [PUT, POST]", methods, mistakes);
    let path = fields.get_required("path", "write /v1/jobs or /v1/job/{id}", owned, mistakes);
    let operation = fields.get_required(
        "operation",
        "write CREATE, UPDATE, DELETE or CONNECT",
        Node::parse::<Operation>,
        mistakes,
    );
    let resource = fields.get_required(
        "resource",
        "name the collection as rules do, `jobs`",
        resource,
        mistakes,
    );
    let kind = fields.get_required(
        "kind",
        "write the kind, `Job`, or `{ pointer: /Type }`",
        kind,
        mistakes,
    );
    let subresource = fields
        .optional("subresource")
        .and_then(|node| node.text(mistakes).map(str::to_owned));
    let namespace = sources(fields.optional("namespace"), mistakes);
    let name = sources(fields.optional("name"), mistakes);
    let object = section(fields.optional("object"), mistakes, |node, mistakes| {
        node.parse::<Pointer>(mistakes)
    });
    let optional = section(fields.optional("optional"), mistakes, Node::boolean);
    let dry_run = section(fields.optional("dryRun"), mistakes, Node::boolean);
    let identity = if_there(fields.optional("identity"), mistakes, parsed_list);
    let spellings = section(fields.optional("spellings"), mistakes, parsed_list);
    fields.finish(mistakes);
    let mut route = Route::new(methods?, path?, operation?, resource?, kind?);
    route.subresource = subresource;
    route.namespace = namespace?;
    route.name = name?;
    route.object = object?;
    route.optional = optional?;
    route.dry_run = dry_run?;
    route.identity = identity?;
    route.spellings = spellings?;
    Some(route)
}

fn methods(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Vec<Method>> {
    let entries = node.filled_list("write [PUT, POST]", mistakes)?;
    // `put` would be a different method, which no client sends.
    let read = |text: &str| {
        let upper = text.bytes().all(|byte| byte.is_ascii_uppercase());
        let method = upper.then(|| text.parse::<Method>().ok()).flatten();
        method.ok_or_else(|| format!("{text:?} is not a valid method: write it in capitals, PUT"))
    };
    each(&entries, mistakes, |entry, mistakes| {
        entry.parse_with(read, mistakes)
    })
}

fn resource(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<GroupVersionResource> {
    // `jobs` is short for `{ resource: jobs }`.
    if node.json().is_string() {
        return Some(GroupVersionResource {
            resource: node.text(mistakes)?.to_owned(),
            ..GroupVersionResource::default()
        });
    }
    let mut fields = node.object(mistakes)?;
    let part = |node: &Node<'_>, mistakes: &mut Mistakes| node.string(mistakes).map(str::to_owned);
    let group = section(fields.optional("group"), mistakes, part);
    let version = section(fields.optional("version"), mistakes, part);
    let resource = fields.get_required("resource", "name the collection, `jobs`", owned, mistakes);
    fields.finish(mistakes);
    Some(GroupVersionResource {
        group: group?,
        version: version?,
        resource: resource?,
    })
}

fn kind(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<KindSource> {
    if node.json().is_string() {
        return node.text(mistakes).map(|kind| KindSource::Fixed(kind.to_owned()));
    }
    let pointer = only(
        node,
        "pointer",
        "write the kind, `Job`, or `{ pointer: /Type }`",
        mistakes,
    )?;
    pointer.parse(mistakes).map(KindSource::Pointer)
}

/// One source, or a list of them.
fn sources(node: Option<Node<'_>>, mistakes: &mut Mistakes) -> Option<Vec<ValueSource>> {
    let Some(node) = node else {
        return Some(Vec::new());
    };
    if node.json().is_array() {
        return each(&node.list(mistakes)?, mistakes, source);
    }
    source(&node, mistakes).map(|source| vec![source])
}

fn source(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ValueSource> {
    let mut fields = node.object(mistakes)?;
    let (value, path, query, header, pointer) = (
        fields.optional("value"),
        fields.optional("path"),
        fields.optional("query"),
        fields.optional("header"),
        fields.optional("pointer"),
    );
    fields.finish(mistakes);
    match (value, path, query, header, pointer) {
        (Some(node), None, None, None, None) => owned(&node, mistakes).map(ValueSource::Fixed),
        (None, Some(node), None, None, None) => owned(&node, mistakes).map(ValueSource::Path),
        (None, None, Some(node), None, None) => owned(&node, mistakes).map(ValueSource::Query),
        (None, None, None, Some(node), None) => node.parse::<HeaderName>(mistakes).map(ValueSource::Header),
        (None, None, None, None, Some(node)) => node.parse(mistakes).map(ValueSource::Pointer),
        _ => {
            node.wrong(
                "exactly one source is expected",
                "write one of `value`, `path`, `query`, `header` and `pointer`",
                mistakes,
            );
            None
        }
    }
}
