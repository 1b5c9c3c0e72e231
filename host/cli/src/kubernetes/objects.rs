//! Makes the objects of an installation, except the Deployment and the webhooks.

#![expect(
    clippy::indexing_slicing,
    reason = "assigning to a field of a JSON object that was just made cannot fail"
)]

use admittance_fleet::IGNORE_LABEL;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value as Json, json};

use super::{
    Installation, PreparedInstallation,
    bundle::{Bundle, BundledModule},
    certificates::Certificates,
    configuration::Configuration,
    deployment::deployment,
    files::MountedTexts,
    layout::{ADMIN_PORT, CA_FILE, CERTIFICATE_FILE, CLIENT_CA_FILE, CONFIG_FILE, KEY_FILE, WEBHOOK_PORT},
    manifest::Manifest,
    roles::roles,
    values::KubernetesVersion,
};

/// Returns all objects in the order in which they are applied. The Secret with the certificate is left out if
/// `certificates` is `None`.
pub(super) fn all(
    installation: &Installation,
    prepared: &PreparedInstallation,
    certificates: Option<&Certificates>,
) -> Vec<Manifest> {
    let PreparedInstallation {
        configuration,
        bundle,
        ..
    } = prepared;
    let mut objects = vec![namespace(installation), service_account(installation)];
    objects.extend(roles(installation, prepared));
    objects.extend(certificates.map(|certificates| secret(installation, certificates)));
    objects.extend(admin(installation, configuration));
    let mut manifests: Vec<Manifest> = objects.into_iter().map(Manifest::from).collect();
    manifests.push(Manifest {
        comment: "The configuration of the Pods. After a change, restart them: kubectl rollout restart.",
        object: config(installation, configuration),
    });
    manifests.push(Manifest {
        comment: "Changes to chains, plugins and certificates need no restart: Pods reload mounted files.",
        object: chains(installation, bundle),
    });
    let mut objects: Vec<_> = bundle
        .modules
        .iter()
        .map(|module| self::module(installation, module))
        .collect();
    objects.push(service(installation));
    objects.push(deployment(installation, configuration, bundle));
    objects.push(disruption_budget(installation));
    objects.extend(installation.max_replicas.map(|max| autoscaler(installation, max)));
    if installation.network_policy {
        objects.push(network_policy(installation, prepared.calls_out()));
    }
    if installation.service_monitor {
        objects.push(metrics_service(installation, configuration));
        objects.push(service_monitor(installation, configuration));
    }
    manifests.extend(objects.into_iter().map(Manifest::from));
    manifests
}

pub(super) fn namespace(installation: &Installation) -> Json {
    let mut labels = installation.labels();
    // This label excludes the namespace from the webhooks of clusters whose namespaces have no label with their name.
    labels[IGNORE_LABEL] = "true".into();
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": installation.namespace, "labels": labels},
    })
}

pub(super) fn service_account(installation: &Installation) -> Json {
    // The Deployment decides whether its Pods get a token.
    let fields = [("automountServiceAccountToken", false.into())];
    installation.object("v1", "ServiceAccount", &installation.name, fields)
}

fn secret(installation: &Installation, certificates: &Certificates) -> Json {
    let data = json!({
        CERTIFICATE_FILE: BASE64_STANDARD.encode(&certificates.certificate),
        KEY_FILE: BASE64_STANDARD.encode(&certificates.key),
        CA_FILE: BASE64_STANDARD.encode(&certificates.authority),
    });
    let fields = [("type", "kubernetes.io/tls".into()), ("data", data)];
    installation.object("v1", "Secret", &installation.named("tls"), fields)
}

/// Returns the Secret with the keys and tokens of the admin port; `None` if its configuration names no files.
fn admin(installation: &Installation, configuration: &Configuration) -> Option<Json> {
    let files = &configuration.admin_files;
    let encoded = |(name, text): (&String, &String)| (name.clone(), BASE64_STANDARD.encode(text).into());
    (!files.is_empty()).then(|| {
        let data: Map<String, Json> = files.iter().map(encoded).collect();
        let fields = [("type", "Opaque".into()), ("data", data.into())];
        installation.object("v1", "Secret", &installation.named("admin"), fields)
    })
}

/// Returns the configuration, and the files next to it that it names, by file name.
pub(super) fn config_files(configuration: &Configuration) -> MountedTexts {
    let mut files = configuration.files.clone();
    files.insert(CONFIG_FILE.to_owned(), configuration.text());
    if let Some(authorities) = &configuration.client_ca {
        files.insert(CLIENT_CA_FILE.to_owned(), authorities.clone());
    }
    files
}

fn config(installation: &Installation, configuration: &Configuration) -> Json {
    config_map(
        installation,
        "config",
        "data",
        texts(&config_files(configuration)),
    )
}

fn chains(installation: &Installation, bundle: &Bundle) -> Json {
    config_map(installation, "chains", "data", texts(&bundle.documents))
}

fn texts(files: &MountedTexts) -> Map<String, Json> {
    let texts = files.iter();
    texts
        .map(|(name, text)| (name.clone(), text.as_str().into()))
        .collect()
}

fn module(installation: &Installation, module: &BundledModule) -> Json {
    let files = module.files.iter();
    let data = files.map(|(name, bytes)| (name.clone(), BASE64_STANDARD.encode(bytes).into()));
    config_map(installation, &module.suffix, "binaryData", data.collect())
}

fn config_map(installation: &Installation, suffix: &str, field: &str, data: Map<String, Json>) -> Json {
    let name = installation.named(suffix);
    installation.object("v1", "ConfigMap", &name, [(field, data.into())])
}

fn service(installation: &Installation) -> Json {
    let spec = json!({
        "selector": installation.labels(),
        "ports": [{"name": WEBHOOK_PORT, "protocol": "TCP", "port": 443, "targetPort": WEBHOOK_PORT}],
    });
    installation.object("v1", "Service", &installation.name, [("spec", spec)])
}

fn disruption_budget(installation: &Installation) -> Json {
    // Not `minAvailable`: with one replica it would prevent a node from being drained.
    let spec = json!({"maxUnavailable": 1, "selector": {"matchLabels": installation.labels()}});
    installation.object(
        disruption_budget_version(installation),
        "PodDisruptionBudget",
        &installation.name,
        [("spec", spec)],
    )
}

pub(super) fn disruption_budget_version(installation: &Installation) -> &'static str {
    if installation.supports(KubernetesVersion::has_stable_policies) {
        "policy/v1"
    } else {
        "policy/v1beta1"
    }
}

/// Returns a NetworkPolicy for the two ports. It allows all sources, because no selector matches the API server and the
/// nodes. It blocks outgoing connections unless something needs them.
fn network_policy(installation: &Installation, calls_out: bool) -> Json {
    let mut spec = json!({
        "podSelector": {"matchLabels": installation.labels()},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [
            {"protocol": "TCP", "port": WEBHOOK_PORT},
            {"protocol": "TCP", "port": ADMIN_PORT},
        ]}],
    });
    if !calls_out {
        spec["policyTypes"] = json!(["Ingress", "Egress"]);
        spec["egress"] = json!([]);
    }
    let (version, name) = ("networking.k8s.io/v1", &installation.name);
    installation.object(version, "NetworkPolicy", name, [("spec", spec)])
}

/// The percentage of the CPU request above which Pods are added.
pub(super) const TARGET_CPU: u8 = 70;

/// Returns an autoscaler that follows the use of processors.
fn autoscaler(installation: &Installation, max_replicas: u16) -> Json {
    let target = json!({"type": "Utilization", "averageUtilization": TARGET_CPU});
    let spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": installation.name},
        "minReplicas": installation.replicas,
        "maxReplicas": max_replicas,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    });
    let (kind, name) = ("HorizontalPodAutoscaler", &installation.name);
    installation.object(autoscaling_version(installation), kind, name, [("spec", spec)])
}

pub(super) fn autoscaling_version(installation: &Installation) -> &'static str {
    if installation.supports(KubernetesVersion::has_stable_autoscaling) {
        "autoscaling/v2"
    } else {
        "autoscaling/v2beta2"
    }
}

/// The label that distinguishes the Service of metrics from the Service of the webhooks.
const METRICS_LABEL: (&str, &str) = ("app.kubernetes.io/component", "metrics");

/// Returns the Service by which Prometheus finds the admin ports.
fn metrics_service(installation: &Installation, configuration: &Configuration) -> Json {
    let spec = json!({
        // Each Pod has an address of its own.
        "clusterIP": "None",
        "selector": installation.labels(),
        "ports": [{
            "name": ADMIN_PORT,
            "protocol": "TCP",
            "port": configuration.admin_port,
            "targetPort": ADMIN_PORT,
        }],
    });
    let name = installation.named("metrics");
    let mut service = installation.object("v1", "Service", &name, [("spec", spec)]);
    let (label, value) = METRICS_LABEL;
    service["metadata"]["labels"][label] = value.into();
    service
}

/// Returns the ServiceMonitor for the operator of Prometheus.
fn service_monitor(installation: &Installation, configuration: &Configuration) -> Json {
    let mut labels = installation.labels();
    let (label, value) = METRICS_LABEL;
    labels[label] = value.into();
    let mut endpoint = json!({"port": ADMIN_PORT, "path": "/metrics"});
    if configuration.has_admin_tls() {
        endpoint["scheme"] = "https".into();
        endpoint["tlsConfig"] = if configuration.has_own_admin_tls() {
            json!({
                "serverName": format!("{}.{}.svc", installation.name, installation.namespace),
                "ca": {"secret": {"name": installation.named("tls"), "key": CA_FILE}},
            })
        } else {
            // The authority of another certificate is not among the files of the configuration.
            json!({"insecureSkipVerify": true})
        };
    }
    let spec = json!({"selector": {"matchLabels": labels}, "endpoints": [endpoint]});
    let (version, name) = ("monitoring.coreos.com/v1", &installation.name);
    installation.object(version, "ServiceMonitor", name, [("spec", spec)])
}
