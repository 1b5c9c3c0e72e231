use std::{fs, path::Path};

use admittance_tests::{Admittance, FakeUpstream, FinishedProgram, Serve, Versions, replace};
use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    registry::{Registry, RegistryLogin},
    setup::{OperatorSetup, annotations_by, chain},
};
use crate::scene::{BCS, write};

async fn run_admittance(arguments: &[&str]) -> FinishedProgram {
    Admittance::run(arguments.iter().copied()).await.unwrap()
}

async fn stdout_of(arguments: &[&str]) -> String {
    let finished = run_admittance(arguments).await;
    assert_eq!(finished.code, Some(0), "{}{}", finished.stdout, finished.stderr);
    finished.stdout
}

fn path_text(path: &Path) -> &str {
    path.to_str().unwrap()
}

async fn live_version(program: &Admittance) -> Value {
    let status = program.status().await.unwrap();
    status["chains"][0]["stages"][0]["hook"]["version"].clone()
}

/// A tag is resolved to an artifact once. The program needs no registry until a user resolves the tag again.
#[tokio::test]
async fn a_module_runs_while_its_registry_is_unreachable() {
    let registry = Registry::start(RegistryLogin::Open, None).await;
    let directory = TempDir::new().unwrap();
    let versions = Versions::find().unwrap();
    let reference = format!("oci://{}/plugins/versions:stable", registry.name);
    let push = async |version| {
        let module = write(&directory, "module.wasm", versions.module(version));
        stdout_of(&["push", path_text(&module), &reference]).await
    };
    let push_output = push(1).await;
    assert!(push_output.contains("sha256:"), "{push_output}");

    let store = directory.path().join("store");
    let stage = chain("x", "").replace("file:../x # here", &reference);
    write(&directory, "chains.yaml", &stage);
    let config = write(&directory, "admittance.yaml", BCS);
    let upstream = FakeUpstream::start().await.unwrap();
    let start = async || {
        let serve = Serve::new(&config).unwrap().upstream(&upstream.url());
        serve.store(&store).start().await.unwrap()
    };
    let first = start().await;
    assert_eq!(live_version(&first).await, Versions::name(1));

    push(2).await;
    let second = start().await;
    assert_eq!(live_version(&second).await, Versions::name(1));
    let inspect_output = stdout_of(&["inspect", &reference, "--store", path_text(&store), "--output", "json"]).await;
    let inspection: Value = serde_json::from_str(&inspect_output).unwrap();
    assert_eq!(inspection["version"], Versions::name(2), "{inspection}");
    // `inspect` reads the new artifact from the registry, but the program uses the old one until a user runs `pull`.
    assert_eq!(live_version(&start().await).await, Versions::name(1));

    let pull_output = stdout_of(&["pull", &reference, "--store", path_text(&store)]).await;
    assert!(pull_output.contains("digest: sha256:"), "{pull_output}");
    drop(registry);
    assert_eq!(live_version(&start().await).await, Versions::name(2));
    let failed_pull = run_admittance(&["pull", &reference, "--store", path_text(&store)]).await;
    assert_eq!(failed_pull.code, Some(2), "{}", failed_pull.stdout);
}

/// The artifact of a plugin contains no time. So if the same plugin is pushed again, the artifact is the same, and its
/// signatures remain valid.
#[tokio::test]
async fn pushing_a_plugin_twice_creates_the_same_artifact() {
    let registry = Registry::start(RegistryLogin::Open, None).await;
    let directory = TempDir::new().unwrap();
    let module = write(&directory, "module.wasm", Versions::find().unwrap().module(1));
    let reference = format!("oci://{}/plugins/versions:stable", registry.name);
    let push = async |epoch: Option<&str>| {
        let mut command = Admittance::command().unwrap();
        command
            .args(["push", path_text(&module), &reference])
            .env_remove("SOURCE_DATE_EPOCH");
        if let Some(epoch) = epoch {
            command.env("SOURCE_DATE_EPOCH", epoch);
        }
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let output_text = String::from_utf8(output.stdout).unwrap();
        let manifest = output_text.lines().find_map(|line| line.strip_prefix("manifest "));
        manifest.unwrap().trim().to_owned()
    };
    let created = |manifest: &str| {
        let json =
            |digest: &str| -> Value { serde_json::from_slice(&fs::read(registry.blob_path(digest)).unwrap()).unwrap() };
        json(json(manifest)["config"]["digest"].as_str().unwrap())["created"].clone()
    };
    let first = push(None).await;
    assert_eq!(created(&first), "1970-01-01T00:00:00Z");
    assert_eq!(push(None).await, first);
    assert_eq!(created(&push(Some("1000000000")).await), "2001-09-09T01:46:40Z");
}

#[tokio::test]
async fn a_registry_gets_the_credentials_that_it_demands() {
    let registry = Registry::start(RegistryLogin::Basic, None).await;
    let directory = TempDir::new().unwrap();
    let module = write(&directory, "module.wasm", Versions::find().unwrap().module(1));
    let reference = format!("oci://{}/plugins/versions:1", registry.name);
    let push = async |docker: &Path| {
        let mut command = Admittance::command().unwrap();
        command
            .args(["push", path_text(&module), &reference])
            .env("DOCKER_CONFIG", docker);
        command.output().await.unwrap()
    };
    let stranger = push(directory.path()).await;
    assert_eq!(stranger.status.code(), Some(2));
    let message = String::from_utf8(stranger.stderr).unwrap();
    assert!(message.contains("docker login"), "{message}");
    let (user, password) = super::registry::USER;
    let credentials = BASE64_STANDARD.encode(format!("{user}:{password}"));
    let config = json!({"auths": {&registry.name: {"auth": credentials}}});
    write(&directory, "config.json", config.to_string());
    let authenticated_push = push(directory.path()).await;
    assert!(
        authenticated_push.status.success(),
        "{}",
        String::from_utf8_lossy(&authenticated_push.stderr)
    );
}

#[tokio::test]
async fn only_signed_modules_run() {
    let keys = TempDir::new().unwrap();
    let [ours, theirs] = [(); 2].map(|()| KeyPair::generate().unwrap());
    let key = keys.path().join("cosign.pub");
    fs::write(&key, public_pem(&ours)).unwrap();
    let signatures = format!("signatures:\n  - {{ source: \"file:**\", keys: [{key:?}] }}\n");
    let config = format!("{BCS}{signatures}");
    let sign = |key: &KeyPair, module: &[u8]| BASE64_STANDARD.encode(key.sign(module).unwrap());

    // This is the first start, so there are no earlier definitions that the program could serve instead.
    let directory = TempDir::new().unwrap();
    let versions = Versions::find().unwrap();
    write(&directory, "chains.yaml", chain("one.wasm", "").replace("../", ""));
    write(&directory, "one.wasm", versions.module(1));
    let file = write(&directory, "admittance.yaml", &config);
    let refusal = Serve::new(&file).unwrap().finish().await.unwrap();
    assert_eq!(refusal.code, Some(2), "{}", refusal.stderr);
    for expected in ["one.wasm", "not signed", "cosign sign-blob"] {
        assert!(refusal.stderr.contains(expected), "{expected} in {}", refusal.stderr);
    }

    write(&directory, "one.wasm.sig", sign(&ours, &versions.module(1)));
    let setup = OperatorSetup::start_signed(&config, &chain("one.wasm", ""), |module| sign(&ours, module)).await;
    assert_eq!(setup.versions_of("a").await, annotations_by(1));
    let status = setup.json_of(&["status"]).await;
    let signature = &status["chains"][0]["stages"][0]["hook"]["signature"];
    assert!(signature.as_str().unwrap().contains("sha256:"), "{status}");

    // The new version of the module first has no signature, then one with the wrong key, and finally the right one.
    let problem = |status: &Value| status["problem"]["mistakes"][0].as_str().map(str::to_owned);
    setup.replace_module("one.wasm", 3);
    let is_reported = |status: &Value| problem(status).is_some_and(|mistake| mistake.contains("one.wasm"));
    setup.program.wait_for_status("the refusal", is_reported).await.unwrap();
    let before = problem(&setup.program.status().await.unwrap());
    replace(&setup.path("one.wasm.sig"), sign(&theirs, &versions.module(3))).unwrap();
    let is_reported_again = |status: &Value| status["problem"]["attempts"].as_u64() > Some(1);
    setup
        .program
        .wait_for_status("another refusal", is_reported_again)
        .await
        .unwrap();
    assert!(before.is_some());
    assert_eq!(setup.versions_of("b").await, annotations_by(1));
    replace(&setup.path("one.wasm.sig"), sign(&ours, &versions.module(3))).unwrap();
    let is_live = |status: &Value| status["revision"] == 2 && problem(status).is_none();
    setup
        .program
        .wait_for_status("the signed module", is_live)
        .await
        .unwrap();
    assert_eq!(setup.versions_of("c").await, annotations_by(3));

    // The previous module is in the store, and so is its signature. So a rollback to the previous module succeeds
    // although signatures are required.
    setup.stdout_of(["rollback", "1"]).await;
    assert_eq!(setup.versions_of("d").await, annotations_by(1));
}

fn public_pem(key: &KeyPair) -> String {
    let text = BASE64_STANDARD.encode(key.subject_public_key_info());
    format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")
}
