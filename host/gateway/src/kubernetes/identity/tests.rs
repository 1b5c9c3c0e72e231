use super::*;

const IDENTITY_HEADERS: [(&str, &str); 4] = [
    ("authorization", "Bearer cluster"),
    ("impersonate-group", "admittance:view"),
    ("impersonate-group", "dev"),
    ("impersonate-user", "plain.alice"),
];

fn replaced_headers(headers: &[(&str, &str)], is_upgrade: bool) -> Vec<(String, String)> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    let identity = ImpersonatedUser::new(
        "plain.alice".to_owned(),
        &["dev".to_owned()],
        Access::Permission(Permission::Read),
        &[],
    );
    assert!(identity.replace_headers(&mut map, &HeaderValue::from_static("Bearer cluster"), is_upgrade));
    let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
    let mut all: Vec<_> = map
        .iter()
        .map(|(name, value)| (name.to_string(), text(value)))
        .collect();
    all.sort();
    all
}

fn expected_headers(more: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut all: Vec<_> = IDENTITY_HEADERS
        .iter()
        .chain(more)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    all.sort();
    all
}

#[test]
#[rustfmt::skip]
fn no_header_with_a_client_identity_reaches_a_cluster() {
    for (name, value) in [
        ("Authorization", "Bearer mine"),
        ("Proxy-Authorization", "Basic x"),
        ("Cookie", "a=b"),
        ("X-BCS-User-Token", "mine"),
        ("Impersonate-User", "system:admin"),
        ("IMPERSONATE-USER", "system:admin"),
        ("Impersonate_User", "system:admin"),
        ("Impersonate-Group", "system:masters"),
        ("impersonate-uid", "1"),
        ("Impersonate-Extra-Scopes", "all"),
        ("Impersonate-Anything", "x"),
        ("X-Remote-User", "system:admin"),
        ("X-Remote-Group", "system:masters"),
        ("x_remote_group", "system:masters"),
        ("X-Remote-Extra-A", "b"),
        ("X-Forwarded-Client-Cert", "Subject=\"CN=admin\""),
        ("X-SSL-Client-Cert", "pem"),
        ("Ssl-Client-Cert", "pem"),
        ("Client-Cert", ":pem:"),
        // If this header were forwarded, the next server would drop the headers that it lists.
        ("Connection", "Impersonate-User, Impersonate-Group"),
        ("Connection", "authorization"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.bWluZQ"),
        ("Sec-WebSocket-Protocol", "BASE64URL.bearer.authorization.k8s.io.bWluZQ"),
    ] {
        assert_eq!(replaced_headers(&[(name, value)], false), expected_headers(&[]), "{name}: {value}");
        assert_eq!(replaced_headers(&[(name, value), (name, "other")], false).iter().filter(|(_, value)| value == "system:masters").count(), 0);
    }
}

#[test]
fn headers_without_an_identity_reach_the_cluster() {
    assert_eq!(
        replaced_headers(&[("X-Other", "1")], false),
        expected_headers(&[("x-other", "1")])
    );
    let upgrade = [
        ("Connection", "keep-alive, Upgrade, Impersonate-User"),
        ("Upgrade", "websocket"),
        (
            "Sec-WebSocket-Protocol",
            "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.x, v4.channel.k8s.io",
        ),
    ];
    assert_eq!(
        replaced_headers(&upgrade, true),
        expected_headers(&[
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", "v5.channel.k8s.io, v4.channel.k8s.io"),
        ])
    );
}

#[test]
fn a_user_gets_a_group_for_each_granted_permission() {
    let groups =
        |access, super_user_groups| ImpersonatedUser::new("a".to_owned(), &[], access, super_user_groups).groups;
    assert_eq!(
        groups(Access::Permission(Permission::Write), &[]),
        ["admittance:view", "admittance:edit"]
    );
    assert_eq!(
        groups(Access::Permission(Permission::Hooks), SUPER_USER_GROUPS),
        [
            "admittance:view",
            "admittance:edit",
            "admittance:hooks",
            "admittance:super-users"
        ]
    );
    assert!(groups(Access::Cluster, &[]).is_empty());
}
