//! Notes for the user who applies the manifests.

use std::path::Path;

use admittance::admission::FailurePolicy;

use super::{
    Installation,
    certificates::Certificates,
    configuration::Configuration,
    layout::IGNORE_LABEL,
    manifest::Manifest,
    registration::{Webhook, excluded},
    values::Version,
};

pub(super) fn notes(
    installation: &Installation,
    configuration: &Configuration,
    webhooks: &[Webhook],
    certificates: &Certificates,
    manifests: &[Manifest],
) -> Vec<String> {
    let mut notes = vec![of_certificate(installation, certificates)];
    let mut note = |condition: bool, text: &str| {
        if condition {
            notes.push(text.to_owned());
        }
    };
    note(
        manifests.iter().any(Manifest::is_too_large_for_annotation),
        "a ConfigMap is too large for the annotation of `kubectl apply`: use `kubectl apply --server-side`",
    );
    note(
        !installation.supports(Version::labels_namespaces),
        &format!(
            "before Kubernetes 1.21 namespaces have no label with their name; label those that must be \
             excluded: `kubectl label namespace kube-system kube-node-lease {IGNORE_LABEL}=true`"
        ),
    );
    let excluded = excluded(webhooks);
    note(
        !installation.supports(Version::has_match_conditions) && !excluded.is_empty(),
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
    note(
        !configuration.has_admin_users(),
        "the admin API of the Pods is disabled, except for probes and metrics: list its users in \
         `admin.tokens` of a configuration (--config)",
    );
    note(
        configuration.reads_resources && installation.resources.is_empty(),
        "chains that are resources are called only for requests that the webhooks are registered for: name their files \
         with --resources, and generate the manifests again when their rules change",
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

fn of_certificate(installation: &Installation, certificates: &Certificates) -> String {
    let Installation {
        name,
        namespace,
        certs,
        ..
    } = installation;
    let directory = certs.as_deref().unwrap_or(Path::new("certs")).display();
    let command = format!("admittance certs --service {name}.{namespace} --out {directory}");
    let ends = certificates.ends;
    if certs.is_none() {
        format!(
            "a new certificate was made, which expires on {ends}; each run makes a new one, with a new CA. To \
             renew it with the same CA: `{command}`, and --certs {directory}"
        )
    } else {
        format!(
            "the certificate expires on {ends}; to renew it: `{command} --renew`, and apply the manifests again"
        )
    }
}
