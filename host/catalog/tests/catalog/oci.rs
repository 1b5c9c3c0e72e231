use std::{env, fs, io::ErrorKind, net::TcpListener, os::unix::fs::PermissionsExt as _, time::Duration};

use admittance_catalog::{Digest, Error, Freshness, PushedArtifact};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{
    pushing::push,
    registry::{Registry, RegistryLogin, USER},
    scene::{CatalogScene, component},
    signatures::{index_json, put_blob, put_manifest},
    tokens::{IDENTITY_TOKEN, TokenServer},
};

#[tokio::test]
async fn a_tag_is_resolved_again_only_on_request() {
    let scene = CatalogScene::new();
    let registry = Registry::start(RegistryLogin::Open, None).await;
    let (first, second) = (component(300_000, 1), component(300_000, 2));
    let catalog = scene.catalog();
    let name = format!("{}/plugins/a:1", registry.name);
    let tag = format!("oci://{name}");
    let pushed = push(&catalog, &name, &first).await.unwrap();
    let module = scene.obtain(&catalog, &tag).await.unwrap();
    assert_eq!(
        (module.bytes().as_ref(), module.digest()),
        (first.as_slice(), pushed.module)
    );

    let moved = push(&catalog, &name, &second).await.unwrap();
    let get = async |reference: &str, pinned, freshness| {
        let module = scene.obtain_with(&scene.catalog(), reference, pinned, freshness).await;
        module.map(|module| module.digest())
    };
    let old = format!("oci://{}", pushed.reference);
    let by_digest = format!("oci://{}/plugins/a@{}", registry.name, pushed.manifest);
    for (reference, pinned, freshness, expected) in [
        (&tag, None, Freshness::PreferRecorded, pushed.module),
        (&tag, None, Freshness::Resolve, moved.module),
        (&tag, None, Freshness::PreferRecorded, moved.module),
        (&tag, Some(pushed.module), Freshness::Resolve, pushed.module),
        (&old, None, Freshness::Resolve, pushed.module),
        (
            &by_digest,
            Some(pushed.module),
            Freshness::PreferRecorded,
            pushed.module,
        ),
    ] {
        let digest = get(reference, pinned, freshness).await.unwrap();
        assert_eq!(digest, expected, "{reference} {pinned:?} {freshness:?}");
    }
    let error = get(&tag, Some(Digest::of_bytes("other")), Freshness::PreferRecorded)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::DigestMismatch { .. }), "{error}");

    drop(registry);
    for reference in [&tag, &old, &by_digest] {
        get(reference, None, Freshness::PreferRecorded).await.unwrap();
    }
    let error = get(&tag, None, Freshness::Resolve).await.unwrap_err();
    assert!(
        matches!(error, Error::Unreachable { .. }) && error.is_transient(),
        "{error}"
    );
}

/// Tools such as `docker buildx` push an index with an entry for each architecture.
#[tokio::test]
async fn a_reference_to_an_index_resolves_to_its_wasm_entry() {
    let scene = CatalogScene::new();
    let registry = Registry::start(RegistryLogin::Open, None).await;
    let catalog = scene.catalog();
    let (module, other) = (component(2000, 1), component(2000, 2));
    let manifest = |pushed: &PushedArtifact, architecture: &str| {
        json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": pushed.manifest.to_string(),
            "size": 2, "platform": {"os": "wasi", "architecture": architecture},
        })
    };
    let pushed = push(&catalog, &format!("{}/plugins/a:module", registry.name), &module)
        .await
        .unwrap();
    let second = push(&catalog, &format!("{}/plugins/a:other", registry.name), &other)
        .await
        .unwrap();
    let tag = format!("oci://{}/plugins/a:1", registry.name);
    let put_index = async |entries: &[serde_json::Value]| put_manifest(&registry, "1", &index_json(entries)).await;
    let obtain_again = async || scene.obtain_with(&catalog, &tag, None, Freshness::Resolve).await;

    let descriptor = put_index(&[manifest(&second, "amd64"), manifest(&pushed, "wasm")]).await;
    assert_eq!(obtain_again().await.unwrap().bytes().as_ref(), module);
    let by_digest = format!(
        "oci://{}/plugins/a@{}",
        registry.name,
        descriptor["digest"].as_str().unwrap()
    );
    assert_eq!(
        scene.obtain(&catalog, &by_digest).await.unwrap().digest(),
        pushed.module
    );
    put_index(&[manifest(&pushed, "amd64"), manifest(&second, "wasm")]).await;
    assert_eq!(
        obtain_again().await.unwrap().digest(),
        second.module,
        "the index is another one"
    );
    // An index as `oras manifest index create` makes it: the entry of the artifact names no platform.
    let mut plain = manifest(&pushed, "");
    plain.as_object_mut().unwrap().remove("platform");
    put_index(&[plain]).await;
    assert_eq!(obtain_again().await.unwrap().digest(), pushed.module);
    for (entries, expected) in [
        (
            &[manifest(&pushed, "amd64")][..],
            "none of them for the architecture `wasm`",
        ),
        (
            &[manifest(&pushed, "wasm"), manifest(&second, "wasm")],
            "with 2 artifacts for the architecture `wasm`",
        ),
    ] {
        put_index(entries).await;
        let error = obtain_again().await.unwrap_err();
        assert!(
            matches!(&error, Error::NotAnArtifact { content, .. } if content.contains(expected)),
            "{error}"
        );
    }
}

/// The case `component` has the media type that earlier versions of `wash push` wrote. The cases with archives are
/// images as Istio and Envoy Gateway use them, which are called the compat variant.
#[tokio::test]
async fn modules_with_older_media_types_or_in_archives_are_obtained() {
    let mut scene = CatalogScene::new();
    scene.config.size_limit = 50_000;
    let registry = Registry::start(RegistryLogin::Open, None).await;
    let catalog = scene.catalog();
    let module = component(2000, 1);
    let put_artifact = async |tag: &str, layers: &[(&str, &[u8])]| {
        let mut descriptors = Vec::new();
        for (media_type, blob) in layers {
            let mut layer = put_blob(&registry, blob).await;
            layer["mediaType"] = json!(media_type);
            descriptors.push(layer);
        }
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": put_blob(&registry, "{}").await, "layers": descriptors,
        });
        put_manifest(&registry, tag, &manifest).await;
        format!("oci://{}/plugins/a:{tag}", registry.name)
    };
    let component_layer = "application/vnd.bytecodealliance.wasm.component.layer.v0+wasm";
    let (oci, docker) = (
        "application/vnd.oci.image.layer.v1.tar+gzip",
        "application/vnd.docker.image.rootfs.diff.tar.gzip",
    );
    let image = archive(&[("runtime-config.json", b"{}"), ("plugin.wasm", &module)]);
    let other = archive(&[("etc/passwd", b"root")]);
    for (tag, layers) in [
        ("component", &[(component_layer, module.as_slice())][..]),
        ("oci", &[(oci, &image)]),
        ("docker", &[(docker, &other), (docker, &image)]),
        ("dot", &[(oci, &archive(&[("./plugin.wasm", &module)]))]),
    ] {
        let reference = put_artifact(tag, layers).await;
        let obtained_module = scene.obtain(&catalog, &reference).await.unwrap();
        assert_eq!(obtained_module.bytes().as_ref(), module, "{tag}");
        let pin = Some(Digest::of_bytes(&module));
        scene
            .obtain_with(&catalog, &reference, pin, Freshness::Resolve)
            .await
            .unwrap();
        let error = scene.obtain_with(
            &catalog,
            &reference,
            Some(Digest::of_bytes("other")),
            Freshness::Resolve,
        );
        assert!(matches!(error.await, Err(Error::DigestMismatch { .. })), "{tag}");
    }
    let mut cut = image.clone();
    cut.truncate(image.len() / 2);
    for (tag, layer, expected) in [
        ("none", other, "an image whose last layer has no file `plugin.wasm`"),
        (
            "page",
            archive(&[("plugin.wasm", b"<html>")]),
            "is not a WebAssembly module",
        ),
        ("cut", cut, "its layer cannot be unpacked"),
        // This archive has about 1 KiB, but its content exceeds the limit.
        (
            "large",
            archive(&[("plugin.wasm", &[0; 60_000])]),
            "has 60000 bytes, more than the limit of 50000",
        ),
        (
            "bomb",
            archive(&[("other", &[0; 1_000_000]), ("plugin.wasm", &module)]),
            "its layer cannot be unpacked",
        ),
    ] {
        let reference = put_artifact(tag, &[(oci, &layer)]).await;
        let error = scene.obtain(&catalog, &reference).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{tag}: {error}");
    }
}

fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let mut archive = tar::Builder::new(packed);
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, *content).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

#[tokio::test]
async fn modules_are_obtained_from_a_registry_that_requires_tls_and_a_password() {
    let scene = CatalogScene::new();
    let (certificate, key) = (scene.path("registry.pem"), scene.path("registry.key"));
    scene.authority.write_certificate(&certificate, &key);
    let registry = Registry::start(RegistryLogin::Basic, Some((&certificate, &key))).await;
    let name = format!("{}/a:1", registry.name);
    let reference = format!("oci://{name}");
    let bytes = component(1000, 1);
    let catalog = scene.catalog();
    let error = scene.obtain(&catalog, &reference).await.unwrap_err().to_string();
    assert!(
        error.contains(&format!("log in with `docker login {}`", registry.name)),
        "{error}"
    );
    assert!(
        error.contains("without credentials: authentication required (UNAUTHORIZED)"),
        "{error}"
    );

    scene.write_docker_config(&json!({"auths": {&registry.name: {"username": "ada", "password": "wrong"}}}));
    let error = scene.obtain(&catalog, &reference).await.unwrap_err().to_string();
    assert!(error.contains("was refused as the user `ada`"), "{error}");
    assert!(!error.contains("wrong"), "{error}");

    // Docker's configuration contains three entries. Only the one for the repository itself has the right password;
    // those for the whole registry and for another repository have a wrong one.
    let user = json!({"username": USER.0, "password": USER.1});
    let other = json!({"username": "ada", "password": "wrong"});
    let (of_repository, beside) = (format!("{}/a", registry.name), format!("{}/b", registry.name));
    scene.write_docker_config(&json!({"auths": {&registry.name: other, of_repository: user, beside: other}}));
    push(&catalog, &name, &bytes).await.unwrap();
    scene.log_in(&registry.name);
    assert_eq!(
        scene.obtain(&catalog, &reference).await.unwrap().bytes(),
        bytes.as_slice()
    );

    // A registry on this machine may be used without TLS. But if it uses TLS, its certificate must be trusted.
    let mut config = scene.config.clone();
    config.network.ca = None;
    config.store = None;
    let stranger = admittance_catalog::Catalog::new(config).unwrap();
    let error = scene.obtain(&stranger, &reference).await.unwrap_err();
    assert!(matches!(error, Error::Tls { .. }), "{error}");
}

/// The environment variable that is set if the test runs again in a child process. The `PATH` of this child process
/// contains the credential helpers.
const HELPER_VARIABLE: &str = "ADMITTANCE_TEST_HELPED";

#[tokio::test]
async fn credentials_are_obtained_from_docker_credential_helpers() {
    if env::var_os(HELPER_VARIABLE).is_some() {
        return test_credential_helpers().await;
    }
    let directory = tempfile::TempDir::new().unwrap();
    let (user, password) = USER;
    for (name, script) in [
        (
            "good",
            format!(r#"echo '{{"Username":"{user}","Secret":"{password}"}}'"#),
        ),
        (
            "none",
            "echo 'credentials not found in native keychain'; exit 1".to_owned(),
        ),
        (
            "bad",
            "echo 'a secret'; echo 'the keychain is locked' >&2; exit 1".to_owned(),
        ),
    ] {
        let path = directory.path().join(format!("docker-credential-{name}"));
        fs::write(&path, format!("#!/bin/sh\nread -r server\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let rest = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([directory.path().to_owned()].into_iter().chain(env::split_paths(&rest)));
    let output = tokio::process::Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "oci::credentials_are_obtained_from_docker_credential_helpers",
        ])
        .env("PATH", path.unwrap())
        .env(HELPER_VARIABLE, "1")
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

async fn test_credential_helpers() {
    let scene = CatalogScene::new();
    let registry = Registry::start(RegistryLogin::Basic, None).await;
    let name = format!("{}/a:1", registry.name);
    for (key, value, expected) in [
        ("credHelpers", json!({&registry.name: "good"}), None),
        ("credsStore", json!("good"), None),
        ("credsStore", json!("none"), Some("was refused without credentials")),
        ("credsStore", json!("bad"), Some("the keychain is locked")),
        ("credsStore", json!("absent"), Some("cannot be started")),
    ] {
        scene.write_docker_config(&json!({key: value}));
        let pushed = push(&scene.catalog(), &name, &component(1000, 1)).await;
        match (pushed, expected) {
            (Ok(_), None) => {}
            (Err(error), Some(expected)) => {
                assert!(error.to_string().contains(expected), "{error}");
                assert!(!error.to_string().contains("a secret"), "{error}");
            }
            (pushed, _) => panic!("{key} {value}: {pushed:?}"),
        }
    }
}

#[tokio::test]
async fn modules_are_pushed_and_obtained_with_the_tokens_that_a_registry_requires() {
    let scene = CatalogScene::new();
    let tokens = TokenServer::start(&scene.authority).await;
    let (realm, signed_by) = (tokens.realm(), scene.authority.pem());
    let access = RegistryLogin::Token {
        realm: &realm,
        signed_by: &signed_by,
    };
    let (certificate, key) = (scene.path("registry.pem"), scene.path("registry.key"));
    scene.authority.write_certificate(&certificate, &key);
    let registry = Registry::start(access, Some((&certificate, &key))).await;
    let name = format!("{}/plugins/a:1", registry.name);
    let reference = format!("oci://{name}");
    let catalog = scene.catalog();
    let error = scene.obtain(&catalog, &reference).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("without credentials: who are you (UNAUTHORIZED)"),
        "{error}"
    );

    scene.log_in(&registry.name);
    push(&catalog, &name, &component(1000, 1)).await.unwrap();
    scene.obtain(&catalog, &reference).await.unwrap();
    let scopes = std::mem::take(&mut *tokens.scopes.lock().unwrap());
    assert_eq!(
        scopes,
        [
            "repository:plugins/a:pull",
            "repository:plugins/a:pull,push",
            "repository:plugins/a:pull",
        ]
    );

    *tokens.life.lock().unwrap() = -300;
    let new_catalog = scene.catalog();
    let error = scene
        .obtain_with(&new_catalog, &reference, None, Freshness::Resolve)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error}");
    *tokens.life.lock().unwrap() = 300;
    scene
        .obtain_with(&new_catalog, &reference, None, Freshness::Resolve)
        .await
        .unwrap();

    // `docker login` stores an identity token in this form if the registry issues one.
    scene.write_docker_config(&json!({"auths": {&registry.name: {"identitytoken": IDENTITY_TOKEN}}}));
    scene
        .obtain_with(&scene.catalog(), &reference, None, Freshness::Resolve)
        .await
        .unwrap();
}

#[tokio::test]
async fn no_credentials_are_sent_without_tls() {
    let scene = CatalogScene::new();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let realm = format!("http://{}/token", server.local_addr().unwrap());
    let signed_by = scene.authority.pem();
    let access = RegistryLogin::Token {
        realm: &realm,
        signed_by: &signed_by,
    };
    let (certificate, key) = (scene.path("registry.pem"), scene.path("registry.key"));
    scene.authority.write_certificate(&certificate, &key);
    let registry = Registry::start(access, Some((&certificate, &key))).await;
    scene.log_in(&registry.name);
    let name = format!("{}/plugins/a:1", registry.name);
    let catalog = scene.catalog();
    let pulled = scene.obtain(&catalog, &format!("oci://{name}")).await.unwrap_err();
    let pushed = push(&catalog, &name, &component(1000, 1)).await.unwrap_err();
    for error in [pulled, pushed] {
        let expected = format!("the registry asks for credentials to be sent without TLS, to {realm}");
        assert!(error.to_string().contains(&expected), "{error}");
    }
    let connection = server.accept().map_err(|error| error.kind());
    assert!(matches!(connection, Err(ErrorKind::WouldBlock)), "{connection:?}");
}

#[tokio::test]
async fn an_artifact_without_a_module_is_refused() {
    let scene = CatalogScene::new();
    let registry = Registry::start(RegistryLogin::Open, None).await;
    let catalog = scene.catalog();
    let error = scene
        .obtain(&catalog, &format!("oci://{}/a:1", registry.name))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");

    let name = format!("{}/a:1", registry.name);
    let pushed = push(&catalog, &name, &component(100_000, 1)).await.unwrap();
    let mut small = scene.config.clone();
    small.size_limit = 99_999;
    let small = admittance_catalog::Catalog::new(small).unwrap();
    let error = scene.obtain(&small, &format!("oci://{name}")).await.unwrap_err();
    assert!(matches!(error, Error::ModuleTooLarge { size: 100_000, .. }), "{error}");

    let blob = registry.blob_path(&pushed.module.to_string());
    let mut bytes = fs::read(&blob).unwrap();
    bytes[50_000] ^= 1;
    fs::write(&blob, &bytes).unwrap();
    let error = scene.obtain(&catalog, &format!("oci://{name}")).await.unwrap_err();
    assert!(matches!(error, Error::ContentMismatch { .. }), "{error}");
    fs::write(registry.blob_path(&pushed.manifest.to_string()), "{}").unwrap();
    let error = scene
        .obtain(&catalog, &format!("oci://{}", pushed.reference))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::ContentMismatch { .. } | Error::Status { .. } | Error::NotFound { .. }
        ),
        "{error}"
    );
    assert_eq!(scene.stored_files("modules"), [""; 0]);
    assert_eq!(scene.stored_files("partial"), [""; 0]);
}

#[tokio::test]
async fn a_fetch_with_endless_informational_responses_fails() {
    let mut scene = CatalogScene::new();
    scene.config.network.attempts = 1;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let hints = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(10);
                while stream.write_all(&hints).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
    });
    let error = scene
        .obtain(&scene.catalog(), &format!("oci://{address}/plugins/a:1"))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, Error::Unreachable { problem, .. } if problem.contains("informational responses")),
        "{error}"
    );
}
