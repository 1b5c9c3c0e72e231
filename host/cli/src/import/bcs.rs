//! Converts configurations of BCS's own programs to a configuration of this program.

use std::{collections::BTreeMap, fmt::Write, path::Path};

use admittance_definitions::document::yaml_to_json;
use serde_json::{Map, Value};

use crate::files;

/// The maximum size of a BCS configuration in bytes. Real ones have a few kilobytes.
const MAX_CONFIG_SIZE: usize = 1 << 20;

/// The sections of a BCS configuration that are flattened: the key `port` in the section `service_config` is called
/// `port` here, and not `service_config.port`.
const SECTIONS: [&str; 9] = [
    "service_config",
    "metric_config",
    "zk_config",
    "cert_config",
    "log_config",
    "process_config",
    "local_config",
    "core_database",
    "bke",
];

const ROLES_ADVICE: &str = "write the roles of users to a file for dialect.gateway.roles.file, or name the authorization system in \
                     dialect.gateway.roles.subscription; see docs/cluster-roles.md";
/// The keys of a BCS configuration to which no key of this program corresponds, each with the reason or a hint. A key
/// that ends in `.`, `_` or `-` stands for all keys with that prefix. If several entries match, the first one applies.
const UNSUPPORTED_KEYS: [(&str, &str); 24] = [
    (
        "bootstrap_users",
        "`admittance users import` copies them with their tokens; create others with `admittance users create`",
    ),
    (
        "rbac.turn_on_rbac",
        "every user is impersonated; grant the permission Cluster to those who may do what their role bindings allow",
    ),
    ("turn_on_rbac", "see rbac.turn_on_rbac"),
    ("rbac.", ROLES_ADVICE),
    ("turn_on_", ROLES_ADVICE),
    ("rbac_data", ROLES_ADVICE),
    ("bkiam_auth.bkiam_auth_sub_server", ROLES_ADVICE),
    ("bkiam_auth_sub_server", ROLES_ADVICE),
    (
        "cluster_credentials_fixtures",
        "`admittance clusters create`, and an agent in each cluster",
    ),
    (
        "peer_token",
        "write a secret, and name it in dialect.gateway.peers.secretFile",
    ),
    (
        "bkiam_auth.bkiam_auth_token_whitelist",
        "list the digests of these tokens in a file for dialect.gateway.tokens.file, or create users with tokens",
    ),
    (
        "bkiam_auth.",
        "there are users with tokens of their own instead of BlueKing's IAM",
    ),
    ("edition", "tokens are verified by the gateway itself and not by a PaaS"),
    ("license_server_config.", "no license is needed"),
    ("tke.", "the routes of TKE belong to one cloud"),
    (
        "insecure_",
        "one port; something before it may end TLS, or a second gateway serve loopback",
    ),
    (
        "consoleproxy_port",
        "drivers know it: dialect.bcs.console.port of each, or mesos_webconsole_proxy_port of the original",
    ),
    ("mesos_webconsole_proxy_port", "see consoleproxy_port"),
    (
        "log_dir",
        "the log goes to standard error, for systemd or the container runtime",
    ),
    ("pid_dir", "systemd or the container runtime knows the process"),
    ("admission_webhook", "hooks are called if there are definitions"),
    ("etcdRegistry.", "drivers register only in ZooKeeper"),
    ("register-", "drivers register only in ZooKeeper"),
    ("insecure-skip-verify", "drivers register only in ZooKeeper"),
];
const LOGGER_OPTIONS: [&str; 8] = [
    "log_max_size",
    "log_max_num",
    "logtostderr",
    "alsologtostderr",
    "v",
    "stderrthreshold",
    "vmodule",
    "log_backtrace_at",
];

/// A key is removed when it has been converted, so the remaining keys have no equivalent.
struct OriginalConfig {
    /// The configured values by key. The key is `rbac.turn_on_rbac`, for example, for `turn_on_rbac` in the section
    /// `rbac`. For the sections in `SECTIONS`, the name of the section is left out.
    values: BTreeMap<String, Value>,
}

impl OriginalConfig {
    fn read(path: &Path) -> crate::Result<Self> {
        let text = files::read(path)?;
        let name = path.display().to_string();
        let json = yaml_to_json(&name, &text, MAX_CONFIG_SIZE)
            .map_err(|mistake| format!("{name}: line {}: {}", mistake.location.line, mistake.message))?;
        let root: Map<String, Value> = serde_json::from_slice(&json.unwrap_or_default())
            .map_err(|_| format!("{name} is not an object of keys and values"))?;
        let mut original = Self {
            values: BTreeMap::new(),
        };
        original.add_values("", &root.into());
        Ok(original)
    }

    fn add_values(&mut self, key: &str, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let is_group = key.is_empty() || SECTIONS.contains(&key);
                    let key = if is_group {
                        name.clone()
                    } else {
                        format!("{key}.{name}")
                    };
                    self.add_values(&key, value);
                }
            }
            Value::Null => {}
            Value::String(text) if text.is_empty() => {}
            value => {
                self.values.insert(key.to_owned(), value.clone());
            }
        }
    }

    fn take(&mut self, key: &str) -> Option<String> {
        match self.values.remove(key)? {
            Value::String(text) => Some(text),
            value => Some(value.to_string()),
        }
    }

    fn take_address(&mut self, ip: &str, port_key: &str, default: &str) -> String {
        let port = self.take(port_key).unwrap_or_else(|| default.to_owned());
        if ip.contains(':') {
            quoted(&format!("[{ip}]:{port}"))
        } else {
            quoted(&format!("{ip}:{port}"))
        }
    }

    /// Returns the sections `listen` and `admin`. If `verifies_clients` is true, `listen` also contains `clientCa`: the
    /// CA that signs the certificates of clients.
    fn take_ports(&mut self, port: &str, metric_port: &str, verifies_clients: bool) -> String {
        let ip = self.take("address").unwrap_or_else(|| "0.0.0.0".to_owned());
        let mut text = format!("listen:\n  address: {}\n", self.take_address(&ip, "port", port));
        let certificate = self.take("server_cert_file").zip(self.take("server_key_file"));
        if let Some((certificate, key)) = certificate {
            let ca_file = self.values.get("ca_file").and_then(Value::as_str);
            let ca = ca_file
                .filter(|_| verifies_clients)
                .map_or_else(String::new, |ca| format!(", clientCa: {}", quoted(ca)));
            let (certificate, key) = (quoted(&certificate), quoted(&key));
            let _ = writeln!(text, "  tls: {{ certificate: {certificate}, key: {key}{ca} }}");
        }
        let admin = self.take_address(&ip, "metric_port", metric_port);
        if !matches!(ip.as_str(), "0.0.0.0" | "::") {
            self.values.entry("local_ip".to_owned()).or_insert_with(|| ip.into());
        }
        let _ = writeln!(text, "admin: {{ address: {admin} }}");
        text
    }

    fn take_client_tls(&mut self) -> String {
        let ca = self.take("ca_file").map(|ca| format!("ca: {}", quoted(&ca)));
        let pair = self
            .take("client_cert_file")
            .zip(self.take("client_key_file"))
            .map(|(certificate, key)| format!("certificate: {}, key: {}", quoted(&certificate), quoted(&key)));
        let fields: Vec<_> = ca.into_iter().chain(pair).collect();
        if fields.is_empty() {
            String::new()
        } else {
            format!("tls: {{ {} }}", fields.join(", "))
        }
    }

    fn take_servers(&mut self, key: &str, default: Option<&str>) -> Option<String> {
        let servers: Vec<_> = self
            .take(key)
            .or_else(|| default.map(str::to_owned))?
            .split([',', ';'])
            .map(|server| quoted(server.trim()))
            .collect();
        Some(format!("servers: [{}]", servers.join(", ")))
    }

    /// Returns the section `zookeeper`. Each element of `ensembles` is (name of a ZooKeeper ensemble, key of its
    /// servers in BCS's configuration, default for a missing key).
    fn take_ensembles(&mut self, ensembles: &[(&str, &str, Option<&str>)]) -> String {
        let mut text = String::new();
        for &(name, key, default) in ensembles {
            if let Some(servers) = self.take_servers(key, default) {
                let _ = writeln!(text, "  {name}: {{ {servers} }}");
            }
        }
        if text.is_empty() {
            return text;
        }
        format!(
            "zookeeper:\n{text}  # If its nodes have an owner, add the user to each ensemble, see docs/bcs-migration.md:\n  \
             # digest: {{ user: bcsce, passwordFile: zookeeper.password }}\n"
        )
    }

    /// Returns the section `registration`, commented out. Otherwise the new driver would register when it is started
    /// for the first time, and clients would use it before it has been tested.
    fn take_registration(&mut self) -> String {
        let ip = self.take("local_ip").unwrap_or_else(|| "10.0.0.5".to_owned());
        let address = self.take("external_ip").zip(self.take("external_port"));
        let external = address.map_or_else(String::new, |(ip, port)| {
            format!(", external: {{ ip: {}, port: {port} }}", quoted(&ip))
        });
        format!(
            "# Write this when it answers as it should: clients then come here.\n\
             # registration: {{ ip: {}{external} }}\n",
            quoted(&ip)
        )
    }

    fn comments_on_other_keys(self) -> String {
        let mut text = String::new();
        for key in self.values.keys() {
            let matches_key = |pattern: &str| {
                if pattern.ends_with(['.', '_', '-']) {
                    key.starts_with(pattern)
                } else {
                    key == pattern
                }
            };
            let row = UNSUPPORTED_KEYS.iter().find(|(pattern, _)| matches_key(pattern));
            let reason = match row {
                Some((_, reason)) => *reason,
                None if LOGGER_OPTIONS.contains(&key.as_str()) => {
                    "log.level, or --log, instead of the options of Go's logger"
                }
                None => "this key is not known; see docs/bcs-migration.md",
            };
            let _ = writeln!(text, "# {key}: no equivalent: {reason}");
        }
        text
    }
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

pub(super) fn driver_config(path: &Path) -> crate::Result<String> {
    let mut original = OriginalConfig::read(path)?;
    let cluster = original.take("cluster").ok_or_else(|| {
        format!(
            "{}: `cluster` is missing, without which the original does not start",
            path.display()
        )
    })?;
    let mut text = header_comment(path);
    text.push_str(&original.take_ports("8080", "8081", true));
    let kubeconfig = original.take("kubeconfig");
    let _ = writeln!(
        text,
        "dialect:\n  bcs:\n    cluster: {}\n    behind: scheduler",
        quoted(&cluster)
    );
    if let Some(port) = original.take("mesos_webconsole_proxy_port") {
        let _ = writeln!(text, "    console: {{ port: {port} }}");
    }
    if kubeconfig.is_some() {
        text.push_str("    customResources: true\n");
    }
    text.push_str(&original.take_ensembles(&[
        ("cluster", "sched_regdiscv", Some("127.0.0.1:2181")),
        ("service", "bcs_zookeeper", None),
    ]));
    let _ = writeln!(text, "upstream:\n  discover: {{}}");
    let tls = original.take_client_tls();
    if !tls.is_empty() {
        let _ = writeln!(text, "  {tls}");
    }
    if let Some(kubeconfig) = kubeconfig {
        let _ = writeln!(text, "cluster: {{ kubeconfig: {} }}", quoted(&kubeconfig));
    }
    text.push_str("# Or `customResources: {}`, or files: see where the old driver keeps them.\ndefinitions: [ { zookeeper: {} } ]\n");
    text.push_str(&original.take_registration());
    text.push_str(&original.comments_on_other_keys());
    Ok(text)
}

/// Converts the configuration of a gateway: bcs-api.yaml, or the JSON that the published bcs-api reads.
pub(super) fn gateway_config(path: &Path) -> crate::Result<String> {
    let mut original = OriginalConfig::read(path)?;
    let mut text = header_comment(path);
    if !original.values.contains_key("server_cert_file") {
        // bcs-api serves TLS on `address` and `port` only if it has a certificate. Otherwise it uses `insecure_address`
        // and `insecure_port`, so these are the ones to convert.
        for (key, insecure) in [("address", "insecure_address"), ("port", "insecure_port")] {
            if let Some(value) = original.values.remove(insecure) {
                original.values.insert(key.to_owned(), value);
            }
        }
    }
    let verifies_clients = original.take("verify_client_tls").as_deref() == Some("true");
    text.push_str(&original.take_ports("8443", "8081", verifies_clients));
    text.push_str(&original.take_ensembles(&[("service", "bcs_zookeeper", None)]));
    text.push_str("dialect:\n  gateway:\n    discover: {}\n    services: {}\n");
    let tls = original.take_client_tls();
    if !tls.is_empty() {
        let _ = writeln!(text, "    {tls}");
    }
    if let Some(dsn) = original.take("dsn").or_else(|| original.take("mysql_dsn")) {
        let mysql = mysql_config(&dsn).ok_or_else(|| {
            format!(
                "{}: core_database.dsn, or bke.mysql_dsn, is not of the form \
                 user:password@tcp(host:port)/database: correct it, or remove it to write the database yourself",
                path.display()
            )
        })?;
        let _ = writeln!(
            text,
            "    accounts:\n      # The password stands in the DSN: (umask 077; printf %s PASSWORD > mysql.password)\n      {mysql}"
        );
        text.push_str("      # (umask 077; openssl rand -base64 32 > accounts.key)\n      keyFile: accounts.key\n");
        text.push_str("    tokens: { accounts: {} }\n");
    }
    text.push_str(&original.take_registration());
    text.push_str(&original.comments_on_other_keys());
    Ok(text)
}

fn header_comment(path: &Path) -> String {
    format!(
        "# From {}. Keys without an equivalent are at the end.\n",
        path.display()
    )
}

/// Returns the configuration of the database that a DSN names, without the password.
fn mysql_config(dsn: &str) -> Option<String> {
    let (login, target) = dsn.rsplit_once("@tcp(")?;
    let (server, database) = target.split_once(")/")?;
    let (user, password) = match login.split_once(':') {
        Some((user, _)) => (user, ", passwordFile: mysql.password"),
        None => (login, ""),
    };
    let database = database.split('?').next()?;
    Some(format!(
        "mysql: {{ server: {}, database: {}, user: {}{password} }}",
        quoted(server),
        quoted(database),
        quoted(user)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example configuration in BCS's documentation of bcs-api, with values filled in.
    const BCS_API: &str = "edition: ee
service_config: { address: 0.0.0.0, port: 8443, insecure_address: 0.0.0.0, insecure_port: 8080 }
metric_config: { metric_port: 8087 }
zk_config:
  bcs_zookeeper: 10.0.0.1:2181,10.0.0.2:2181
cert_config: { ca_file: ca.pem, server_cert_file: s.pem, server_key_file: s.key, client_cert_file: \"\" }
license_server_config: { ls_address: license }
log_config: { log_dir: ./logs, v: 0 }
process_config: { pid_dir: }
local_config: { local_ip: 10.0.0.9 }
bkiam_auth: { auth: false, bkiam_auth_token_whitelist: [a] }
core_database:
  dsn: \"root:a:@b@tcp(10.0.0.3:3306)/bke_core?charset=utf8mb4\"
bootstrap_users: [{ name: admin, is_super_user: true, tokens: [x] }]
rbac: { turn_on_rbac: true, turn_on_auth: false, turn_on_conf: false }
consoleproxy_port: 8080
unheard_of: 1
";

    fn import_text(text: &str, import: fn(&Path) -> crate::Result<String>) -> crate::Result<String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("original");
        std::fs::write(&path, text).unwrap();
        import(&path)
    }

    #[test]
    fn every_key_of_bcs_api_has_an_equivalent_or_a_comment() {
        let text = import_text(BCS_API, gateway_config).unwrap();
        for part in [
            "address: \"0.0.0.0:8443\"",
            "admin: { address: \"0.0.0.0:8087\" }",
            "    services: {}\n",
            "tls: { certificate: \"s.pem\", key: \"s.key\" }",
            "    tls: { ca: \"ca.pem\" }",
            "service: { servers: [\"10.0.0.1:2181\", \"10.0.0.2:2181\"] }",
            "mysql: { server: \"10.0.0.3:3306\", database: \"bke_core\", user: \"root\", passwordFile: mysql.password }",
            "# registration: { ip: \"10.0.0.9\" }",
            "# bkiam_auth.auth: no equivalent: there are users",
            "# bkiam_auth.bkiam_auth_token_whitelist: no equivalent: list the digests",
            "# license_server_config.ls_address: no equivalent: no license",
            "# rbac.turn_on_rbac: no equivalent: every user is impersonated",
            "# insecure_port: no equivalent: one port",
            "# v: no equivalent: log.level",
            "# unheard_of: no equivalent: this key is not known",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("a:@b") && !text.contains("pid_dir"), "{text}");
        let flat = r#"{"address": "10.0.0.1", "bke": {"mysql_dsn": "u@tcp(h:1)/d", "peer_token": "secret"}}"#;
        let text = import_text(flat, gateway_config).unwrap();
        assert!(
            text.contains("user: \"u\" }") && text.contains("# peer_token: no equivalent"),
            "{text}"
        );
        assert!(!text.contains("secret:") && !text.contains("\"secret\""), "{text}");
        let verifying = BCS_API.replace("cert_config: {", "verify_client_tls: true\ncert_config: {");
        let text = import_text(&verifying, gateway_config).unwrap();
        assert!(text.contains("key: \"s.key\", clientCa: \"ca.pem\" }"), "{text}");
        let plain = BCS_API.replace("server_cert_file: s.pem", "server_cert_file: \"\"");
        let text = import_text(&plain, gateway_config).unwrap();
        assert!(
            text.contains("address: \"0.0.0.0:8080\"") && !text.contains("# insecure"),
            "{text}"
        );
    }

    #[test]
    fn every_setting_of_bcs_mesos_driver_is_converted_or_explained_in_a_comment() {
        let original = r#"{"address": "10.0.0.5", "port": 8090, "metric_port": 8091, "cluster": "BCS-MESOS-1",
            "sched_regdiscv": "z:2181", "kubeconfig": "/k", "mesos_webconsole_proxy_port": 8083,
            "external_ip": "1.2.3.4", "external_port": 80, "etcdRegistry": {"etcd_feature": false}, "log_dir": "x"}"#;
        let text = import_text(original, driver_config).unwrap();
        for part in [
            "cluster: \"BCS-MESOS-1\"",
            "console: { port: 8083 }",
            "cluster: { servers: [\"z:2181\"] }",
            "cluster: { kubeconfig: \"/k\" }",
            "registration: { ip: \"10.0.0.5\", external: { ip: \"1.2.3.4\", port: 80 } }",
            "# digest: { user: bcsce",
            "# etcdRegistry.etcd_feature: no equivalent: drivers register only in ZooKeeper",
            "# log_dir: no equivalent",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(import_text("{}", driver_config).is_err());
        for text in ["a: [", "[1, 2]", "core_database: { dsn: \"root@/bke\" }"] {
            assert!(import_text(text, gateway_config).is_err(), "{text}");
        }
    }
}
