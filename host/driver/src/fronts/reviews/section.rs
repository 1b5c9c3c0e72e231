use std::{ops::RangeInclusive, time::Duration};

use admittance_admission::{UserInfo, is_dns_label};
use admittance_definitions::{
    Mistakes,
    document::{Node, readers},
};
use admittance_fleet::{CertificateConfig, OwnCertificate, Registration, WebhooksConfig, audit::AuditConfig};

use super::ReviewsConfig;
use crate::config::{Sections, namespace, read::HOUR};

/// The longest validity of a certificate that the replicas issue, in days.
const MAX_DAYS: u16 = 3650;

/// The bounds of the interval between audits.
const AUDIT_INTERVALS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 3600);

pub(super) fn reviews(
    node: &Node<'_>,
    sections: Sections<'_>,
    mistakes: &mut Mistakes,
) -> Option<ReviewsConfig> {
    let mut fields = node.object(mistakes)?;
    let webhooks = fields.get_optional(
        "webhookConfigurations",
        |node, mistakes| webhooks(node, sections, mistakes),
        mistakes,
    );
    let audit = fields.get_optional(
        "audit",
        |node, mistakes| audit(node, sections, mistakes),
        mistakes,
    );
    fields.finish(mistakes);
    Some(ReviewsConfig { webhooks, audit })
}

fn audit(node: &Node<'_>, sections: Sections<'_>, mistakes: &mut Mistakes) -> Option<AuditConfig> {
    sections.need_kubernetes(node, mistakes);
    let mut fields = node.object(mistakes)?;
    let default = AuditConfig::default();
    let config = AuditConfig {
        every: fields.get(
            "every",
            default.every,
            readers::duration(AUDIT_INTERVALS),
            mistakes,
        ),
        rate: fields.get("rate", default.rate, readers::integer(1..=1000), mistakes),
        page: fields.get("page", default.page, readers::integer(1..=10_000), mistakes),
        resources: fields.get_or_default("resources", readers::list_of(readers::text), mistakes),
        excluded_namespaces: fields.get_or_default(
            "excludeNamespaces",
            readers::list_of(readers::parse_with(namespace)),
            mistakes,
        ),
        user: UserInfo {
            username: fields.get_or_default("user", readers::text, mistakes),
            groups: fields.get_or_default("groups", readers::list_of(readers::text), mistakes),
            ..UserInfo::default()
        },
        calls_webhooks: fields.get("callWebhooks", default.calls_webhooks, Node::boolean, mistakes),
        writes_reports: fields.get("reports", default.writes_reports, Node::boolean, mistakes),
    };
    fields.finish(mistakes);
    Some(config)
}

fn webhooks(node: &Node<'_>, sections: Sections<'_>, mistakes: &mut Mistakes) -> Option<WebhooksConfig> {
    sections.need_kubernetes(node, mistakes);
    let mut fields = node.object(mistakes)?;
    let default = Registration::default();
    let service = (default.name.clone(), default.namespace.clone());
    let (name, home) = fields.get("service", service, readers::parse_with(service_of), mistakes);
    let registration = Registration {
        name,
        namespace: home,
        per_chain: fields.get("perChain", default.per_chain, Node::boolean, mistakes),
        timeout: fields.get_optional("timeoutSeconds", readers::integer(1..=30), mistakes),
        failure_policy: fields.get_optional("failurePolicy", Node::word, mistakes),
        excluded_namespaces: fields.get_or_default(
            "excludeNamespaces",
            readers::list_of(readers::parse_with(namespace)),
            mistakes,
        ),
        includes_kube_system: fields.get(
            "includeKubeSystem",
            default.includes_kube_system,
            Node::boolean,
            mistakes,
        ),
        has_match_conditions: default.has_match_conditions,
    };
    let certificate = match &sections.listen.tls {
        None => {
            let why = "without `listen.tls`, the certificate and its authority are made in a Secret";
            fields.refuse("caBundle", why, "remove it, or write `listen.tls`", mistakes);
            let own = fields.get_or_default("certificate", own_certificate, mistakes);
            Some(CertificateConfig::Own(own))
        }
        Some(_) => {
            let why = "`listen.tls` names a certificate";
            fields.refuse("certificate", why, "remove it, or remove `listen.tls`", mistakes);
            let fix = "name the PEM file with the authorities of the certificate of `listen.tls`";
            let read = readers::file_with(CertificateConfig::of_file);
            fields.get_required("caBundle", fix, read, mistakes)
        }
    };
    fields.finish(mistakes);
    Some(WebhooksConfig {
        registration,
        certificate: certificate?,
    })
}

fn own_certificate(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<OwnCertificate> {
    let mut fields = node.object(mistakes)?;
    let default = OwnCertificate::default();
    let certificate = OwnCertificate {
        days: fields.get("days", default.days, readers::integer(1..=MAX_DAYS), mistakes),
        overlap: fields.get(
            "overlap",
            default.overlap,
            readers::duration(Duration::ZERO..=HOUR),
            mistakes,
        ),
    };
    fields.finish(mistakes);
    Some(certificate)
}

/// Parses the name of a Service: `NAME.NAMESPACE`.
fn service_of(text: &str) -> Result<(String, String), String> {
    match text.split_once('.') {
        Some((name, namespace)) if is_dns_label(name) && is_dns_label(namespace) => {
            Ok((name.to_owned(), namespace.to_owned()))
        }
        _ => Err(format!(
            "{text:?} is not a Service: write NAME.NAMESPACE, such as admittance.admittance-system"
        )),
    }
}
