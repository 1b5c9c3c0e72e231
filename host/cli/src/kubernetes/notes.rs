//! Writes notes for the user who applies the manifests.

use std::{collections::BTreeSet, path::Path};

use admittance::{admission::FailurePolicy, definitions::ChainDefinition};
use admittance_fleet::{IGNORE_LABEL, RegisteredWebhook, excluded_subjects};

use super::{
    Installation, PreparedInstallation,
    certificates::{Certificates, CertifiedServer},
    configuration::Configuration,
    manifest::CommentedManifest,
    values::KubernetesVersion,
};

pub(super) fn large_object_note(manifests: &[CommentedManifest]) -> Option<String> {
    manifests
        .iter()
        .any(CommentedManifest::is_too_large_for_annotation)
        .then(|| {
            "a ConfigMap is too large for the annotation of `kubectl apply`: use `kubectl apply --server-side`"
                .to_owned()
        })
}

pub(super) fn chart_notes(prepared: &PreparedInstallation) -> Vec<String> {
    /// Helm stores a chart and its rendered objects in a Secret of at most 1 MiB. Plugins may take three quarters of
    /// that, which leaves room for the rest of the chart.
    const MAX_MODULE_SIZE: usize = 768 * 1024;
    let modules = prepared.bundle.modules.iter().flat_map(|module| &module.files);
    let size: usize = modules.map(|(_, bytes)| bytes.len()).sum();
    let mut notes = Vec::new();
    if size > MAX_MODULE_SIZE {
        notes.push(format!(
            "the plugins have {size} bytes; Helm keeps a release in a Secret of at most 1 MiB, so put them into the \
             image, and name their directory there with --modules-in-image, or fetch them from a registry"
        ));
    }
    let secrets: Vec<_> = prepared.configuration.admin_files.keys().map(String::as_str).collect();
    if !secrets.is_empty() {
        notes.push(format!(
            "a chart must not contain keys or tokens: create the Secret RELEASE-admin with the files of the admin port \
             ({})",
            secrets.join(", ")
        ));
    }
    notes
}

pub(super) fn common_notes(
    installation: &Installation,
    prepared: &PreparedInstallation,
    webhooks: &[RegisteredWebhook],
) -> Vec<String> {
    let mut notes = webhook_notes(installation, webhooks);
    notes.extend(configuration_notes(&prepared.configuration));
    let warnings = prepared.chains.iter().flat_map(ChainDefinition::warnings);
    notes.extend(warnings.map(|warning| warning.to_string()));
    notes
}

fn webhook_notes(installation: &Installation, webhooks: &[RegisteredWebhook]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |condition: bool, text: &str| {
        if condition {
            notes.push(text.to_owned());
        }
    };
    note(
        !installation.supports(KubernetesVersion::labels_namespaces),
        &format!(
            "before Kubernetes 1.21 namespaces have no label with their name; label those that must be \
             excluded: `kubectl label namespace kube-system kube-node-lease {IGNORE_LABEL}=true`"
        ),
    );
    let only: BTreeSet<_> = webhooks
        .iter()
        .flat_map(RegisteredWebhook::namespaces)
        .cloned()
        .collect();
    note(
        !installation.supports(KubernetesVersion::labels_namespaces) && !only.is_empty(),
        &format!(
            "the webhooks of chains of namespaces find these by the same label: `kubectl label namespace NAME \
             kubernetes.io/metadata.name=NAME` for {}",
            only.into_iter().collect::<Vec<_>>().join(", ")
        ),
    );
    let excluded = excluded_subjects(webhooks);
    note(
        !installation.supports(KubernetesVersion::has_match_conditions) && !excluded.is_empty(),
        &format!(
            "the rules match {}, which no webhook should see, and Kubernetes before 1.28 cannot exclude \
             them; list fewer resources in the chains",
            excluded.join(" and ")
        ),
    );
    let closed: Vec<_> = webhooks
        .iter()
        .filter(|webhook| webhook.failure_policy == FailurePolicy::Fail)
        .collect();
    note(
        closed.iter().any(|webhook| webhook.may_match_nodes()),
        "the rules match nodes, and the failure policy is Fail: when no Pod of Admittance answers, no node \
         can join or report its state; write --failure-policy Ignore, or list fewer resources",
    );
    note(
        installation.include_kube_system && !closed.is_empty(),
        &format!(
            "the webhooks apply to kube-system, and the failure policy is Fail: when no Pod of Admittance \
             answers, components of the cluster itself (DNS, network) cannot be created or changed, and \
             without them Admittance may not start again; write --failure-policy Ignore, or be ready to run \
             `kubectl delete \
             mutatingwebhookconfiguration,validatingwebhookconfiguration {}`",
            installation.name
        ),
    );
    note(
        installation.replicas == 1 && !closed.is_empty(),
        "there is one replica, and the failure policy is Fail: requests are refused while its Pod is moved \
         to another node",
    );
    notes
}

fn configuration_notes(configuration: &Configuration) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |condition: bool, text: &str| {
        if condition {
            notes.push(text.to_owned());
        }
    };
    note(
        !configuration.has_admin_users(),
        "the admin API of the Pods is disabled, except for probes and metrics: list its users in \
         `admin.tokens` of a configuration (--config)",
    );
    note(
        configuration.had_credentials,
        "modules.dockerConfig is omitted, because a ConfigMap must not hold credentials: mount a Secret of \
         the type kubernetes.io/dockerconfigjson as config.json, and name its directory in DOCKER_CONFIG",
    );
    note(
        configuration.had_plugin_credentials,
        "pluginHttp.credentials is omitted, because a ConfigMap must not hold credentials: mount a Secret, and add \
         the section with the paths of its files",
    );
    note(
        configuration.had_tracing_secrets,
        "tracing.headers, tracing.tls.certificate and tracing.tls.key are omitted, because a ConfigMap must not hold \
         credentials: mount a Secret, and add them with the paths of its files",
    );
    notes
}

pub(super) fn certificate_note(installation: &Installation, certificates: &Certificates) -> String {
    let certs = &installation.certs;
    let argument = CertifiedServer::from_installation(installation).argument;
    let directory = certs.as_deref().unwrap_or(Path::new("certs")).display();
    let command = format!("admittance certs {argument} --out {directory}");
    let last_day = certificates.last_day;
    if certs.is_none() {
        format!(
            "a new certificate was made, which expires on {last_day}; each run makes a new one, with a new CA. To \
             renew it with the same CA: `{command}`, and --certs {directory}"
        )
    } else {
        format!(
            "the certificate expires on {last_day}; to renew it: `{command} --renew`, and apply the manifests again"
        )
    }
}
