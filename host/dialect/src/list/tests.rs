use admittance_admission::GroupVersionResource;

use super::*;
use crate::{KindSource, Rest, RestConfig, RestRoute, ValueSource};

fn path(text: &str) -> PathAndQuery {
    text.parse().unwrap()
}

fn jobs_route() -> ListRoute {
    ListRoute {
        paths: vec![path("/v1/jobs?namespace=*")],
        items: Pointer::default(),
        pages: Some(ListPages {
            token_parameter: "next_token".to_owned(),
            next_token: NextToken::Header(HeaderName::from_static("x-nomad-nexttoken")),
            size_parameter: Some("per_page".to_owned()),
        }),
        object: Some(ItemObjectRequest {
            path: "/v1/job/{/ID}?namespace={/Namespace}".parse().unwrap(),
            pointer: Pointer::default(),
        }),
        request: ItemRequest {
            method: Method::PUT,
            path: "/v1/jobs".parse().unwrap(),
            pointer: "/Job".parse().unwrap(),
        },
    }
}

fn dialect(operation: Operation) -> Rest {
    let resource = GroupVersionResource {
        resource: "jobs".to_owned(),
        ..GroupVersionResource::default()
    };
    let kind = KindSource::Fixed("Job".to_owned());
    let mut route = RestRoute::new([Method::PUT], "/v1/jobs", operation, resource, kind);
    route.object = "/Job".parse().unwrap();
    route.name = vec![ValueSource::Pointer("/Job/ID".parse().unwrap())];
    Rest::new(RestConfig::new(vec![route])).unwrap()
}

#[test]
fn the_values_of_an_item_fill_the_placeholders_of_a_path() {
    let template: ItemPath = "/v1/job/{/ID}?n={/a/0}".parse().unwrap();
    for (item, expected) in [
        (r#"{"ID":"web","a":[7]}"#, Some("/v1/job/web?n=7")),
        (
            r#"{"ID":"a/b?c","a":["x&y=z ü"]}"#,
            Some("/v1/job/a%2Fb%3Fc?n=x%26y%3Dz%20%C3%BC"),
        ),
        (r#"{"ID":"web"}"#, None),
        (r#"{"ID":"","a":[1]}"#, None),
        (r#"{"ID":"..","a":[1]}"#, None),
        (r#"{"ID":{},"a":[1]}"#, None),
        (r#"{"ID":null,"a":[1]}"#, None),
    ] {
        let path = template.path_of_item(item).ok();
        assert_eq!(path.as_ref().map(PathAndQuery::as_str), expected, "{item}");
    }
    for wrong in ["v1", "/v1/{ID}", "/v1/{}", "/v1/{/ID", "/v1/ID}", "/a b", ""] {
        assert!(wrong.parse::<ItemPath>().is_err(), "{wrong}");
    }
}

#[test]
fn a_page_is_requested_by_size_and_token() {
    let mut list = jobs_route();
    let of = |list: &ListRoute, path: &str, token| list.page_path(&path.parse().unwrap(), 2, token);
    assert_eq!(
        of(&list, "/v1/jobs?namespace=*", None),
        "/v1/jobs?namespace=*&per_page=2"
    );
    assert_eq!(
        of(&list, "/v1/jobs", Some("a b&c")),
        "/v1/jobs?per_page=2&next_token=a+b%26c"
    );
    list.pages.as_mut().unwrap().size_parameter = None;
    assert_eq!(of(&list, "/v1/jobs", None), "/v1/jobs");
    list.pages = None;
    assert_eq!(of(&list, "/v1/jobs?a=b", None), "/v1/jobs?a=b");
}

#[test]
fn items_and_the_next_token_are_read_from_a_page() {
    let mut list = jobs_route();
    let mut headers = HeaderMap::new();
    headers.insert("X-Nomad-NextToken", "default.web".parse().unwrap());
    let page = list.read_page(&headers, r#"[{"ID":"web"},{"ID":"db"}]"#).unwrap();
    assert_eq!(page.items.len(), 2);
    assert_eq!(page.next_token.as_deref(), Some("default.web"));
    assert!(list.read_page(&HeaderMap::new(), "[]").unwrap().next_token.is_none());
    list.items = "/data".parse().unwrap();
    list.pages.as_mut().unwrap().next_token = NextToken::Pointer("/next".parse().unwrap());
    let page = list.read_page(&headers, r#"{"data":null,"next":3}"#).unwrap();
    assert!(page.items.is_empty());
    assert_eq!(page.next_token.as_deref(), Some("3"));
    assert!(
        list.read_page(&headers, r#"{"data":[{}],"next":""}"#)
            .unwrap()
            .next_token
            .is_none()
    );
    for wrong in ["", "[]", r#"{"data":{}}"#, r#"{"message":"no"}"#] {
        let error = list.read_page(&headers, wrong).unwrap_err().to_string();
        assert!(error.starts_with("there is no list at `/data`"), "{wrong}: {error}");
    }
}

#[test]
fn a_list_item_becomes_the_request_that_creates_it() {
    let list = jobs_route();
    let headers = HeaderMap::new();
    let dialect = dialect(Operation::Create);
    list.check(&dialect, &headers).unwrap();
    let object = r#"{"ID":"web","Priority":99}"#;
    let request = list
        .admission_request(&dialect, &headers, r#"{"ID":"web"}"#, object)
        .unwrap()
        .unwrap();
    assert_eq!((request.name.as_str(), request.kind.kind.as_str()), ("web", "Job"));
    assert_eq!(request.object.unwrap().text(), object);
    let refused = list
        .admission_request(&dialect, &headers, "{}", r#"{"ID":1}"#)
        .unwrap_err();
    assert!(refused.to_string().contains("/Job/ID"), "{refused}");
}

#[test]
fn a_list_whose_item_requests_neither_create_nor_update_is_refused() {
    let headers = HeaderMap::new();
    for (method, path, operation, expected) in [
        (
            Method::GET,
            "/v1/jobs",
            Operation::Create,
            "GET /v1/jobs passes without",
        ),
        (
            Method::PUT,
            "/v1/job/{/ID}",
            Operation::Create,
            "PUT /v1/job/x would be rejected",
        ),
        (
            Method::PUT,
            "/v1/jobs",
            Operation::Delete,
            "PUT /v1/jobs is a request for DELETE",
        ),
    ] {
        let mut list = jobs_route();
        list.request.method = method;
        list.request.path = path.parse().unwrap();
        let mistake = list.check(&dialect(operation), &headers).unwrap_err();
        assert!(mistake.starts_with(expected), "{mistake}");
    }
}

#[test]
fn the_object_is_read_from_the_configured_path_in_a_reply() {
    let mut list = jobs_route();
    assert_eq!(list.object_text(r#"{"ID":"web"}"#).unwrap(), r#"{"ID":"web"}"#);
    list.object.as_mut().unwrap().pointer = "/data".parse().unwrap();
    assert_eq!(list.object_text(r#"{"data": {"a":1}}"#).unwrap(), r#"{"a":1}"#);
    for wrong in [r#"{"data":null}"#, "{}", "[]"] {
        assert!(list.object_text(wrong).is_err(), "{wrong}");
    }
}
