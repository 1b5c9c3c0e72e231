//! Makes the Deployment with the volumes of the Pods.

#![expect(
    clippy::indexing_slicing,
    reason = "assigning to a field of a JSON object that was just made cannot fail"
)]

use std::time::Duration;

use admittance_definitions::ModuleReference;
use serde_json::{Value as Json, json};

use super::{
    Installation,
    bundle::Bundle,
    configuration::Configuration,
    layout::{ADMIN, ADMIN_PORT, CACHE, CHAINS, CONFIG, CONFIG_FILE, MODULES, STATE, TLS, WEBHOOK_PORT},
};

/// Returns the time in which a Pod must stop, in seconds.
pub(super) fn grace_period(configuration: &Configuration) -> u64 {
    /// The time beyond the longest shutdown of the program itself.
    const SPARE: Duration = Duration::from_secs(5);
    (configuration.shutdown + SPARE).as_secs_f64().ceil() as u64
}

pub(super) fn deployment(
    installation: &Installation,
    configuration: &Configuration,
    bundle: &Bundle,
) -> Json {
    let selector = installation.labels();
    let mut security = pod_restrictions();
    if installation.store_claim.is_some() {
        // With the default policy, the kubelet lets the group write to everything in the volume whenever a Pod starts,
        // and the program executes nothing that others may write.
        security["fsGroupChangePolicy"] = "OnRootMismatch".into();
    }
    let mut pod = json!({
        "serviceAccountName": installation.name,
        "automountServiceAccountToken": configuration.uses_cluster(),
        "terminationGracePeriodSeconds": grace_period(configuration),
        "securityContext": security,
        "topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector},
        }],
        "containers": [container(installation, configuration, bundle)],
        "volumes": volumes(installation, configuration, bundle),
    });
    if let Some(class) = &installation.priority_class {
        pod["priorityClassName"] = class.as_str().into();
    }
    let mut metadata = json!({"labels": installation.labels()});
    // With a ServiceMonitor as well, Prometheus would read the metrics of a Pod twice.
    if !installation.service_monitor {
        metadata["annotations"] = scraping(configuration);
    }
    let mut spec = json!({
        "replicas": installation.replicas,
        "selector": {"matchLabels": selector},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": {"metadata": metadata, "spec": pod},
    });
    // The autoscaler sets the number of Pods. With a number here, every change of the Deployment would reset it.
    if let (Some(spec), Some(_)) = (spec.as_object_mut(), installation.max_replicas) {
        spec.shift_remove("replicas");
    }
    installation.object("apps/v1", "Deployment", &installation.name, [("spec", spec)])
}

/// Returns the requests and limits of a Pod.
pub(super) fn resources(installation: &Installation) -> Json {
    let Installation {
        cpu_request: cpu,
        memory_request: memory,
        ..
    } = installation;
    let mut resources = json!({"requests": {"cpu": cpu, "memory": memory}});
    if let Some(limit) = &installation.memory_limit {
        resources["limits"] = json!({"memory": limit});
    }
    resources
}

/// Returns the annotations by which Prometheus finds Pods.
pub(super) fn scraping(configuration: &Configuration) -> Json {
    let mut annotations = json!({
        "prometheus.io/scrape": "true",
        "prometheus.io/port": configuration.admin_port.to_string(),
        "prometheus.io/path": "/metrics",
    });
    if configuration.has_admin_tls() {
        annotations["prometheus.io/scheme"] = "https".into();
    }
    annotations
}

/// Returns the scheme of the admin port. The kubelet does not verify its certificate.
pub(super) fn admin_scheme(configuration: &Configuration) -> &'static str {
    if configuration.has_admin_tls() {
        "HTTPS"
    } else {
        "HTTP"
    }
}

pub(super) fn container(installation: &Installation, configuration: &Configuration, bundle: &Bundle) -> Json {
    let mut mounts = vec![
        json!({"name": "config", "mountPath": CONFIG, "readOnly": true}),
        json!({"name": "chains", "mountPath": CHAINS, "readOnly": true}),
    ];
    if !configuration.makes_certificate() {
        mounts.push(json!({"name": "tls", "mountPath": TLS, "readOnly": true}));
    }
    mounts.extend([
        json!({"name": "cache", "mountPath": CACHE}),
        json!({"name": "state", "mountPath": STATE}),
    ]);
    if !bundle.modules.is_empty() {
        mounts.push(json!({"name": "modules", "mountPath": MODULES, "readOnly": true}));
    }
    if !configuration.admin_files.is_empty() {
        mounts.push(json!({"name": "admin", "mountPath": ADMIN, "readOnly": true}));
    }
    let scheme = admin_scheme(configuration);
    let get = |path: &str| json!({"path": path, "port": ADMIN_PORT, "scheme": scheme});
    let mut container = json!({
        "name": "admittance",
        "image": installation.image,
        "args": ["serve", "--config", format!("{CONFIG}/{CONFIG_FILE}")],
        "ports": [
            {"name": WEBHOOK_PORT, "containerPort": configuration.webhook_port, "protocol": "TCP"},
            {"name": ADMIN_PORT, "containerPort": configuration.admin_port, "protocol": "TCP"},
        ],
        // A Pod is not ready while it compiles plugins, or while the other replicas serve definitions that it cannot.
        // Another start would not help, so only the readiness probe tells.
        "startupProbe": {"httpGet": get("/healthz"), "periodSeconds": 1, "failureThreshold": 60},
        "readinessProbe": {"httpGet": get("/readyz"), "periodSeconds": 2, "failureThreshold": 2},
        "livenessProbe": {
            "httpGet": get("/healthz"), "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3,
        },
        "resources": resources(installation),
        "securityContext": restrictions(),
        "volumeMounts": mounts,
    });
    let mut variables = Vec::new();
    if let Some(directory) = &bundle.stock_directory {
        variables.push(json!({"name": ModuleReference::STOCK_DIRECTORY, "value": directory}));
    }
    if configuration.keeps_webhooks.is_some() {
        let service = format!("{}.{}", installation.name, installation.namespace);
        variables.push(json!({"name": "ADMITTANCE_SERVICE", "value": service}));
    }
    if configuration.needs_lease() {
        // Two installations in one namespace need two Leases.
        variables.push(json!({"name": "ADMITTANCE_LEASE", "value": installation.name}));
    }
    if !variables.is_empty() {
        container["env"] = variables.into();
    }
    container
}

pub(super) fn pod_restrictions() -> Json {
    /// The user that distroless images call nonroot.
    const USER: u32 = 65532;
    json!({
        "runAsNonRoot": true,
        "runAsUser": USER,
        "runAsGroup": USER,
        // This group may read mounted keys and tokens.
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

pub(super) fn restrictions() -> Json {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    })
}

fn volumes(installation: &Installation, configuration: &Configuration, bundle: &Bundle) -> Vec<Json> {
    /// The user and the group of a Pod may read the file.
    const SECRET_MODE: u32 = 0o440;
    let name = |suffix: &str| installation.named(suffix);
    let mut volumes = vec![
        json!({"name": "config", "configMap": {"name": name("config")}}),
        json!({"name": "chains", "configMap": {"name": name("chains")}}),
    ];
    if !configuration.makes_certificate() {
        let secret = json!({"secretName": name("tls"), "defaultMode": SECRET_MODE});
        volumes.push(json!({"name": "tls", "secret": secret}));
    }
    volumes.push(match &installation.store_claim {
        Some(claim) => json!({"name": "cache", "persistentVolumeClaim": {"claimName": claim}}),
        None => json!({"name": "cache", "emptyDir": {}}),
    });
    volumes.push(json!({"name": "state", "emptyDir": {}}));
    if !configuration.admin_files.is_empty() {
        let secret = json!({"secretName": name("admin"), "defaultMode": SECRET_MODE});
        volumes.push(json!({"name": "admin", "secret": secret}));
    }
    if !bundle.modules.is_empty() {
        let names = bundle.modules.iter().map(|module| name(&module.suffix));
        let sources: Vec<_> = names.map(|name| json!({"configMap": {"name": name}})).collect();
        volumes.push(json!({"name": "modules", "projected": {"sources": sources}}));
    }
    volumes
}
