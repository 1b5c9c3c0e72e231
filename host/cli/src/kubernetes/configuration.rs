//! Makes the configuration of a Pod from the operator's configuration.

#![expect(
    clippy::indexing_slicing,
    reason = "assigning to a field of a JSON object that was just made cannot fail"
)]

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use admittance::NamespacedChains;
use admittance_admin::AdminConfig;
use admittance_definitions::document;
use admittance_driver::{Config, FrontConfig, Limits, ReviewsConfig};
use admittance_fleet::{CertificateConfig, OwnCertificate, PolicySystem, WebhookRegistration, audit::AuditConfig};
use serde_json::{Map, Value as Json, json};

use super::{
    files::{self, MountedTexts},
    layout::{CA_FILE, CACHE, CLIENT_CA_FILE, RELATIVE_CHAINS, RELATIVE_KUBECONFIG, RELATIVE_TLS, STATE},
};
use crate::files::read;

#[derive(Debug)]
pub(super) struct Configuration {
    root: Map<String, Json>,
    /// The CAs of clients in PEM; `None` if clients need no certificate.
    pub(super) client_ca: Option<String>,
    /// The files that the admin port needs, including keys and tokens.
    pub(super) admin_files: MountedTexts,
    pub(super) files: MountedTexts,
    /// Whether credentials for registries were left out, because the Pod's configuration is in a ConfigMap.
    pub(super) had_credentials: bool,
    /// Whether credentials for HTTP requests by plugins were left out.
    pub(super) had_plugin_credentials: bool,
    /// Whether headers or a key for the collector of traces were left out.
    pub(super) had_tracing_secrets: bool,
    pub(super) names_certificate: bool,
    pub(super) webhook_port: u16,
    pub(super) admin_port: u16,
    pub(super) reads_resources: bool,
    /// The source of the webhooks' certificate, if the Pods register the webhooks themselves; otherwise `None`.
    pub(super) kept_webhooks_certificate: Option<CertificateOrigin>,
    pub(super) audit: Option<AuditConfig>,
    pub(super) namespaced_chains: NamespacedChains,
    pub(super) policies: Vec<PolicySystem>,
    /// The longest time from a stop signal to the end of the program in the Pod.
    pub(super) shutdown_duration: Duration,
    pub(super) request_timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CertificateOrigin {
    SelfIssued,
    MountedSecret,
}

const WEBHOOK_PORT: u16 = 8443;
const ADMIN_PORT: u16 = 9090;

impl Configuration {
    pub(super) fn new() -> Self {
        let limits = ReviewsConfig::default().default_limits();
        Self::for_pod(Map::new(), None, &limits, [WEBHOOK_PORT, ADMIN_PORT])
    }

    pub(super) fn read(path: &Path) -> crate::Result<(Self, Config)> {
        let config = Config::read(path)?;
        if config.front.downcast_ref::<ReviewsConfig>().is_none() {
            return Err(format!(
                "{}: this is not the configuration of a webhook server; write `dialect: {{ kubernetes: {{}} }}`, \
                 without `upstream`",
                path.display()
            )
            .into());
        }
        let mut root = document::to_json(&path.display().to_string(), &read(path)?)?;
        let directory = path.parent().unwrap_or(Path::new(""));
        let files = files::mount_module_files(&mut root, directory)?;
        let admin_files = match root.get_mut("admin") {
            Some(Json::Object(section)) => files::mount_admin_files(section, directory)?,
            _ => MountedTexts::new(),
        };
        let ca_file = root.pointer("/listen/tls/clientCa").and_then(Json::as_str);
        let client_ca = ca_file.map(|file| read(&directory.join(file))).transpose()?;
        // A Pod listens on all addresses, because an address such as 10.0.0.5 belongs to the operator's machine. If the
        // configuration itself listens on all addresses, as in 0.0.0.0:8443, the Pod uses the same port, and otherwise
        // the default port.
        let port = |address: Option<SocketAddr>, default| match address {
            Some(address) if address.ip().is_unspecified() => address.port(),
            _ => default,
        };
        let ports = [
            port(Some(config.listen.address), WEBHOOK_PORT),
            port(config.admin.as_ref().map(AdminConfig::address), ADMIN_PORT),
        ];
        let audit = root.pointer("/dialect/kubernetes/audit").cloned();
        let names_certificate = root.pointer("/listen/tls").is_some();
        let root = root.as_object().cloned().unwrap_or_default();
        let mut stores = root.get("definitions").and_then(Json::as_array).into_iter().flatten();
        let resources = stores.find(|store| store.get("kubernetes").is_some()).cloned();
        let mut configuration = Self {
            files,
            admin_files,
            names_certificate,
            ..Self::for_pod(root, client_ca, &config.limits, ports)
        };
        if let Some(resources) = resources {
            configuration.read_resources(resources);
        }
        for location in &config.definitions {
            if let Some(namespaced) = location.namespaced_chains() {
                configuration.namespaced_chains = namespaced.clone();
            }
            configuration.policies.extend_from_slice(location.policies());
        }
        if let Some(webhooks) = config.front.webhooks() {
            let own_certificate = match &webhooks.certificate {
                CertificateConfig::Own(certificate) => Some(*certificate),
                CertificateConfig::Files(_) => None,
            };
            configuration.keep_webhooks(&webhooks.registration, own_certificate)?;
        }
        if let Some(section) = audit {
            configuration.audit = config.front.audit().cloned();
            configuration.root["dialect"]["kubernetes"]["audit"] = section;
            configuration.use_cluster();
        }
        Ok((configuration, config))
    }

    fn for_pod(
        mut given_root: Map<String, Json>,
        client_ca: Option<String>,
        limits: &Limits,
        [webhook_port, admin_port]: [u16; 2],
    ) -> Self {
        for replaced_key in ["listen", "dialect", "definitions", "namespaces", "namespacesFile"] {
            given_root.remove(replaced_key);
        }
        let mut remove_key = |section: &str, key: &str| {
            let section = given_root.get_mut(section).and_then(Json::as_object_mut);
            section.and_then(|section| section.remove(key)).is_some()
        };
        let had_credentials = remove_key("modules", "dockerConfig");
        let had_plugin_credentials = remove_key("pluginHttp", "credentials");
        let had_tracing_headers = remove_key("tracing", "headers");
        let tls = given_root
            .get_mut("tracing")
            .and_then(|tracing| tracing.get_mut("tls"))
            .and_then(Json::as_object_mut);
        let had_tracing_key = tls.is_some_and(|tls| {
            tls.remove("certificate");
            tls.remove("key").is_some()
        });

        let any_address = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).to_string();
        let mut tls = files::own_certificate();
        if let (Some(tls), Some(_)) = (tls.as_object_mut(), &client_ca) {
            tls.insert("clientCa".into(), CLIENT_CA_FILE.into());
        }
        let mut root = Map::new();
        root.insert(
            "listen".into(),
            json!({"address": any_address(webhook_port), "tls": tls}),
        );
        root.insert("dialect".into(), json!({"kubernetes": {}}));
        root.insert("definitions".into(), json!([RELATIVE_CHAINS]));
        for (name, key, value) in [
            ("admin", "address", any_address(admin_port)),
            ("store", "directory", format!("{CACHE}/store")),
            ("history", "directory", format!("{STATE}/history")),
        ] {
            let mut section = Map::new();
            if let Some(Json::Object(given_section)) = given_root.remove(name) {
                section = given_section;
            }
            section.insert(key.into(), value.into());
            root.insert(name.into(), section.into());
        }
        root.append(&mut given_root);
        Self {
            root,
            client_ca,
            admin_files: MountedTexts::new(),
            files: MountedTexts::new(),
            had_credentials,
            had_plugin_credentials,
            names_certificate: false,
            reads_resources: false,
            kept_webhooks_certificate: None,
            audit: None,
            namespaced_chains: NamespacedChains::default(),
            policies: Vec::new(),
            had_tracing_secrets: had_tracing_headers || had_tracing_key,
            webhook_port,
            admin_port,
            shutdown_duration: limits.shutdown_delay + limits.shutdown_timeout,
            request_timeout: limits.request_timeout,
        }
    }

    pub(super) fn use_cluster(&mut self) {
        // The operator's configuration may name a kubeconfig on the operator's machine. The section is replaced by an
        // empty one, with which the Pod uses its service account.
        self.root.insert("cluster".into(), json!({}));
    }

    /// Makes the Pod listen only on loopback, and use a kubeconfig among its files if it needs the cluster.
    pub(super) fn serve_node(&mut self) {
        for (section, port) in [("listen", self.webhook_port), ("admin", self.admin_port)] {
            if let Some(Json::Object(section)) = self.root.get_mut(section) {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string();
                section.insert("address".into(), address.into());
            }
        }
        if self.uses_cluster() {
            let cluster = json!({"kubeconfig": RELATIVE_KUBECONFIG});
            self.root.insert("cluster".into(), cluster);
        }
    }

    fn read_resources(&mut self, resources: Json) {
        self.reads_resources = true;
        let definitions = json!([RELATIVE_CHAINS, resources]);
        self.root.insert("definitions".into(), definitions);
        self.use_cluster();
    }

    /// Returns whether the configuration uses a Lease without giving it a name. Two installations would then share the
    /// Lease with the default name.
    pub(super) fn needs_lease(&self) -> bool {
        let definitions = self.root.get("definitions").and_then(Json::as_array);
        let mut stores = definitions.into_iter().flatten();
        match stores.find_map(|store| store.get("kubernetes")) {
            Some(section) => section.get("lease").is_none(),
            None => self.audit.is_some(),
        }
    }

    /// Makes the leader of the Pods write the webhook configurations, and issue the certificate unless it is in files.
    pub(super) fn keep_webhooks(
        &mut self,
        registration: &WebhookRegistration,
        certificate: Option<OwnCertificate>,
    ) -> Result<(), &'static str> {
        let WebhookRegistration {
            per_chain,
            timeout,
            failure_policy,
            excluded_namespaces,
            includes_kube_system,
            ..
        } = registration;
        let mut section = json!({
            "perChain": per_chain,
            "excludeNamespaces": excluded_namespaces,
            "includeKubeSystem": includes_kube_system,
        });
        if let Some(seconds) = timeout {
            section["timeoutSeconds"] = (*seconds).into();
        }
        if let Some(policy) = failure_policy {
            section["failurePolicy"] = policy.as_str().into();
        }
        let origin = match certificate {
            Some(OwnCertificate { days, overlap }) => {
                let overlap = humantime::format_duration(overlap).to_string();
                section["certificate"] = json!({"days": days, "overlap": overlap});
                if self.has_own_admin_tls() {
                    return Err(
                        "admin: tokens need TLS, and without `listen.tls` the certificate of the webhooks is in no \
                         file; write `admin.tls` with another one",
                    );
                }
                if let Some(Json::Object(listen)) = self.root.get_mut("listen") {
                    listen.remove("tls");
                }
                CertificateOrigin::SelfIssued
            }
            None => {
                section["caBundle"] = format!("{RELATIVE_TLS}/{CA_FILE}").into();
                CertificateOrigin::MountedSecret
            }
        };
        self.root["dialect"]["kubernetes"]["webhookConfigurations"] = section;
        self.kept_webhooks_certificate = Some(origin);
        self.use_cluster();
        Ok(())
    }

    pub(super) fn makes_certificate(&self) -> bool {
        self.kept_webhooks_certificate == Some(CertificateOrigin::SelfIssued)
    }

    pub(super) fn exports_traces(&self) -> bool {
        self.root.contains_key("tracing")
    }

    pub(super) fn uses_cluster(&self) -> bool {
        self.root.contains_key("cluster")
    }

    pub(super) fn has_admin_tls(&self) -> bool {
        self.has_admin_key("tls")
    }

    pub(super) fn has_own_admin_tls(&self) -> bool {
        let tls = self.root.get("admin").and_then(|admin| admin.get("tls"));
        tls == Some(&files::own_certificate())
    }

    /// Returns whether anyone can use the API below `/v1` of the admin port.
    pub(super) fn has_admin_users(&self) -> bool {
        self.has_admin_key("tokens") || self.has_admin_key("clients")
    }

    fn has_admin_key(&self, key: &str) -> bool {
        self.root.get("admin").is_some_and(|admin| admin.get(key).is_some())
    }

    pub(super) fn to_yaml(&self) -> String {
        document::to_yaml(&Json::Object(self.root.clone()))
    }
}
