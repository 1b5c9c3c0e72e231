use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use admittance_watch::{Fingerprint, Watch, WatchConfig, file};
use metrics::{counter, gauge};
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::CertificateDer;
use tokio::{sync::watch, time::MissedTickBehavior};

use super::{
    Identity, TlsError,
    certificate::{Expiry, Validity},
};
use crate::telemetry;

/// How often a certificate that expires soon is logged.
const REMINDER: Duration = Duration::from_secs(24 * 3600);

/// TLS material that is reloaded when its files change. Cheap to clone; clones share the material.
///
/// Invalid material is rejected: the last valid one stays in use.
pub struct Reloading<C>(Arc<Inner<C>>);

struct Inner<C> {
    current: watch::Sender<Arc<Material<C>>>,
    /// `None` if it does not come from files, and never changes.
    source: Option<Source<C>>,
}

struct Source<C> {
    usage: Usage,
    load: Box<dyn Fn() -> Result<Material<C>, TlsError> + Send + Sync>,
    /// The fingerprint of the files when they were first read.
    seen: Fingerprint,
    /// Why the current content of the files is not in use.
    problem: Mutex<Option<String>>,
}

/// A configuration, and information about its files.
pub(super) struct Material<C> {
    pub(super) config: Arc<C>,
    /// Of the own certificate.
    validity: Option<Validity>,
    /// Verifies client certificates, if they are used.
    pub(super) clients: Option<Arc<dyn ClientCertVerifier>>,
    /// The file of the private key, if every user of the machine may read it.
    exposed_key: Option<PathBuf>,
}

/// The use of the material.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    Listen,
    Upstream,
    Admin,
}

/// The state of a certificate of this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateStatus {
    /// Its use: `listen`, `admin` or `upstream`.
    pub certificate: &'static str,
    /// When it expires.
    pub not_after: Option<SystemTime>,
    /// Why the current content of the files is not in use.
    pub problem: Option<String>,
}

impl Usage {
    /// In metrics, log and status; also the section of the configuration that names the files.
    fn as_str(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Upstream => "upstream",
            Self::Admin => "admin",
        }
    }
}

impl<C> From<C> for Material<C> {
    fn from(config: C) -> Self {
        Self {
            config: Arc::new(config),
            validity: None,
            clients: None,
            exposed_key: None,
        }
    }
}

impl<C> Material<C> {
    /// The resolver for the certificate of this identity, whose `chain` was already read.
    pub(super) fn of_identity(
        identity: &Identity,
        chain: &[CertificateDer<'_>],
        config: impl FnOnce() -> Result<C, rustls::Error>,
    ) -> Result<Self, TlsError> {
        let path = &identity.certificate;
        let validity = chain.first().map(Validity::read).transpose();
        let validity = validity.map_err(|error| TlsError::rejected(path, &error))?;
        let config = config().map_err(|error| TlsError::rejected(path, &error))?;
        Ok(Self {
            validity,
            exposed_key: file::is_world_readable(&identity.key).then(|| identity.key.clone()),
            ..Self::from(config)
        })
    }
}

impl<C> Clone for Reloading<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C> fmt::Debug for Reloading<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usage = self.0.source.as_ref().map(|source| source.usage);
        f.debug_struct("Reloading")
            .field("usage", &usage)
            .finish_non_exhaustive()
    }
}

impl<C> From<C> for Reloading<C> {
    /// Material that never changes.
    fn from(config: C) -> Self {
        Self(Arc::new(Inner {
            current: watch::Sender::new(Arc::new(config.into())),
            source: None,
        }))
    }
}

impl<C: Send + Sync + 'static> Reloading<C> {
    pub(super) fn load(
        usage: Usage,
        files: Vec<PathBuf>,
        load: impl Fn() -> Result<Material<C>, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        // Taken before the files are read, so that no change is missed.
        let seen = Fingerprint::of(files);
        let material = load()?;
        Ok(Self(Arc::new(Inner {
            current: watch::Sender::new(Arc::new(material)),
            source: Some(Source {
                usage,
                load: Box::new(load),
                seen,
                problem: Mutex::new(None),
            }),
        })))
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<Material<C>>> {
        self.0.current.subscribe()
    }

    /// The configuration for the next connection.
    pub fn current(&self) -> Arc<C> {
        self.0.current.borrow().config.clone()
    }

    /// A warning about the file of the private key.
    pub fn warning(&self) -> Option<String> {
        let material = self.0.current.borrow();
        let path = material.exposed_key.as_ref()?.display();
        Some(format!(
            "{path}: the private key is readable by every user of this machine: chmod o-r {path}"
        ))
    }

    /// The state of the certificate; `None` if it does not come from files.
    pub fn status(&self) -> Option<CertificateStatus> {
        let source = self.0.source.as_ref()?;
        let validity = self.0.current.borrow().validity;
        let problem = source.problem.lock().unwrap_or_else(PoisonError::into_inner);
        Some(CertificateStatus {
            certificate: source.usage.as_str(),
            not_after: validity.map(|validity| validity.not_after),
            problem: problem.clone(),
        })
    }

    /// Reloads the files whenever they change, and warns before a certificate expires, until this future is
    /// dropped.
    pub async fn keep_fresh(&self) {
        let Some(source) = &self.0.source else {
            return std::future::pending().await;
        };
        let certificate = source.usage.as_str();
        gauge!(telemetry::CERTIFICATE_RELOADED, "certificate" => certificate).set(1);
        counter!(telemetry::CERTIFICATE_RELOAD_FAILURES, "certificate" => certificate).absolute(0);
        self.report(source.usage);
        let mut watch = Watch::since(source.seen.clone(), WatchConfig::default());
        let mut reminders = tokio::time::interval(REMINDER);
        reminders.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = watch.changed() => self.reload(source).await,
                _ = reminders.tick() => self.report_expiry(source.usage),
            }
        }
    }

    async fn reload(&self, source: &Source<C>) {
        let shared = self.clone();
        let load = move || shared.0.source.as_ref().map(|source| (source.load)());
        // Otherwise the runtime is stopping.
        let Ok(Some(loaded)) = tokio::task::spawn_blocking(load).await else {
            return;
        };
        let certificate = source.usage.as_str();
        let problem = match loaded {
            Ok(material) => {
                self.0.current.send_replace(Arc::new(material));
                tracing::info!(
                    certificate,
                    "changed TLS files were loaded; new connections use them"
                );
                self.report(source.usage);
                self.report_expiry(source.usage);
                None
            }
            Err(error) => {
                tracing::warn!(
                    certificate, %error,
                    "changed TLS files are invalid; the previous ones stay in use"
                );
                counter!(telemetry::CERTIFICATE_RELOAD_FAILURES, "certificate" => certificate).increment(1);
                Some(error.to_string())
            }
        };
        let is_good = f64::from(u8::from(problem.is_none()));
        gauge!(telemetry::CERTIFICATE_RELOADED, "certificate" => certificate).set(is_good);
        *source.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    fn report(&self, usage: Usage) {
        let certificate = usage.as_str();
        if let Some(warning) = self.warning() {
            tracing::warn!(certificate, "{warning}");
        }
        let Some(validity) = self.0.current.borrow().validity else {
            return;
        };
        gauge!(telemetry::CERTIFICATE_EXPIRY, "certificate" => certificate).set(validity.not_after_seconds());
        if usage == Usage::Listen && !validity.has_names {
            tracing::warn!(
                certificate,
                "the certificate has no subject alternative name, and kube-apiserver rejects it: make one that \
                 names the host or the service, with `admittance certs`"
            );
        }
    }

    fn report_expiry(&self, usage: Usage) {
        let validity = self.0.current.borrow().validity;
        let Some((validity, expiry)) = validity.and_then(|it| Some((it, it.expiry(SystemTime::now())?)))
        else {
            return;
        };
        let certificate = usage.as_str();
        let not_after = humantime::format_rfc3339_seconds(validity.not_after);
        match expiry {
            Expiry::Expired => tracing::warn!(
                certificate, %not_after,
                "the certificate has expired and clients reject it; replace it"
            ),
            Expiry::Soon => tracing::warn!(
                certificate, %not_after,
                "the certificate expires within 7 days; replace it"
            ),
        }
    }
}
