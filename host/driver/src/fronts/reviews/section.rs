use std::{ops::RangeInclusive, time::Duration};

use admittance_admission::{UserInfo, is_dns_label};
use admittance_definitions::document::{Node, readers};
use admittance_fleet::{CertificateConfig, OwnCertificate, WebhookRegistration, WebhooksConfig, audit::AuditConfig};

use super::ReviewsConfig;
use crate::config::{SectionContext, parse_namespace, read::HOUR};

/// The maximum validity of the certificates that the replicas issue for themselves, in days.
const MAX_DAYS: u16 = 3650;

const AUDIT_INTERVALS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 3600);

pub(super) fn reviews(node: &Node<'_>, sections: SectionContext<'_>) -> Option<ReviewsConfig> {
    let mut fields = node.object()?;
    let webhooks = fields.get_optional("webhookConfigurations", |node| read_webhooks(node, sections));
    let audit = fields.get_optional("audit", |node| read_audit(node, sections));
    Some(ReviewsConfig { webhooks, audit })
}

fn read_audit(node: &Node<'_>, sections: SectionContext<'_>) -> Option<AuditConfig> {
    sections.require_kubernetes(node);
    let mut fields = node.object()?;
    let default = AuditConfig::default();
    Some(AuditConfig {
        interval: fields.get("every", default.interval, readers::duration(AUDIT_INTERVALS)),
        requests_per_second: fields.get("rate", default.requests_per_second, readers::integer(1..=1000)),
        page_size: fields.get("page", default.page_size, readers::integer(1..=10_000)),
        resources: fields.get_or_default("resources", readers::list_of(readers::text)),
        excluded_namespaces: fields.get_or_default(
            "excludeNamespaces",
            readers::list_of(readers::parse_with(parse_namespace)),
        ),
        user: UserInfo {
            username: fields.get_or_default("user", readers::text),
            groups: fields.get_or_default("groups", readers::list_of(readers::text)),
            ..UserInfo::default()
        },
        calls_webhooks: fields.get("callWebhooks", default.calls_webhooks, Node::boolean),
        writes_reports: fields.get("reports", default.writes_reports, Node::boolean),
    })
}

fn read_webhooks(node: &Node<'_>, sections: SectionContext<'_>) -> Option<WebhooksConfig> {
    sections.require_kubernetes(node);
    let mut fields = node.object()?;
    let default = WebhookRegistration::default();
    let service = (default.name.clone(), default.namespace.clone());
    let (name, home) = fields.get("service", service, readers::parse_with(parse_service));
    let registration = WebhookRegistration {
        name,
        namespace: home,
        per_chain: fields.get("perChain", default.per_chain, Node::boolean),
        timeout: fields.get_optional("timeoutSeconds", readers::integer(1..=30)),
        failure_policy: fields.get_optional("failurePolicy", Node::word),
        excluded_namespaces: fields.get_or_default(
            "excludeNamespaces",
            readers::list_of(readers::parse_with(parse_namespace)),
        ),
        includes_kube_system: fields.get("includeKubeSystem", default.includes_kube_system, Node::boolean),
        has_match_conditions: default.has_match_conditions,
    };
    let certificate = match &sections.listen.tls {
        None => {
            let why = "without `listen.tls`, the certificate and its authority are made in a Secret";
            fields.refuse("caBundle", why, "remove it, or write `listen.tls`");
            let settings = fields.get_or_default("certificate", read_own_certificate);
            Some(CertificateConfig::Own(settings))
        }
        Some(_) => {
            let why = "`listen.tls` names a certificate";
            fields.refuse("certificate", why, "remove it, or remove `listen.tls`");
            let fix = "name the PEM file with the authorities of the certificate of `listen.tls`";
            fields.get_required("caBundle", fix, readers::file_with(CertificateConfig::from_file))
        }
    };
    Some(WebhooksConfig {
        registration,
        certificate: certificate?,
    })
}

fn read_own_certificate(node: &Node<'_>) -> Option<OwnCertificate> {
    let mut fields = node.object()?;
    let default = OwnCertificate::default();
    Some(OwnCertificate {
        days: fields.get("days", default.days, readers::integer(1..=MAX_DAYS)),
        overlap: fields.get("overlap", default.overlap, readers::duration(Duration::ZERO..=HOUR)),
    })
}

fn parse_service(text: &str) -> Result<(String, String), String> {
    match text.split_once('.') {
        Some((name, namespace)) if is_dns_label(name) && is_dns_label(namespace) => {
            Ok((name.to_owned(), namespace.to_owned()))
        }
        _ => Err(format!(
            "{text:?} is not a Service: write NAME.NAMESPACE, such as admittance.admittance-system"
        )),
    }
}
