//! Tests of kubeconfigs, credentials and TLS.

use admittance_admission::NamespaceSource;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

use crate::setting::{Setting, TOKEN, connect};

#[tokio::test]
async fn tokens_of_the_kubeconfig_are_sent() {
    let setting = Setting::new();
    std::fs::write(setting.directory.path().join("token"), TOKEN).unwrap();
    setting.server.put("namespaces", json!({"metadata": {"name": "prod"}}));
    for (user, expected) in [
        (format!("{{token: {TOKEN}}}"), None),
        ("{tokenFile: token}".to_owned(), None),
        ("{token: another}".to_owned(), Some("does not accept the credentials")),
        ("{}".to_owned(), Some("does not accept the credentials")),
    ] {
        let cluster = connect(setting.kubeconfig_for_user(&user), None).await.unwrap();
        let answer = cluster.labels("prod").await;
        match expected {
            None => assert!(answer.is_ok(), "{user}: {answer:?}"),
            Some(words) => assert!(answer.unwrap_err().to_string().contains(words), "{user}"),
        }
    }
}

#[tokio::test]
async fn client_certificates_of_the_kubeconfig_are_used() {
    let setting = Setting::with_client_certificates();
    setting.server.put("namespaces", json!({"metadata": {"name": "prod"}}));
    let (certificate, key) = setting.client_certificate();
    let directory = setting.directory.path();
    std::fs::write(directory.join("me.crt"), &certificate).unwrap();
    std::fs::write(directory.join("me.key"), &key).unwrap();
    let data = format!(
        "{{client-certificate-data: {}, client-key-data: {}}}",
        STANDARD.encode(&certificate),
        STANDARD.encode(&key)
    );
    for user in [data.as_str(), "{client-certificate: me.crt, client-key: me.key}"] {
        let cluster = connect(setting.kubeconfig_for_user(user), None).await.unwrap();
        let answer = cluster.labels("prod").await;
        assert!(answer.is_ok(), "{answer:?}");
    }
    let cluster = connect(setting.kubeconfig_for_user("{}"), None).await.unwrap();
    let error = cluster.labels("prod").await.unwrap_err().to_string();
    assert!(error.to_lowercase().contains("certificate"), "{error}");
}

#[tokio::test]
async fn a_certificate_of_another_ca_is_not_trusted() {
    let setting = Setting::new();
    let other = Setting::new();
    let text = std::fs::read_to_string(setting.kubeconfig_for_user(&format!("{{token: {TOKEN}}}"))).unwrap();
    let path = setting.write_kubeconfig(&text.replace(&setting.ca_data(), &other.ca_data()));
    let cluster = connect(path, None).await.unwrap();
    let error = cluster.labels("prod").await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
    assert_eq!(setting.server.count_requests("get", ""), 0);
}

#[tokio::test]
async fn invalid_kubeconfigs_are_reported() {
    let setting = Setting::new();
    let valid_text = std::fs::read_to_string(setting.kubeconfig_for_user("{token: secret-token}")).unwrap();
    let ca = setting.ca_data();
    // (a text in a valid kubeconfig, its replacement, the context, a part of the message)
    for (old, new, context, message_part) in [
        ("clusters:", "clusters: [", None, "is not a valid kubeconfig: "),
        (
            "current-context: main\n",
            "",
            None,
            "has no current context; name one of its contexts (main)",
        ),
        ("", "", Some("test"), "has no context `test`; it has: main"),
        (
            "current-context: main",
            "current-context: gone",
            None,
            "has no context `gone`; it has: main",
        ),
        (
            "cluster: here",
            "cluster: there",
            None,
            "has no cluster `there`, which its context names; it has: here",
        ),
        (
            "server: 'https:",
            "proxy-url: 'http://proxy', server: 'https:",
            None,
            "remove proxy-url",
        ),
        (
            "server: 'https://",
            "server: 'https:// ",
            None,
            "failed to parse cluster url",
        ),
        (ca.as_str(), "'**'", None, "certificate authority"),
        (ca.as_str(), "bm9uZQ==", None, "holds no certificate"),
        (
            "certificate-authority-data: ",
            "certificate-authority: gone.crt, x: ",
            None,
            "gone.crt",
        ),
        ("token: secret-token", "tokenFile: gone", None, "gone"),
        (
            "token: secret-token",
            "client-certificate: gone.crt, client-key: gone.key",
            None,
            "gone.crt",
        ),
        (
            "token: secret-token",
            "token: {secret-token: 1}",
            None,
            "is not a valid kubeconfig: ",
        ),
    ] {
        let path = setting.write_kubeconfig(&valid_text.replacen(old, new, 1));
        match connect(path.clone(), context).await {
            Ok(_) => panic!("{new:?} must be refused"),
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains(message_part), "{new:?}: {error}");
                assert!(error.contains(&path.display().to_string()), "{new:?}: {error}");
                assert!(!error.contains("secret-token"), "{new:?}: {error}");
                eprintln!("{error}");
            }
        }
    }
    let path = setting.directory.path().join("absent");
    let error = connect(path.clone(), None).await.unwrap_err().to_string();
    let start = format!("cannot read the kubeconfig `{}`: No such file", path.display());
    assert!(error.starts_with(&start), "{error}");
}
