use admittance::catalog::signature::Requirement;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use tempfile::TempDir;

use super::{MINIMAL, read_in};

fn make_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(directory.path().join("cosign.pub"), key.public_key_pem()).unwrap();
    std::fs::write(directory.path().join("fulcio.pem"), certificate.pem()).unwrap();
    directory
}

const IDENTITY: &str = "identity: \"ci@example.com\", issuer: \"https://login.example.com\"";

#[test]
fn signature_rules_are_read_in_their_order() {
    let text = format!(
        "{MINIMAL}
signatures:
  - {{ source: \"oci://registry.example.com/**\", keys: [cosign.pub] }}
  - source: \"https://**\"
    keyless: {{ {IDENTITY}, trustRoot: {{ authorities: fulcio.pem, signatureLog: cosign.pub }} }}
  - {{ source: \"**\", accept: Unsigned }}
"
    );
    let config = read_in(&make_directory(), &text).unwrap();
    let required: Vec<_> = config
        .catalog
        .signatures
        .rules()
        .iter()
        .map(|rule| match &rule.requirement {
            Requirement::Keys(keys) => format!("{} keys", keys.iter().count()),
            Requirement::Keyless(keyless) => keyless.issuer.to_string(),
            Requirement::Certified(certified) => certified.certificate.to_string(),
            Requirement::Unsigned => "nothing".to_owned(),
        })
        .collect();
    assert_eq!(required, ["1 keys", "https://login.example.com", "nothing"]);
}

#[test]
fn invalid_signature_rules_are_reported() {
    let directory = make_directory();
    for (rule, expected) in [
        ("keys: [cosign.pub]", "source: missing"),
        (
            "source: \"ftp://registry\", accept: Unsigned",
            "source: `ftp://registry`",
        ),
        ("source: \"**\"", " exactly one requirement is expected"),
        (
            "source: \"**\", keys: [cosign.pub], accept: Unsigned",
            " exactly one requirement is expected",
        ),
        ("source: \"**\", keys: []", "keys: the list is empty"),
        ("source: \"**\", keys: [missing.pub]", "keys[0]: "),
        ("source: \"**\", keys: [fulcio.pem]", "keys[0]: public key"),
        (
            "source: \"**\", accept: unsigned",
            "accept: \"unsigned\" is not a valid value of `accept`",
        ),
        (
            "source: \"**\", keyless: { identity: \"ci@example.com\", issuer: login, trustRoot: { authorities: fulcio.pem, signatureLog: cosign.pub } }",
            "keyless.issuer: `login` is not a valid issuer",
        ),
        (
            &format!("source: \"**\", keyless: {{ {IDENTITY} }}"),
            "keyless.trustRoot: missing",
        ),
        (
            &format!("source: \"**\", keyless: {{ {IDENTITY}, trustRoot: cosign.pub }}"),
            "keyless.trustRoot: trust root",
        ),
        (
            &format!("source: \"**\", keyless: {{ {IDENTITY}, trustRoot: {{ authorities: fulcio.pem }} }}"),
            "keyless.trustRoot.signatureLog: missing",
        ),
    ] {
        let mistakes = read_in(&directory, &format!("{MINIMAL}signatures: [{{ {rule} }}]")).unwrap_err();
        let expected = match expected.strip_prefix(' ') {
            Some(message) => format!("signatures[0]: {message}"),
            None => format!("signatures[0].{expected}"),
        };
        assert!(
            matches!(mistakes.as_slice(), [mistake] if mistake.starts_with(&expected)),
            "{rule}: {mistakes:?}"
        );
    }
    let mistakes = read_in(&directory, &format!("{MINIMAL}signatures: []")).unwrap_err();
    assert_eq!(mistakes, ["signatures: the list is empty"]);
}
