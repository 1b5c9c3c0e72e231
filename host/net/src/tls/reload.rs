use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use admittance_watch::{FileValue, file};
use metrics::{counter, gauge};
use rustls::{InconsistentKeys, server::danger::ClientCertVerifier};
use rustls_pki_types::CertificateDer;
use tokio::{sync::watch, time::MissedTickBehavior};

use super::{
    Identity, TlsError,
    certificate::{CertificateExpiry, CertificateValidity},
};
use crate::telemetry;

/// The interval between warnings that a certificate expires soon.
const REMINDER_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// A TLS configuration that is loaded again when its files change. Clones share it. If the new files are invalid, the
/// last valid configuration is used.
#[derive(derive_more::Debug)]
#[debug("ReloadableTls {{ usage: {usage:?}, .. }}")]
pub struct ReloadableTls<C> {
    material: FileValue<TlsMaterial<C>>,
    usage: Option<Usage>,
}

pub(super) struct TlsMaterial<C> {
    pub(super) config: Arc<C>,
    /// The period in which this program's own certificate is valid; `None` without one.
    validity: Option<CertificateValidity>,
    pub(super) clients: Option<Arc<dyn ClientCertVerifier>>,
    /// The file with the private key, if every user of the machine may read the file.
    exposed_key: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Usage {
    Listen,
    Upstream,
    Admin,
}

/// The state of a certificate that this program presents to clients or servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateState {
    /// The section of the program's configuration that names the certificate: `listen`, `admin` or `upstream`.
    pub certificate: &'static str,
    pub not_after: Option<SystemTime>,
    /// The reason why the current content of the certificate's files is not used.
    pub problem: Option<String>,
}

impl Usage {
    fn as_str(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Upstream => "upstream",
            Self::Admin => "admin",
        }
    }
}

impl<C> From<C> for TlsMaterial<C> {
    fn from(config: C) -> Self {
        Self {
            config: Arc::new(config),
            validity: None,
            clients: None,
            exposed_key: None,
        }
    }
}

impl<C> TlsMaterial<C> {
    pub(super) fn of_identity(
        identity: &Identity,
        chain: &[CertificateDer<'_>],
        config: impl FnOnce() -> Result<C, rustls::Error>,
    ) -> Result<Self, TlsError> {
        let path = &identity.certificate;
        let config = || {
            config().map_err(|error| match error {
                rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::OtherKey(identity.clone()),
                error => TlsError::rejected(path, &error),
            })
        };
        Ok(Self {
            exposed_key: file::is_world_readable(&identity.key).then(|| identity.key.clone()),
            ..Self::of_chain(path, chain, config)?
        })
    }

    pub(super) fn of_chain(
        path: &Path,
        chain: &[CertificateDer<'_>],
        config: impl FnOnce() -> Result<C, TlsError>,
    ) -> Result<Self, TlsError> {
        let validity = chain.first().map(CertificateValidity::read).transpose();
        Ok(Self {
            validity: validity.map_err(|error| TlsError::rejected(path, &error))?,
            ..Self::from(config()?)
        })
    }
}

impl<C> Clone for ReloadableTls<C> {
    fn clone(&self) -> Self {
        Self {
            material: self.material.clone(),
            usage: self.usage,
        }
    }
}

impl<C> From<C> for ReloadableTls<C> {
    fn from(config: C) -> Self {
        Self {
            material: FileValue::fixed(config.into()),
            usage: None,
        }
    }
}

impl<C: Send + Sync + 'static> ReloadableTls<C> {
    pub(super) fn load(
        usage: Usage,
        files: Vec<PathBuf>,
        load: impl Fn() -> Result<TlsMaterial<C>, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        Ok(Self {
            material: FileValue::load(files, load)?,
            usage: Some(usage),
        })
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Arc<TlsMaterial<C>>> {
        self.material.subscribe()
    }

    /// Returns the TLS configuration to use for a new connection.
    pub fn current(&self) -> Arc<C> {
        self.material.current().config.clone()
    }

    /// Returns a warning if every user of this machine may read the private key; `None` otherwise.
    pub fn warning(&self) -> Option<String> {
        let material = self.material.current();
        let path = material.exposed_key.as_ref()?.display();
        Some(format!(
            "{path}: the private key is readable by every user of this machine: chmod o-r {path}"
        ))
    }

    /// Returns the state of the program's certificate, or `None` for a fixed configuration, which is never reloaded.
    pub fn status(&self) -> Option<CertificateState> {
        let validity = self.material.current().validity;
        Some(CertificateState {
            certificate: self.usage?.as_str(),
            not_after: validity.map(|validity| validity.not_after),
            problem: self.material.problem(),
        })
    }

    /// Reloads the configuration whenever its files change, and warns before the certificate expires. Never returns.
    pub async fn keep_fresh(&self) {
        let Some(usage) = self.usage else {
            return std::future::pending().await;
        };
        let certificate = usage.as_str();
        gauge!(telemetry::CERTIFICATE_RELOADED, "certificate" => certificate).set(1);
        counter!(telemetry::CERTIFICATE_RELOAD_FAILURES, "certificate" => certificate).absolute(0);
        self.report_certificate(usage);
        let remind = async {
            let mut reminders = tokio::time::interval(REMINDER_INTERVAL);
            reminders.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                reminders.tick().await;
                self.report_expiry(usage);
            }
        };
        let reload = self
            .material
            .follow(|loaded| self.report_reload(usage, loaded.map(drop)));
        tokio::select! {
            () = reload => {}
            () = remind => {}
        }
    }

    /// Reloads a configuration that does not come from files.
    pub async fn reload(&self) {
        if let Some(usage) = self.usage {
            let report = |loaded: Result<&_, &str>| self.report_reload(usage, loaded.map(drop));
            self.material.reload(report).await;
        }
    }

    fn report_reload(&self, usage: Usage, loaded: Result<(), &str>) {
        let certificate = usage.as_str();
        match loaded {
            Ok(()) => {
                tracing::info!(certificate, "changed TLS files were loaded; new connections use them");
                self.report_certificate(usage);
                self.report_expiry(usage);
            }
            Err(error) => {
                tracing::warn!(
                    certificate, %error,
                    "changed TLS files are invalid; the previous ones stay in use"
                );
                counter!(telemetry::CERTIFICATE_RELOAD_FAILURES, "certificate" => certificate).increment(1);
            }
        }
        let is_good = f64::from(u8::from(loaded.is_ok()));
        gauge!(telemetry::CERTIFICATE_RELOADED, "certificate" => certificate).set(is_good);
    }

    fn report_certificate(&self, usage: Usage) {
        let certificate = usage.as_str();
        if let Some(warning) = self.warning() {
            tracing::warn!(certificate, "{warning}");
        }
        let Some(validity) = self.material.current().validity else {
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

    #[allow(clippy::disallowed_methods, reason = "this crate knows no `Moment`")]
    fn report_expiry(&self, usage: Usage) {
        let validity = self.material.current().validity;
        let Some((validity, expiry)) = validity.and_then(|it| Some((it, it.expiry(SystemTime::now())?))) else {
            return;
        };
        let certificate = usage.as_str();
        let not_after = humantime::format_rfc3339_seconds(validity.not_after);
        match expiry {
            CertificateExpiry::Expired => tracing::warn!(
                certificate, %not_after,
                "the certificate has expired and clients reject it; replace it"
            ),
            CertificateExpiry::Soon => tracing::warn!(
                certificate, %not_after,
                "the certificate expires within 7 days; replace it"
            ),
        }
    }
}
