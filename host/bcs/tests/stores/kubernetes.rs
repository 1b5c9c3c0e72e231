//! Tests of the store of custom resources, with a real API server. They run only if `ADMITTANCE_TEST_KUBERNETES` names
//! the directory with etcd and kube-apiserver, which `cargo task cluster` builds.

use std::{
    env,
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use admittance_bcs::stores::CustomResourceStore;
use admittance_cluster::Cluster;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{Method, Request};
use kube::{Client, Config, config::Kubeconfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    conformance::{StoreFixture, each_rule, each_rule_of_shared},
    custom_resources::resource_of,
    setting::connect,
};

const PROGRAMS_VARIABLE: &str = "ADMITTANCE_TEST_KUBERNETES";
const MANIFEST: &str = include_str!("../../../../docs/examples/bcs/admissionwebhookconfigurations.yaml");
const RESOURCES_PATH: &str = "/apis/bkbcs.tencent.com/v2/admissionwebhookconfigurations";
const DEFINITIONS_PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Only a failed test reaches this timeout.
const TEST_TIMEOUT: Duration = Duration::from_secs(300);
/// The pause between two requests that test whether a server is ready.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs etcd and kube-apiserver. Dropping this kills the two processes.
struct EtcdAndApiServer {
    directory: TempDir,
    arguments: Vec<String>,
    api_server: Option<Program>,
    _etcd: Program,
}

/// A process that is killed when this is dropped, or when the thread that started it ends.
struct Program(Child);

impl Program {
    fn start(name: &str, arguments: &[String], directory: &Path) -> Self {
        let log = File::create(directory.join(format!("{name}.log"))).unwrap();
        let program = PathBuf::from(env::var_os(PROGRAMS_VARIABLE).unwrap()).join(name);
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl EtcdAndApiServer {
    async fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path();
        let [clients, peers, address] = free_addresses();
        let etcd_url = format!("http://{clients}");
        let peer_url = format!("http://{peers}");
        let etcd = [
            format!("--listen-client-urls={etcd_url}"),
            format!("--advertise-client-urls={etcd_url}"),
            format!("--listen-peer-urls={peer_url}"),
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--initial-cluster=default={peer_url}"),
            "--data-dir=etcd".to_owned(),
            "--unsafe-no-fsync".to_owned(),
            "--logger=zap".to_owned(),
        ];
        let etcd = Program::start("etcd", &etcd, path);
        write_server_files(path, address);
        let arguments = [
            format!("--etcd-servers={etcd_url}"),
            format!("--bind-address={}", address.ip()),
            format!("--secure-port={}", address.port()),
            format!("--advertise-address={}", address.ip()),
            "--endpoint-reconciler-type=none".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--tls-cert-file=server.pem".to_owned(),
            "--tls-private-key-file=server.key".to_owned(),
            "--token-auth-file=tokens.csv".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-account-signing-key-file=accounts.key".to_owned(),
            "--service-account-key-file=accounts.pub".to_owned(),
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            "--profiling=false".to_owned(),
        ];
        let mut kubernetes = Self {
            arguments: arguments.to_vec(),
            directory,
            api_server: None,
            _etcd: etcd,
        };
        kubernetes.start_api_server().await;
        let manifest = admittance_definitions::document::to_json("the manifest", MANIFEST).unwrap();
        let manifest: Value = serde_json::from_str(&serde_json::to_string(&manifest).unwrap()).unwrap();
        kubernetes.post(DEFINITIONS_PATH, &manifest).await;
        kubernetes.wait_until_ready(RESOURCES_PATH).await;
        kubernetes
    }

    async fn start_api_server(&mut self) {
        let path = self.directory.path();
        self.api_server = Some(Program::start("kube-apiserver", &self.arguments, path));
        self.wait_until_ready("/readyz").await;
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig()).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
        Client::try_from(config.unwrap()).unwrap()
    }

    async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> kube::Result<String> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(body.map(Value::to_string).unwrap_or_default().into_bytes())
            .unwrap();
        self.client().await.request_text(request).await
    }

    async fn post(&self, path: &str, object: &Value) {
        match self.request(Method::POST, path, Some(object)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => panic!("{path}: {error}"),
        }
    }

    async fn wait_until_ready(&mut self, path: &str) {
        let begin = Instant::now();
        while let Err(error) = self.request(Method::GET, path, None).await {
            let program = &mut self.api_server.as_mut().unwrap().0;
            let has_ended = program.try_wait().unwrap().is_some();
            if has_ended || begin.elapsed() > TEST_TIMEOUT {
                let log = fs::read_to_string(self.directory.path().join("kube-apiserver.log"));
                panic!("{path}: {error}\n{}", log.unwrap_or_default());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn resource_paths(&self, path: &Path) -> (String, String) {
        let (namespace, name) = resource_of(path);
        let collection = format!("/apis/bkbcs.tencent.com/v2/namespaces/{namespace}/admissionwebhookconfigurations");
        (format!("{collection}/{name}"), collection)
    }
}

fn free_addresses<const N: usize>() -> [SocketAddr; N] {
    // All listeners stay open until every port is chosen, so that no port is chosen twice.
    let listeners = [(); N].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}

fn write_server_files(directory: &Path, address: SocketAddr) {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![address.ip().to_string()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let accounts = KeyPair::generate().unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {
            "server": format!("https://{address}"),
            "certificate-authority-data": STANDARD.encode(authority.pem()),
        }}],
        "users": [{"name": "admin", "user": {"token": "token-of-admin"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        "current-context": "test",
    });
    for (name, text) in [
        ("server.pem", certificate.pem()),
        ("server.key", key.serialize_pem()),
        ("accounts.key", accounts.serialize_pem()),
        ("accounts.pub", accounts.public_key_pem()),
        (
            "tokens.csv",
            "token-of-admin,admin,admin,\"system:masters\"\n".to_owned(),
        ),
        ("kubeconfig", kubeconfig.to_string()),
    ] {
        fs::write(directory.join(name), text).unwrap();
    }
}

/// All tests of this file share this server. Each test first deletes all definitions.
static KUBERNETES: OnceLock<tokio::sync::Mutex<Option<EtcdAndApiServer>>> = OnceLock::new();

struct BorrowedApiServer(Option<EtcdAndApiServer>);

impl Drop for BorrowedApiServer {
    fn drop(&mut self) {
        if let Some(shared) = KUBERNETES.get()
            && let Ok(mut shared) = shared.try_lock()
        {
            *shared = self.0.take();
        }
    }
}

impl BorrowedApiServer {
    fn kubernetes(&self) -> &EtcdAndApiServer {
        self.0.as_ref().unwrap()
    }
}

impl StoreFixture for BorrowedApiServer {
    type Store = CustomResourceStore;

    const TAKES_SEVERAL_CHANGES: bool = false;
    const HAS_SCHEMA: bool = true;

    async fn new(_is_to_be_lost: bool) -> Self {
        let mut shared = KUBERNETES.get_or_init(Default::default).lock().await;
        let kubernetes = match shared.take() {
            Some(kubernetes) => kubernetes,
            None => EtcdAndApiServer::start().await,
        };
        let response_text = kubernetes.request(Method::GET, RESOURCES_PATH, None).await.unwrap();
        let listing: Value = serde_json::from_str(&response_text).unwrap();
        for item in listing["items"].as_array().unwrap() {
            let text = |field: &str| item["metadata"][field].as_str().unwrap();
            let path = format!("customresources:{}/{}", text("namespace"), text("name"));
            let (path, _) = kubernetes.resource_paths(Path::new(&path));
            kubernetes.request(Method::DELETE, &path, None).await.unwrap();
        }
        Self(Some(kubernetes))
    }

    async fn open_store(&self) -> CustomResourceStore {
        let cluster: Cluster = connect(self.kubernetes().kubeconfig(), None).await.unwrap();
        CustomResourceStore::new(&cluster, CustomResourceStore::DEFAULT_NAMESPACE)
    }

    async fn put(&self, path: &Path, text: &str) {
        let kubernetes = self.kubernetes();
        let (namespace, name) = resource_of(path);
        let (path, collection) = kubernetes.resource_paths(path);
        let mut object = json!({
            "apiVersion": "bkbcs.tencent.com/v2",
            "kind": "AdmissionWebhookConfiguration",
            "metadata": {"name": name, "namespace": namespace},
            "spec": serde_json::from_str::<Value>(text).unwrap(),
        });
        match kubernetes.request(Method::GET, &path, None).await {
            Ok(response_text) => {
                let stored_object: Value = serde_json::from_str(&response_text).unwrap();
                object["metadata"] = stored_object["metadata"].clone();
                kubernetes.request(Method::PUT, &path, Some(&object)).await.unwrap();
            }
            Err(_) => {
                let namespace_object = json!({"metadata": {"name": namespace}});
                kubernetes.post("/api/v1/namespaces", &namespace_object).await;
                kubernetes
                    .request(Method::POST, &collection, Some(&object))
                    .await
                    .unwrap();
            }
        }
    }

    async fn remove(&self, path: &Path) {
        let (path, _) = self.kubernetes().resource_paths(path);
        self.kubernetes().request(Method::DELETE, &path, None).await.unwrap();
    }

    async fn make_unreachable(&mut self) {
        self.0.as_mut().unwrap().api_server = None;
    }

    async fn restore(&mut self) {
        self.0.as_mut().unwrap().start_api_server().await;
    }
}

macro_rules! one_after_another {
    ($ground:ty: $($rule:ident)*) => {
        $(
            eprintln!("{}", stringify!($rule));
            crate::conformance::$rule::<$ground>().await;
        )*
    };
}

#[tokio::test]
async fn a_store_on_a_real_api_server_behaves_like_other_stores() {
    if env::var_os(PROGRAMS_VARIABLE).is_none() {
        eprintln!("{PROGRAMS_VARIABLE} is not set: nothing is tried on a real API server");
        return;
    }
    each_rule!(one_after_another, BorrowedApiServer);
    each_rule_of_shared!(one_after_another, BorrowedApiServer);
    // A static is not dropped when the tests end. The server is therefore taken out of the static here, which drops and
    // stops the server.
    if let Some(shared) = KUBERNETES.get() {
        shared.lock().await.take();
    }
}
