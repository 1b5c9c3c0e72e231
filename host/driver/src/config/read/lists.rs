use admittance_definitions::document::{Node, readers};
use admittance_dialect::{ItemObjectRequest, ItemRequest, ListPages, ListRoute, NextToken, Pointer};
use http::uri::PathAndQuery;

use super::outbound::parse_header;
use crate::{FrontConfig, config::ListConfig, fronts::parse_method};

pub(crate) type ListNode<'a> = (ListConfig, Node<'a>);

const PATH_ADVICE: &str = "write the path of a list, `/v1/jobs?namespace=*`";

pub(super) fn read_list<'a>(node: &Node<'a>) -> Option<ListNode<'a>> {
    let mut fields = node.object()?;
    let paths = fields.get_required("path", PATH_ADVICE, read_paths);
    let items = fields.get_or_default("items", Node::parse);
    let pages = fields.get_optional("pages", read_pages);
    let object = fields.get_optional("object", read_object);
    let fix = "write the request that creates such an object, `{ method: PUT, path: /v1/jobs }`";
    let request = fields.get_required("request", fix, read_request);
    let files = fields.get_or_default("headers", Node::map);
    let pairs = files.into_iter().filter_map(|(name, node)| {
        let name = node.accept(parse_header(name));
        let file = node.file_path();
        Some((name?, file?))
    });
    let headers = pairs.collect();
    let route = ListRoute {
        paths: paths?,
        items,
        pages,
        object,
        request: request?,
    };
    Some((ListConfig { route, headers }, node.clone()))
}

pub(crate) fn check_lists(lists: Vec<ListNode<'_>>, front: &dyn FrontConfig) -> Option<Vec<ListConfig>> {
    let dialect = front.dialect()?;
    let headers = front.headers();
    let check = |(list, node): ListNode<'_>| {
        if let Err(mistake) = list.route.check(&*dialect, &headers) {
            let fix = "write the method and path of the request that clients create such an object with";
            node.add_mistake(format!("request: {mistake}"), fix);
        }
        list
    };
    Some(lists.into_iter().map(check).collect())
}

fn read_paths(node: &Node<'_>) -> Option<Vec<PathAndQuery>> {
    if node.json().is_array() {
        return node.filled_list_of(PATH_ADVICE, readers::parse_with(parse_path));
    }
    node.parse_with(parse_path).map(|path| vec![path])
}

fn parse_path(text: &str) -> Result<PathAndQuery, String> {
    match text.parse() {
        Ok(path) if text.starts_with('/') && !text.contains(['{', '}']) => Ok(path),
        _ => Err(format!("{text:?} is not a valid path: {PATH_ADVICE}")),
    }
}

fn read_pages(node: &Node<'_>) -> Option<ListPages> {
    let mut fields = node.object()?;
    let fix = "name the query parameter with the token of a page, `next_token`";
    let query = fields.get_required("query", fix, readers::text);
    let size = fields.get_optional("size", readers::text);
    let next = match fields.present_fields(&["header", "pointer"]).as_slice() {
        [("header", node)] => node.parse_with(parse_header).map(NextToken::Header),
        [("pointer", node)] => node.parse::<Pointer>().map(NextToken::Pointer),
        _ => {
            let fix = "write one of `header: X-Next-Token` and `pointer: /next`";
            node.reject("exactly one source of the next page's token is required", fix)
        }
    };
    Some(ListPages {
        token_parameter: query?,
        next_token: next?,
        size_parameter: size,
    })
}

fn read_object(node: &Node<'_>) -> Option<ItemObjectRequest> {
    let mut fields = node.object()?;
    let fix = "write the path of the whole object, `/v1/job/{/ID}`";
    let path = fields.get_required("path", fix, Node::parse);
    let pointer = fields.get_or_default("pointer", Node::parse);
    Some(ItemObjectRequest { path: path?, pointer })
}

fn read_request(node: &Node<'_>) -> Option<ItemRequest> {
    let mut fields = node.object()?;
    let method = fields.get_required("method", "write PUT", readers::parse_with(parse_method));
    let path = fields.get_required("path", "write /v1/jobs", Node::parse);
    let pointer = fields.get_or_default("pointer", Node::parse);
    Some(ItemRequest {
        method: method?,
        path: path?,
        pointer,
    })
}
