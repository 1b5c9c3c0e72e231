//! Tests the Helm chart, which Helm renders.

use std::{env, process::Output};

use tokio::process::Command;

use super::{strict::assert_valid, *};

/// A directory with the definitions and certificates of a test, and with the charts that are made from them.
struct Charts(TempDir);

struct RenderedChart {
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
        let certs_output = Admittance::run(["certs", "--service", service, "--out", certs.to_str().unwrap()])
            .await
            .unwrap();
        assert_eq!(certs_output.code, Some(0), "{}", certs_output.stderr);
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs `admittance kubernetes COMMAND` with the test's files and these arguments.
    async fn run_kubernetes(&self, command: &str, arguments: &str) -> FinishedProgram {
        let [config, certs] = ["admittance.yaml", "certs"].map(|name| self.path(name).display().to_string());
        let mut words = vec!["kubernetes", command, "--config", &config];
        if self.path("certs").exists() {
            words.extend(["--certs", &certs]);
        }
        Admittance::run(words.into_iter().chain(arguments.split_whitespace()))
            .await
            .unwrap()
    }

    async fn write_chart(&self, arguments: &str) -> FinishedProgram {
        let chart = self.path("chart");
        let chart_output = self
            .run_kubernetes("chart", &format!("--output-directory {} {arguments}", chart.display()))
            .await;
        assert_eq!(chart_output.code, Some(0), "{}", chart_output.stderr);
        assert_eq!(chart_output.stdout, "");
        chart_output
    }

    /// Runs Helm on the chart. Returns `None` if Helm is not installed.
    async fn helm(&self, arguments: &[&str]) -> Option<Output> {
        let mut command = Command::new(helm_path()?);
        for (variable, name) in [
            ("HELM_CACHE_HOME", "cache"),
            ("HELM_CONFIG_HOME", "config"),
            ("HELM_DATA_HOME", "data"),
        ] {
            command.env(variable, self.path(name));
        }
        let command = command.current_dir(self.0.path()).args(arguments);
        Some(command.env_remove("KUBECONFIG").output().await.unwrap())
    }

    async fn render(&self, values: &[&str]) -> Option<RenderedChart> {
        self.render_as("admittance", values).await
    }

    async fn render_as(&self, release: &str, values: &[&str]) -> Option<RenderedChart> {
        let arguments = ["template", release, "chart", "--include-crds"];
        let namespace = ["--namespace", "admittance-system"];
        let output = self.helm(&[&arguments, &namespace[..], values].concat()).await?;
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.success(), errors.is_empty(), "{errors}");
        Some(RenderedChart {
            objects: sorted(parse_objects(&text)),
            errors,
        })
    }
}

impl RenderedChart {
    /// Returns the object of this kind whose name ends with `suffix`. Panics if there are several.
    fn object(&self, kind: &str, suffix: &str) -> Option<&Value> {
        let is_wanted =
            |object: &&Value| object["kind"] == kind && object["metadata"]["name"].as_str().unwrap().ends_with(suffix);
        let matching_objects: Vec<_> = self.objects.iter().filter(is_wanted).collect();
        assert!(matching_objects.len() <= 1, "{kind} {suffix}");
        matching_objects.first().copied()
    }
}

fn helm_path() -> Option<PathBuf> {
    const VARIABLE: &str = "ADMITTANCE_TEST_HELM";
    let helm = env::var_os(VARIABLE);
    if helm.is_none() {
        eprintln!("skipped: {VARIABLE} is not set, since `cargo task test` could not fetch Helm; it says why");
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

/// Returns a configuration with a certificate from files, in which the leader writes the webhook configurations.
fn mounted_config(webhooks: &str, rest: &str) -> String {
    format!(
        "listen:
  tls: {{ certificate: certs/admittance.admittance-system.pem, key: certs/admittance.admittance-system.key }}
dialect: {{ kubernetes: {{ webhookConfigurations: {{ {webhooks} caBundle: certs/ca.pem }} }} }}
cluster: {{}}
{rest}"
    )
}

/// The manifests are for a configuration in which the leader writes the webhook configurations.
#[tokio::test]
async fn a_chart_with_default_values_renders_the_manifests() {
    let pods = "definitions: [pods.yaml]\n";
    let managed_config =
        "dialect: { kubernetes: { webhookConfigurations: {} } }\ncluster: {}\ndefinitions: [pods.yaml]\n";
    let rest = "definitions: [ pods.yaml, { kubernetes: {} } ]
admin: { address: 127.0.0.1:9090, tokens: [ { name: ci, role: Admin, file: ci.token } ] }
";
    let full = format!("dialect: {{ kubernetes: {{}} }}\ncluster: {{}}\n{rest}");
    let of_webhooks =
        "perChain: true, failurePolicy: Ignore, timeoutSeconds: 7, excludeNamespaces: [cni], includeKubeSystem: true,";
    // (configuration for the chart, whether certificate files exist, arguments for `chart`, arguments for both
    // commands, configuration for the manifests)
    for (config, has_certs, webhooks, flags, of_manifests) in [
        (CONFIG, true, "", "", mounted_config("", pods)),
        (CONFIG, false, "", "", managed_config.to_owned()),
        (managed_config, false, "", "", managed_config.to_owned()),
        (&*mounted_config("", pods), true, "", "", mounted_config("", pods)),
        (
            CONFIG,
            true,
            "--per-chain --failure-policy Ignore --timeout 7 --exclude-namespace cni --include-kube-system",
            "",
            mounted_config(of_webhooks, pods),
        ),
        (
            &*full,
            true,
            "",
            "--network-policy --max-replicas 5 --service-monitor --memory-limit 1Gi --priority-class p --image r/a:1 \
             --store-claim store",
            mounted_config("", rest),
        ),
    ] {
        let charts = Charts::new(&chains(), config).await;
        if !has_certs {
            // Without certificates in files, the Pods issue their own.
            fs::remove_dir_all(charts.path("certs")).unwrap();
        }
        charts.write_chart(&format!("{webhooks} {flags}")).await;
        let Some(rendered) = charts.render(&[]).await else {
            return;
        };
        assert_eq!(rendered.errors, "");
        let lint_output = charts.helm(&["lint", "--strict", "chart"]).await.unwrap();
        assert!(
            lint_output.status.success(),
            "{}",
            String::from_utf8_lossy(&lint_output.stdout)
        );
        write(&charts.0, "admittance.yaml", of_manifests);
        let manifests = charts.run_kubernetes("manifests", flags).await;
        assert_eq!(manifests.code, Some(0), "{}", manifests.stderr);
        let mut expected = sorted(parse_objects(&manifests.stdout));
        // The chart has neither a Namespace, which Helm creates, nor a Secret, because charts must not contain secrets.
        expected.retain(|object| !["Namespace", "Secret"].iter().any(|kind| object["kind"] == *kind));
        let names = |objects: &[Value]| -> Vec<String> {
            let names = objects.iter();
            names
                .map(|object| format!("{} {}", object["kind"], object["metadata"]["name"]))
                .collect()
        };
        let rendered_names = names(&rendered.objects);
        assert_eq!(rendered_names, names(&expected), "{webhooks} {flags}");
        assert!(
            !rendered_names.iter().any(|name| name.contains("WebhookConfiguration")),
            "{rendered_names:?}"
        );
        for (rendered, expected) in rendered.objects.iter().zip(&expected) {
            assert_eq!(rendered, expected, "{webhooks} {flags}");
        }
    }
}

/// Values of the chart and their effect on an object. The columns are: the values (separated by `;`), the object's
/// kind, the end of the object's name, a JSON Pointer into the object, and the value there (`-` if there is none).
const VALUE_ROWS: &str = r#"
image.reference="r.example/a:2" | Deployment | | POD/containers/0/image | "r.example/a:2"
image.pullPolicy="Always" | Deployment | | POD/containers/0/imagePullPolicy | "Always"
image.pullSecrets=[{"name":"r"}] | Deployment | | POD/imagePullSecrets | [{"name":"r"}]
replicas=4 | Deployment | | /spec/replicas | 4
autoscaling.enabled=true | Deployment | | /spec/replicas | -
autoscaling.enabled=true; replicas=3 | HorizontalPodAutoscaler | | /spec/minReplicas | 3
autoscaling.enabled=true; autoscaling.maxReplicas=7 | HorizontalPodAutoscaler | | /spec/maxReplicas | 7
autoscaling.enabled=true; autoscaling.targetCpu=50 | HorizontalPodAutoscaler | | CPU | 50
resources.limits.memory="1Gi" | Deployment | | POD/containers/0/resources/limits | {"memory":"1Gi"}
priorityClassName="high" | Deployment | | POD/priorityClassName | "high"
nodeSelector.disk="ssd" | Deployment | | POD/nodeSelector | {"disk":"ssd"}
tolerations=[{"operator":"Exists"}] | Deployment | | POD/tolerations | [{"operator":"Exists"}]
affinity={"nodeAffinity":{}} | Deployment | | POD/affinity | {"nodeAffinity":{}}
storeClaim="store" | Deployment | | POD/volumes/3 | {"name":"cache","persistentVolumeClaim":{"claimName":"store"}}
storeClaim="store" | Deployment | | POD/securityContext/fsGroupChangePolicy | "OnRootMismatch"
labels.team="web" | Service | | /metadata/labels/team | "web"
annotations.team="web" | ServiceAccount | | /metadata/annotations | {"team":"web"}
podLabels.team="web" | Deployment | | /spec/template/metadata/labels/team | "web"
podAnnotations.team="web" | Deployment | | /spec/template/metadata/annotations/team | "web"
networkPolicy.enabled=true | NetworkPolicy | | /spec/policyTypes | ["Ingress"]
serviceMonitor.enabled=true | Service | -metrics | /spec/clusterIP | "None"
serviceMonitor.enabled=true; serviceMonitor.labels.release="p" | ServiceMonitor | | /metadata/labels/release | "p"
tls.secretName="own" | Deployment | | POD/volumes/2/secret/secretName | "own"
CERT_MANAGER | Certificate | -tls | /spec/issuerRef | {"name":"ca"}
CERT_MANAGER | Certificate | -tls | /spec/dnsNames | ["admittance.admittance-system.svc"]
CERT_MANAGER; tls.secretName="own" | Certificate | -tls | /spec/secretName | "own"
"#;

fn value_rows() -> Vec<(Vec<String>, [String; 3], Option<Value>)> {
    let text = VALUE_ROWS
        .replace("POD/", "/spec/template/spec/")
        .replace("CPU", "/spec/metrics/0/resource/target/averageUtilization")
        .replace(
            "CERT_MANAGER",
            r#"tls.certManager.enabled=true; tls.certManager.issuerRef.name="ca""#,
        );
    let rows = text.lines().filter(|line| !line.is_empty());
    rows.map(|line| {
        let columns: Vec<String> = line.split('|').map(|column| column.trim().to_owned()).collect();
        let [values, kind, suffix, pointer, expected] = columns.try_into().unwrap();
        let values = values.split("; ").map(str::to_owned).collect();
        let expected = (expected != "-").then(|| serde_json::from_str(&expected).unwrap());
        (values, [kind, suffix, pointer], expected)
    })
    .collect()
}

#[tokio::test]
async fn each_value_of_the_chart_has_its_effect() {
    let charts = Charts::new(&chains(), CONFIG).await;
    charts.write_chart("").await;
    let Some(default) = charts.render(&[]).await else {
        return;
    };
    for (values, [kind, suffix, pointer], expected) in value_rows() {
        let arguments: Vec<&str> = values.iter().flat_map(|value| ["--set-json", value]).collect();
        let rendered = charts.render(&arguments).await.unwrap();
        assert_eq!(rendered.errors, "", "{values:?}");
        let at = |rendered: &RenderedChart| {
            let object = rendered.object(&kind, &suffix)?;
            object.pointer(&pointer).cloned()
        };
        assert_eq!(at(&rendered), expected, "{values:?}");
        assert_ne!(at(&default), expected, "{values:?}");
        let types_of_others = ["ServiceMonitor", "Certificate"];
        for object in &rendered.objects {
            if !types_of_others.iter().any(|kind| object["kind"] == *kind) {
                assert_valid(object);
            }
        }
    }
}

/// Each value in the chart's `values.yaml` must be set in a row of [`VALUE_ROWS`].
#[tokio::test]
async fn every_value_of_the_chart_is_tested() {
    let charts = Charts::new(&chains(), CONFIG).await;
    charts.write_chart("").await;
    let text = fs::read_to_string(charts.path("chart/values.yaml")).unwrap();
    let chart_values = parse_objects(&text).remove(0);
    let tested: Vec<String> = value_rows().into_iter().flat_map(|(values, ..)| values).collect();
    let mut missing = Vec::new();
    for (name, value) in chart_values.as_object().unwrap() {
        let below = value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, _)| format!("{name}.{key}"));
        let paths: Vec<String> = match name.as_str() {
            "image" | "autoscaling" | "networkPolicy" | "serviceMonitor" | "tls" => below.collect(),
            _ => vec![name.clone()],
        };
        let is_tested = |path: &String| tested.iter().any(|value| value.starts_with(path.as_str()));
        missing.extend(paths.into_iter().filter(|path| !is_tested(path)));
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn the_chart_schema_refuses_values_that_cannot_be_installed() {
    let charts = Charts::new(&chains(), CONFIG).await;
    charts.write_chart("").await;
    // (values of the chart, part of the error message)
    for (value, expected) in [
        ("replicas=0", "/replicas"),
        ("replica=3", "'replica' not allowed"),
        ("image.tag=1", "'tag' not allowed"),
        ("image.reference=", "/image/reference"),
        ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
        ("autoscaling.maxReplicas=0", "/autoscaling/maxReplicas"),
        ("webhooks.failurePolicy=Fail", "'webhooks' not allowed"),
        ("tls.certManager.enabled=true", "missing property 'name'"),
    ] {
        let Some(rendered) = charts.render(&["--set", value]).await else {
            return;
        };
        assert!(rendered.errors.contains(expected), "{value}: {}", rendered.errors);
    }
}

#[tokio::test]
async fn a_chart_can_be_written_again_into_the_same_directory() {
    let config = format!(
        "{CONFIG}admin: {{ address: 127.0.0.1:9090, tokens: [ {{ name: ci, role: Admin, file: ci.token }} ] }}\n"
    );
    let charts = Charts::new(&chains(), &config).await;
    let chart_output = charts.write_chart("").await;
    for note in ["RELEASE-admin", "token-1", "--modules-in-image"] {
        assert!(chart_output.stderr.contains(note), "{}", chart_output.stderr);
    }
    for file in files_below(&charts.path("chart")) {
        if file.extension().is_some_and(|extension| extension == "wasm") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for secret in ["PRIVATE KEY", "0123456789abcdef0123456789abcdef"] {
            assert!(!text.contains(secret), "{}", file.display());
        }
    }

    // Files of an earlier chart are removed from the directory. If it has other files, nothing is written there.
    let template = charts.path("chart/templates/old.yaml");
    fs::write(&template, "").unwrap();
    let image = charts.write_chart("--modules-in-image /plugins").await;
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
        let refusal = charts.run_kubernetes("chart", &directory).await;
        assert_eq!(refusal.code, Some(2));
        assert!(refusal.stderr.contains(expected), "{}", refusal.stderr);
    }
}

/// If a chart is installed twice in a namespace, the releases share no objects except the CustomResourceDefinitions.
#[tokio::test]
async fn two_helm_releases_in_a_namespace_do_not_collide() {
    for config in [
        "dialect: { kubernetes: { audit: {} } }
cluster: {}
definitions: [pods.yaml, { kubernetes: {} }]
",
        "dialect: { kubernetes: { webhookConfigurations: {} } }
cluster: {}
definitions: [pods.yaml, { kubernetes: {} }]
",
        "dialect: { kubernetes: { audit: {} } }
cluster: {}
definitions: [pods.yaml]
",
        CONFIG,
    ] {
        let charts = Charts::new(&chains(), config).await;
        if config.contains("webhookConfigurations") {
            // Without certificates in files, the Pods issue their own.
            fs::remove_dir_all(charts.path("certs")).unwrap();
        }
        charts
            .write_chart("--network-policy --service-monitor --max-replicas 5")
            .await;
        let [first, second] = ["first", "second"].map(|release| charts.render_as(release, &[]));
        let (Some(first), Some(second)) = (first.await, second.await) else {
            return;
        };
        let namespaced_objects = |rendered: RenderedChart| {
            assert_eq!(rendered.errors, "");
            let objects = rendered.objects.into_iter();
            objects
                .filter(|object| object["kind"] != "CustomResourceDefinition")
                .collect()
        };
        let (first, second): (Vec<Value>, Vec<Value>) = (namespaced_objects(first), namespaced_objects(second));
        for object in &second {
            let identity = |object: &Value| (object["kind"].clone(), object["metadata"]["name"].clone());
            assert!(
                first.iter().all(|other| identity(other) != identity(object)),
                "{object}"
            );
        }
        let pod = |objects: &[Value]| {
            let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
            deployment.unwrap()["spec"]["template"].clone()
        };
        let (first_pod, second_pod) = (pod(&first), pod(&second));
        let variable = |pod: &Value| {
            let variables = pod["spec"]["containers"][0]["env"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            variables
                .into_iter()
                .find(|variable| variable["name"] == "ADMITTANCE_LEASE")
        };
        if config.contains("audit:") || config.contains("{ kubernetes: {} }]") {
            assert_eq!(variable(&first_pod).unwrap()["value"], "first");
            assert_eq!(variable(&second_pod).unwrap()["value"], "second");
        }
        // Objects such as Services select Pods by labels. The selectors of one release must not match the Pods of the
        // other release.
        let mut selector_count = 0;
        for object in &first {
            for pointer in [
                "/spec/selector",
                "/spec/selector/matchLabels",
                "/spec/podSelector/matchLabels",
            ] {
                let Some(Value::Object(labels)) = object.pointer(pointer) else {
                    continue;
                };
                if labels.contains_key("matchLabels") {
                    continue;
                }
                selector_count += 1;
                let selects = |pod: &Value| {
                    let mut labels = labels.iter();
                    labels.all(|(name, value)| pod["metadata"]["labels"][name] == *value)
                };
                assert!(!selects(&second_pod), "{object}");
            }
        }
        assert!(selector_count > 3, "{selector_count}");
    }
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] })
        .collect()
}
