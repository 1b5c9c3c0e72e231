//! The Helm chart, rendered by Helm itself.

use std::{env, process::Stdio};

use tokio::process::Command;

use super::{strict::assert_valid, *};

/// The definitions, certificates and charts of a test.
struct Charts(TempDir);

/// What Helm printed, and its errors.
struct Rendered {
    objects: Vec<Value>,
    errors: String,
}

impl Charts {
    async fn new(definitions: &str, config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        write(&directory, "pods.yaml", definitions);
        write(&directory, "admittance.yaml", config);
        let token = write(&directory, "ci.token", "0123456789abcdef0123456789abcdef\n");
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let certs = directory.path().join("certs");
        let service = "admittance.admittance-system";
        let made = Admittance::run(["certs", "--service", service, "--out", certs.to_str().unwrap()])
            .await
            .unwrap();
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs `kubernetes COMMAND` with the configuration, the certificates and these arguments.
    async fn run(&self, command: &str, arguments: &str) -> Finished {
        let [config, certs] = ["admittance.yaml", "certs"].map(|name| self.path(name).display().to_string());
        let words = ["kubernetes", command, "--config", &config, "--certs", &certs];
        Admittance::run(words.into_iter().chain(arguments.split_whitespace()))
            .await
            .unwrap()
    }

    async fn chart(&self, arguments: &str) -> Finished {
        let chart = self.path("chart");
        let made = self
            .run(
                "chart",
                &format!("--output-directory {} {arguments}", chart.display()),
            )
            .await;
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        assert_eq!(made.stdout, "");
        made
    }

    /// Renders the chart with these values; `None` without Helm.
    async fn render(&self, values: &[&str]) -> Option<Rendered> {
        let helm = helm()?;
        let chart = self.path("chart");
        let mut command = Command::new(helm);
        command
            .args(["template", "admittance"])
            .arg(chart)
            .args(["--namespace", "admittance-system", "--include-crds"])
            .args(values)
            .env("HELM_CACHE_HOME", self.path("cache"))
            .env("HELM_CONFIG_HOME", self.path("config"))
            .env("HELM_DATA_HOME", self.path("data"))
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null());
        let output = command.output().await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), errors.is_empty(), "{errors}");
        Some(Rendered {
            objects: sorted(objects(&text)),
            errors,
        })
    }
}

impl Rendered {
    /// The only object of this kind whose name has this suffix.
    fn object(&self, kind: &str, suffix: &str) -> Option<&Value> {
        let is_wanted = |object: &&Value| {
            object["kind"] == kind && object["metadata"]["name"].as_str().unwrap().ends_with(suffix)
        };
        let found: Vec<_> = self.objects.iter().filter(is_wanted).collect();
        assert!(found.len() <= 1, "{kind} {suffix}");
        found.first().copied()
    }
}

/// The program, if `cargo task test` could fetch it.
fn helm() -> Option<PathBuf> {
    const VARIABLE: &str = "ADMITTANCE_TEST_HELM";
    let helm = env::var_os(VARIABLE);
    if helm.is_none() {
        eprintln!(
            "skipped: {VARIABLE} is not set, since `cargo task test` could not fetch Helm; it says why"
        );
    }
    helm.map(PathBuf::from)
}

fn sorted(mut objects: Vec<Value>) -> Vec<Value> {
    objects.sort_by_key(|object| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&object["kind"]), text(&object["metadata"]["name"]))
    });
    objects
}

const CONFIG: &str = "dialect: { kubernetes: {} }\ndefinitions: [pods.yaml]\n";

/// With its own values, the chart installs what the manifests do, whatever they were made with.
#[tokio::test]
async fn with_its_defaults_it_is_the_manifests() {
    let full = "dialect: { kubernetes: {} }
cluster: {}
definitions: [ pods.yaml, { kubernetes: {} } ]
admin: { address: 127.0.0.1:9090, tokens: [ { name: ci, role: Admin, file: ci.token } ] }
";
    for (config, flags) in [
        (CONFIG, ""),
        (
            CONFIG,
            "--per-chain --failure-policy Ignore --timeout 7 --exclude-namespace cni --include-kube-system",
        ),
        (
            full,
            "--network-policy --max-replicas 5 --service-monitor --memory-limit 1Gi --priority-class p --image r/a:1",
        ),
    ] {
        let charts = Charts::new(&chains(), config).await;
        let manifests = charts.run("manifests", flags).await;
        assert_eq!(manifests.code, Some(0), "{}", manifests.stderr);
        let mut expected = sorted(objects(&manifests.stdout));
        // Helm creates the namespace, and secrets are not in a chart.
        expected.retain(|object| !["Namespace", "Secret"].iter().any(|kind| object["kind"] == *kind));
        charts.chart(flags).await;
        let Some(rendered) = charts.render(&[]).await else {
            return;
        };
        assert_eq!(rendered.errors, "");
        let names = |objects: &[Value]| -> Vec<String> {
            let names = objects.iter();
            names
                .map(|object| format!("{} {}", object["kind"], object["metadata"]["name"]))
                .collect()
        };
        assert_eq!(names(&rendered.objects), names(&expected), "{flags}");
        for (rendered, expected) in rendered.objects.iter().zip(&expected) {
            assert_eq!(rendered, expected, "{flags}");
        }
    }
}

/// (values, kind, end of the name, pointer, what is there then)
type Row = (
    &'static [&'static str],
    &'static str,
    &'static str,
    &'static str,
    Value,
);

fn values() -> Vec<Row> {
    const POD: &str = "/spec/template/spec";
    let pod = |field: &'static str| -> &'static str { Box::leak(format!("{POD}/{field}").into_boxed_str()) };
    let issuer = &[
        "--set",
        "tls.certManager.enabled=true,tls.certManager.issuerRef.name=ca",
    ];
    let webhooks = "MutatingWebhookConfiguration";
    let excluded = "/webhooks/0/namespaceSelector/matchExpressions/0/values";
    vec![
        (
            &["--set", "image.reference=r.example/a:2"],
            "Deployment",
            "",
            pod("containers/0/image"),
            json!("r.example/a:2"),
        ),
        (
            &["--set", "image.pullPolicy=Always"],
            "Deployment",
            "",
            pod("containers/0/imagePullPolicy"),
            json!("Always"),
        ),
        (
            &["--set", "image.pullSecrets[0].name=r"],
            "Deployment",
            "",
            pod("imagePullSecrets"),
            json!([{"name": "r"}]),
        ),
        (
            &["--set", "replicas=4"],
            "Deployment",
            "",
            "/spec/replicas",
            json!(4),
        ),
        (
            &["--set", "autoscaling.enabled=true"],
            "Deployment",
            "",
            "/spec/replicas",
            Value::Null,
        ),
        (
            &["--set", "autoscaling.enabled=true,replicas=3"],
            "HorizontalPodAutoscaler",
            "",
            "/spec/minReplicas",
            json!(3),
        ),
        (
            &["--set", "autoscaling.enabled=true,autoscaling.maxReplicas=7"],
            "HorizontalPodAutoscaler",
            "",
            "/spec/maxReplicas",
            json!(7),
        ),
        (
            &["--set", "autoscaling.enabled=true,autoscaling.targetCpu=50"],
            "HorizontalPodAutoscaler",
            "",
            "/spec/metrics/0/resource/target/averageUtilization",
            json!(50),
        ),
        (
            &["--set", "resources.limits.memory=1Gi"],
            "Deployment",
            "",
            pod("containers/0/resources/limits"),
            json!({"memory": "1Gi"}),
        ),
        (
            &["--set", "priorityClassName=high"],
            "Deployment",
            "",
            pod("priorityClassName"),
            json!("high"),
        ),
        (
            &["--set", "nodeSelector.disk=ssd"],
            "Deployment",
            "",
            pod("nodeSelector"),
            json!({"disk": "ssd"}),
        ),
        (
            &["--set", "tolerations[0].operator=Exists"],
            "Deployment",
            "",
            pod("tolerations"),
            json!([{"operator": "Exists"}]),
        ),
        (
            &["--set-json", r#"affinity={"nodeAffinity":{}}"#],
            "Deployment",
            "",
            pod("affinity"),
            json!({"nodeAffinity": {}}),
        ),
        (
            &["--set", "labels.team=web"],
            "Service",
            "",
            "/metadata/labels/team",
            json!("web"),
        ),
        (
            &["--set", "annotations.team=web"],
            webhooks,
            "",
            "/metadata/annotations",
            json!({"team": "web"}),
        ),
        (
            &["--set", "annotations.team=web"],
            "ServiceAccount",
            "",
            "/metadata/annotations",
            json!({"team": "web"}),
        ),
        (
            &["--set", "podLabels.team=web"],
            "Deployment",
            "",
            "/spec/template/metadata/labels/team",
            json!("web"),
        ),
        (
            &["--set", "podAnnotations.team=web"],
            "Deployment",
            "",
            "/spec/template/metadata/annotations/team",
            json!("web"),
        ),
        (
            &["--set", "networkPolicy.enabled=true"],
            "NetworkPolicy",
            "",
            "/spec/egress",
            json!([]),
        ),
        (
            &[
                "--set",
                "serviceMonitor.enabled=true,serviceMonitor.labels.release=prometheus",
            ],
            "ServiceMonitor",
            "",
            "/metadata/labels/release",
            json!("prometheus"),
        ),
        (
            &["--set", "serviceMonitor.enabled=true"],
            "Service",
            "-metrics",
            "/spec/clusterIP",
            json!("None"),
        ),
        (
            &["--set", "webhooks.failurePolicy=Ignore"],
            webhooks,
            "",
            "/webhooks/0/failurePolicy",
            json!("Ignore"),
        ),
        (
            &["--set", "webhooks.timeoutSeconds=9"],
            webhooks,
            "",
            "/webhooks/0/timeoutSeconds",
            json!(9),
        ),
        (
            &["--set", "webhooks.excludedNamespaces={cni}"],
            webhooks,
            "",
            excluded,
            json!(["admittance-system", "cni"]),
        ),
        (
            &["--set-json", "webhooks.excludedNamespaces=[]"],
            webhooks,
            "",
            excluded,
            json!(["admittance-system"]),
        ),
        (
            &["--set", "tls.secretName=own"],
            "Deployment",
            "",
            pod("volumes/2/secret/secretName"),
            json!("own"),
        ),
        (
            &["--set", "tls.caBundle=-----BEGIN CERTIFICATE-----"],
            webhooks,
            "",
            "/webhooks/0/clientConfig/caBundle",
            json!(BASE64_STANDARD.encode("-----BEGIN CERTIFICATE-----")),
        ),
        (
            issuer,
            webhooks,
            "",
            "/webhooks/0/clientConfig/caBundle",
            Value::Null,
        ),
        (
            issuer,
            webhooks,
            "",
            "/metadata/annotations",
            json!({"cert-manager.io/inject-ca-from": "admittance-system/admittance-tls"}),
        ),
        (
            issuer,
            "Certificate",
            "-tls",
            "/spec",
            json!({
                "secretName": "admittance-tls",
                "dnsNames": ["admittance.admittance-system.svc"],
                "issuerRef": {"name": "ca"},
                "privateKey": {"algorithm": "ECDSA", "rotationPolicy": "Always"},
            }),
        ),
    ]
}

#[tokio::test]
async fn each_value_has_its_effect() {
    let charts = Charts::new(&chains(), CONFIG).await;
    charts.chart("").await;
    let Some(default) = charts.render(&[]).await else {
        return;
    };
    for (values, kind, suffix, pointer, expected) in values() {
        let rendered = charts.render(values).await.unwrap();
        assert_eq!(rendered.errors, "", "{values:?}");
        let at = |rendered: &Rendered| {
            let object = rendered.object(kind, suffix)?;
            object.pointer(pointer).cloned()
        };
        let (before, after) = (at(&default), at(&rendered));
        assert_eq!(after.clone().unwrap_or_default(), expected, "{values:?}");
        assert_ne!(before, after, "{values:?}");
        let types_of_others = ["ServiceMonitor", "Certificate"];
        for object in &rendered.objects {
            if !types_of_others.iter().any(|kind| object["kind"] == *kind) {
                assert_valid(object);
            }
        }
    }
}

/// Every value of the file is one that a row above sets.
#[tokio::test]
async fn no_value_is_forgotten() {
    let charts = Charts::new(&chains(), CONFIG).await;
    charts.chart("").await;
    let text = fs::read_to_string(charts.path("chart/values.yaml")).unwrap();
    let given = objects(&text).remove(0);
    let tested: Vec<String> = values()
        .iter()
        .map(|(values, ..)| values.last().unwrap().replace("[0]", ""))
        .collect();
    let mut missing = Vec::new();
    for (name, value) in given.as_object().unwrap() {
        let below = value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| format!("{name}.{key}"));
        let paths: Vec<String> = match name.as_str() {
            "image" | "autoscaling" | "networkPolicy" | "serviceMonitor" | "webhooks" | "tls" => {
                below.collect()
            }
            _ => vec![name.clone()],
        };
        missing.extend(paths.into_iter().filter(|path| {
            !tested
                .iter()
                .any(|values| values.split(',').any(|value| value.starts_with(path)))
        }));
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn the_schema_refuses_what_cannot_be_installed() {
    let charts = Charts::new(&chains(), CONFIG).await;
    charts.chart("").await;
    // (values, expected message)
    for (value, expected) in [
        ("replicas=0", "/replicas"),
        ("replica=3", "'replica' not allowed"),
        ("image.tag=1", "'tag' not allowed"),
        ("image.reference=", "/image/reference"),
        ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
        ("autoscaling.maxReplicas=0", "/autoscaling/maxReplicas"),
        ("webhooks.failurePolicy=Maybe", "/webhooks/failurePolicy"),
        ("webhooks.timeoutSeconds=31", "/webhooks/timeoutSeconds"),
        ("webhooks.excludedNamespaces=a", "/webhooks/excludedNamespaces"),
        ("tls.caBundle=", "/tls/caBundle"),
        (
            "tls.caBundle=,tls.certManager.enabled=true",
            "missing property 'name'",
        ),
    ] {
        let Some(rendered) = charts.render(&["--set", value]).await else {
            return;
        };
        assert!(rendered.errors.contains(expected), "{value}: {}", rendered.errors);
    }
}

/// A chart is made to be published, and made again in its directory.
#[tokio::test]
async fn the_files_of_a_chart() {
    let config = format!(
        "{CONFIG}admin: {{ address: 127.0.0.1:9090, tokens: [ {{ name: ci, role: Admin, file: ci.token }} ] }}\n"
    );
    let charts = Charts::new(&chains(), &config).await;
    let made = charts.chart("").await;
    for note in ["RELEASE-admin", "token-1", "--modules-in-image"] {
        assert!(made.stderr.contains(note), "{}", made.stderr);
    }
    for file in walk(&charts.path("chart")) {
        // The text of a plugin may be anything.
        if file.extension().is_some_and(|extension| extension == "wasm") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for secret in ["PRIVATE KEY", "0123456789abcdef0123456789abcdef"] {
            assert!(!text.contains(secret), "{}", file.display());
        }
    }

    // What an earlier chart had is removed, and nothing else is overwritten.
    let template = charts.path("chart/templates/old.yaml");
    fs::write(&template, "").unwrap();
    let image = charts.chart("--modules-in-image /plugins").await;
    assert!(!image.stderr.contains("--modules-in-image"), "{}", image.stderr);
    assert!(!template.exists());
    assert!(!charts.path("chart/files/modules").exists());
    for (directory, expected) in [
        (
            format!("--output-directory {}", charts.path("certs").display()),
            "other files",
        ),
        (String::new(), "--output-directory"),
    ] {
        let refused = charts.run("chart", &directory).await;
        assert_eq!(refused.code, Some(2));
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
    }
}

fn walk(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => walk(&path),
            false => vec![path],
        })
        .collect()
}
