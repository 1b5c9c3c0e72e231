//! Fetches, uploads and describes modules: the commands `pull`, `push` and `inspect`.

mod inspect;
mod pull;
mod push;

use std::path::{Path, PathBuf};

use admittance::ModuleReference;
use admittance_catalog::{
    Catalog, CatalogConfig, Module, Store,
    signature::{PublicKey, PublicKeys, Requirement, SignaturePolicy, SignatureRule},
};
use admittance_driver::Config;
use admittance_sandbox::{ModuleInspection, Sandbox};
use clap::Args;
use url::Url;

pub(crate) use self::{inspect::InspectArguments, pull::PullArguments, push::PushArguments};
use crate::{arguments::parse_existing_path, directories, host};

/// The arguments for fetching modules from servers and registries. An argument takes precedence over the same setting
/// in the configuration.
#[derive(Debug, Args)]
#[command(next_help_heading = "Modules")]
pub(crate) struct ModuleArguments {
    /// A configuration of `serve`, of which the sections `modules`, `signatures` and `store` are used.
    #[arg(long, value_name = "FILE", value_parser = parse_existing_path)]
    config: Option<PathBuf>,
    /// The directory of modules [default: the user's cache directory].
    #[arg(long, value_name = "DIRECTORY", env = "ADMITTANCE_STORE")]
    store: Option<PathBuf>,
    /// Trust the CAs in this PEM file, in addition to the CAs of the system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Connect through this proxy [default: HTTPS_PROXY and NO_PROXY].
    #[arg(long, value_name = "URL")]
    proxy: Option<Url>,
    /// Connect to this registry without TLS. May be given more than once.
    #[arg(long, value_name = "HOST:PORT")]
    insecure_registry: Vec<String>,
}

impl ModuleArguments {
    fn open_catalog(&self, keys: &[PathBuf]) -> crate::Result<Catalog> {
        let (mut config, store_directory) = self.catalog_config(keys)?;
        let directory = directories::store_directory(self.store.clone().or(store_directory));
        config.store = directory.map(Store::open).transpose()?;
        Ok(Catalog::new(config)?)
    }

    /// Returns a catalog with its store in `directory` instead of the user's store. The command `inspect` uses it,
    /// because the user's store records the digest to which each tag last resolved, and `inspect` must not change that.
    fn open_catalog_in(&self, keys: &[PathBuf], directory: &Path) -> crate::Result<Catalog> {
        let (mut config, _) = self.catalog_config(keys)?;
        config.store = Some(Store::open(directory)?);
        Ok(Catalog::new(config)?)
    }

    fn catalog_config(&self, keys: &[PathBuf]) -> crate::Result<(CatalogConfig, Option<PathBuf>)> {
        let config = self.config.as_deref().map(Config::read).transpose()?;
        let (mut config, store) = config
            .map(|config| (config.catalog, config.store.directory))
            .unwrap_or_default();
        let network = &mut config.network;
        network.ca = self.ca.clone().or(network.ca.take());
        network.proxy = self.proxy.clone().or(network.proxy.take());
        let insecure = self.insecure_registry.iter().cloned();
        network.insecure_registries.extend(insecure);
        if !keys.is_empty() {
            config.signatures = signature_policy_for(keys)?;
        }
        Ok((config, store))
    }
}

/// Returns rules that require every module to be signed with at least one of these keys.
fn signature_policy_for(keys: &[PathBuf]) -> crate::Result<SignaturePolicy> {
    let keys: Result<Vec<_>, _> = keys.iter().map(|path| PublicKey::read(path)).collect();
    Ok(SignaturePolicy::new(vec![SignatureRule {
        source: "**".parse()?,
        requirement: Requirement::Keys(PublicKeys::new(keys?)?),
    }]))
}

async fn inspect_module(module: &Module) -> crate::Result<ModuleInspection> {
    let sandbox = Sandbox::new(host::sandbox_config(None))?;
    let inspection = sandbox.inspect(module.bytes().clone()).await;
    Ok(inspection.map_err(|error| format!("{}: {error}", module.reference()))?)
}

/// Parses the path of a chain or plugin, or the name of a stock plugin, such as `stock:rego`.
pub(crate) fn hooks(text: &str) -> Result<PathBuf, String> {
    match text.parse() {
        Ok(ModuleReference::File(path)) if text.starts_with("stock:") => Ok(path),
        Err(error) if text.starts_with("stock:") => Err(error.to_string()),
        _ => parse_existing_path(text),
    }
}

pub(crate) fn module_or_file(text: &str) -> Result<ModuleReference, String> {
    match text.parse() {
        Ok(reference) => Ok(reference),
        // The text is not a valid reference, so it is taken as the path of a file. But a text with `:` that names no
        // existing file is probably a mistyped reference, so the error is returned.
        Err(_) if !text.contains(':') || Path::new(text).is_file() => Ok(ModuleReference::File(text.into())),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_module_files_need_no_scheme() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.wasm");
        std::fs::write(&file, "").unwrap();
        let path = file.display().to_string();
        for text in [path.clone(), format!("file:{path}")] {
            assert_eq!(module_or_file(&text), Ok(ModuleReference::File(file.clone())));
        }
        assert_eq!(module_or_file("b.wasm"), Ok(ModuleReference::File("b.wasm".into())));
        let odd = folder.path().join("a:1.wasm");
        std::fs::write(&odd, "").unwrap();
        let text = odd.display().to_string();
        assert_eq!(module_or_file(&text), Ok(ModuleReference::File(odd)));
        for text in ["oci://r.example.com/a:1", "https://example.com/a.wasm", "file:b.wasm"] {
            assert_eq!(module_or_file(text).unwrap().to_string(), text);
        }
        for (text, expected) in [("r.example.com/a:1", "write `file:` and a path"), ("oci://a", "oci://")] {
            let error = module_or_file(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn invalid_arguments_of_pull_push_and_inspect_are_refused() {
        crate::assert_acceptance(&[
            ("pull oci://r.example.com/a:1", true),
            (
                "pull https://example.com/a.wasm -o a.wasm --store s --proxy http://p:3128",
                true,
            ),
            ("pull a.wasm", false),
            ("pull", false),
            (
                "push a.wasm oci://r.example.com/a:1 --annotation k=v --annotation a=b=c",
                true,
            ),
            ("push a.wasm oci://r.example.com/a:1 --annotation k", false),
            ("push a.wasm https://example.com/a.wasm", false),
            ("push a.wasm", false),
            (
                "inspect oci://r.example.com/a:1 -o yaml --key Cargo.toml --insecure-registry r:5000",
                true,
            ),
            ("inspect", false),
            ("inspect none.wasm", true),
            ("inspect ftp://example.com/a.wasm", false),
        ]);
    }
}
