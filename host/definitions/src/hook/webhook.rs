//! The hook that sends requests to a webhook on a server.

use admittance_admission::{FailureKind, Protocol, ReviewVersion, WebhookTarget};
use admittance_net::tls::{SHORTEST_RSA_KEY, rsa_bits};
use base64::{Engine, prelude::BASE64_STANDARD};
use rustls_pki_types::CertificateDer;
use serde_json::{Map, Value as Json, json};

use super::{HookContext, HookDefinition, HookError, HookKind, HookStatus, PreparedHook};
use crate::{
    client,
    document::{Fields, Node, readers},
    forms::native::write::put,
};

/// A webhook on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WebhookDefinition {
    /// The format of the webhook's requests and responses.
    pub protocol: Protocol,
    /// The address of the webhook: a URL or a service.
    pub target: WebhookTarget,
    /// The CAs with which the certificate of the webhook's server is verified; `None` for the CAs of the operating
    /// system. A service in a native chain, or with [`ServiceNaming::Bcs`](admittance_admission::ServiceNaming::Bcs),
    /// must have at least one.
    pub ca_bundle: Option<Vec<CertificateDer<'static>>>,
}

impl WebhookDefinition {
    /// Creates a webhook whose server's certificate is verified with the CAs of the operating system.
    pub fn new(protocol: Protocol, target: WebhookTarget) -> Self {
        Self {
            protocol,
            target,
            ca_bundle: None,
        }
    }
}

impl HookKind for WebhookDefinition {
    fn server(&self) -> Option<&WebhookTarget> {
        Some(&self.target)
    }

    fn warnings(&self) -> Vec<(String, &'static str)> {
        let warn = |(number, certificate): (i32, &CertificateDer<'_>)| {
            let bits = rsa_bits(certificate).filter(|bits| *bits < SHORTEST_RSA_KEY)?;
            let message = format!(
                "certificate {number} in `caBundle` has an RSA key of {bits} bits, and TLS accepts nothing that a key \
                 of less than {SHORTEST_RSA_KEY} bits has signed"
            );
            let fix = "make a new CA and a certificate that it signs, for instance with `admittance certs`";
            Some((message, fix))
        };
        let authorities = self.ca_bundle.iter().flatten();
        (1..).zip(authorities).filter_map(warn).collect()
    }

    // A file that was truncated by accident cannot contain a different URL, so a change from one URL to another is
    // taken as intended. Any other change of the address, the protocol or the CAs may be such an accident.
    fn may_refuse_more_than(&self, now: &HookDefinition) -> bool {
        let is_url = |webhook: &Self| matches!(webhook.target, WebhookTarget::Url(_));
        now.get::<Self>().is_none_or(|now| {
            let are_urls = is_url(self) && is_url(now);
            self.protocol != now.protocol || self.ca_bundle != now.ca_bundle || !are_urls && self.target != now.target
        })
    }

    fn to_native(&self) -> Option<(&'static str, Json)> {
        let mut object = Map::new();
        match &self.protocol {
            Protocol::BcsResource => put(&mut object, "protocol", "BcsResource"),
            Protocol::AdmissionReview { versions } => {
                put(&mut object, "protocol", "AdmissionReview");
                put(&mut object, "versions", json!(versions));
            }
        }
        match &self.target {
            WebhookTarget::Url(url) => put(&mut object, "url", url.as_str()),
            WebhookTarget::Service {
                namespace,
                name,
                port,
                path,
                naming: _,
            } => {
                let service = json!({"namespace": namespace, "name": name, "path": path, "port": port});
                put(&mut object, "service", service);
            }
        }
        if let Some(certificates) = &self.ca_bundle {
            put(&mut object, "caBundle", BASE64_STANDARD.encode(pem(certificates)));
        }
        Some(("webhook", Json::Object(object)))
    }

    fn prepare(&self, context: HookContext<'_>) -> Result<PreparedHook, HookError> {
        let (hook, url) = (context.connect)(self, context.phase)?;
        let status = HookStatus::new("webhook", url.clone()).with_fact("url", url.clone());
        Ok(PreparedHook {
            identity: url,
            failures: &[FailureKind::Unreachable, FailureKind::Tls, FailureKind::BadStatus],
            calls_server: true,
            ..PreparedHook::new(hook, status)
        })
    }
}

pub(crate) fn read(node: &Node<'_>) -> Option<WebhookDefinition> {
    let mut fields = node.object()?;
    let protocol = read_protocol(&mut fields);
    // The protocol determines by which rules the address is checked. If the protocol is missing or wrong, the address
    // is checked by the rules for BCS webhooks, which are less strict than those for `AdmissionReview`.
    let rules = protocol.clone().unwrap_or(Protocol::BcsResource);
    let mistakes_before = fields.node().mistake_count();
    let ca_bundle = fields.get_optional("caBundle", client::read_ca_bundle);
    let bundle_is_wrong = fields.node().mistake_count() > mistakes_before;
    let target = match (fields.optional("url"), fields.optional("service")) {
        (Some(url), None) => client::read_url(&url, &rules),
        (None, Some(service)) => {
            if ca_bundle.is_none() && !bundle_is_wrong {
                client::require_ca_bundle(&mut fields);
            }
            client::read_service_object(&service, &rules)
        }
        (None, None) => node.reject("the webhook has no address", "write `url` or `service`"),
        (Some(_), Some(_)) => node.reject("the webhook has a URL and a service", "keep one of them"),
    };
    Some(WebhookDefinition {
        protocol: protocol?,
        target: target?,
        ca_bundle,
    })
}

/// The values of `protocol`. The boolean tells whether a webhook with this protocol may have the field `versions`.
const PROTOCOLS: [(&str, bool); 2] = [("AdmissionReview", true), ("BcsResource", false)];

fn read_protocol(fields: &mut Fields<'_>) -> Option<Protocol> {
    let fix = "write AdmissionReview or BcsResource";
    let has_versions = fields.get_required("protocol", fix, readers::one_of("protocol", &PROTOCOLS));
    let versions = fields.optional("versions");
    match (has_versions?, versions) {
        (true, None) => Some(Protocol::AdmissionReview {
            versions: vec![ReviewVersion::V1],
        }),
        (true, Some(node)) => Some(Protocol::AdmissionReview {
            versions: node.different_words("list v1, v1beta1 or both", "the version is listed twice")?,
        }),
        (false, versions) => {
            if let Some(versions) = versions {
                versions.add_mistake("only AdmissionReview has versions", "remove it");
            }
            Some(Protocol::BcsResource)
        }
    }
}

fn pem(certificates: &[CertificateDer<'_>]) -> String {
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = BASE64_STANDARD.encode(certificate);
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at_checked(64).unwrap_or((rest, ""));
            text.push_str(line);
            text.push('\n');
            rest = after;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}
