//! The configuration of a Pod, made from the operator's.

#![expect(
    clippy::indexing_slicing,
    reason = "assigning to a field of a JSON object that was just made cannot fail"
)]

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use admittance_admin::AdminConfig;
use admittance_definitions::{Mistakes, document};
use admittance_driver::{Config, FrontConfig, Limits};
use serde_json::{Map, Value as Json, json};

use super::{
    Error,
    admin::Admin,
    files::ConfigFiles,
    layout::{CACHE, CERTIFICATE_FILE, CHAINS_FROM_BESIDE, CLIENT_CA_FILE, KEY_FILE, STATE, TLS_FROM_BESIDE},
};

/// The configuration of a Pod, and what other objects need to know of it.
#[derive(Debug)]
pub(super) struct Configuration {
    root: Map<String, Json>,
    /// The CAs of clients, as PEM; `None` for any client.
    pub(super) client_ca: Option<String>,
    /// The users of the admin port.
    pub(super) admin: Admin,
    /// Other files that it names.
    pub(super) carried: ConfigFiles,
    /// Whether it named registry credentials, which are not included.
    pub(super) had_credentials: bool,
    pub(super) webhook_port: u16,
    pub(super) admin_port: u16,
    /// The longest time from a stop signal to the end.
    pub(super) shutdown: Duration,
    /// The timeout of all chains together.
    pub(super) request_timeout: Duration,
}

const WEBHOOK_PORT: u16 = 8443;
const ADMIN_PORT: u16 = 9090;

impl Configuration {
    /// A minimal configuration.
    pub(super) fn new() -> Self {
        let limits = FrontConfig::Reviews.default_limits();
        Self::from_parts(
            Map::new(),
            None,
            Admin::default(),
            limits,
            [WEBHOOK_PORT, ADMIN_PORT],
        )
    }

    /// From the operator's file. Settings of chains and limits are kept; paths and addresses are replaced by
    /// those of a Pod.
    ///
    /// # Errors
    ///
    /// When it is invalid, or the configuration of a proxy.
    pub(super) fn read(path: &Path) -> Result<(Self, Config), Error> {
        let config = Config::read(path)?;
        if !matches!(config.front, FrontConfig::Reviews) {
            return Err(Error::NoWebhookServer(path.to_owned()));
        }
        let mut mistakes = Mistakes::new();
        let document = document::read_one(path, &mut mistakes);
        let mut root = document
            .map(|document| document.root().json())
            .unwrap_or_default();
        let directory = path.parent().unwrap_or(Path::new(""));
        let carried = ConfigFiles::of(&mut root, directory)?;
        let Json::Object(root) = root else {
            return Err(mistakes.into_result(()).err().unwrap_or_default().into());
        };
        let client_ca = root
            .get("listen")
            .and_then(|listen| listen.get("tls")?.get("clientCa")?.as_str())
            .map(|file| directory.join(file))
            .map(|file| fs::read_to_string(&file).map_err(|source| Error::File { path: file, source }))
            .transpose()?;
        let admin = Admin::of(root.get("admin"), directory)?;
        // Addresses of the operator's machine do not apply to a Pod.
        let port = |address: Option<SocketAddr>, default| match address {
            Some(address) if address.ip().is_unspecified() => address.port(),
            _ => default,
        };
        let ports = [
            port(Some(config.listen.address), WEBHOOK_PORT),
            port(config.admin.as_ref().map(AdminConfig::address), ADMIN_PORT),
        ];
        let configuration = Self {
            carried,
            ..Self::from_parts(root, client_ca, admin, config.limits.clone(), ports)
        };
        Ok((configuration, config))
    }

    fn from_parts(
        mut root: Map<String, Json>,
        client_ca: Option<String>,
        admin: Admin,
        limits: Limits,
        [webhook_port, admin_port]: [u16; 2],
    ) -> Self {
        let own = [
            "listen",
            "admin",
            "dialect",
            "limits",
            "definitions",
            "store",
            "history",
        ];
        let [_, _, _, given_limits, _, given_store, given_history] = own.map(|name| root.remove(name));
        let mut tls = json!({
            "certificate": format!("{TLS_FROM_BESIDE}/{CERTIFICATE_FILE}"),
            "key": format!("{TLS_FROM_BESIDE}/{KEY_FILE}"),
        });
        if client_ca.is_some() {
            tls["clientCa"] = CLIENT_CA_FILE.into();
        }
        let everywhere = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port).to_string();
        let mut pod = Map::new();
        pod.insert(
            "listen".into(),
            json!({"address": everywhere(webhook_port), "tls": tls}),
        );
        pod.insert("admin".into(), admin.at(everywhere(admin_port)));
        pod.insert("dialect".into(), json!({"kubernetes": {}}));
        pod.insert("definitions".into(), json!([CHAINS_FROM_BESIDE]));
        let mut place = |name: &str, given: Option<Json>, directory: &str| {
            let mut section = match given {
                Some(Json::Object(section)) => section,
                _ => Map::new(),
            };
            section.insert("directory".into(), format!("{directory}/{name}").into());
            pod.insert(name.into(), section.into());
        };
        place("store", given_store, CACHE);
        place("history", given_history, STATE);
        if let Some(limits) = given_limits {
            pod.insert("limits".into(), limits);
        }
        // A ConfigMap must not contain secrets.
        let modules = root.get_mut("modules").and_then(Json::as_object_mut);
        let credentials = modules.and_then(|modules| modules.remove("dockerConfig"));
        // Lists are only needed without a cluster.
        root.remove("namespaces");
        root.remove("namespacesFile");
        pod.append(&mut root);
        Self {
            root: pod,
            client_ca,
            admin,
            carried: ConfigFiles::default(),
            had_credentials: credentials.is_some(),
            webhook_port,
            admin_port,
            shutdown: limits.shutdown_delay + limits.shutdown_timeout,
            request_timeout: limits.request_timeout,
        }
    }

    /// Reads namespaces and granted kinds from the API server, as the Pod's service account.
    pub(super) fn use_cluster(&mut self) {
        // A kubeconfig of the operator's machine is of no use in a Pod.
        self.root.insert("cluster".into(), json!({}));
    }

    /// Whether it uses the cluster.
    pub(super) fn uses_cluster(&self) -> bool {
        self.root.contains_key("cluster")
    }

    /// The text of the file.
    pub(super) fn text(&self) -> String {
        document::to_yaml(&Json::Object(self.root.clone()))
    }
}
