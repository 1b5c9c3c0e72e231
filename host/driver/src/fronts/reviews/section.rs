use std::{ops::RangeInclusive, time::Duration};

use admittance_admission::{UserInfo, is_dns_label};
use admittance_definitions::document::{Node, readers};
use admittance_fleet::{CertificateConfig, OwnCertificate, WebhookRegistration, WebhooksConfig, audit::AuditConfig};

use super::ReviewsConfig;
use crate::config::{SectionContext, namespace, read::HOUR};

/// The maximum validity of the certificates that the replicas issue for themselves, in days.
const MAX_DAYS: u16 = 3650;

const AUDIT_INTERVALS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 3600);

pub(super) fn reviews(node: &Node<'_>, sections: SectionContext<'_>) -> Option<ReviewsConfig> {
    let mut fields = node.object()?;
    let webhooks = fields.get_optional("webhookConfigurations", |node| webhooks(node, sections));
    let audit = fields.get_optional("audit", |node| audit(node, sections));
    Some(ReviewsConfig { webhooks, audit })
}

fn audit(node: &Node<'_>, sections: SectionContext<'_>) -> Option<AuditConfig> {
    sections.need_kubernetes(node);
    let mut fields = node.object()?;
    let default = AuditConfig::default();
    Some(AuditConfig {
        every: fields.get("every", default.every, readers::duration(AUDIT_INTERVALS)),
        rate: fields.get("rate", default.rate, readers::integer(1..=1000)),
        page: fields.get("page", default.page, readers::integer(1..=10_000)),
        resources: fields.get_or_default("resources", readers::list_of(readers::text)),
        excluded_namespaces: fields
            .get_or_default("excludeNamespaces", readers::list_of(readers::parse_with(namespace))),
        user: UserInfo {
            username: fields.get_or_default("user", readers::text),
            groups: fields.get_or_default("groups", readers::list_of(readers::text)),
            ..UserInfo::default()
        },
        calls_webhooks: fields.get("callWebhooks", default.calls_webhooks, Node::boolean),
        writes_reports: fields.get("reports", default.writes_reports, Node::boolean),
    })
}

fn webhooks(node: &Node<'_>, sections: SectionContext<'_>) -> Option<WebhooksConfig> {
    sections.need_kubernetes(node);
    let mut fields = node.object()?;
    let default = WebhookRegistration::default();
    let service = (default.name.clone(), default.namespace.clone());
    let (name, home) = fields.get("service", service, readers::parse_with(service_of));
    let registration = WebhookRegistration {
        name,
        namespace: home,
        per_chain: fields.get("perChain", default.per_chain, Node::boolean),
        timeout: fields.get_optional("timeoutSeconds", readers::integer(1..=30)),
        failure_policy: fields.get_optional("failurePolicy", Node::word),
        excluded_namespaces: fields
            .get_or_default("excludeNamespaces", readers::list_of(readers::parse_with(namespace))),
        includes_kube_system: fields.get("includeKubeSystem", default.includes_kube_system, Node::boolean),
        has_match_conditions: default.has_match_conditions,
    };
    let certificate = match &sections.listen.tls {
        None => {
            let why = "without `listen.tls`, the certificate and its authority are made in a Secret";
            fields.refuse("caBundle", why, "remove it, or write `listen.tls`");
            let settings = fields.get_or_default("certificate", own_certificate);
            Some(CertificateConfig::Own(settings))
        }
        Some(_) => {
            let why = "`listen.tls` names a certificate";
            fields.refuse("certificate", why, "remove it, or remove `listen.tls`");
            let fix = "name the PEM file with the authorities of the certificate of `listen.tls`";
            fields.get_required("caBundle", fix, readers::file_with(CertificateConfig::of_file))
        }
    };
    Some(WebhooksConfig {
        registration,
        certificate: certificate?,
    })
}

fn own_certificate(node: &Node<'_>) -> Option<OwnCertificate> {
    let mut fields = node.object()?;
    let default = OwnCertificate::default();
    Some(OwnCertificate {
        days: fields.get("days", default.days, readers::integer(1..=MAX_DAYS)),
        overlap: fields.get("overlap", default.overlap, readers::duration(Duration::ZERO..=HOUR)),
    })
}

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
