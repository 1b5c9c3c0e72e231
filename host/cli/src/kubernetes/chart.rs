//! Writes a Helm chart, and renders its templates to the objects that `kubernetes manifests` prints.
//!
//! The templates are the same in all charts. What differs between installations is in the chart's directory `files/`:
//! definitions, modules and configuration, and facts about them that the templates need. The command's arguments become
//! the defaults of the chart's values.

use std::{collections::BTreeMap, fs, io, path::Path, time::Duration};

use admittance_definitions::document::{to_json, to_yaml};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::{
    Installation, PreparedInstallation,
    certificates::Certificates,
    configuration::Configuration,
    crds,
    files::MountedTexts,
    layout::{CA_FILE, CERTIFICATE_FILE, CLIENT_CA_FILE, CONFIG_FILE, KEY_FILE},
    manifest::CommentedManifest,
    roles, template,
    values::KubernetesVersion,
};
use crate::files::{self, PUBLIC_MODE};

/// Embeds files from the directory `chart/templates`.
macro_rules! templates {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("chart/templates/", $name)))),*]
    };
}

const TEMPLATES: [(&str, &str); 12] = templates![
    "NOTES.txt",
    "_helpers.tpl",
    "certificate.yaml",
    "configmap.yaml",
    "deployment.yaml",
    "horizontalpodautoscaler.yaml",
    "networkpolicy.yaml",
    "poddisruptionbudget.yaml",
    "roles.yaml",
    "service.yaml",
    "serviceaccount.yaml",
    "servicemonitor.yaml",
];

const VALUES_FILE: &str = "values.yaml";

/// The directories of a chart that contain only generated files. They are emptied before a chart is written.
const OWN_DIRECTORIES: [&str; 3] = ["templates", "files", "crds"];

pub(super) type ChartFiles = BTreeMap<String, Vec<u8>>;

pub(super) fn chart_files(installation: &Installation, prepared: &PreparedInstallation) -> crate::Result<ChartFiles> {
    let PreparedInstallation {
        configuration, bundle, ..
    } = prepared;
    let values = template_values(installation, prepared);
    let render = |text| template::render(text, &values, &ChartFiles::new());
    let facts = serde_json::to_value(InstallationFacts::new(installation, prepared))?;
    let mut files = ChartFiles::new();
    let mut add = |path: String, content: &[u8]| files.insert(path, content.to_vec());
    add("Chart.yaml".to_owned(), chart_metadata(installation).as_bytes());
    add(
        VALUES_FILE.to_owned(),
        render(include_str!("chart/values.yaml"))?.as_bytes(),
    );
    let schema = render(include_str!("chart/values.schema.json"))?;
    add("values.schema.json".to_owned(), schema.as_bytes());
    add("files/installation.yaml".to_owned(), to_yaml(&facts).as_bytes());
    for (name, text) in TEMPLATES {
        add(format!("templates/{name}"), text.as_bytes());
    }
    for (name, text) in config_files(configuration) {
        add(format!("files/config/{name}"), text.as_bytes());
    }
    for (name, text) in &bundle.documents {
        add(format!("files/chains/{name}"), text.as_bytes());
    }
    for (name, bytes) in bundle.modules.iter().flat_map(|module| &module.files) {
        add(format!("files/modules/{name}"), bytes);
    }
    if configuration.reads_resources {
        let texts: String = crds::manifests()?.iter().map(CommentedManifest::text).collect();
        add("crds/admittance.yaml".to_owned(), texts.as_bytes());
    }
    Ok(files)
}

fn config_files(configuration: &Configuration) -> MountedTexts {
    let mut files = configuration.files.clone();
    files.insert(CONFIG_FILE.to_owned(), configuration.to_yaml());
    if let Some(authorities) = &configuration.client_ca {
        files.insert(CLIENT_CA_FILE.to_owned(), authorities.clone());
    }
    files
}

/// Returns the objects of the chart with its default values, the namespace and the Secrets, in the order to apply them.
pub(super) fn chart_manifests(
    installation: &Installation,
    prepared: &PreparedInstallation,
    certificates: Option<&Certificates>,
) -> crate::Result<Vec<CommentedManifest>> {
    let mut files = chart_files(installation, prepared)?;
    if let Some(certificates) = certificates {
        for (name, text) in [
            (CERTIFICATE_FILE, &certificates.certificate),
            (KEY_FILE, &certificates.key),
            (CA_FILE, &certificates.authority),
        ] {
            files.insert(format!("secrets/tls/{name}"), text.clone().into_bytes());
        }
    }
    for (name, text) in &prepared.configuration.admin_files {
        files.insert(format!("secrets/admin/{name}"), text.clone().into_bytes());
    }
    let values = files.get(VALUES_FILE).map(|text| String::from_utf8_lossy(text));
    let values = to_json(VALUES_FILE, &values.unwrap_or_default())?;
    let yaml_templates = TEMPLATES.iter().filter(|(name, _)| name.ends_with(".yaml"));
    let templates = yaml_templates.map(|(_, text)| *text).chain([
        include_str!("templates/namespace.yaml"),
        include_str!("templates/secrets.yaml"),
    ]);
    render_manifests(installation, &values, templates, &files)
}

pub(super) fn render_manifests(
    installation: &Installation,
    values: &Json,
    templates: impl IntoIterator<Item = &'static str>,
    files: &ChartFiles,
) -> crate::Result<Vec<CommentedManifest>> {
    let release = json!({"Name": installation.name, "Namespace": installation.namespace});
    let root = json!({"Release": release, "Values": values});
    let mut manifests = Vec::new();
    for template in templates {
        let text = template::render(template, &root, files)? + "\n";
        for document in text.split("\n---\n") {
            manifests.extend(CommentedManifest::parse(&format!("{document}\n"))?);
        }
    }
    manifests.sort_by_key(CommentedManifest::rank);
    Ok(manifests)
}

/// The content of `files/installation.yaml`, which users of the chart cannot change by values.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InstallationFacts<'a> {
    webhook_port: u16,
    admin_port: u16,
    admin_scheme: &'static str,
    admin_uses_webhook_certificate: bool,
    has_admin_secret: bool,
    grace_period_seconds: u64,
    /// Whether the leader's Lease must be named after the release, so that two installations do not share one.
    needs_lease: bool,
    calls_out: bool,
    stock_directory: Option<&'a str>,
    modules: Vec<ModuleFiles<'a>>,
    /// The rules of the Pods' ClusterRole, except those for webhook configurations, which the templates add.
    cluster_rules: Vec<Json>,
    disruption_budget_version: &'static str,
    autoscaling_version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ModuleFiles<'a> {
    config_map_suffix: &'a str,
    files: Vec<&'a str>,
}

impl<'a> InstallationFacts<'a> {
    fn new(installation: &Installation, prepared: &'a PreparedInstallation) -> Self {
        /// The time by which the Pod's grace period exceeds the longest shutdown of the program.
        const SHUTDOWN_RESERVE: Duration = Duration::from_secs(5);
        let PreparedInstallation {
            configuration, bundle, ..
        } = prepared;
        let modules = bundle.modules.iter().map(|module| ModuleFiles {
            config_map_suffix: &module.suffix,
            files: module.files.iter().map(|(name, _)| name.as_str()).collect(),
        });
        Self {
            webhook_port: configuration.webhook_port,
            admin_port: configuration.admin_port,
            // Probes work with HTTPS, because the kubelet does not verify the certificate.
            admin_scheme: if configuration.has_admin_tls() { "HTTPS" } else { "HTTP" },
            admin_uses_webhook_certificate: configuration.has_own_admin_tls(),
            has_admin_secret: !configuration.admin_files.is_empty(),
            grace_period_seconds: (configuration.shutdown_duration + SHUTDOWN_RESERVE)
                .as_secs_f64()
                .ceil() as u64,
            needs_lease: configuration.needs_lease(),
            calls_out: prepared.calls_out(),
            stock_directory: bundle.stock_directory.as_deref(),
            modules: modules.collect(),
            cluster_rules: roles::cluster_rules(prepared),
            disruption_budget_version: if installation.supports(KubernetesVersion::has_stable_policies) {
                "policy/v1"
            } else {
                "policy/v1beta1"
            },
            autoscaling_version: if installation.supports(KubernetesVersion::has_stable_autoscaling) {
                "autoscaling/v2"
            } else {
                "autoscaling/v2beta2"
            },
        }
    }
}

fn template_values(installation: &Installation, prepared: &PreparedInstallation) -> Json {
    let configuration = &prepared.configuration;
    let replicas = installation.replicas;
    json!({
        "image": installation.image,
        "replicas": replicas,
        "autoscales": installation.max_replicas.is_some(),
        "maxReplicas": installation.max_replicas.unwrap_or(replicas.max(10)),
        "cpu": installation.cpu_request,
        "memory": installation.memory_request,
        "memoryLimit": installation.memory_limit,
        "priorityClass": installation.priority_class,
        "storeClaim": installation.store_claim,
        "networkPolicy": installation.network_policy,
        "serviceMonitor": installation.service_monitor,
        "adminPort": configuration.admin_port,
        "adminTls": configuration.has_admin_tls(),
        "tls": !configuration.makes_certificate(),
    })
}

fn chart_metadata(installation: &Installation) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let oldest = installation
        .kubernetes_version
        .map_or_else(|| "1.28".to_owned(), |version| version.to_string());
    to_yaml(&json!({
        "apiVersion": "v2",
        "name": "admittance",
        "description": "Admission hooks as WebAssembly components, behind one webhook of the API server",
        "type": "application",
        "version": version,
        "appVersion": version,
        "kubeVersion": format!(">={oldest}.0-0"),
    }))
}

pub(super) fn write_files(directory: &Path, chart: &ChartFiles) -> crate::Result<()> {
    let is_chart = directory.join("Chart.yaml").is_file();
    let is_empty = match fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(files::error_at(directory)(error).into()),
    };
    if !is_chart && !is_empty {
        return Err(format!(
            "{}: the directory has other files than a chart's; name a new one",
            directory.display()
        )
        .into());
    }
    for name in OWN_DIRECTORIES {
        let path = directory.join(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(files::error_at(&path)(error).into());
            }
            _ => {}
        }
    }
    for (name, content) in chart {
        files::replace_in_tree(&directory.join(name), content, PUBLIC_MODE)?;
    }
    Ok(())
}
