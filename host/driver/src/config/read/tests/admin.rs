use std::{fs::Permissions, os::unix::fs::PermissionsExt};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tempfile::TempDir;

use super::{MINIMAL, read_in};
use admittance_admin::{AdminRole, CertificateHolder};

fn make_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    for (name, text, mode) in [
        ("tls.pem", cert.pem(), 0o644),
        ("tls.key", signing_key.serialize_pem(), 0o600),
        ("token", "0123456789abcdef\n".to_owned(), 0o600),
        ("open", "0123456789abcdef\n".to_owned(), 0o644),
        ("short", "0123456789\n".to_owned(), 0o600),
    ] {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    directory
}

const DIGEST: &str = "9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f";
const TLS: &str = "tls: { certificate: tls.pem, key: tls.key }";
const TLS_WITH_CLIENT_CA: &str = "tls: { certificate: tls.pem, key: tls.key, clientCa: tls.pem }";

#[test]
fn tokens_and_clients_of_the_admin_port_are_read() {
    let directory = make_directory();
    let text = format!(
        "{MINIMAL}
admin:
  address: 0.0.0.0:9090
  {TLS_WITH_CLIENT_CA}
  tokens:
    - {{ name: ci, role: Admin, file: token }}
    - {{ name: board, role: Read, sha256: {DIGEST} }}
  clients:
    - {{ name: \"spiffe://example.com/ops\", role: Admin }}
"
    );
    let admin = read_in(&directory, &text).unwrap().admin.unwrap();
    assert_eq!(admin.address(), "0.0.0.0:9090".parse().unwrap());
    let tokens: Vec<_> = admin.tokens().iter().map(|token| (&*token.name, token.role)).collect();
    assert_eq!(tokens, [("ci", AdminRole::Admin), ("board", AdminRole::Read)]);
    let expected = CertificateHolder {
        name: "spiffe://example.com/ops".to_owned(),
        role: AdminRole::Admin,
    };
    assert_eq!(admin.tls().unwrap().clients, [expected]);
    let tokens = admin.tokens().to_vec();
    let plain = admittance_admin::AdminConfig::new("127.0.0.1:0".parse().unwrap())
        .with_tokens(tokens)
        .unwrap();
    assert!(plain.clone().with_address("[::1]:0".parse().unwrap()).is_ok());
    assert!(plain.with_address("10.0.0.1:0".parse().unwrap()).is_err());
}

#[test]
fn invalid_admin_port_configurations_are_reported() {
    let directory = make_directory();
    let token = format!("tokens: [{{ name: a, role: Read, sha256: {DIGEST} }}]");
    let with = |entry: &str| format!("tokens: [{{ name: a, role: Read, {entry} }}]");
    for (address, text, expected) in [
        ("127.0.0.1:1", token.clone(), ""),
        ("[::1]:1", token.clone(), ""),
        ("0.0.0.0:1", String::new(), ""),
        ("0.0.0.0:1", format!("{TLS}, {token}"), ""),
        (
            "0.0.0.0:1",
            token.clone(),
            "admin.tokens: tokens would be sent over the network in the clear, to 0.0.0.0:1",
        ),
        ("127.0.0.1:1", with("file: token"), ""),
        ("127.0.0.1:1", with("file: missing"), "admin.tokens[0].file: "),
        ("127.0.0.1:1", with("file: open"), "admin.tokens[0].file: "),
        ("127.0.0.1:1", with("file: short"), "admin.tokens[0].file: "),
        (
            "127.0.0.1:1",
            with("sha256: abc"),
            "admin.tokens[0].sha256: this is not a valid SHA-256 digest",
        ),
        (
            "127.0.0.1:1",
            with(&format!("sha256: {DIGEST}, file: token")),
            "admin.tokens[0]: exactly one source of the token is required",
        ),
        (
            "127.0.0.1:1",
            "tokens: [{ name: a, role: Read }]".to_owned(),
            "admin.tokens[0]: exactly one source of the token is required",
        ),
        (
            "127.0.0.1:1",
            "tokens: [{ name: a, role: Write, file: token }]".to_owned(),
            "admin.tokens[0].role: \"Write\" is not a valid role",
        ),
        (
            "127.0.0.1:1",
            "tokens: [{ name: a, role: Read, file: token }, { name: a, role: Admin, file: token }]".to_owned(),
            "admin.tokens[1]: two entries have the name \"a\"",
        ),
        (
            "127.0.0.1:1",
            "tokens: []".to_owned(),
            "admin.tokens: the list is empty",
        ),
        (
            "0.0.0.0:1",
            format!("{TLS_WITH_CLIENT_CA}, clients: [{{ name: a, role: Read }}]"),
            "",
        ),
        (
            "0.0.0.0:1",
            format!("{TLS}, clients: [{{ name: a, role: Read }}]"),
            "admin.clients: clients are not asked for certificates",
        ),
        (
            "127.0.0.1:1",
            "clients: [{ name: a, role: Read }]".to_owned(),
            "admin.clients: clients are not asked for certificates",
        ),
        (
            "0.0.0.0:1",
            TLS_WITH_CLIENT_CA.to_owned(),
            "admin.tls: clients are asked for certificates, but none is allowed",
        ),
        (
            "0.0.0.0:1",
            format!("{TLS_WITH_CLIENT_CA}, clients: [{{ role: Read }}]"),
            "admin.clients[0].name: missing",
        ),
        (
            "0.0.0.0:1",
            "tls: { certificate: tls.pem, key: missing }".to_owned(),
            "admin.tls.key: ",
        ),
    ] {
        let config = format!("{MINIMAL}admin: {{ address: \"{address}\", {text} }}");
        let mistakes = read_in(&directory, &config).err().unwrap_or_default();
        let is_as_expected = match mistakes.as_slice() {
            [] => expected.is_empty(),
            [mistake] => !expected.is_empty() && mistake.starts_with(expected),
            _ => false,
        };
        assert!(is_as_expected, "{address} {text}: {mistakes:?}");
    }
}
