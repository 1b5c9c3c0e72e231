//! A Helm chart of the objects that `kubernetes manifests` prints.
//!
//! The objects are built as for the manifests, with the release's name and namespace; then values are put in the place of
//! what an operator may choose, and what is there otherwise is their default. Definitions, modules and the configuration
//! are files of the chart.

mod edits;
mod template;
mod values;

use std::{collections::BTreeMap, fs, io, path::Path};

use serde_json::{Map, Value as Json, json};

use self::{
    edits::{edit, of_cert_manager},
    values::{Autoscaling, CertManager, Image, NetworkPolicy, ServiceMonitor, Tls, Values},
};
use super::{
    Installation, Prepared, crds,
    deployment::{resources, scraping},
    manifest::Manifest,
    objects,
};
use crate::files::{self, PUBLIC};

/// The expressions of Helm for the name and the namespace of the release.
const RELEASE: &str = "{{ .Release.Name }}";
const NAMESPACE: &str = "{{ .Release.Namespace }}";

/// The directory of modules and their signatures.
const MODULES: &str = "files/modules";

/// The directories of a chart whose files are all made here.
const OWN_DIRECTORIES: [&str; 3] = ["templates", "files", "crds"];

/// The files of the chart, by their paths.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// The chart of this installation.
pub(super) fn files(installation: &Installation, prepared: &Prepared) -> crate::Result<Files> {
    let values = values(installation, prepared);
    let (templates, mut files) = objects_as_templates(installation, prepared, &values)?;
    let mut add = |path: &str, text: String| files.insert(path.to_owned(), text.into_bytes());
    add("Chart.yaml", chart(installation));
    add("values.yaml", values.text()?);
    add("values.schema.json", format!("{:#}\n", values.schema()));
    let of_secret = values.tls.as_ref().map_or("", |_| SECRET_NOTES);
    let notes = NOTES.replace("<secret>\n", of_secret);
    add("templates/NOTES.txt", notes);
    if prepared.configuration.reads_resources {
        let texts: String = crds::manifests()?.iter().map(Manifest::text).collect();
        add("crds/admittance.yaml", texts);
    }
    for (name, text) in templates {
        add(&format!("templates/{name}.yaml"), text);
    }
    Ok(files)
}

/// The templates of the objects, by kind, and the files that their ConfigMaps are made of.
fn objects_as_templates(
    installation: &Installation,
    prepared: &Prepared,
    values: &Values,
) -> crate::Result<(BTreeMap<String, String>, Files)> {
    let release = Installation {
        name: RELEASE.to_owned(),
        namespace: NAMESPACE.to_owned(),
        network_policy: true,
        service_monitor: true,
        max_replicas: Some(installation.replicas),
        priority_class: None,
        store_claim: None,
        ..installation.clone()
    };
    let mut manifests = objects::all(&release, prepared, None);
    // Helm creates the namespace. What is secret is not in a chart.
    manifests.retain(|manifest| !["Namespace", "Secret"].contains(&manifest.kind()));
    let modules = prepared.bundle.modules.iter().flat_map(|module| &module.files);
    let mut files: Files = modules
        .map(|(name, bytes)| (format!("{MODULES}/{name}"), bytes.clone()))
        .collect();
    let mut templates: BTreeMap<String, String> = BTreeMap::new();
    for manifest in manifests {
        if let Some(directory) = directory_of(&manifest.object) {
            let data = manifest.object.get("data").and_then(Json::as_object);
            let texts = data.into_iter().flatten();
            files.extend(texts.map(|(name, text)| {
                let text = text.as_str().unwrap_or_default();
                (format!("{directory}/{name}"), text.as_bytes().to_vec())
            }));
        }
        let file = templates.entry(manifest.kind().to_ascii_lowercase()).or_default();
        if !manifest.comment.is_empty() {
            file.push_str(&format!("# {}\n", manifest.comment));
        }
        file.push_str(&edit(manifest.object, values).text());
    }
    if values.tls.is_some() {
        templates.insert("certificate".to_owned(), of_cert_manager(&release).text());
    }
    Ok((templates, files))
}

/// The directory of the texts of a ConfigMap.
fn directory_of(object: &Json) -> Option<&'static str> {
    if object.get("kind").and_then(Json::as_str) != Some("ConfigMap") {
        return None;
    }
    let name = object.pointer("/metadata/name").and_then(Json::as_str)?;
    match name.strip_prefix(RELEASE)? {
        "-config" => Some("files/config"),
        "-chains" => Some("files/chains"),
        _ => None,
    }
}

/// The defaults: with them, the chart installs what the manifests do.
fn values(installation: &Installation, prepared: &Prepared) -> Values {
    let object = |value: Json| value.as_object().cloned().unwrap_or_default();
    let pod_annotations = match installation.service_monitor {
        true => Map::new(),
        false => object(scraping(&prepared.configuration)),
    };
    Values {
        image: Image {
            reference: installation.image.clone(),
            pull_policy: String::new(),
            pull_secrets: Vec::new(),
        },
        replicas: installation.replicas.into(),
        autoscaling: Autoscaling {
            enabled: installation.max_replicas.is_some(),
            max_replicas: installation
                .max_replicas
                .unwrap_or(installation.replicas.max(10))
                .into(),
            target_cpu: objects::TARGET_CPU.into(),
        },
        resources: object(resources(installation)),
        priority_class_name: installation.priority_class.clone().unwrap_or_default(),
        node_selector: Map::new(),
        tolerations: Vec::new(),
        affinity: Map::new(),
        store_claim: installation.store_claim.clone().unwrap_or_default(),
        labels: Map::new(),
        annotations: Map::new(),
        pod_labels: Map::new(),
        pod_annotations,
        network_policy: NetworkPolicy {
            enabled: installation.network_policy,
        },
        service_monitor: ServiceMonitor {
            enabled: installation.service_monitor,
            labels: Map::new(),
        },
        tls: (!prepared.configuration.makes_certificate()).then(|| Tls {
            secret_name: String::new(),
            cert_manager: CertManager {
                enabled: false,
                issuer_ref: Map::new(),
            },
        }),
        global: None,
    }
}

/// The text of `Chart.yaml`.
fn chart(installation: &Installation) -> String {
    let version = env!("CARGO_PKG_VERSION");
    // Match conditions of webhooks.
    let oldest = installation
        .kubernetes_version
        .map_or_else(|| "1.28".to_owned(), |version| version.to_string());
    admittance_definitions::document::to_yaml(&json!({
        "apiVersion": "v2",
        "name": "admittance",
        "description": "Admission hooks as WebAssembly components, behind one webhook of the API server",
        "type": "application",
        "version": version,
        "appVersion": version,
        "kubeVersion": format!(">={oldest}.0-0"),
    }))
}

const NOTES: &str = include_str!("chart/NOTES.txt");
const SECRET_NOTES: &str = include_str!("chart/NOTES.secret.txt");

/// Writes the files, and removes other files that an earlier chart left in the directory.
pub(super) fn write(directory: &Path, chart: &Files) -> crate::Result<()> {
    let is_chart = directory.join("Chart.yaml").is_file();
    let is_empty = match fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(files::at(directory)(error).into()),
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
                return Err(files::at(&path)(error).into());
            }
            _ => {}
        }
    }
    for (name, content) in chart {
        files::replace_in_tree(&directory.join(name), content, PUBLIC)?;
    }
    Ok(())
}
