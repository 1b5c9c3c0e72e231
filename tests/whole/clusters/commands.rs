//! Tests the commands with which users connect a cluster to a gateway and use it.

use std::fs;

use admittance_tests::{Admittance, FinishedProgram};
use http::Method;
use serde_json::Value;

use super::scene::{ClustersScene, SERVICE_ACCOUNT_TOKEN};

async fn run(line: &str) -> FinishedProgram {
    Admittance::run(line.split_whitespace().map(str::to_owned))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_printed_kubeconfig_has_the_path_of_its_cluster() {
    let scene = ClustersScene::start(false).await;
    scene.report_servers(&[&scene.server], SERVICE_ACCOUNT_TOKEN).await;
    let token = scene.directory.path().join("alice.token");
    fs::write(&token, &scene.alice).unwrap();
    let identifier = scene.prefix.rsplit('/').next().unwrap();
    // A kubeconfig for a gateway without TLS is refused, because kubectl sends no token over plain HTTP.
    let unencrypted = scene.gateway.url("");
    let refused = run(&format!(
        "kubeconfig {identifier} --gateway {unencrypted} --token-file {}",
        token.display()
    ))
    .await;
    assert!(
        refused.code == Some(2) && refused.stderr.contains("without TLS"),
        "{}",
        refused.stderr
    );
    let gateway = unencrypted.replace("http://", "https://");
    let line = format!(
        "kubeconfig {identifier} --gateway {gateway} --token-file {} --name dev",
        token.display()
    );
    let printed = run(&line).await;
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    for part in [
        format!("{gateway}{}/", scene.prefix),
        token.display().to_string(),
        "current-context: dev".to_owned(),
    ] {
        assert!(printed.stdout.contains(&part), "{part}: {}", printed.stdout);
    }
    assert!(!printed.stdout.contains(&scene.alice));
    assert_eq!(scene.send(Method::GET, "/version", Value::Null).await.status, 404);
}

#[tokio::test]
async fn the_manifests_of_an_agent_contain_its_token_and_rights() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    fs::write(&token, "register-token-1\n").unwrap();
    let line = format!(
        "kubernetes manifests --agent --gateway https://gateway.example.com --cluster-id plain-dev \
         --register-token-file {} --group developers",
        token.display()
    );
    let printed = run(&line).await;
    assert_eq!(printed.code, Some(0), "{}", printed.stderr);
    for part in [
        "kind: Deployment",
        "--gateway=https://gateway.example.com",
        "--cluster-id=plain-dev",
        "admittance:super-users",
        "developers",
        "impersonate",
        // The manifest's Secret contains the register token in base64.
        "cmVnaXN0ZXItdG9rZW4tMQ==",
    ] {
        assert!(printed.stdout.contains(part), "{part}: {}", printed.stdout);
    }
    for (line, expected) in [
        ("kubernetes manifests --agent".to_owned(), "--gateway"),
        (
            format!("{line} --definitions {}", directory.path().display()),
            "cannot be used with",
        ),
        (
            line.replace("developers", "system:masters"),
            "does not begin with system:",
        ),
    ] {
        let refused = run(&line).await;
        assert!(
            refused.code == Some(2) && refused.stderr.contains(expected),
            "{line}: {}",
            refused.stderr
        );
    }
}

#[tokio::test]
async fn an_agent_sends_no_token_without_tls() {
    for (line, expected) in [
        ("agent --cluster-id a --gateway http://gateway.example.com", "https"),
        (
            "agent --cluster-id a --gateway https://gateway.example.com",
            "REGISTER_TOKEN",
        ),
        (
            "agent --cluster-id a --gateway https://g --api-server http://10.0.0.1",
            "https",
        ),
    ] {
        let refused = run(line).await;
        assert!(
            refused.code == Some(2) && refused.stderr.contains(expected),
            "{line}: {}",
            refused.stderr
        );
    }
}
