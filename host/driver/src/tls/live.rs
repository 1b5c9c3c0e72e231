use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use admittance::Moment;
use admittance_watch::{Fingerprint, Watch, WatchConfig};
use metrics::{counter, gauge};
use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::{sync::watch, time::MissedTickBehavior};

use super::{ClientAuthorities, Identity, Loaded, TlsError, load_client, load_server};
use crate::{api::CertificateStatus, measure};

/// A certificate that ends soon is spoken of this often.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What a port shows to its clients, and whom it lets in.
pub type ServerTls = Live<ServerConfig>;

/// TLS material that is read again when its files change. Cheap to clone, and clones are the same one; it
/// lives as long as who uses it.
///
/// What is not good is not taken: the last good one stays.
pub struct Live<C>(Arc<Inner<C>>);

struct Inner<C> {
    current: watch::Sender<Arc<Loaded<C>>>,
    /// None: it is not of files, and never changes.
    source: Option<Source<C>>,
}

struct Source<C> {
    role: Role,
    load: Box<dyn Fn() -> Result<Loaded<C>, TlsError> + Send + Sync>,
    /// What the files held when they were first read.
    seen: Fingerprint,
    /// Why what the files hold now is not in use.
    problem: Mutex<Option<String>>,
}

/// Where the material is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Listen,
    Upstream,
    Admin,
}

impl Role {
    /// As metrics, log and readiness call it; also the part of the configuration that names the files.
    fn as_str(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Upstream => "upstream",
            Self::Admin => "admin",
        }
    }
}

impl<C> Clone for Live<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C> fmt::Debug for Live<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = self.0.source.as_ref().map(|source| source.role);
        f.debug_struct("Live")
            .field("role", &role)
            .finish_non_exhaustive()
    }
}

impl ServerTls {
    /// A port that shows this certificate. With `client_ca` only clients with a certificate of one of
    /// these authorities are let in.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or key and certificate do not belong together.
    pub fn of_files(identity: Identity, client_ca: Option<PathBuf>) -> Result<Self, TlsError> {
        let files = files(Some(&identity), client_ca.as_deref());
        Self::load(Role::Listen, files, move || {
            let clients = client_ca.as_deref().map(ClientAuthorities::Demanded);
            load_server(&identity, clients)
        })
    }

    /// The operator's port, which shows this certificate. With `client_ca` clients are asked for a certificate of
    /// one of these authorities, and let in without; a certificate of another authority is refused.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or key and certificate do not belong together.
    pub fn asking_clients(identity: Identity, client_ca: Option<PathBuf>) -> Result<Self, TlsError> {
        let files = files(Some(&identity), client_ca.as_deref());
        Self::load(Role::Admin, files, move || {
            let clients = client_ca.as_deref().map(ClientAuthorities::Asked);
            load_server(&identity, clients)
        })
    }
}

impl ServerTls {
    /// How the next connection is let in.
    pub(crate) fn admission(&self) -> Admission {
        let mut current = self.0.current.subscribe();
        let config = current.borrow_and_update().config.clone();
        Admission {
            current,
            config,
            chain: Vec::new(),
        }
    }
}

/// By which material a connection was let in, and with which certificate. Lives as long as the connection.
pub(crate) struct Admission {
    current: watch::Receiver<Arc<Loaded<ServerConfig>>>,
    config: Arc<ServerConfig>,
    /// Of the client: its certificate, then those that lead to its authority. Empty when it showed none.
    chain: Vec<CertificateDer<'static>>,
}

impl Admission {
    /// What to shake hands with.
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// The client was let in, and has shown these certificates.
    pub(crate) fn admitted(&mut self, chain: &[CertificateDer<'_>]) {
        self.chain = chain.iter().map(|one| one.clone().into_owned()).collect();
    }

    /// The client's certificate, if it has shown one.
    pub(crate) fn leaf(&self) -> Option<&CertificateDer<'static>> {
        self.chain.first()
    }

    /// When files have changed, and the client's certificate would not be accepted any more.
    pub(crate) async fn revoked(&mut self) {
        while self.current.changed().await.is_ok() {
            if !self.current.borrow_and_update().accepts(&self.chain) {
                return;
            }
        }
        std::future::pending().await
    }
}

impl Loaded<ServerConfig> {
    /// Whether a client that has shown these certificates would be let in.
    fn accepts(&self, chain: &[CertificateDer<'_>]) -> bool {
        let (Some(clients), Some((leaf, rest))) = (&self.clients, chain.split_first()) else {
            // It was let in without a certificate, and still would be.
            return true;
        };
        clients.verify_client_cert(leaf, rest, UnixTime::now()).is_ok()
    }
}

impl Live<ClientConfig> {
    pub(super) fn client_of_files(ca: Option<PathBuf>, identity: Option<Identity>) -> Result<Self, TlsError> {
        let files = files(identity.as_ref(), ca.as_deref());
        Self::load(Role::Upstream, files, move || {
            load_client(ca.as_deref(), identity.as_ref())
        })
    }
}

fn files(identity: Option<&Identity>, ca: Option<&Path>) -> Vec<PathBuf> {
    let pair = identity.map(|identity| [&identity.certificate, &identity.key]);
    pair.into_iter()
        .flatten()
        .cloned()
        .chain(ca.map(Path::to_owned))
        .collect()
}

impl<C> From<C> for Live<C> {
    /// Material that never changes.
    fn from(config: C) -> Self {
        let loaded = Loaded {
            config: Arc::new(config),
            leaf: None,
            clients: None,
            exposed_key: None,
        };
        Self(Arc::new(Inner {
            current: watch::Sender::new(Arc::new(loaded)),
            source: None,
        }))
    }
}

impl<C: Send + Sync + 'static> Live<C> {
    fn load(
        role: Role,
        files: Vec<PathBuf>,
        load: impl Fn() -> Result<Loaded<C>, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        // Before the files are read, so that a change meanwhile is seen as one.
        let seen = Fingerprint::of(files);
        let loaded = load()?;
        Ok(Self(Arc::new(Inner {
            current: watch::Sender::new(Arc::new(loaded)),
            source: Some(Source {
                role,
                load: Box::new(load),
                seen,
                problem: Mutex::new(None),
            }),
        })))
    }

    /// For the next connection: what was good last.
    pub fn current(&self) -> Arc<C> {
        self.0.current.borrow().config.clone()
    }

    /// What is wrong with the file of the private key, though it is used.
    pub(crate) fn warning(&self) -> Option<String> {
        let loaded = self.0.current.borrow();
        let path = loaded.exposed_key.as_ref()?.display();
        Some(format!(
            "{path}: every user of this machine can read the private key: chmod o-r {path}"
        ))
    }

    /// How it is; none when it is not of files.
    pub(crate) fn status(&self) -> Option<CertificateStatus> {
        let source = self.0.source.as_ref()?;
        Some(CertificateStatus {
            certificate: source.role.as_str().to_owned(),
            not_after: self.0.current.borrow().leaf.map(|leaf| Moment(leaf.not_after)),
            problem: source
                .problem
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        })
    }

    /// Read the files again whenever they change, and say when a certificate is about to end; until this
    /// future is dropped.
    pub(crate) async fn keep_fresh(&self) {
        let Some(source) = &self.0.source else {
            return std::future::pending().await;
        };
        let certificate = source.role.as_str();
        gauge!(measure::CERTIFICATE_RELOADED, "certificate" => certificate).set(1);
        counter!(measure::CERTIFICATE_RELOAD_FAILURES, "certificate" => certificate).absolute(0);
        self.tell(source.role);
        let mut watch = Watch::since(source.seen.clone(), WatchConfig::default());
        let mut days = tokio::time::interval(DAY);
        days.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = watch.changed() => self.reload(source).await,
                _ = days.tick() => self.tell_of_end(source.role),
            }
        }
    }

    async fn reload(&self, source: &Source<C>) {
        let live = self.clone();
        let load = move || live.0.source.as_ref().map(|source| (source.load)());
        // Not there: the runtime is stopping.
        let Ok(Some(loaded)) = tokio::task::spawn_blocking(load).await else {
            return;
        };
        let certificate = source.role.as_str();
        let problem = match loaded {
            Ok(loaded) => {
                self.0.current.send_replace(Arc::new(loaded));
                tracing::info!(
                    certificate,
                    "changed TLS files were read: new connections use them"
                );
                self.tell(source.role);
                self.tell_of_end(source.role);
                None
            }
            Err(error) => {
                tracing::warn!(
                    certificate, %error,
                    "changed TLS files are no good: what was good last stays in use"
                );
                counter!(measure::CERTIFICATE_RELOAD_FAILURES, "certificate" => certificate).increment(1);
                Some(error.to_string())
            }
        };
        let is_good = f64::from(u8::from(problem.is_none()));
        gauge!(measure::CERTIFICATE_RELOADED, "certificate" => certificate).set(is_good);
        *source.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    /// What is to be known of the certificate in use.
    fn tell(&self, role: Role) {
        let certificate = role.as_str();
        if let Some(warning) = self.warning() {
            tracing::warn!(certificate, "{warning}");
        }
        let Some(leaf) = self.0.current.borrow().leaf else {
            return;
        };
        gauge!(measure::CERTIFICATE_EXPIRY, "certificate" => certificate).set(leaf.not_after_seconds());
        if role == Role::Listen && !leaf.has_names {
            tracing::warn!(
                certificate,
                "the certificate has no subject alternative name, and kube-apiserver refuses such: \
                 make one that names the host or the service (admittance certs does)"
            );
        }
    }

    fn tell_of_end(&self, role: Role) {
        let leaf = self.0.current.borrow().leaf;
        if let Some(leaf) = leaf
            && let Some(ending) = leaf.ending(SystemTime::now())
        {
            let not_after = humantime::format_rfc3339_seconds(leaf.not_after);
            tracing::warn!(certificate = role.as_str(), %not_after, "{ending}");
        }
    }
}
