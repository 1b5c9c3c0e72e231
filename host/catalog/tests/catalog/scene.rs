//! Test helpers: modules, catalogs, and recorded progress.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use admittance_catalog::{
    Catalog, CatalogConfig, Digest, Error, FetchProgress, Freshness, Module, ModuleReference, NetworkConfig, Store,
};
use tempfile::TempDir;

use crate::{authority::HttpsAuthority, registry::USER};

/// The parts that tests of the catalog share: a certificate authority, a directory, and the configuration of a catalog.
/// The catalog trusts the authority, stores modules in the directory, and retries almost without pauses.
pub(crate) struct CatalogScene {
    pub(crate) authority: HttpsAuthority,
    pub(crate) directory: TempDir,
    pub(crate) config: CatalogConfig,
    reports: Arc<Mutex<Vec<FetchProgress>>>,
}

impl CatalogScene {
    pub(crate) fn new() -> Self {
        let authority = HttpsAuthority::new();
        let directory = TempDir::new().unwrap();
        let ca = directory.path().join("ca.pem");
        fs::write(&ca, authority.pem()).unwrap();
        let mut network = NetworkConfig::default();
        network.ca = Some(ca);
        network.first_pause = Duration::from_millis(1);
        network.docker_config = Some(directory.path().join("docker/config.json"));
        let mut config = CatalogConfig::default();
        config.store = Some(Store::open(directory.path().join("store")).unwrap());
        config.network = network;
        Self {
            authority,
            directory,
            config,
            reports: Arc::default(),
        }
    }

    pub(crate) fn catalog(&self) -> Catalog {
        Catalog::new(self.config.clone()).unwrap()
    }

    pub(crate) fn store(&self) -> &Store {
        self.config.store.as_ref().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn log_in(&self, registry: &str) {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        let (user, password) = USER;
        let auth = STANDARD.encode(format!("{user}:{password}"));
        self.write_docker_config(&serde_json::json!({"auths": {registry: {"auth": auth}}}));
    }

    pub(crate) fn write_docker_config(&self, config: &serde_json::Value) {
        let path = self.path("docker/config.json");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, config.to_string()).unwrap();
    }

    pub(crate) async fn obtain(&self, catalog: &Catalog, reference: &str) -> Result<Module, Error> {
        self.obtain_with(catalog, reference, None, Freshness::PreferRecorded)
            .await
    }

    pub(crate) async fn obtain_with(
        &self,
        catalog: &Catalog,
        reference: &str,
        pinned: Option<Digest>,
        freshness: Freshness,
    ) -> Result<Module, Error> {
        let reference: ModuleReference = reference.parse().unwrap();
        let reports = self.reports.clone();
        let record = move |progress| reports.lock().unwrap().push(progress);
        catalog.obtain(&reference, pinned, freshness, &record).await
    }

    pub(crate) fn take_progress(&self) -> Vec<FetchProgress> {
        std::mem::take(&mut *self.reports.lock().unwrap())
    }

    pub(crate) fn take_retries(&self) -> Vec<(Duration, Error)> {
        let retries = self.take_progress().into_iter().filter_map(|progress| match progress {
            FetchProgress::Retrying { after, error } => Some((after, error)),
            _ => None,
        });
        retries.collect()
    }

    pub(crate) fn stored_files(&self, kind: &str) -> Vec<String> {
        let entries = fs::read_dir(self.store().directory().join(kind)).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// Returns a component of this size in bytes, with content that depends on `seed`.
pub(crate) fn component(size: usize, seed: u8) -> Vec<u8> {
    let mut bytes = b"\0asm\x0d\0\x01\0".to_vec();
    // The rest of the component is a custom section. It begins with one byte for its kind, and with five bytes for the
    // size of its content.
    let content = size - bytes.len() - 1 - 5;
    bytes.push(0);
    for shift in [0, 7, 14, 21, 28] {
        let more = if shift < 28 { 0x80 } else { 0 };
        bytes.push((content >> shift) as u8 & 0x7f | more);
    }
    bytes.push(0);
    bytes.extend((1..content).map(|index| (index / 251) as u8 ^ seed));
    assert_eq!(bytes.len(), size);
    bytes
}
