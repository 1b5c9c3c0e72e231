//! Tests a static Pod. Its webhooks are configured in files of the API server.

use super::{
    pod::{pod_review, post_review},
    strict::assert_valid,
    *,
};

struct PodHost(TempDir);

impl PodHost {
    /// Prints the files of a static Pod for this configuration and these chains, and writes them to a directory.
    async fn new(config: &str, chains: &str, flags: &str) -> (Self, FinishedProgram) {
        let directory = tempfile::tempdir().unwrap();
        write(&directory, "pods.yaml", chains);
        write(&directory, "admittance.yaml", config);
        let certs = directory.path().join("certs");
        let certs_output = Admittance::run(["certs", "--host", "127.0.0.1", "--out", certs.to_str().unwrap()])
            .await
            .unwrap();
        assert_eq!(certs_output.code, Some(0), "{}", certs_output.stderr);
        let node = Self(directory);
        let finished = node.print_files(flags).await;
        (node, finished)
    }

    async fn print_files(&self, flags: &str) -> FinishedProgram {
        let [config, certs, root] =
            ["admittance.yaml", "certs", "root"].map(|name| self.0.path().join(name).display().to_string());
        run_manifests(&format!(
            "--static --config {config} --certs {certs} --output-directory {root} {flags}"
        ))
        .await
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join("root").join(path.trim_start_matches('/'))
    }

    fn object(&self, path: &str) -> Value {
        let text = fs::read_to_string(self.path(path)).unwrap();
        let mut objects = parse_objects(&text);
        assert_eq!(objects.len(), 1, "{text}");
        objects.remove(0)
    }
}

const CONFIG: &str = "dialect: { kubernetes: {} }\ndefinitions: [pods.yaml]\n";

#[tokio::test]
async fn a_static_pod_has_all_of_its_files() {
    let (node, finished) = PodHost::new(CONFIG, &chains(), "").await;
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    assert_eq!(finished.stdout, "");
    assert!(
        finished
            .stderr
            .contains("chown -R 65532:65532 /etc/kubernetes/admittance"),
        "{}",
        finished.stderr
    );

    // A static Pod must not refer to objects of the API server, such as a ConfigMap, a Secret or a service account.
    let pod = node.object("/etc/kubernetes/manifests/admittance.yaml");
    assert_valid(&pod);
    let text = pod.to_string();
    assert_eq!(pod["spec"]["hostNetwork"], true);
    for absent in ["configMap", "secret\"", "serviceAccount", "projected"] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
    let spec = &pod["spec"];
    let volume = &spec["volumes"][0];
    let mount = &spec["containers"][0]["volumeMounts"][0];
    assert_eq!(volume["name"], mount["name"]);
    let files = volume["hostPath"]["path"].as_str().unwrap();
    let mounted_at = mount["mountPath"].as_str().unwrap();
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        assert_eq!(spec["containers"][0][probe]["httpGet"]["host"], "127.0.0.1");
    }
    let key = node.path(&format!("{files}/tls/tls.key"));
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);

    // The program listens on the addresses at which the API server and the kubelet look for it.
    let config = spec["containers"][0]["args"][2].as_str().unwrap();
    let config = node.path(&format!("{files}{}", config.strip_prefix(mounted_at).unwrap()));
    let text = fs::read_to_string(&config).unwrap();
    for address in ["127.0.0.1:8443", "127.0.0.1:9090"] {
        assert!(text.contains(address), "{text}");
    }
    let program = Serve::new(&config).unwrap().store(store()).start().await.unwrap();

    let configuration = node.object("/etc/kubernetes/admittance/admission/configuration.yaml");
    assert_eq!(configuration["apiVersion"], "apiserver.config.k8s.io/v1");
    assert_eq!(configuration["kind"], "AdmissionConfiguration");
    let plugins = configuration["plugins"].as_array().unwrap();
    for (plugin, name, kind, path, image, allowed) in [
        (
            &plugins[0],
            "MutatingAdmissionWebhook",
            "MutatingWebhookConfiguration",
            "/mutate",
            "nginx:1.29",
            true,
        ),
        (
            &plugins[1],
            "ValidatingAdmissionWebhook",
            "ValidatingWebhookConfiguration",
            "/validate",
            "nginx:latest",
            false,
        ),
    ] {
        assert_eq!(plugin["name"], name);
        let directory = plugin["configuration"]["staticManifestsDir"].as_str().unwrap();
        let object = node.object(&format!("{directory}/admittance.yaml"));
        assert_valid(&object);
        assert_eq!(object["kind"], kind);
        assert_eq!(object["metadata"]["name"], "admittance.static.k8s.io");
        let webhook = &object["webhooks"][0];
        let verb = path.trim_start_matches('/');
        assert_eq!(webhook["name"], format!("{verb}.admittance.static.k8s.io"));
        let client = &webhook["clientConfig"];
        assert_eq!(client["url"], format!("https://127.0.0.1:8443{path}"));
        assert_eq!(client.get("service"), None);
        let bundle = BASE64_STANDARD.decode(client["caBundle"].as_str().unwrap()).unwrap();
        let path = format!("{path}?timeout=5s");
        let reply = post_review(&program, &bundle, "127.0.0.1", &path, &pod_review(image)).await;
        assert_eq!(reply["response"]["allowed"], allowed, "{reply}");
    }
}

/// The program reads all files with definitions, so files of an earlier run of the command must be removed.
#[tokio::test]
async fn static_pod_files_of_an_earlier_run_are_removed() {
    let (node, _) = PodHost::new(CONFIG, &chains(), "").await;
    let files = "/etc/kubernetes/admittance";
    let paths = ["chains/old.yaml", "cluster/kubeconfig"].map(|name| node.path(&format!("{files}/{name}")));
    fs::create_dir(paths[1].parent().unwrap()).unwrap();
    for path in &paths {
        fs::write(path, "").unwrap();
    }
    let again = node.print_files("").await;
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(!paths[0].exists());
    assert!(paths[1].exists(), "it is the operator's");
}

/// A static Pod has no service account, so a program that makes lookups in the cluster needs a kubeconfig.
#[tokio::test]
async fn a_static_pod_reads_the_cluster_with_a_kubeconfig() {
    let chains = chains().replace(
        "    - name: images\n",
        "    - name: images\n      namespaceSelector: { matchLabels: { hooks: \"on\" } }\n",
    );
    let (node, finished) = PodHost::new(CONFIG, &chains, "").await;
    assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    let kubeconfig_path = "/etc/kubernetes/admittance/cluster/kubeconfig";
    assert!(finished.stderr.contains(kubeconfig_path), "{}", finished.stderr);
    let text = fs::read_to_string(node.path("/etc/kubernetes/admittance/config/admittance.yaml")).unwrap();
    assert!(
        text.contains("cluster:\n  kubeconfig: \"../cluster/kubeconfig\"\n"),
        "{text}"
    );
    let roles = parse_objects(&fs::read_to_string(node.path("/etc/kubernetes/admittance/roles.yaml")).unwrap());
    let [role, binding] = roles.as_slice() else {
        panic!("{roles:?}");
    };
    assert_valid(role);
    assert_valid(binding);
    assert_eq!(role["rules"][0]["resources"], json!(["namespaces"]));
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    assert_eq!(binding["subjects"][0]["name"], "admittance");
}

#[tokio::test]
async fn static_pods_that_a_node_cannot_run_are_refused() {
    let resources = "dialect: { kubernetes: {} }\ncluster: {}\ndefinitions: [ { kubernetes: {} } ]\n";
    for (config, flags, expected) in [
        (resources, "", "chains in files"),
        (CONFIG, "--max-replicas 5", "--max-replicas"),
        (CONFIG, "--kubernetes-version 1.35", "1.36"),
    ] {
        let (node, finished) = PodHost::new(config, &chains(), flags).await;
        assert_eq!(finished.code, Some(2));
        assert!(finished.stderr.contains(expected), "{}", finished.stderr);
        assert!(!node.path("/etc").exists());
    }
}
