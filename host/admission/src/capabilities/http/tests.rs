use super::*;

const PLUGIN: (&str, &str) = ("the plugin", "`allow.http` of the stage");

#[test]
fn an_origin_is_an_https_server_or_a_loopback_address() {
    for (text, expected) in [
        ("https://a.example", Some("https://a.example")),
        ("https://A.example:443/", Some("https://a.example")),
        ("https://a.example:8443", Some("https://a.example:8443")),
        ("http://127.0.0.1:8181", Some("http://127.0.0.1:8181")),
        ("http://0x7f.1", Some("http://127.0.0.1")),
        ("http://[::1]:80", Some("http://[::1]")),
        ("http://LocalHost:8181", Some("http://localhost:8181")),
        ("http://localhost.example", None),
        ("http://10.0.0.1", None),
        ("http://a.example", None),
        ("https://a.example/path", None),
        ("https://user@a.example", None),
        ("https://a.example?x", None),
        ("a.example", None),
        ("*", None),
    ] {
        let parsed = text.parse::<HttpOrigin>().ok();
        assert_eq!(parsed.as_ref().map(HttpOrigin::as_str), expected, "{text}");
    }
    for (text, expected) in [
        ("https://localhost", true),
        ("http://localhost:1", true),
        ("https://localhost.example", false),
        ("https://127.0.0.1", false),
    ] {
        assert_eq!(text.parse::<HttpOrigin>().unwrap().is_localhost(), expected, "{text}");
    }
}

#[test]
fn a_path_prefix_includes_only_paths_that_every_server_reads_as_below_it() {
    for (prefix, path, expected) in [
        ("/v1/", "/v1/rules", Some(true)),
        ("/v1/", "/v1", Some(false)),
        ("/v1", "/v1", Some(true)),
        ("/v1", "/v1/rules", Some(true)),
        ("/v1", "/v10", Some(false)),
        ("/", "/anything", Some(true)),
        ("/v1/", "/v1/..%2Fadmin", Some(false)),
        ("/v1/", "/v1/%2e%2e/admin", Some(false)),
        ("/v1/", "/v1/%252e%252e/admin", Some(false)),
        ("/v1/", "/v1//x", Some(true)),
        ("/v1/", "/v1/a/", Some(true)),
        ("/%E4%B8%AD/", "/%E4%B8%AD/a", Some(true)),
        ("/v1/", "/v1/", Some(true)),
        ("/v1/images/", "/v1/images/library%2Fnginx@sha256:1f", Some(true)),
        ("/v1/images/", "/v1/images/..;/admin", Some(false)),
        ("/v1/images/", "/v1/images/..%3b/admin", Some(false)),
        ("/v1/images/", "/v1/images/..%00/admin", Some(false)),
        ("/v1/images/", "/v1/images/%c0%ae%c0%ae/admin", Some(false)),
        ("/v1/images/", "/v1/images/..%ef%bc%8fadmin", Some(false)),
        ("/v1/images/", "/v1/images/..%5cadmin", Some(false)),
        ("/v1/images/", "/v1/images/a//../../admin", Some(false)),
        ("v1", "", None),
        ("", "", None),
        ("/v1/../x", "", None),
        ("/v1?x", "", None),
        ("//host", "", None),
        ("/a%2fb", "", None),
        ("/a b", "", None),
    ] {
        let parsed = prefix.parse::<PathPrefix>().ok();
        assert_eq!(parsed.map(|prefix| prefix.includes(path)), expected, "{prefix} {path}");
    }
}

#[test]
fn the_first_grant_that_allows_a_request_is_used() {
    let origin: HttpOrigin = "https://a.example".parse().unwrap();
    let read_grant = HttpGrant {
        methods: ["GET".to_owned()].into(),
        ..HttpGrant::from(origin.clone())
    };
    let write_grant = HttpGrant {
        methods: ["POST".to_owned()].into(),
        paths: vec!["/v1/".parse().unwrap()],
        credential: Some("writer".to_owned()),
        ..HttpGrant::from(origin.clone())
    };
    let grants = [read_grant, write_grant];
    let request = |method: &str, path: &str, headers: &[(&str, &str)]| {
        let url = format!("https://a.example{path}").parse().unwrap();
        let mut request = HttpRequest::new(method, url);
        let headers = headers.iter();
        request.headers = headers
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        request
    };
    const OVERRIDE_MESSAGE: &str = "which names another method or path";
    for (method, path, headers, expected) in [
        ("GET", "/x", &[][..], Ok(0)),
        ("POST", "/v1/x", &[], Ok(1)),
        ("POST", "/x", &[], Err("add the path to `paths` of `https://a.example`")),
        (
            "get",
            "/v1/x",
            &[],
            Err("add `get` to `methods` of `https://a.example`"),
        ),
        ("GET", "/x", &[("X-HTTP-Method-Override", "GET")], Ok(0)),
        (
            "GET",
            "/x",
            &[("X-HTTP-Method-Override", "DELETE")],
            Err(OVERRIDE_MESSAGE),
        ),
        ("GET", "/x", &[("x_http_method", "DELETE")], Err(OVERRIDE_MESSAGE)),
        ("GET", "/x", &[("X-Method-Override", "DELETE")], Err(OVERRIDE_MESSAGE)),
        ("GET", "/x?_method=DELETE", &[], Err(OVERRIDE_MESSAGE)),
        ("POST", "/v1/x", &[("X-Original-URL", "/admin")], Err(OVERRIDE_MESSAGE)),
        ("POST", "/v1/x", &[("x_rewrite_url", "/admin")], Err(OVERRIDE_MESSAGE)),
    ] {
        let actual = HttpGrant::find_grant(&grants, &origin, &request(method, path, headers), PLUGIN);
        match (actual, expected) {
            (Ok(grant), Ok(index)) => assert_eq!(*grant, grants[index], "{method} {path}"),
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            (actual, _) => panic!("{method} {path}: {actual:?}"),
        }
    }
    let all = [HttpGrant::from(origin.clone())];
    let free = request("GET", "/x", &[("X-Original-URL", "/admin")]);
    assert!(
        HttpGrant::find_grant(&all, &origin, &free, PLUGIN).is_ok(),
        "every path is granted"
    );
    let other = "https://b.example".parse().unwrap();
    let message = HttpGrant::find_grant(&grants, &other, &request("GET", "/", &[]), PLUGIN).unwrap_err();
    assert!(
        message.ends_with("add `https://b.example` to `allow.http` of the stage"),
        "{message}"
    );
}
