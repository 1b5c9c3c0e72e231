//! `admittance kubernetes manifests`: its output is complete, and a Pod created from it serves.

use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use admittance_tests::{Admittance, Client, Finished, Serve, Trust, repository};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::Request;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::scene::{source, store, write};

/// Two chains, one of each phase.
fn chains() -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: sidecar }}
spec:
  phase: Mutating
  rules:
    - {{ operations: [CREATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods] }}
  stages:
    - name: log-agent   # stays where it is
      plugin:
        source: {sidecar}
        settings:
          containers: [ {{ name: log-agent, image: \"registry.example.com/log-agent:2.1\" }} ]
---
apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: images }}
spec:
  phase: Validating
  rules:
    - {{ operations: [CREATE, UPDATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods, pods/ephemeralcontainers] }}
    - {{ operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments], scope: Namespaced }}
  stages:
    - name: images
      plugin: {{ source: \"{images}\", settings: {{ refuseLatest: true }} }}
      failurePolicy: Ignore
",
        sidecar = source("sidecar-injector"),
        images = source("image-policy"),
    )
}

/// Runs `kubernetes manifests` with these arguments, separated by spaces.
async fn run(arguments: &str) -> Finished {
    let words = ["kubernetes", "manifests"]
        .into_iter()
        .chain(arguments.split_whitespace());
    Admittance::run(words).await.unwrap()
}

/// The output for a file with these definitions.
struct Printed {
    directory: TempDir,
    objects: Vec<Value>,
    stderr: String,
}

impl Printed {
    async fn of(definitions: &str, arguments: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = write(&directory, "pods.yaml", definitions);
        Self::in_directory(
            directory,
            &format!("--definitions {} {arguments}", file.display()),
        )
        .await
    }

    async fn in_directory(directory: TempDir, arguments: &str) -> Self {
        let finished = run(arguments).await;
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
        Self {
            directory,
            objects: objects(&finished.stdout),
            stderr: finished.stderr,
        }
    }

    fn kinds(&self) -> Vec<&str> {
        self.objects
            .iter()
            .map(|object| object["kind"].as_str().unwrap())
            .collect()
    }

    /// The only object of this kind whose name has this suffix.
    fn object(&self, kind: &str, name: &str) -> &Value {
        let is_wanted = |object: &&Value| {
            object["kind"] == kind && object["metadata"]["name"].as_str().unwrap().ends_with(name)
        };
        let found: Vec<_> = self.objects.iter().filter(is_wanted).collect();
        assert_eq!(found.len(), 1, "{kind} {name}");
        found[0]
    }

    fn pod(&self) -> &Value {
        &self.object("Deployment", "")["spec"]["template"]["spec"]
    }

    /// Writes the Pod's mounts below a directory.
    fn mount(&self, root: &Path) {
        let volumes = self.pod()["volumes"].as_array().unwrap();
        for mount in self.pod()["containers"][0]["volumeMounts"].as_array().unwrap() {
            let volume = volumes
                .iter()
                .find(|volume| volume["name"] == mount["name"])
                .unwrap();
            let folder = root.join(mount["mountPath"].as_str().unwrap().trim_start_matches('/'));
            fs::create_dir_all(&folder).unwrap();
            for (name, bytes) in self.files(volume) {
                fs::write(folder.join(name), bytes).unwrap();
            }
        }
    }

    /// The files of a volume.
    fn files(&self, volume: &Value) -> BTreeMap<String, Vec<u8>> {
        let mut sources = vec![volume];
        sources.extend(volume["projected"]["sources"].as_array().into_iter().flatten());
        let mut files = BTreeMap::new();
        for source in sources {
            if let Some(name) = source["configMap"]["name"].as_str() {
                let map = self.object("ConfigMap", name);
                for (key, text) in map["data"].as_object().into_iter().flatten() {
                    files.insert(key.clone(), text.as_str().unwrap().as_bytes().to_vec());
                }
                files.extend(decoded(&map["binaryData"]));
            }
            if let Some(name) = source["secret"]["secretName"].as_str() {
                files.extend(decoded(&self.object("Secret", name)["data"]));
            }
        }
        files
    }
}

fn decoded(data: &Value) -> impl Iterator<Item = (String, Vec<u8>)> {
    let fields = data.as_object().into_iter().flatten();
    fields.map(|(key, value)| {
        (
            key.clone(),
            BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap(),
        )
    })
}

/// The documents of a text, parsed by the project's own parser.
fn objects(text: &str) -> Vec<Value> {
    use admittance::definitions::{Mistakes, document};
    let parts = text
        .split("\n---\n")
        .map(|part| part.strip_prefix("---\n").unwrap_or(part))
        // A comment may stand before the first document.
        .filter(|part| part.lines().any(|line| !line.starts_with('#')));
    let read = |part: &str| {
        let mut mistakes = Mistakes::new();
        let documents = document::read_text("printed.yaml", part, &mut mistakes);
        assert!(mistakes.is_empty(), "{mistakes}");
        assert_eq!(documents.len(), 1);
        documents[0].root().json()
    };
    // One at a time: together they exceed the limit of the parser.
    parts.map(read).collect()
}

#[tokio::test]
async fn a_pod_of_the_manifests_answers_the_api_server() {
    let printed = Printed::of(&chains(), "").await;
    let root = printed.directory.path().join("pod");
    printed.mount(&root);

    // The comments of the definitions are kept, and there are no paths of this machine.
    let chains = fs::read_to_string(root.join("etc/admittance/chains/pods.yaml")).unwrap();
    assert!(
        chains.contains("- name: log-agent   # stays where it is"),
        "{chains}"
    );
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
    let config = root.join("etc/admittance/config/admittance.yaml");
    let program = Serve::new(&config).unwrap().store(store()).start().await.unwrap();

    for (kind, path, image, expected) in [
        (
            "MutatingWebhookConfiguration",
            "/mutate",
            "nginx:1.29",
            json!({"allowed": true, "patchType": "JSONPatch"}),
        ),
        (
            "ValidatingWebhookConfiguration",
            "/validate",
            "nginx:1.29",
            json!({"allowed": true}),
        ),
        (
            "ValidatingWebhookConfiguration",
            "/validate",
            "nginx:latest",
            json!({"allowed": false}),
        ),
    ] {
        let webhook = &printed.object(kind, "admittance")["webhooks"][0];
        let config = &webhook["clientConfig"];
        assert_eq!(config["service"]["path"], path);
        let bundle = BASE64_STANDARD
            .decode(config["caBundle"].as_str().unwrap())
            .unwrap();
        // As kube-apiserver does: by the Service's name, whatever its address.
        let service = &config["service"];
        let host = format!(
            "{}.{}.svc",
            service["name"].as_str().unwrap(),
            service["namespace"].as_str().unwrap()
        );
        let reply = post(
            &program,
            &bundle,
            &host,
            &format!("{path}?timeout=5s"),
            &review(image),
        )
        .await;
        assert_eq!(reply["response"]["uid"], "0f5a1e4c-0000-4000-8000-000000000001");
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(&reply["response"][field], value, "{path} {image}: {reply}");
        }
    }

    // `check` accepts it as `serve` does.
    let config = config.to_str().unwrap();
    let checked = Admittance::run(["check", "--config", config, "--store", store().to_str().unwrap()])
        .await
        .unwrap();
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
}

/// A review over TLS, for this host name.
async fn post(program: &Admittance, authority: &[u8], host: &str, path: &str, body: &Value) -> Value {
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

fn review(image: &str) -> Value {
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

#[tokio::test]
async fn everything_that_is_named_is_there() {
    let printed = Printed::of(&chains(), "--network-policy").await;
    assert_eq!(
        printed.kinds(),
        [
            "Namespace",
            "ServiceAccount",
            "Secret",
            "ConfigMap",
            "ConfigMap",
            "ConfigMap",
            "ConfigMap",
            "Service",
            "Deployment",
            "PodDisruptionBudget",
            "NetworkPolicy",
            "MutatingWebhookConfiguration",
            "ValidatingWebhookConfiguration",
        ]
    );
    let namespace = printed.object("Namespace", "");
    assert_eq!(namespace["metadata"]["labels"]["admittance.dev/ignore"], "true");
    let is_cluster_wide = |kind: &str| kind == "Namespace" || kind.ends_with("WebhookConfiguration");
    for object in &printed.objects {
        let expected = if is_cluster_wide(object["kind"].as_str().unwrap()) {
            &Value::Null
        } else {
            &namespace["metadata"]["name"]
        };
        assert_eq!(&object["metadata"]["namespace"], expected, "{object}");
    }

    let pod = printed.pod();
    let account = printed.object("ServiceAccount", "");
    assert_eq!(pod["serviceAccountName"], account["metadata"]["name"]);
    assert_eq!(
        pod["automountServiceAccountToken"], false,
        "nothing is asked of the cluster"
    );
    // Every mount has a volume with files, except those that the driver fills itself.
    let container = &pod["containers"][0];
    for volume in pod["volumes"].as_array().unwrap() {
        let is_empty = printed.files(volume).is_empty();
        let is_its_own = volume["name"] == "cache" || volume["name"] == "state";
        assert_eq!(is_empty, is_its_own, "{volume}");
    }
    assert_eq!(
        container["volumeMounts"].as_array().unwrap().len(),
        pod["volumes"].as_array().unwrap().len()
    );

    // Ports are referred to by name.
    let ports: Vec<_> = container["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| &port["name"])
        .collect();
    let service = printed.object("Service", "");
    assert!(ports.contains(&&service["spec"]["ports"][0]["targetPort"]));
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        assert!(ports.contains(&&container[probe]["httpGet"]["port"]), "{probe}");
    }
    // One set of labels selects the Pods.
    let labels = &printed.object("Deployment", "")["spec"]["template"]["metadata"]["labels"];
    for selector in [
        &service["spec"]["selector"],
        &printed.object("Deployment", "")["spec"]["selector"]["matchLabels"],
        &printed.object("PodDisruptionBudget", "")["spec"]["selector"]["matchLabels"],
        &printed.object("NetworkPolicy", "")["spec"]["podSelector"]["matchLabels"],
        &pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ] {
        assert_eq!(selector, labels);
    }
    // Pods exit before they are killed: 5 s of delay, 30 s for requests in flight.
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > 35);

    let mutating = &printed.object("MutatingWebhookConfiguration", "")["webhooks"];
    let expected = json!([{
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "scope": "*",
    }]);
    assert_eq!(mutating[0]["rules"], expected);
    let validating = &printed.object("ValidatingWebhookConfiguration", "")["webhooks"];
    let expected = json!([
        {"operations": ["CREATE", "UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["pods", "pods/ephemeralcontainers"], "scope": "*"},
        {"operations": ["CREATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
            "scope": "Namespaced"},
    ]);
    assert_eq!(validating[0]["rules"], expected);
    for webhooks in [mutating, validating] {
        let excluded = &webhooks[0]["namespaceSelector"]["matchExpressions"];
        assert_eq!(excluded[0]["key"], "kubernetes.io/metadata.name");
        assert_eq!(excluded[0]["operator"], "NotIn");
        assert_eq!(
            excluded[0]["values"],
            json!(["admittance-system", "kube-system", "kube-node-lease"])
        );
        assert_eq!(
            excluded[1],
            json!({"key": "admittance.dev/ignore", "operator": "DoesNotExist"})
        );
    }
    assert_eq!(
        [&mutating[0]["failurePolicy"], &validating[0]["failurePolicy"]],
        ["Fail", "Ignore"]
    );
    assert!(printed.stderr.contains("--server-side"), "{}", printed.stderr);
}

#[tokio::test]
async fn flags() {
    // (flags, kind, end of the name, pointer, value)
    let table = [
        (
            "--namespace hooks",
            "Namespace",
            "",
            "/metadata/name",
            json!("hooks"),
        ),
        ("--name hooks", "Service", "", "/metadata/name", json!("hooks")),
        (
            "--name hooks",
            "ConfigMap",
            "-chains",
            "/metadata/name",
            json!("hooks-chains"),
        ),
        (
            "--name a --namespace b",
            "MutatingWebhookConfiguration",
            "",
            "/webhooks/0/name",
            json!("mutate.a.b"),
        ),
        (
            "--image r.example/a:1",
            "Deployment",
            "",
            "/spec/template/spec/containers/0/image",
            json!("r.example/a:1"),
        ),
        ("--replicas 3", "Deployment", "", "/spec/replicas", json!(3)),
        (
            "--per-chain",
            "MutatingWebhookConfiguration",
            "",
            "/webhooks/0/clientConfig/service/path",
            json!("/mutate/sidecar"),
        ),
        (
            "--timeout 7",
            "ValidatingWebhookConfiguration",
            "",
            "/webhooks/0/timeoutSeconds",
            json!(7),
        ),
        (
            "--failure-policy Ignore",
            "MutatingWebhookConfiguration",
            "",
            "/webhooks/0/failurePolicy",
            json!("Ignore"),
        ),
        (
            "--exclude-namespace cni",
            "MutatingWebhookConfiguration",
            "",
            "/webhooks/0/namespaceSelector/matchExpressions/0/values/3",
            json!("cni"),
        ),
        (
            "--include-kube-system",
            "ValidatingWebhookConfiguration",
            "",
            "/webhooks/0/namespaceSelector/matchExpressions/0/values",
            json!(["admittance-system", "kube-node-lease"]),
        ),
        (
            "--kubernetes-version 1.20",
            "PodDisruptionBudget",
            "",
            "/apiVersion",
            json!("policy/v1beta1"),
        ),
        (
            "--priority-class system-cluster-critical",
            "Deployment",
            "",
            "/spec/template/spec/priorityClassName",
            json!("system-cluster-critical"),
        ),
        (
            "--cpu-request 2",
            "Deployment",
            "",
            "/spec/template/spec/containers/0/resources/requests/cpu",
            json!("2"),
        ),
        (
            "--memory-request 1Gi",
            "Deployment",
            "",
            "/spec/template/spec/containers/0/resources/requests/memory",
            json!("1Gi"),
        ),
        (
            "--memory-limit 2Gi",
            "Deployment",
            "",
            "/spec/template/spec/containers/0/resources/limits/memory",
            json!("2Gi"),
        ),
        ("--network-policy", "NetworkPolicy", "", "/spec/egress", json!([])),
    ];
    for (flags, kind, name, pointer, expected) in table {
        let printed = Printed::of(&chains(), flags).await;
        assert_eq!(
            printed.object(kind, name).pointer(pointer),
            Some(&expected),
            "{flags}"
        );
    }

    let printed = Printed::of(&chains(), "--modules-in-image /plugins").await;
    assert!(!printed.kinds().contains(&"NetworkPolicy"));
    let text = printed.object("ConfigMap", "-chains")["data"]["pods.yaml"]
        .as_str()
        .unwrap();
    assert!(
        text.contains("source: file:/plugins/sidecar_injector.wasm\n"),
        "{text}"
    );
    assert_eq!(
        printed
            .kinds()
            .iter()
            .filter(|kind| **kind == "ConfigMap")
            .count(),
        2
    );
    assert!(!printed.stderr.contains("--server-side"), "{}", printed.stderr);
}

/// Notes for the user: what may be locked out, and what is not checked.
#[tokio::test]
async fn notes() {
    let forgetful = chains().replace("pods, pods/ephemeralcontainers", "pods");
    let lock_out = "the webhooks apply to kube-system, and the failure policy is Fail";
    let ephemeral = "add pods/ephemeralcontainers to `resources`";
    // (definitions, flags, which of these notes are printed)
    for (definitions, flags, expected) in [
        (chains(), "", &[][..]),
        (chains(), "--include-kube-system", &[lock_out]),
        (chains(), "--include-kube-system --failure-policy Ignore", &[]),
        (forgetful, "", &[ephemeral]),
    ] {
        let printed = Printed::of(&definitions, flags).await;
        for note in [lock_out, ephemeral] {
            let is_there = printed.stderr.contains(note);
            assert_eq!(is_there, expected.contains(&note), "{flags}: {}", printed.stderr);
        }
    }
}

/// TLS, tokens and clients of the configuration apply to the Pods' admin port.
#[tokio::test]
async fn the_admin_port_of_a_pod_is_for_those_who_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    let certs = directory.path().join("certs");
    let made = Admittance::run(["certs", "--host", "127.0.0.1", "--out", certs.to_str().unwrap()])
        .await
        .unwrap();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let token = write(&directory, "ci.token", "0123456789abcdef0123456789abcdef\n");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let pods = write(&directory, "pods.yaml", chains());
    let tls = "  tls: { certificate: certs/127.0.0.1.pem, key: certs/127.0.0.1.key }\n";
    let printed = async |tls: &str| {
        let text = format!(
            "dialect: {{ kubernetes: {{}} }}\nadmin:\n  address: 127.0.0.1:9090\n{tls}  \
             tokens: [{{ name: ci, role: Admin, file: ci.token }}]\n"
        );
        let config = write(&directory, "admittance.yaml", text);
        let arguments = format!("--config {} --definitions {}", config.display(), pods.display());
        Printed::in_directory(tempfile::tempdir().unwrap(), &arguments).await
    };

    let with_tls = printed(tls).await;
    assert!(
        !with_tls.stderr.contains("the admin API of the Pods is disabled"),
        "{}",
        with_tls.stderr
    );
    let container = &with_tls.pod()["containers"][0];
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        assert_eq!(container[probe]["httpGet"]["scheme"], "HTTPS");
    }
    let config = &with_tls.object("ConfigMap", "-config")["data"];
    assert!(
        !config.to_string().contains("0123456789abcdef"),
        "no secret is in a ConfigMap"
    );
    let root = with_tls.directory.path().join("pod");
    with_tls.mount(&root);
    let secret = root.join("etc/admittance/admin/token-1");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o440)).unwrap();
    let config = root.join("etc/admittance/config/admittance.yaml");
    let program = Serve::new(&config).unwrap().store(store()).start().await.unwrap();
    let server = program.admin_url("").replace("http:", "https:");
    let authority = certs.join("ca.pem");
    let status = async |with: &[&str]| {
        let mut arguments = vec!["status", "--server", &server, "--ca", authority.to_str().unwrap()];
        arguments.extend(with);
        Admittance::run(arguments).await.unwrap()
    };
    let seen = status(&["--token-file", token.to_str().unwrap()]).await;
    assert_eq!(seen.code, Some(0), "{}{}", seen.stdout, seen.stderr);
    let refused = status(&[]).await;
    assert!(
        refused.stderr.contains("does not know who you are"),
        "{}",
        refused.stderr
    );

    // Tokens without TLS are only for loopback, which is unreachable in a Pod: the webhook's certificate is used.
    let without = printed("").await;
    let text = without.object("ConfigMap", "-config")["data"]["admittance.yaml"]
        .as_str()
        .unwrap();
    let of_webhook = "  tls:\n    certificate: \"../tls/tls.crt\"\n    key: \"../tls/tls.key\"\n";
    let admin = format!("      file: \"../admin/token-1\"\n{of_webhook}");
    assert!(text.contains(&admin), "{text}");

    let nobody = Printed::of(&chains(), "").await;
    assert!(
        nobody.stderr.contains("the admin API of the Pods is disabled"),
        "{}",
        nobody.stderr
    );
}

#[tokio::test]
async fn what_chains_ask_of_the_cluster_is_granted() {
    let plugin = source("sidecar-injector");
    let chain = |stage: &str| {
        format!(
            "apiVersion: admittance.dev/v1alpha1
kind: AdmissionChain
metadata: {{ name: c }}
spec:
  rules: [ {{ operations: [CREATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods] }} ]
  stages:
    - {{ name: s, plugin: {{ source: \"{plugin}\", settings: {{ labels: {{ a: b }} }}{stage}
"
        )
    };
    // (the rest of a stage, group and resource that it reads)
    let table: [(&str, &[(&str, &str)]); 4] = [
        (" } }", &[]),
        (" }, namespaceSelector: { operator: NotIn, values: [a] } }", &[]),
        (
            " }, namespaceSelector: { matchLabels: { hooks: \"on\" } } }",
            &[("", "namespaces")],
        ),
        (
            ", allow: { cluster: [v1/Node, discovery.k8s.io/v1/EndpointSlice, v1/Node] } } }",
            &[("", "nodes"), ("discovery.k8s.io", "endpointslices")],
        ),
    ];
    for (stage, expected) in table {
        let printed = Printed::of(&chain(stage), "").await;
        let has_token = &printed.pod()["automountServiceAccountToken"];
        let config = printed.object("ConfigMap", "-config")["data"]["admittance.yaml"]
            .as_str()
            .unwrap();
        assert_eq!(config.contains("cluster: {}"), !expected.is_empty(), "{config}");
        assert_eq!(has_token, !expected.is_empty(), "{stage}");
        if expected.is_empty() {
            assert!(!printed.kinds().contains(&"ClusterRole"), "{stage}");
            continue;
        }
        let role = printed.object("ClusterRole", "");
        let rules = expected.iter().map(|(group, resource)| {
            json!({"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]})
        });
        assert_eq!(role["rules"], Value::Array(rules.collect()));
        let binding = printed.object("ClusterRoleBinding", "");
        assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
        let account = printed.object("ServiceAccount", "");
        assert_eq!(binding["subjects"][0]["name"], account["metadata"]["name"]);
        assert_eq!(
            binding["subjects"][0]["namespace"],
            account["metadata"]["namespace"]
        );
    }
}

#[tokio::test]
async fn certificates_of_a_directory_are_taken() {
    let directory = tempfile::tempdir().unwrap();
    let chains = write(&directory, "pods.yaml", chains());
    let certs = directory.path().join("certs");
    let arguments = |name: &str| {
        format!(
            "--definitions {} --certs {} --name {name}",
            chains.display(),
            certs.display()
        )
    };
    let missing = run(&arguments("admittance")).await;
    assert_eq!(missing.code, Some(2));
    let fix = format!(
        "admittance certs --service admittance.admittance-system --out {}",
        certs.display()
    );
    assert!(missing.stderr.contains(&fix), "{}", missing.stderr);
    assert_eq!(missing.stdout, "");

    for service in ["admittance.admittance-system", "other.admittance-system"] {
        let made = Admittance::run(["certs", "--service", service, "--out", certs.to_str().unwrap()])
            .await
            .unwrap();
        assert_eq!(made.code, Some(0), "{}", made.stderr);
    }
    let [first, second] = [
        run(&arguments("admittance")).await,
        run(&arguments("admittance")).await,
    ];
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert_eq!(first.stdout, second.stdout, "the same input, the same text");
    let objects = objects(&first.stdout);
    let secret = objects.iter().find(|object| object["kind"] == "Secret").unwrap();
    assert_eq!(secret["type"], "kubernetes.io/tls");
    let read = |name: &str| BASE64_STANDARD.encode(fs::read(certs.join(name)).unwrap());
    assert_eq!(
        secret["data"]["tls.crt"],
        read("admittance.admittance-system.pem")
    );
    assert_eq!(
        secret["data"]["tls.key"],
        read("admittance.admittance-system.key")
    );
    let webhook = &objects.last().unwrap()["webhooks"][0];
    assert_eq!(webhook["clientConfig"]["caBundle"], read("ca.pem"));

    // (change of the files, expected message)
    type Change = fn(&Path);
    let file = "admittance.admittance-system";
    let table: [(Change, &str); 4] = [
        (
            |at| {
                drop(fs::copy(
                    at.join("other.admittance-system.pem"),
                    at.join("admittance.admittance-system.pem"),
                ))
            },
            "admittance.admittance-system.key",
        ),
        (
            |at| {
                drop(fs::copy(
                    at.join("other.admittance-system.key"),
                    at.join("admittance.admittance-system.key"),
                ))
            },
            "would not accept it for admittance.admittance-system.svc",
        ),
        (
            |at| fs::write(at.join("admittance.admittance-system.key"), "x").unwrap(),
            "it holds no private key",
        ),
        (
            |at| fs::write(at.join("ca.pem"), fs::read(at.join("ca.key")).unwrap()).unwrap(),
            "would become public",
        ),
    ];
    for (change, expected) in table {
        change(&certs);
        let finished = run(&arguments("admittance")).await;
        assert_eq!(finished.code, Some(2), "{file}");
        assert!(
            finished.stderr.contains(expected),
            "{expected}: {}",
            finished.stderr
        );
    }
}

#[tokio::test]
async fn the_example_is_installed() {
    let example = repository().join("docs/examples/kubernetes");
    let output = tempfile::tempdir().unwrap();
    // Its chains refer to the plugins of `cargo task plugins` in the repository.
    let folder = example_with_plugins(&example, output.path());
    let arguments = format!(
        "--config {} --output-directory {}",
        folder.join("admittance.yaml").display(),
        output.path().join("manifests").display()
    );
    let finished = run(&arguments).await;
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
    let mut files: Vec<_> = fs::read_dir(output.path().join("manifests"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(
        files,
        [
            "00-namespace.yaml",
            "01-serviceaccount.yaml",
            "04-secret.yaml",
            "05-configmap.yaml",
            "06-service.yaml",
            "07-deployment.yaml",
            "08-poddisruptionbudget.yaml",
            "10-mutatingwebhookconfiguration.yaml",
            "11-validatingwebhookconfiguration.yaml",
        ]
    );
    let read = |file: &str| objects(&fs::read_to_string(output.path().join("manifests").join(file)).unwrap());
    let names: Vec<_> = read("05-configmap.yaml")
        .iter()
        .map(|map| map["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        names,
        [
            "admittance-config",
            "admittance-chains",
            "admittance-module-image-policy",
            "admittance-module-sidecar-injector",
        ]
    );
    // Pods without the sidecar are created, Pods with images without a version are not.
    let mutating = &read("10-mutatingwebhookconfiguration.yaml")[0]["webhooks"][0];
    assert_eq!(mutating["failurePolicy"], "Ignore");
    let validating = &read("11-validatingwebhookconfiguration.yaml")[0]["webhooks"][0];
    assert_eq!(validating["failurePolicy"], "Fail");
    assert_eq!(
        validating["rules"][0]["resources"],
        json!(["pods", "pods/ephemeralcontainers"])
    );
}

/// The example next to the plugins, as in a repository.
fn example_with_plugins(example: &Path, root: &Path) -> PathBuf {
    let plugins = root.join("target/plugins");
    let chains = root.join("docs/examples/kubernetes/chains");
    fs::create_dir_all(&plugins).unwrap();
    fs::create_dir_all(&chains).unwrap();
    for package in ["sidecar-injector", "image-policy"] {
        let component = source(package);
        let from = Path::new(component.trim_start_matches("file:"));
        fs::copy(from, plugins.join(from.file_name().unwrap())).unwrap();
    }
    let mut copied = 0;
    for entry in fs::read_dir(example.join("chains")).unwrap() {
        let from = entry.unwrap().path();
        fs::copy(&from, chains.join(from.file_name().unwrap())).unwrap();
        copied += 1;
    }
    assert_eq!(copied, 2);
    let folder = root.join("docs/examples/kubernetes");
    fs::copy(example.join("admittance.yaml"), folder.join("admittance.yaml")).unwrap();
    folder
}

#[tokio::test]
async fn what_cannot_be_installed_is_told() {
    let plugin = source("sidecar-injector");
    let stage = format!("{{ name: s, plugin: {{ source: \"{plugin}\" }} }}");
    let chain = |rule: &str, stage: &str| {
        format!(
            "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: c }}\n\
             spec: {{ rules: [ {rule} ], stages: [ {stage} ] }}\n"
        )
    };
    let pods = "{ operations: [CREATE], resources: [pods] }";
    let proxy =
        "dialect: { bcs: { cluster: BCS-MESOS-10001 } }\nupstream: { servers: [\"http://127.0.0.1:1\"] }\n";
    // (definitions, configuration, an additional argument, expected message)
    for (definitions, config, argument, expected) in [
        (
            chain("{ operations: [CREATE], kinds: [Pod] }", &stage),
            None,
            "",
            "list `resources`",
        ),
        (
            chain(pods, "{ name: s, plugin: { source: \"file:absent.wasm\" } }"),
            None,
            "",
            "absent.wasm",
        ),
        (
            chain(pods, "{ name: s, plugin: { source: \"file:large.wasm\" } }"),
            None,
            "",
            "--modules-in-image",
        ),
        (chain(pods, "{ name: s }"), None, "", "chains.yaml"),
        (String::new(), None, "", "no definition was found"),
        (
            chain(pods, &stage),
            Some(proxy),
            "",
            "dialect: { kubernetes: {} }",
        ),
        (chain(pods, &stage), None, "--namespace Hooks", "lower-case"),
        (chain(pods, &stage), None, "--kubernetes-version 1.9", "oldest"),
        (chain(pods, &stage), None, "--timeout 31", "1..=30"),
        (chain(pods, &stage), None, "--memory-limit 1MB", "256Mi"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        write(&directory, "large.wasm", vec![0; 1024 * 1024 + 1]);
        let chains = write(&directory, "chains.yaml", &definitions);
        let config = config.map(|text| write(&directory, "admittance.yaml", text));
        let config = config
            .map(|path| format!("--config {}", path.display()))
            .unwrap_or_default();
        let finished = run(&format!("--definitions {} {config} {argument}", chains.display())).await;
        assert_eq!(finished.code, Some(2), "{expected}: {}", finished.stderr);
        assert!(
            finished.stderr.contains(expected),
            "{expected}: {}",
            finished.stderr
        );
        assert_eq!(finished.stdout, "");
    }
}

/// The client of the other tests does not trust an unknown CA or another name.
#[tokio::test]
async fn nobody_else_trusts_the_certificate() {
    let printed = Printed::of(&chains(), "").await;
    let root = printed.directory.path().join("pod");
    printed.mount(&root);
    let config = root.join("etc/admittance/config/admittance.yaml");
    let program = Serve::new(&config).unwrap().store(store()).start().await.unwrap();
    let authority = String::from_utf8(fs::read(root.join("etc/admittance/tls/ca.crt")).unwrap()).unwrap();
    for authorities in ["", &authority] {
        let client = Client::trusting(Trust {
            authorities,
            identity: None,
        })
        .unwrap();
        // With the name `localhost`, which is not in the certificate.
        assert!(client.get(&program.tls_url("/mutate")).await.is_err());
    }
}
