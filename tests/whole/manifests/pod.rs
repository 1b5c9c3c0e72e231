//! Runs the program of a manifest's Pod as a process.

use super::*;

#[tokio::test]
async fn a_pod_of_the_manifests_answers_the_api_server() {
    let directory = tempfile::tempdir().unwrap();
    let certs = create_certs(directory.path()).await;
    let printed = PrintedManifests::from_definitions(&chains(), &certs).await;
    let root = printed.directory.path().join("pod");
    printed.write_volumes(&root);

    // The printed definitions have the originals' comments, and name plugins by paths in the Pod.
    let chains = fs::read_to_string(root.join("etc/admittance/chains/pods.yaml")).unwrap();
    assert!(chains.contains("- name: log-agent   # stays where it is"), "{chains}");
    assert!(
        chains.contains("source: file:../modules/sidecar_injector.wasm\n"),
        "{chains}"
    );
    assert!(!chains.contains("/target/"), "{chains}");

    let arguments = &printed.pod()["containers"][0]["args"];
    assert_eq!(
        arguments,
        &json!(["serve", "--config", "/etc/admittance/config/admittance.yaml"])
    );
    // The command `check` must accept these files of the Pod, because the Pod runs `serve` with the same files.
    let config = root.join("etc/admittance/config/admittance.yaml");
    let config = config.to_str().unwrap();
    let checked = Admittance::run(["check", "--config", config, "--store", store().to_str().unwrap()])
        .await
        .unwrap();
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);

    let program = serve_pod(&root).await;
    let authority = fs::read(root.join("etc/admittance/tls/ca.crt")).unwrap();
    for (path, image, expected) in [
        (
            "/mutate",
            "nginx:1.29",
            json!({"allowed": true, "patchType": "JSONPatch"}),
        ),
        ("/validate", "nginx:1.29", json!({"allowed": true})),
        ("/validate", "nginx:latest", json!({"allowed": false})),
    ] {
        // The client connects to the Pod's address but verifies the name of the Service, as kube-apiserver does.
        let host = "admittance.admittance-system.svc";
        let reply = post_review(
            &program,
            &authority,
            host,
            &format!("{path}?timeout=5s"),
            &pod_review(image),
        )
        .await;
        assert_eq!(reply["response"]["uid"], "0f5a1e4c-0000-4000-8000-000000000001");
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(&reply["response"][field], value, "{path} {image}: {reply}");
        }
    }
}

#[tokio::test]
async fn a_client_needs_the_ca_and_the_service_name_to_trust_a_pod() {
    let directory = tempfile::tempdir().unwrap();
    let certs = create_certs(directory.path()).await;
    let printed = PrintedManifests::from_definitions(&chains(), &certs).await;
    let root = printed.directory.path().join("pod");
    printed.write_volumes(&root);
    let program = serve_pod(&root).await;
    let authority = String::from_utf8(fs::read(root.join("etc/admittance/tls/ca.crt")).unwrap()).unwrap();
    for authorities in ["", &authority] {
        let client = Client::with_trust(ClientTrust {
            authorities,
            identity: None,
        })
        .unwrap();
        // The certificate is not valid for `localhost`, so a client that connects by this name refuses it.
        assert!(client.get(&program.tls_url("/mutate")).await.is_err());
    }
}

/// Sends an AdmissionReview to the program over TLS. The certificate of the program must be valid for the name `host`.
pub(super) async fn post_review(program: &Admittance, authority: &[u8], host: &str, path: &str, body: &Value) -> Value {
    use http_body_util::{BodyExt as _, Full};
    use hyper_util::rt::TokioIo;
    use rustls::{ClientConfig, RootCertStore, crypto::ring};
    use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject as _};

    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(std::sync::Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
    let url: http::Uri = program.tls_url(path).parse().unwrap();
    let address = (Ipv4Addr::LOCALHOST, url.port_u16().unwrap());
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let stream = connector.connect(name, stream).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::post(path)
        .header("host", host)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&body).unwrap()
}

pub(super) fn pod_review(image: &str) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "0f5a1e4c-0000-4000-8000-000000000001",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "web",
            "namespace": "shop",
            "operation": "CREATE",
            "userInfo": {"username": "alice"},
            "object": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"containers": [{"name": "web", "image": image}]},
            },
            "oldObject": null,
            "dryRun": false,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"},
        },
    })
}
