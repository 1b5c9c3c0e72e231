//! A Kubernetes API server with etcd but without scheduler, controllers and nodes: objects are admitted and stored, and
//! nothing changes them afterwards.

use std::{
    fmt, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use admittance_tests::{Artifacts, Client, ClientTrust, Error};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Mutex;

use crate::{
    authority::TestCredentials,
    kubectl::Kubectl,
    process::{Process, with_free_ports},
    rest::UserClient,
};

/// A user of the API server, who authenticates with a static token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterUser {
    Admin,
    /// A user who has only the rights that a scenario grants.
    Alice,
    /// The account with which Admittance reads from the API server.
    Admittance,
}

impl ClusterUser {
    const ALL: [Self; 3] = [Self::Admin, Self::Alice, Self::Admittance];

    /// Returns the user's name in the API server, which is also the name of the kubectl context.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Alice => "alice",
            Self::Admittance => "admittance",
        }
    }

    fn groups(self) -> &'static str {
        match self {
            Self::Admin => "system:masters",
            Self::Alice => "developers",
            Self::Admittance => "webhooks",
        }
    }

    /// Returns the user's token. It need not be secret, because no other program can connect to the API server.
    fn token(self) -> String {
        format!("token-of-{}", self.name())
    }
}

/// The running API server. When this is dropped, all processes are stopped and all files removed.
pub(crate) struct TestCluster {
    /// The fields are dropped in this order: first the API server stops, then etcd, and then their files are removed.
    api_server: Mutex<Process>,
    _etcd: Process,
    directory: TempDir,
    address: SocketAddr,
    etcd_address: SocketAddr,
    authority: String,
    namespaces: AtomicUsize,
    pub(crate) longest_watch: Duration,
    pub(crate) change_count: u32,
    pub(crate) outage: Duration,
}

impl fmt::Debug for TestCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestCluster")
            .field("address", &self.address)
            .field("directory", &self.directory.path())
            .finish_non_exhaustive()
    }
}

impl TestCluster {
    /// Starts etcd and an API server, and waits until the API server is ready. Must be called on the main thread: the
    /// kernel kills both processes when the thread that started them ends.
    pub(crate) async fn start(longest_watch: Duration, changes: u32, outage: Duration) -> Result<Self, Error> {
        let directory = tempfile::Builder::new()
            .prefix("admittance-cluster-")
            .tempdir()
            .map_err(Error::io("a temporary directory"))?;
        let path = directory.path();
        let (etcd, store) = with_free_ports(|addresses| start_etcd(path, addresses)).await?;
        let credentials = TestCredentials::make()?;
        write_settings(path, &credentials)?;
        let authority = &credentials.authority;
        let (api_server, address) =
            with_free_ports(|[address]| start_api_server(path, store, address, authority)).await?;
        for user in ClusterUser::ALL {
            write(&kubeconfig_path(path, user), &kubeconfig_text(address, authority, user))?;
        }
        Ok(Self {
            api_server: Mutex::new(api_server),
            _etcd: etcd,
            address,
            etcd_address: store,
            authority: credentials.authority,
            namespaces: AtomicUsize::new(0),
            longest_watch,
            change_count: changes,
            outage,
            directory,
        })
    }

    pub(crate) async fn kill_api_server(&self) -> Result<(), Error> {
        self.api_server.lock().await.kill().await
    }

    pub(crate) async fn restart_api_server(&self) -> Result<(), Error> {
        let start = start_api_server(self.directory.path(), self.etcd_address, self.address, &self.authority);
        let (process, _) = start.await?;
        *self.api_server.lock().await = process;
        Ok(())
    }

    pub(crate) fn kubectl(&self) -> Result<Kubectl, Error> {
        self.kubectl_as(ClusterUser::Admin)
    }

    pub(crate) fn kubectl_as(&self, user: ClusterUser) -> Result<Kubectl, Error> {
        Kubectl::new(self.directory.path(), &self.kubeconfig(user))
    }

    pub(crate) fn rest(&self) -> Result<UserClient, Error> {
        let client = Client::with_trust(ClientTrust {
            authorities: &self.authority,
            identity: None,
        })?;
        Ok(UserClient::new(client, self.url(), &ClusterUser::Admin.token()))
    }

    pub(crate) fn kubeconfig(&self, user: ClusterUser) -> PathBuf {
        kubeconfig_path(self.directory.path(), user)
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(crate) fn kubectl_with(&self, kubeconfig: &Path) -> Result<Kubectl, Error> {
        Kubectl::new(self.directory.path(), kubeconfig)
    }

    /// Returns the file with the CA of the client certificate that the API server presents to webhook servers, as PEM.
    pub(crate) fn authority_file(&self) -> PathBuf {
        self.directory.path().join(AUTHORITY_FILE)
    }

    /// Deletes all webhook configurations and Pods, so that the next scenario starts without them.
    pub(crate) async fn clean(&self) -> Result<(), Error> {
        let rest = self.rest()?;
        for resource in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
            let path = format!("/apis/admissionregistration.k8s.io/v1/{resource}");
            rest.send(http::Method::DELETE, &path, None).await?;
        }
        let response = rest.get("/api/v1/namespaces").await?.json()?;
        let namespaces = response["items"].as_array().into_iter().flatten();
        for name in namespaces.filter_map(|namespace| namespace["metadata"]["name"].as_str()) {
            let path = format!("/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0");
            rest.send(http::Method::DELETE, &path, None).await?;
        }
        Ok(())
    }

    /// Returns a number that no earlier call has returned. Scenarios use it in names.
    pub(crate) fn next_number(&self) -> usize {
        self.namespaces.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn audit_log(&self) -> Result<String, Error> {
        let path = self.directory.path().join(AUDIT_LOG);
        fs::read_to_string(&path).map_err(Error::io(path.display().to_string()))
    }

    /// Keeps the log files when the cluster is dropped, and returns their directory.
    pub(crate) fn keep_files(&mut self) -> PathBuf {
        self.directory.disable_cleanup(true);
        self.directory.path().to_owned()
    }
}

const SERVER_CERTIFICATE: &str = "server.pem";
const SERVER_KEY: &str = "server.key";
const ACCOUNTS_KEY: &str = "service-accounts.key";
const ACCOUNTS_PUBLIC_KEY: &str = "service-accounts.pub";
const AUTHORITY_FILE: &str = "ca.pem";
const CALLER_CERTIFICATE: &str = "caller.pem";
const CALLER_KEY: &str = "caller.key";
const CALLER_KUBECONFIG: &str = "caller.kubeconfig";
const ADMISSION_FILE: &str = "admission.json";
const TOKENS_FILE: &str = "tokens.csv";
const AUDIT_POLICY: &str = "audit-policy.yaml";
const AUDIT_LOG: &str = "audit.log";

async fn start_etcd(directory: &Path, [clients, peers]: [SocketAddr; 2]) -> Result<(Process, SocketAddr), Error> {
    let (clients_url, peers_url) = (format!("http://{clients}"), format!("http://{peers}"));
    let mut etcd = Process::start(
        "etcd",
        &Artifacts::kubernetes("etcd")?,
        [
            // If the first attempt to start etcd fails, the second attempt uses another port. The directory's name
            // contains the port, so the second attempt begins with an empty directory.
            format!("--data-dir=etcd-{}", clients.port()),
            format!("--listen-client-urls={clients_url}"),
            format!("--advertise-client-urls={clients_url}"),
            format!("--listen-peer-urls={peers_url}"),
            format!("--initial-advertise-peer-urls={peers_url}"),
            format!("--initial-cluster=default={peers_url}"),
            // The data of a test need not survive a crash, and without fsync, etcd writes faster.
            "--unsafe-no-fsync".to_owned(),
            "--logger=zap".to_owned(),
        ],
        directory,
    )?;
    let (client, health) = (Client::new()?, format!("{clients_url}/health"));
    let is_ready = async || match client.get(&health).await {
        Ok(reply) => reply.status.is_success(),
        Err(_) => false,
    };
    etcd.wait_until_ready(is_ready).await?;
    Ok((etcd, clients))
}

async fn start_api_server(
    directory: &Path,
    etcd_address: SocketAddr,
    address: SocketAddr,
    authority: &str,
) -> Result<(Process, SocketAddr), Error> {
    let mut api_server = Process::start(
        "kube-apiserver",
        &Artifacts::kubernetes("kube-apiserver")?,
        [
            format!("--etcd-servers=http://{etcd_address}"),
            format!("--bind-address={}", address.ip()),
            format!("--secure-port={}", address.port()),
            format!("--advertise-address={}", address.ip()),
            // This keeps the API server from publishing its loopback address as an endpoint, which Kubernetes rejects.
            "--endpoint-reconciler-type=none".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            format!("--tls-cert-file={SERVER_CERTIFICATE}"),
            format!("--tls-private-key-file={SERVER_KEY}"),
            format!("--token-auth-file={TOKENS_FILE}"),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-signing-key-file={ACCOUNTS_KEY}"),
            format!("--service-account-key-file={ACCOUNTS_PUBLIC_KEY}"),
            // This admission plugin waits for the service account `default`, which no controller creates here.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            format!("--admission-control-config-file={ADMISSION_FILE}"),
            format!("--audit-policy-file={AUDIT_POLICY}"),
            format!("--audit-log-path={AUDIT_LOG}"),
            "--profiling=false".to_owned(),
        ],
        directory,
    )?;
    let client = Client::with_trust(ClientTrust {
        authorities: authority,
        identity: None,
    })?;
    let rest = UserClient::new(client, format!("https://{address}"), &ClusterUser::Admin.token());
    let is_ready = async || rest.get("/readyz").await.is_ok_and(|reply| reply.status.is_success());
    api_server.wait_until_ready(is_ready).await?;
    Ok((api_server, address))
}

fn write_settings(directory: &Path, credentials: &TestCredentials) -> Result<(), Error> {
    let tokens: String = ClusterUser::ALL
        .iter()
        .map(|user| {
            format!(
                "{},{name},{name},\"{}\"\n",
                user.token(),
                user.groups(),
                name = user.name()
            )
        })
        .collect();
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Request", "verbs": ["create", "update", "patch", "delete", "connect"]}],
    });
    let hooks = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": directory.join(CALLER_KUBECONFIG),
    });
    let admission = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [
            {"name": "MutatingAdmissionWebhook", "configuration": hooks},
            {"name": "ValidatingAdmissionWebhook", "configuration": hooks},
        ],
    });
    // The API server reads this kubeconfig to find the client certificate for a webhook server. In such a file, the
    // name of a "user" is the host of the webhook server, and `*` stands for every host.
    let caller = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "users": [{"name": "*", "user": {
            "client-certificate": directory.join(CALLER_CERTIFICATE),
            "client-key": directory.join(CALLER_KEY),
        }}],
    });
    let (admission, caller) = (admission.to_string(), caller.to_string());
    let files: [(&str, &str); 11] = [
        (AUTHORITY_FILE, &credentials.authority),
        (CALLER_CERTIFICATE, &credentials.caller_certificate),
        (CALLER_KEY, &credentials.caller_key),
        (CALLER_KUBECONFIG, &caller),
        (ADMISSION_FILE, &admission),
        (SERVER_CERTIFICATE, &credentials.certificate),
        (SERVER_KEY, &credentials.key),
        (ACCOUNTS_KEY, &credentials.accounts_key),
        (ACCOUNTS_PUBLIC_KEY, &credentials.accounts_public_key),
        (TOKENS_FILE, &tokens),
        (AUDIT_POLICY, &policy.to_string()),
    ];
    files
        .iter()
        .try_for_each(|(name, text)| write(&directory.join(name), text))
}

fn kubeconfig_path(directory: &Path, user: ClusterUser) -> PathBuf {
    directory.join(format!("{}.kubeconfig", user.name()))
}

fn kubeconfig_text(address: SocketAddr, authority: &str, user: ClusterUser) -> String {
    use base64::{Engine as _, prelude::BASE64_STANDARD};

    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {
            "server": format!("https://{address}"),
            "certificate-authority-data": BASE64_STANDARD.encode(authority),
        }}],
        "users": [{"name": user.name(), "user": {"token": user.token()}}],
        "contexts": [{"name": user.name(), "context": {"cluster": "test", "user": user.name()}}],
        "current-context": user.name(),
    })
    .to_string()
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(Error::io(path.display().to_string()))
}
