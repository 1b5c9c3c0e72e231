//! Updates the webhook configurations in the API server to match the live chains. Only the leader does so.

mod certificate;
mod configuration;
mod service;

use std::{collections::HashMap, path::Path, sync::Arc, time::Duration};

use admittance::{Host, Moment, admission::Phase};
use admittance_cluster::{Cluster, ResourceError, WatchedResources, next_change};
use admittance_net::tls::{self, ServerTls, TlsError};
use admittance_watch::FileValue;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use self::{
    certificate::{CertificateSecret, SECRET, SecretContents},
    configuration::{KINDS, WrittenConfiguration, write_configuration},
};
use crate::{
    RegisteredChain, RegisteredWebhook, WebhookRegistration, certificates,
    leader::{PASS_PAUSE, backoff},
    metrics,
    registration::{definitions_webhook, documents},
};

/// The longest time between two checks of the webhook configurations in the API server.
const CHECK_INTERVAL: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug)]
pub struct WebhooksConfig {
    pub registration: WebhookRegistration,
    pub certificate: CertificateConfig,
}

#[derive(Clone, Debug)]
pub enum CertificateConfig {
    /// This program issues the certificate, and stores it in the Secret `NAME-tls` in the namespace of the Service.
    Own(OwnCertificate),
    /// The certificate is in files that the port's configuration names. This value is the PEM of the certificate's CAs.
    Files(FileValue<String>),
}

impl CertificateConfig {
    /// Returns the source of a certificate that is in files. `authorities` is the file with its CAs.
    pub fn from_file(authorities: &Path) -> Result<Self, TlsError> {
        let path = authorities.to_owned();
        // Only the certificates in the file are published. A private key in the same file is left out.
        let load = move || tls::certificates(&path).map(|ders| certificates::to_pem(&ders));
        FileValue::load([authorities.to_owned()], load).map(Self::Files)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnCertificate {
    /// The validity in days. The certificate is replaced when less than a third is left.
    pub days: u16,
    /// The time from publishing a new CA to using its certificate. Within this time, every API server learns of the CA.
    pub overlap: Duration,
}

impl Default for OwnCertificate {
    fn default() -> Self {
        Self {
            days: 90,
            overlap: Duration::from_secs(60),
        }
    }
}

/// The status of the webhook configurations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhooksStatus {
    /// The name that both webhook configurations have.
    pub name: String,
    /// Whether this replica manages the webhook configurations now.
    pub is_keeper: bool,
    /// The time of this replica's last write of a configuration or of the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_write: Option<Moment>,
    /// The reason why the configurations or the certificate do not match the live chains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Manages the webhook configurations, and the certificate of the server that they call. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Webhooks(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    cluster: Cluster,
    registration: WebhookRegistration,
    /// Whether definitions are stored as resources of the cluster. If so, a webhook checks them before they are stored.
    checks_definitions: bool,
    limit: Duration,
    trust: WebhookTrust,
    configurations: [(Phase, WatchedResources); 2],
    status: Mutex<WebhooksStatus>,
}

#[derive(Debug)]
enum WebhookTrust {
    Own(CertificateSecret),
    Files(FileValue<String>),
}

#[derive(Debug, Default)]
pub(crate) struct ConfigurationState {
    certificate: Option<SecretContents>,
    /// The CAs that every webhook configuration contains, and the time at which the last configuration received them.
    published_authorities: Option<(String, Instant)>,
    written_configurations: HashMap<Phase, Option<WrittenConfiguration>>,
    /// The problems of those rules for which no webhook can be registered.
    registration_problems: Vec<String>,
}

/// Clears the status of the configurations when it is dropped, because this replica has stopped managing them.
struct KeeperGuard<'a>(&'a Inner);

impl Drop for KeeperGuard<'_> {
    fn drop(&mut self) {
        let mut status = self.0.status.lock();
        status.is_keeper = false;
        status.problem = None;
    }
}

impl Webhooks {
    /// Starts to manage the webhooks. If this program issues their certificate, waits until the first replica has
    /// issued one. `limit` is the timeout for one request in all its chains together. `checks_definitions` says whether
    /// definitions are stored as resources.
    pub async fn open(
        cluster: &Cluster,
        config: WebhooksConfig,
        limit: Duration,
        checks_definitions: bool,
    ) -> Result<Self, TlsError> {
        let WebhooksConfig {
            registration,
            certificate,
        } = config;
        let trust = match certificate {
            CertificateConfig::Own(terms) => {
                WebhookTrust::Own(CertificateSecret::open(cluster, &registration, terms).await?)
            }
            CertificateConfig::Files(bundle) => WebhookTrust::Files(bundle),
        };
        let name = registration.name.clone();
        let kinds = KINDS.iter().map(|(_, kind)| kind.kind);
        let secret = matches!(trust, WebhookTrust::Own(_)).then_some(SECRET.kind);
        metrics::initialize_configuration_counters(kinds.chain(secret));
        let configurations = KINDS.map(|(phase, kind)| (phase, cluster.resource(&kind, "", &name)));
        Ok(Self(Arc::new(Inner {
            cluster: cluster.clone(),
            registration,
            checks_definitions,
            limit,
            trust,
            configurations,
            status: Mutex::new(WebhooksStatus {
                name,
                is_keeper: false,
                last_write: None,
                problem: None,
            }),
        })))
    }

    /// Returns the TLS configuration of the port that the API server calls, or `None` if this program does not issue
    /// the certificate of that port.
    pub fn tls(&self) -> Option<ServerTls> {
        match &self.0.trust {
            WebhookTrust::Own(secret) => Some(secret.tls.clone()),
            WebhookTrust::Files(_) => None,
        }
    }

    pub(crate) fn excluded_namespaces(&self) -> Vec<String> {
        self.0.registration.reach().excluded_namespaces
    }

    pub fn status(&self) -> WebhooksStatus {
        self.0.status.lock().clone()
    }

    /// Keeps the certificate up to date. If this program issues the certificate, serves the newest one. If the
    /// certificate is in files, reloads its CAs when their file changes. Runs in every replica, and never completes.
    pub async fn follow(&self) {
        match &self.0.trust {
            WebhookTrust::Own(secret) => secret.follow().await,
            WebhookTrust::Files(bundle) => {
                bundle
                    .follow(|reload| match reload {
                        Ok(_) => tracing::info!("changed CAs of the webhook configurations were read"),
                        Err(error) => tracing::warn!(
                            error,
                            "changed CAs of the webhook configurations cannot be read; the previous ones stay in use"
                        ),
                    })
                    .await;
            }
        }
    }

    /// Updates the configurations and the certificate while this replica is the leader. Never completes. When the
    /// future is dropped, the configurations remain.
    pub(crate) async fn keep(&self, host: &Host) {
        let inner = &*self.0;
        inner.status.lock().is_keeper = true;
        let _guard = KeeperGuard(inner);
        inner.wait_until_served().await;
        let mut changes = host.changes();
        let mut bundle = match &inner.trust {
            WebhookTrust::Files(bundle) => Some(bundle.subscribe()),
            WebhookTrust::Own(_) => None,
        };
        let mut state = ConfigurationState::default();
        let mut retries = backoff();
        loop {
            changes.mark_unchanged();
            if let Some(bundle) = &mut bundle {
                bundle.mark_unchanged();
            }
            let changed = next_change(inner.resources());
            let write_result = inner.write(host, &mut state).await;
            let pause = match &write_result {
                Ok(pause) => *pause,
                Err(ResourceError::Conflict(_)) => Duration::ZERO,
                Err(_) => retries.pause_after_failure(),
            };
            if write_result.is_ok() {
                retries.reset();
            }
            inner.report(write_result.err());
            let bundle_changed = async {
                match &mut bundle {
                    Some(bundle) => drop(bundle.changed().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = changed => {}
                () = bundle_changed => {}
                () = sleep(pause) => {}
            }
            sleep(PASS_PAUSE).await;
        }
    }
}

impl Inner {
    fn resources(&self) -> impl Iterator<Item = &WatchedResources> {
        let secret = match &self.trust {
            WebhookTrust::Own(secret) => Some(&secret.secret),
            WebhookTrust::Files(_) => None,
        };
        let configurations = self.configurations.iter();
        configurations.map(|(_, resources)| resources).chain(secret)
    }

    fn report(&self, error: Option<ResourceError>) {
        let error = error.filter(|error| !matches!(error, ResourceError::Conflict(_)));
        let problem = error.map(|error| error.to_string());
        let mut status = self.status.lock();
        if status.problem == problem {
            return;
        }
        match &problem {
            Some(problem) => tracing::warn!(
                name = self.registration.name,
                "the webhook configurations cannot be kept: {problem}"
            ),
            None => tracing::info!(
                name = self.registration.name,
                "the webhook configurations are what the chains need"
            ),
        }
        status.problem = problem;
    }

    fn record_write(&self, kind: &'static str, result: &Result<(), ResourceError>) {
        metrics::record_configuration_write(kind, result.is_ok());
        if result.is_ok() {
            self.status.lock().last_write = Some(Moment::now());
            tracing::info!(kind, name = self.registration.name, "written");
        }
    }

    async fn write(&self, host: &Host, state: &mut ConfigurationState) -> Result<Duration, ResourceError> {
        let (authorities, certificate) = match &self.trust {
            WebhookTrust::Files(bundle) => (bundle.current().to_string(), Ok(false)),
            WebhookTrust::Own(secret) => {
                let renewal = secret.renew(state, self).await;
                match (renewal, &state.certificate) {
                    (Ok(is_pending), Some(contents)) => (contents.authorities.clone(), Ok(is_pending)),
                    (Ok(_), None) => return Ok(Duration::ZERO),
                    (Err(error), Some(previous_contents)) => (previous_contents.authorities.clone(), Err(error)),
                    (Err(error), None) => return Err(error),
                }
            }
        };
        let webhooks = self.registered_webhooks(host, state);
        let mut result = Ok(());
        for (phase, resources) in &self.configurations {
            let mut webhooks = documents(&self.registration, &webhooks, *phase, &authorities);
            if self.checks_definitions && *phase == Phase::Validating {
                webhooks.push(definitions_webhook(&self.registration, &authorities));
            }
            let last = state.written_configurations.entry(*phase).or_default();
            let (kind, outcome) =
                write_configuration(resources, *phase, &self.registration.name, &webhooks, last).await;
            if let Some(write_result) = outcome {
                self.record_write(kind, &write_result);
                result = result.and(write_result);
            }
        }
        result?;
        let trusted_authorities = state.published_authorities.as_ref().map(|(pem, _)| pem);
        if trusted_authorities != Some(&authorities) {
            state.published_authorities = Some((authorities, Instant::now()));
        }
        match (&self.trust, certificate?) {
            (WebhookTrust::Own(secret), true) => Ok(secret.remaining_overlap(state)),
            _ => Ok(CHECK_INTERVAL),
        }
    }

    fn registered_webhooks(&self, host: &Host, state: &mut ConfigurationState) -> Vec<RegisteredWebhook> {
        let table = host.table();
        let chains: Vec<_> = table.chains().map(RegisteredChain::from).collect();
        let unregistered: Vec<_> = chains.iter().filter_map(RegisteredChain::problem).collect();
        for problem in &unregistered {
            if !state.registration_problems.contains(problem) {
                tracing::warn!("no webhook is registered for a rule: {problem}");
            }
        }
        state.registration_problems = unregistered;
        RegisteredWebhook::for_all_chains(&chains, &self.registration, self.limit)
    }
}
