use std::fs;

use super::*;

#[test]
fn a_file_that_is_named_twice_is_mounted_once() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("other")).unwrap();
    for (name, text) in [
        ("ca.pem", "ca"),
        ("cosign.pub", "key"),
        ("other/cosign.pub", "other key"),
        ("other/admittance.yaml", "odd"),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let mut root = json!({
        "modules": {"ca": "ca.pem", "attempts": 3},
        "signatures": [
            {"source": "a", "keys": ["cosign.pub", "other/cosign.pub"]},
            {"source": "b", "keys": ["./cosign.pub"]},
            {"source": "c", "keyless": {"trustRoot": "other/admittance.yaml"}},
            {"source": "d", "keyless": {"trustRoot": {"authorities": "ca.pem", "signatureLog": "cosign.pub"}}},
            {"source": "e", "accept": "Unsigned"},
        ],
    });
    let files = mount_module_files(&mut root, folder.path()).unwrap();
    assert_eq!(
        root,
        json!({
            "modules": {"ca": "ca.pem", "attempts": 3},
            "signatures": [
                {"source": "a", "keys": ["cosign.pub", "2-cosign.pub"]},
                {"source": "b", "keys": ["cosign.pub"]},
                {"source": "c", "keyless": {"trustRoot": "2-admittance.yaml"}},
                {"source": "d", "keyless": {"trustRoot": {"authorities": "ca.pem", "signatureLog": "cosign.pub"}}},
                {"source": "e", "accept": "Unsigned"},
            ],
        })
    );
    assert_eq!(
        pairs(&files),
        [
            ("2-admittance.yaml", "odd"),
            ("2-cosign.pub", "other key"),
            ("ca.pem", "ca"),
            ("cosign.pub", "key"),
        ]
    );
    let mut root = json!({"modules": {"ca": "none.pem"}});
    let error = mount_module_files(&mut root, folder.path()).unwrap_err();
    assert!(error.contains("none.pem"), "{error}");
}

fn pairs(files: &MountedTexts) -> Vec<(&str, &str)> {
    let files = files.iter();
    files.map(|(name, text)| (name.as_str(), text.as_str())).collect()
}

#[test]
fn paths_in_the_admin_section_are_changed_to_the_mounted_secret() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.pem", "a.key", "ca.pem", "ci.token"] {
        fs::write(folder.path().join(name), name).unwrap();
    }
    let mount_admin = |section: &Json| {
        let mut section = section.as_object().unwrap().clone();
        mount_admin_files(&mut section, folder.path()).map(|files| (Json::Object(section), files))
    };
    let token = json!({"name": "ci", "role": "Admin", "file": "ci.token"});
    let digest = json!({"name": "board", "role": "Read", "sha256": "00"});
    let section = json!({
        "tls": {"certificate": "a.pem", "key": "a.key", "clientCa": "ca.pem"},
        "clients": [{"name": "alice", "role": "Admin"}],
        "tokens": [digest, token],
    });
    let (section, files) = mount_admin(&section).unwrap();
    assert_eq!(
        section,
        json!({
            "tls": {
                "certificate": "../admin/tls.crt", "key": "../admin/tls.key",
                "clientCa": "../admin/client-ca.pem",
            },
            "clients": [{"name": "alice", "role": "Admin"}],
            "tokens": [digest, {"name": "ci", "role": "Admin", "file": "../admin/token-2"}],
        })
    );
    assert_eq!(
        pairs(&files),
        [
            ("client-ca.pem", "ca.pem"),
            ("tls.crt", "a.pem"),
            ("tls.key", "a.key"),
            ("token-2", "ci.token")
        ]
    );

    let (section, files) = mount_admin(&json!({"tokens": [digest]})).unwrap();
    assert!(files.is_empty());
    assert_eq!(section["tls"]["key"], "../tls/tls.key");
    let (section, _) = mount_admin(&json!({})).unwrap();
    assert_eq!(section, json!({}));
    let error = mount_admin(&json!({"tokens": [{"file": "none.token"}]})).unwrap_err();
    assert!(error.contains("none.token"), "{error}");
}
