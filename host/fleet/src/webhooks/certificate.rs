//! The webhook server's certificate, which this program issues and renews in a Secret.
//!
//! Each certificate has a CA of its own. The key of the CA is discarded, and the CA expires together with the
//! certificate. A new certificate first waits in the Secret until the API server trusts its CA, and is served then. The
//! old CA stays trusted until it expires, so a replica that still serves the old certificate is trusted too.

use std::time::Duration;

use admittance::Moment;
use admittance_cluster::{Cluster, Resource, ResourceError, ResourceKind, WatchedResources, next_change};
use admittance_net::tls::{IdentityPem, ServerTls, SharedIdentity, TlsError, certificates_in};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use tokio::time::{Instant, sleep};

use super::{ConfigurationState, Inner, OwnCertificate};
use crate::{
    WebhookRegistration,
    certificates::{self, IssuedValidity, Service, unexpired_authorities},
    leader::{backoff, sleep_or_wait_forever},
    registration::labels,
};

pub(super) const SECRET: ResourceKind = ResourceKind {
    group: "",
    version: "v1",
    kind: "Secret",
    plural: "secrets",
    is_namespaced: true,
};

const SECRET_TYPE: &str = "kubernetes.io/tls";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";
const NEXT_CERTIFICATE: &str = "next.crt";
const NEXT_KEY: &str = "next.key";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SecretContents {
    served_identity: IdentityPem,
    /// The certificate that replaces the served one as soon as the API server trusts its CA.
    next_identity: Option<IdentityPem>,
    /// The PEM of the CAs of all certificates that have not expired.
    pub(super) authorities: String,
}

impl SecretContents {
    /// Reads the certificates from a Secret; `None` if it lacks a certificate.
    fn read(secret: &Resource) -> Option<Self> {
        let data = secret.object.get("data")?;
        let text = |key: &str| {
            let bytes = BASE64_STANDARD.decode(data.get(key)?.as_str()?).ok()?;
            String::from_utf8(bytes).ok()
        };
        let identity = |certificate: &str, key: &str| {
            Some(IdentityPem {
                certificate: text(certificate)?,
                key: text(key)?,
            })
        };
        Some(Self {
            served_identity: identity(CERTIFICATE, KEY)?,
            next_identity: identity(NEXT_CERTIFICATE, NEXT_KEY),
            authorities: text(AUTHORITIES).unwrap_or_default(),
        })
    }

    fn write_to_secret(&self, object: &mut Map<String, Value>, registration: &WebhookRegistration) {
        let mut data = json!({
            CERTIFICATE: BASE64_STANDARD.encode(&self.served_identity.certificate),
            KEY: BASE64_STANDARD.encode(&self.served_identity.key),
            AUTHORITIES: BASE64_STANDARD.encode(&self.authorities),
        });
        if let (Some(next), Some(data)) = (&self.next_identity, data.as_object_mut()) {
            data.insert(
                NEXT_CERTIFICATE.to_owned(),
                BASE64_STANDARD.encode(&next.certificate).into(),
            );
            data.insert(NEXT_KEY.to_owned(), BASE64_STANDARD.encode(&next.key).into());
        }
        object.insert("data".to_owned(), data);
        object.entry("type").or_insert_with(|| SECRET_TYPE.into());
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.entry("labels").or_insert_with(|| labels(&registration.name));
        }
    }

    fn validity(&self, identity: &IdentityPem, service: &Service, now: OffsetDateTime) -> Option<IssuedValidity> {
        let authorities = certificates_in(self.authorities.as_bytes()).ok()?;
        let IdentityPem { certificate, key } = identity;
        let validity = IssuedValidity::check(certificate, key, &service.subject(), &authorities)?;
        (validity.ends > now).then_some(validity)
    }

    fn is_usable(&self, service: &Service, now: OffsetDateTime) -> bool {
        self.validity(&self.served_identity, service, now).is_some()
    }
}

struct Renewal<'a> {
    service: &'a Service,
    days: u16,
    now: OffsetDateTime,
    /// Whether the API server trusts the CA of the certificate that is to be served next.
    is_trusted: bool,
    /// Whether a new certificate is issued now, although the old one is not due for renewal yet.
    is_early: bool,
}

impl Renewal<'_> {
    fn next_contents(&self, old_contents: Option<&SecretContents>) -> Result<SecretContents, rcgen::Error> {
        let Self { service, now, .. } = *self;
        let Some(mut contents) = old_contents.cloned() else {
            return self.issue(String::new());
        };
        contents.authorities = unexpired_authorities(&contents.authorities, now);
        contents.next_identity = contents
            .next_identity
            .take()
            .filter(|next| contents.validity(next, service, now).is_some());
        match (
            contents.validity(&contents.served_identity, service, now),
            contents.next_identity.take(),
        ) {
            (Some(_), Some(next)) if !self.is_trusted => contents.next_identity = Some(next),
            (_, Some(next)) => contents.served_identity = next,
            (Some(validity), None) if self.is_early || validity.is_due(now) => {
                let issued_contents = self.issue(contents.authorities)?;
                contents.authorities = issued_contents.authorities;
                contents.next_identity = Some(issued_contents.served_identity);
            }
            (Some(_), None) => {}
            (None, None) => return self.issue(contents.authorities),
        }
        Ok(contents)
    }

    /// Issues a certificate that is served at once, although the API server does not trust its CA yet.
    /// `other_authorities` contains further CAs (PEM), which remain trusted.
    fn issue(&self, other_authorities: String) -> Result<SecretContents, rcgen::Error> {
        let (authority, issued) = certificates::for_service(self.service, self.days, self.now)?;
        Ok(SecretContents {
            served_identity: IdentityPem {
                certificate: issued.certificate,
                key: issued.key,
            },
            next_identity: None,
            authorities: unexpired_authorities(&(authority + &other_authorities), self.now),
        })
    }
}

#[derive(Debug)]
pub(super) struct CertificateSecret {
    pub(super) secret: WatchedResources,
    registration: WebhookRegistration,
    name: String,
    service: Service,
    terms: OwnCertificate,
    identity: SharedIdentity,
    pub(super) tls: ServerTls,
}

impl CertificateSecret {
    /// Opens the Secret, and waits until it contains a certificate. The first replica issues that certificate.
    pub(super) async fn open(
        cluster: &Cluster,
        registration: &WebhookRegistration,
        terms: OwnCertificate,
    ) -> Result<Self, TlsError> {
        let WebhookRegistration { name, namespace, .. } = registration;
        let secret_name = format!("{name}-tls");
        let service = Service::new(name, namespace);
        let secret = cluster.resource(&SECRET, namespace, &secret_name);
        let secret_path = format!("{namespace}/{secret_name}");
        let mut pauses = backoff();
        let mut is_waiting = false;
        let contents = loop {
            match read_or_create(&secret, registration, &secret_name, &service, terms).await {
                Ok(contents) => break contents,
                Err(ResourceError::Conflict(_)) => continue,
                Err(error) if !is_waiting => {
                    is_waiting = true;
                    tracing::warn!(
                        secret = secret_path,
                        "waiting for the certificate of this server: {error}"
                    );
                }
                Err(_) => {}
            }
            sleep(pauses.pause_after_failure()).await;
        };
        let identity = SharedIdentity::new(format!("the Secret {secret_path}"), contents.served_identity);
        Ok(Self {
            tls: ServerTls::of_shared(identity.clone())?,
            secret,
            registration: registration.clone(),
            name: secret_name,
            service,
            terms,
            identity,
        })
    }

    async fn get(&self) -> Result<Option<Resource>, ResourceError> {
        self.secret.get(&self.registration.namespace, &self.name).await
    }

    /// Serves the certificate in the Secret, and each certificate that replaces it. Never completes.
    pub(super) async fn follow(&self) {
        let mut pauses = backoff();
        loop {
            let changed = next_change([&self.secret]);
            let pause = match self.get().await {
                Ok(resource) => {
                    self.serve(resource.as_ref()).await;
                    pauses.reset();
                    None
                }
                // If the Secret cannot be read, the watch on it reports that, so the error is not logged here as well.
                Err(_) => Some(pauses.pause_after_failure()),
            };
            tokio::select! {
                () = changed => {}
                () = sleep_or_wait_forever(pause) => {}
            }
        }
    }

    async fn serve(&self, resource: Option<&Resource>) {
        let now = Moment::now().0.into();
        let usable_contents = resource
            .and_then(SecretContents::read)
            .filter(|contents| contents.is_usable(&self.service, now));
        match usable_contents {
            Some(contents) if contents.served_identity != self.identity.current() => {
                self.identity.replace(contents.served_identity);
                self.tls.reload().await;
            }
            Some(_) => {}
            None => tracing::warn!(
                secret = self.name,
                "the Secret holds no certificate for this server; the previous one is still served"
            ),
        }
    }

    /// Takes the next step to replace the certificate. Returns true if there is a new certificate that is not served
    /// yet, because the API server does not trust its CA yet.
    pub(super) async fn renew(&self, state: &mut ConfigurationState, inner: &Inner) -> Result<bool, ResourceError> {
        let now = Moment::now().0.into();
        let resource = self.get().await?;
        let stored_contents = resource.as_ref().and_then(SecretContents::read);
        let usable_contents = stored_contents
            .clone()
            .filter(|contents| contents.is_usable(&self.service, now));
        let is_lost = usable_contents.is_none() && state.certificate.is_some();
        let basis = usable_contents.or_else(|| state.certificate.clone());
        let contents = Renewal {
            service: &self.service,
            days: self.terms.days,
            now,
            is_trusted: basis.as_ref().is_some_and(|basis| self.is_trusted(basis, state)),
            is_early: is_lost,
        }
        .next_contents(basis.as_ref().or(stored_contents.as_ref()))
        .map_err(certificate_error)?;
        if stored_contents.as_ref() != Some(&contents) {
            let set = |object: &mut Map<String, Value>| contents.write_to_secret(object, &self.registration);
            let write_result = self
                .secret
                .put(&self.registration.namespace, &self.name, resource, set)
                .await
                .map(drop);
            inner.record_write(SECRET.kind, &write_result);
            write_result?;
        }
        let is_pending = contents.next_identity.is_some();
        state.certificate = Some(contents);
        Ok(is_pending)
    }

    fn is_trusted(&self, contents: &SecretContents, state: &ConfigurationState) -> bool {
        state
            .published_authorities
            .as_ref()
            .is_some_and(|(authorities, since)| {
                *authorities == contents.authorities && since.elapsed() >= self.terms.overlap
            })
    }

    pub(super) fn remaining_overlap(&self, state: &ConfigurationState) -> Duration {
        let since = state
            .published_authorities
            .as_ref()
            .map_or_else(Instant::now, |(_, since)| *since);
        (since + self.terms.overlap).saturating_duration_since(Instant::now())
    }
}

/// Returns the contents of the Secret. If there is no usable certificate, issues one and writes it first.
async fn read_or_create(
    secret: &WatchedResources,
    registration: &WebhookRegistration,
    name: &str,
    service: &Service,
    terms: OwnCertificate,
) -> Result<SecretContents, ResourceError> {
    let now = Moment::now().0.into();
    let resource = secret.get(&registration.namespace, name).await?;
    let stored_contents = resource.as_ref().and_then(SecretContents::read);
    if let Some(contents) = stored_contents
        .as_ref()
        .filter(|candidate| candidate.is_usable(service, now))
    {
        return Ok(contents.clone());
    }
    let renewal = Renewal {
        service,
        days: terms.days,
        now,
        is_trusted: false,
        is_early: false,
    };
    let contents = renewal
        .next_contents(stored_contents.as_ref())
        .map_err(certificate_error)?;
    let set = |object: &mut Map<String, Value>| contents.write_to_secret(object, registration);
    secret.put(&registration.namespace, name, resource, set).await?;
    Ok(contents)
}

fn certificate_error(error: rcgen::Error) -> ResourceError {
    ResourceError::Refused(format!("the certificate cannot be made: {error}"))
}

#[cfg(test)]
mod tests;
