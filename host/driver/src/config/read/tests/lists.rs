use super::*;

const REST_CONFIG: &str = "
dialect:
  rest:
    routes:
      - { method: [PUT], path: /v1/jobs, operation: CREATE, resource: jobs, kind: Job, object: /Job }
upstream:
  servers: [\"http://127.0.0.1:4646\"]
  lists:
";

fn with_lists(text: &str) -> Result<Config, Vec<String>> {
    read(&format!("{REST_CONFIG}    - {text}\n"))
}

#[test]
fn lists_in_the_section_upstream_are_read() {
    let config = with_lists(
        "{ path: [/v1/jobs, '/v1/jobs?namespace=b'], items: /items,
           pages: { query: next, pointer: /next, size: per_page },
           object: { path: '/v1/job/{/ID}', pointer: /data },
           request: { method: PUT, path: /v1/jobs, pointer: /Job }, headers: { X-Nomad-Token: token } }",
    )
    .unwrap();
    let [list] = config.lists.as_slice() else {
        panic!("{:?}", config.lists);
    };
    assert_eq!(list.route.paths, ["/v1/jobs", "/v1/jobs?namespace=b"]);
    assert_eq!(list.headers[0].0, "x-nomad-token");
    assert!(list.headers[0].1.is_absolute());
    let config = with_lists("{ path: /v1/jobs, request: { method: PUT, path: /v1/jobs } }").unwrap();
    assert!(config.lists[0].route.pages.is_none());
    let config = read(
        "
dialect: { bcs: { cluster: BCS-MESOS-10001 } }
upstream:
  servers: [\"http://127.0.0.1:8081\"]
  lists:
    - path: /mesosdriver/v4/namespaces/a/applications
      request: { method: POST, path: '/mesosdriver/v4/namespaces/{/RunAs}/applications' }
",
    )
    .unwrap();
    assert_eq!(config.lists.len(), 1);
}

#[test]
fn mistakes_in_the_lists_of_an_upstream_are_reported() {
    let request = "request: { method: PUT, path: /v1/jobs }";
    for (list, expected) in [
        (format!("{{ {request} }}"), "[0].path: missing"),
        ("{ path: /v1/jobs }".to_owned(), "[0].request: missing"),
        (format!("{{ path: v1, {request} }}"), "[0].path: "),
        (format!("{{ path: '/v1/{{/ID}}', {request} }}"), "[0].path: "),
        (format!("{{ path: /v1, items: data, {request} }}"), "[0].items: "),
        (
            format!("{{ path: /v1, pages: {{ query: a }}, {request} }}"),
            "[0].pages: ",
        ),
        (
            format!("{{ path: /v1, object: {{ path: '/v1/{{ID}}' }}, {request} }}"),
            "[0].object.path: ",
        ),
        (
            format!("{{ path: /v1, headers: {{ 'a b': x }}, {request} }}"),
            "[0].headers",
        ),
        (
            "{ path: /v1, request: { method: put, path: /v1/jobs } }".to_owned(),
            "[0].request.method: ",
        ),
        (
            "{ path: /v1, request: { method: GET, path: /v1/jobs } }".to_owned(),
            "[0]: request: GET /v1/jobs passes without the chains",
        ),
        (
            "{ path: /v1, request: { method: PUT, path: '/v1/job/{/ID}' } }".to_owned(),
            "[0]: request: PUT /v1/job/x would be rejected",
        ),
    ] {
        let mistakes = with_lists(&list).unwrap_err();
        let expected = format!("upstream.lists{expected}");
        assert!(
            mistakes.iter().any(|mistake| mistake.starts_with(&expected)),
            "{list}: {mistakes:?}"
        );
    }
}
