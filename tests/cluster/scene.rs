//! Admittance as a webhook server of the API server, in a namespace with its webhook configurations.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use admittance_tests::{Admittance, Artifacts, ScrapedMetrics, Serve};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    cluster::{ClusterUser, TestCluster},
    kubectl::{Kubectl, KubectlOutput},
    process::wait_until,
    registration::Registration,
    rest::UserClient,
    scenarios::resources::install_resources,
};

/// The label by which a scene's webhook configurations select the namespaces of the scene. The value of the label is
/// the name of the scene's first namespace.
pub(crate) const SCENE_LABEL: &str = "scene";

/// A namespace of the cluster, and the webhook server for it, which stops when the scene is dropped.
pub(crate) struct Scene {
    pub(crate) cluster: Arc<TestCluster>,
    pub(crate) kubectl: Kubectl,
    pub(crate) rest: UserClient,
    pub(crate) namespace: String,
    pub(crate) directory: TempDir,
    program: Option<Admittance>,
    /// The address of the server. When the server is started again, it gets the same address.
    address: SocketAddr,
    registration_count: AtomicUsize,
    probes_by_name: Mutex<BTreeMap<String, String>>,
    mount_count: AtomicUsize,
}

impl Scene {
    pub(crate) async fn start(cluster: Arc<TestCluster>, chains: &[Value]) -> Self {
        Self::start_configured(cluster, json!({}), chains).await
    }

    pub(crate) async fn start_configured(cluster: Arc<TestCluster>, more: Value, chains: &[Value]) -> Self {
        Self::start_with_dialect(cluster, json!({"kubernetes": {}}), more, chains).await
    }

    pub(crate) async fn start_with_dialect(
        cluster: Arc<TestCluster>,
        dialect: Value,
        more: Value,
        chains: &[Value],
    ) -> Self {
        let mut config = json!({
            "dialect": dialect,
            "listen": {"tls": {"certificate": "mounted/tls.crt", "key": "mounted/tls.key"}},
            "definitions": ["chains"],
        });
        merge(&mut config, more);
        let scene = Self::without_server(cluster, &config).await;
        scene.make_certificates("certs").await;
        scene.mount("certs");
        fs::create_dir(scene.path("chains")).unwrap();
        for chain in chains {
            scene.define(chain);
        }
        scene.serve().await
    }

    pub(crate) async fn without_server(cluster: Arc<TestCluster>, config: &Value) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let namespace = format!("scene-{}", cluster.next_number());
        let kubectl = cluster.kubectl().unwrap();
        let scene = Self {
            rest: cluster.rest().unwrap(),
            kubectl,
            directory,
            program: None,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            registration_count: AtomicUsize::new(0),
            probes_by_name: Mutex::default(),
            mount_count: AtomicUsize::new(0),
            namespace,
            cluster,
        };
        scene.make_namespace(&scene.namespace, json!({})).await;
        fs::write(scene.path("admittance.yaml"), config.to_string()).unwrap();
        scene
    }

    /// Prepares a scene for replicas that read chains from the cluster, without starting one.
    pub(crate) async fn prepare_replicas(cluster: Arc<TestCluster>, more: Value) -> Self {
        let mut config = json!({
            "dialect": {"kubernetes": {}},
            "cluster": {},
            "definitions": [{"kubernetes": {}}],
        });
        merge(&mut config, more);
        install_resources(&cluster, &config).await;
        config["cluster"]["kubeconfig"] = json!(cluster.kubeconfig(ClusterUser::Admittance));
        config["listen"] = json!({"tls": {"certificate": "mounted/tls.crt", "key": "mounted/tls.key"}});
        let scene = Self::without_server(cluster, &config).await;
        scene.make_certificates("certs").await;
        scene.mount("certs");
        scene
    }

    pub(crate) async fn start_replica(&self, store: impl AsRef<Path>) -> Admittance {
        let serve = Serve::new(self.path("admittance.yaml")).unwrap().store(store);
        let program = serve.start().await.unwrap();
        wait_until("the replica is ready", async || program.is_ready().await.then_some(())).await;
        program
    }

    pub(crate) async fn serve(mut self) -> Self {
        self.start_again().await;
        self
    }

    /// Starts the server. If it has run before, it gets its previous address.
    pub(crate) async fn start_again(&mut self) {
        let (program, address) = self.start_program().await;
        (self.program, self.address) = (Some(program), address);
    }

    async fn start_program(&self) -> (Admittance, SocketAddr) {
        let program = Serve::new(self.path("admittance.yaml"))
            .unwrap()
            .listen(self.address)
            .store(compiled_store())
            .start()
            .await
            .unwrap();
        let url = program.tls_url("");
        let (_, port) = url.rsplit_once(':').unwrap();
        let mut address = self.address;
        address.set_port(port.parse().unwrap());
        (program, address)
    }

    pub(crate) fn run_server(&mut self, program: Admittance) {
        self.program = Some(program);
    }

    /// Starts another server on another port, which becomes the server of the scene. Returns the previous server, which
    /// still runs.
    pub(crate) async fn serve_elsewhere(&mut self) -> Admittance {
        self.address.set_port(0);
        let (program, address) = self.start_program().await;
        self.address = address;
        self.program.replace(program).unwrap()
    }

    /// Sets the address at which the API server calls the webhooks of this scene. The caller has to start a server that
    /// listens there, such as a load balancer.
    pub(crate) fn set_address(&mut self, address: SocketAddr) {
        self.address = address;
    }

    pub(crate) async fn stop(&mut self) {
        if let Some(mut program) = self.program.take() {
            program.terminate().unwrap();
            program.wait_for_end().await.unwrap();
        }
    }

    pub(crate) fn program_mut(&mut self) -> &mut Admittance {
        self.program.as_mut().unwrap()
    }

    pub(crate) fn running_program(&self) -> &Admittance {
        self.program.as_ref().unwrap()
    }

    pub(crate) async fn metrics(&self) -> ScrapedMetrics {
        self.running_program().metrics().await.unwrap()
    }

    pub(crate) fn admin_url(&self) -> String {
        self.program.as_ref().unwrap().admin_url("")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a definition to the server's directory atomically. A definition with the same name is replaced.
    pub(crate) fn define(&self, definition: &Value) {
        let name = definition["metadata"]["name"].as_str().unwrap();
        let text = serde_json::to_vec_pretty(definition).unwrap();
        replace(&self.path(&format!("chains/{name}.json")), &text);
    }

    pub(crate) async fn make_certificates(&self, name: &str) {
        let out = self.path(name);
        let arguments = ["certs", "--host", "localhost", "--out", out.to_str().unwrap()];
        let finished = Admittance::run(arguments).await.unwrap();
        assert_eq!(finished.code, Some(0), "{}", finished.stderr);
    }

    pub(crate) fn authority(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name).join("ca.pem")).unwrap()
    }

    pub(crate) fn mount(&self, name: &str) {
        self.mount_files(name, name);
    }

    /// Gives the server a certificate and a key as a kubelet does: replacing a symbolic link changes all files at once.
    pub(crate) fn mount_files(&self, certificate: &str, key: &str) {
        let mounted = self.path("mounted");
        let number = self.mount_count.fetch_add(1, Ordering::Relaxed);
        let version = format!("..version-{number}");
        fs::create_dir_all(mounted.join(&version)).unwrap();
        let files = [
            ("tls.crt", self.path(certificate).join("localhost.pem")),
            ("tls.key", self.path(key).join("localhost.key")),
        ];
        for (name, from) in files {
            fs::copy(from, mounted.join(&version).join(name)).unwrap();
            if number == 0 {
                symlink(Path::new("..data").join(name), mounted.join(name)).unwrap();
            }
        }
        symlink(&version, mounted.join("..data_new")).unwrap();
        fs::rename(mounted.join("..data_new"), mounted.join("..data")).unwrap();
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }

    pub(crate) async fn review_count(&self) -> f64 {
        let metrics = self.program.as_ref().unwrap().metrics().await.unwrap();
        metrics.sum("admittance_http_requests_total", &[]).unwrap_or_default()
    }

    /// Registers a webhook of the server, and waits until the API server calls it.
    pub(crate) async fn register(&self, registration: &Registration) {
        self.register_trusting(registration, &self.authority("certs")).await;
    }

    pub(crate) async fn register_trusting(&self, registration: &Registration, ca_bundle: &[u8]) {
        let number = self.registration_count.fetch_add(1, Ordering::Relaxed);
        let probe = format!("{}-{number}", self.namespace);
        let ca_bundle = BASE64_STANDARD.encode(ca_bundle);
        let document = registration.document(&self.namespace, &self.url(""), &ca_bundle, &probe);
        self.apply(&document).await.assert_success();
        wait_until("the effect of a webhook configuration", async || {
            self.is_probed(&probe).await.then_some(())
        })
        .await;
        *self
            .probes_by_name
            .lock()
            .unwrap()
            .entry(registration.name(&self.namespace))
            .or_default() = probe;
    }

    /// Deletes the configuration of a registered webhook, and waits until the API server no longer calls the webhook.
    pub(crate) async fn unregister(&self, registration: &Registration) {
        let name = registration.name(&self.namespace);
        self.run(&format!("delete {} {name}", registration.resource()))
            .await
            .assert_success();
        let probe = self.probes_by_name.lock().unwrap().remove(&name).unwrap();
        wait_until("the removal of a webhook configuration", async || {
            (!self.is_probed(&probe).await).then_some(())
        })
        .await;
    }

    async fn is_probed(&self, probe: &str) -> bool {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "probe", "labels": {"probe": probe}},
        });
        let path = format!("/api/v1/namespaces/{}/configmaps?dryRun=All", self.namespace);
        let reply = self.rest.post(&path, &object).await.unwrap();
        reply.text().contains(&Registration::probe_name(probe))
    }

    pub(crate) async fn make_namespace(&self, name: &str, labels: Value) {
        let mut labels = labels;
        labels[SCENE_LABEL] = self.namespace.clone().into();
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": labels},
        });
        self.apply(&namespace).await.assert_success();
    }

    /// Runs `kubectl apply`, in the scene's namespace unless the object names another.
    pub(crate) async fn apply(&self, object: &Value) -> KubectlOutput {
        self.run_with_object(&["apply", "-f", "-"], object).await
    }

    pub(crate) async fn create(&self, object: &Value) -> KubectlOutput {
        self.run_with_object(&["create", "-f", "-"], object).await
    }

    /// Runs kubectl with this object on its standard input, from which `-f -` reads.
    pub(crate) async fn run_with_object(&self, arguments: &[&str], object: &Value) -> KubectlOutput {
        let arguments: Vec<_> = arguments.iter().copied().chain(self.namespace_option(object)).collect();
        self.kubectl
            .run_with_input(&arguments, &object.to_string())
            .await
            .unwrap()
    }

    fn namespace_option(&self, object: &Value) -> impl Iterator<Item = &str> {
        let is_elsewhere = object["kind"] == "Namespace" || object["metadata"]["namespace"].is_string();
        (!is_elsewhere)
            .then_some(["--namespace", &self.namespace])
            .into_iter()
            .flatten()
    }

    pub(crate) async fn run(&self, arguments: &str) -> KubectlOutput {
        let namespace_option = ["--namespace", &self.namespace];
        let arguments: Vec<_> = namespace_option.into_iter().chain(arguments.split(' ')).collect();
        self.kubectl.run(&arguments).await.unwrap()
    }

    /// Returns an object that is stored in the cluster. `query` are the arguments of `kubectl get`.
    pub(crate) async fn get(&self, query: &str) -> Value {
        self.run(&format!("get {query} --output=json")).await.json()
    }

    pub(crate) async fn containers(&self, pod: &str) -> Vec<String> {
        containers(&self.get(&format!("pod {pod}")).await)
    }

    pub(crate) async fn grant_cluster_access(cluster: &TestCluster) -> Value {
        let kubectl = cluster.kubectl().unwrap();
        let documents = json!({
            "apiVersion": "v1",
            "kind": "List",
            "items": [
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "ClusterRole",
                    "metadata": {"name": "admittance"},
                    "rules": [
                        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]},
                        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
                    ],
                },
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "ClusterRoleBinding",
                    "metadata": {"name": "admittance"},
                    "roleRef": {
                        "apiGroup": "rbac.authorization.k8s.io",
                        "kind": "ClusterRole",
                        "name": "admittance",
                    },
                    "subjects": [{
                        "apiGroup": "rbac.authorization.k8s.io",
                        "kind": "User",
                        "name": ClusterUser::Admittance.name(),
                    }],
                },
            ],
        });
        kubectl
            .run_with_input(&["apply", "-f", "-"], &documents.to_string())
            .await
            .unwrap()
            .assert_success();
        json!({"cluster": {"kubeconfig": cluster.kubeconfig(ClusterUser::Admittance)}})
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // If a check failed, the panic message names it. The server's log, which says more, is printed here.
        if std::thread::panicking()
            && let Some(program) = &self.program
        {
            eprintln!("the webhook server's log:");
            for line in program.log() {
                eprintln!("  {}", line.text);
            }
        }
    }
}

pub(crate) fn replace(path: &Path, content: &[u8]) {
    let new = path.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::rename(&new, path).unwrap();
}

/// Returns the directory in which servers store compiled plugins. It is kept between runs.
pub(crate) fn compiled_store() -> PathBuf {
    admittance_tests::repository().join("target/kubernetes/compiled")
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

pub(crate) fn containers(pod: &Value) -> Vec<String> {
    let containers = pod["spec"]["containers"].as_array().unwrap();
    containers
        .iter()
        .map(|container| container["name"].as_str().unwrap().to_owned())
        .collect()
}

pub(crate) fn image_of_container(pod: &Value, container: &str) -> Option<String> {
    let containers = pod["spec"]["containers"].as_array()?;
    let container = containers.iter().find(|entry| entry["name"] == container)?;
    Some(container["image"].as_str()?.to_owned())
}

pub(crate) fn pod(name: &str, image: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "web", "image": image}]},
    })
}

pub(crate) const GOOD_IMAGE: &str = "registry.example.com/web:1.0";

pub(crate) fn chain(name: &str, rules: Value, stages: Value) -> Value {
    json!({
        "apiVersion": "admittance.dev/v1alpha1",
        "kind": "AdmissionChain",
        "metadata": {"name": name},
        "spec": {"rules": rules, "stages": stages},
    })
}

pub(crate) fn validating_chain(chain: Value) -> Value {
    let mut chain = chain;
    chain["spec"]["phase"] = "Validating".into();
    chain
}

pub(crate) fn core_rules(operations: &[&str], resources: &[&str]) -> Value {
    json!([{"operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}])
}

pub(crate) fn plugin_stage(package: &str, settings: Value) -> Value {
    let component = Artifacts::find().unwrap().component(package).unwrap();
    json!({
        "name": package,
        "plugin": {"source": format!("file:{}", component.display()), "settings": settings},
        "failurePolicy": "Fail",
    })
}

pub(crate) fn ignore_failures(stage: Value) -> Value {
    let mut stage = stage;
    stage["failurePolicy"] = "Ignore".into();
    stage
}

/// Returns a stage that adds the container `log-agent`, whose image has this version.
pub(crate) fn sidecar_stage(version: &str) -> Value {
    let image = format!("registry.example.com/log-agent:{version}");
    plugin_stage(
        "sidecar-injector",
        json!({"containers": [{"name": "log-agent", "image": image}]}),
    )
}

pub(crate) fn image_policy_stage() -> Value {
    plugin_stage("image-policy", json!({"refuseLatest": true}))
}

pub(crate) fn misbehaving_stage(behaviour: &str) -> Value {
    plugin_stage("guest-misbehaves", json!({"behaviour": behaviour}))
}
