//! The objects of an installation, except the Deployment and the webhooks.

#![expect(
    clippy::indexing_slicing,
    reason = "assigning to a field of a JSON object that was just made cannot fail"
)]

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value as Json, json};

use super::{
    Error, Installation,
    bundle::{Bundle, Module},
    certificates::Certificates,
    configuration::Configuration,
    layout::{
        ADMIN_PORT, CA_FILE, CERTIFICATE_FILE, CLIENT_CA_FILE, CONFIG_FILE, IGNORE_LABEL, KEY_FILE,
        WEBHOOK_PORT,
    },
    needs::Needs,
};

pub(super) fn namespace(installation: &Installation) -> Json {
    let mut labels = installation.labels();
    // Also excluded from the webhooks where namespaces have no label with their name.
    labels[IGNORE_LABEL] = "true".into();
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": installation.namespace.as_str(), "labels": labels},
    })
}

pub(super) fn service_account(installation: &Installation) -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": installation.metadata(installation.name.as_str()),
        // The Deployment decides whether its Pods get a token.
        "automountServiceAccountToken": false,
    })
}

/// A role and its binding for what is read from the cluster; empty if nothing is.
pub(super) fn roles(installation: &Installation, needs: &Needs) -> Vec<Json> {
    let rules = needs.rules();
    if rules.is_empty() {
        return Vec::new();
    }
    // It is cluster-scoped, where another installation may have the same name.
    let name = format!("{}-{}", installation.namespace, installation.name);
    let metadata = json!({"name": name, "labels": installation.labels()});
    vec![
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": metadata,
            "rules": rules,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{
                "kind": "ServiceAccount",
                "name": installation.name.as_str(),
                "namespace": installation.namespace.as_str(),
            }],
        }),
    ]
}

pub(super) fn secret(installation: &Installation, certificates: &Certificates) -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": installation.metadata(&installation.name.tls()),
        "type": "kubernetes.io/tls",
        "data": {
            CERTIFICATE_FILE: BASE64_STANDARD.encode(&certificates.certificate),
            KEY_FILE: BASE64_STANDARD.encode(&certificates.key),
            CA_FILE: BASE64_STANDARD.encode(&certificates.authority),
        },
    })
}

/// The keys and tokens of the admin port; `None` if its configuration names no files.
pub(super) fn admin(installation: &Installation, configuration: &Configuration) -> Option<Json> {
    let files = &configuration.admin.files;
    let encoded = |(name, text): (&String, &String)| (name.clone(), BASE64_STANDARD.encode(text).into());
    (!files.is_empty()).then(|| {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": installation.metadata(&installation.name.admin()),
            "type": "Opaque",
            "data": files.iter().map(encoded).collect::<Map<String, Json>>(),
        })
    })
}

pub(super) fn config(installation: &Installation, configuration: &Configuration) -> Result<Json, Error> {
    let mut data = Map::new();
    data.insert(CONFIG_FILE.into(), configuration.text().into());
    if let Some(authorities) = &configuration.client_ca {
        data.insert(CLIENT_CA_FILE.into(), authorities.as_str().into());
    }
    let carried = configuration.carried.files();
    data.extend(carried.map(|(name, text)| (name.to_owned(), text.into())));
    Ok(config_map(
        installation,
        &installation.name.config(),
        "data",
        data,
    ))
}

pub(super) fn chains(installation: &Installation, bundle: &Bundle) -> Json {
    let text = |(name, text): (&String, &String)| (name.clone(), text.as_str().into());
    let data = bundle.documents.iter().map(text).collect();
    config_map(installation, &installation.name.chains(), "data", data)
}

pub(super) fn module(installation: &Installation, module: &Module) -> Json {
    let name = installation.name.module(&module.slug);
    let own = ("", module.bytes.as_slice());
    let beside = module
        .signatures
        .iter()
        .map(|(ending, bytes)| (*ending, bytes.as_slice()));
    let data = std::iter::once(own).chain(beside).map(|(ending, bytes)| {
        let name = format!("{}{ending}", module.file_name);
        (name, BASE64_STANDARD.encode(bytes).into())
    });
    let data = data.collect();
    config_map(installation, &name, "binaryData", data)
}

fn config_map(installation: &Installation, name: &str, field: &str, data: Map<String, Json>) -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": installation.metadata(name),
        field: data,
    })
}

pub(super) fn service(installation: &Installation) -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": installation.metadata(installation.name.as_str()),
        "spec": {
            "selector": installation.labels(),
            "ports": [{"name": WEBHOOK_PORT, "protocol": "TCP", "port": 443, "targetPort": WEBHOOK_PORT}],
        },
    })
}

pub(super) fn disruption_budget(installation: &Installation) -> Json {
    json!({
        "apiVersion": installation.version.map_or("policy/v1", |version| version.policy_group()),
        "kind": "PodDisruptionBudget",
        "metadata": installation.metadata(installation.name.as_str()),
        // Not `minAvailable`: with one replica it would prevent a node from being drained.
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": installation.labels()}},
    })
}

/// Requests come from the API server and probes from the nodes, which no selector covers. Outgoing
/// connections are blocked unless something needs them.
pub(super) fn network_policy(installation: &Installation, may_call_out: bool) -> Json {
    let mut spec = json!({
        "podSelector": {"matchLabels": installation.labels()},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [
            {"protocol": "TCP", "port": WEBHOOK_PORT},
            {"protocol": "TCP", "port": ADMIN_PORT},
        ]}],
    });
    if !may_call_out {
        spec["policyTypes"] = json!(["Ingress", "Egress"]);
        spec["egress"] = json!([]);
    }
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": installation.metadata(installation.name.as_str()),
        "spec": spec,
    })
}
