//! `admittance push`: uploads a plugin to a registry.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, UNIX_EPOCH},
};

use admittance::ModuleReference;
use admittance_catalog::{Catalog, Freshness, OciReference, PushedArtifact};
use admittance_sandbox::ModuleInspection;
use clap::Args;

use super::{ModuleArguments, inspect_module, pull::pin_text};
use crate::{
    arguments::key_value,
    output::{GOOD, sanitize_line, write},
    progress::transfer_display,
};

/// Push a plugin to a registry, as the standard WebAssembly artifact, with the credentials of `docker login`.
///
/// The plugin's name, version and summary become the annotations for title, version and description. If the same plugin
/// is pushed again with the same annotations, the artifact is the same, so its signatures stay valid. This is why the
/// creation time is always 1970-01-01, or SOURCE_DATE_EPOCH.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance push images.wasm oci://registry.example.com/plugins/images:1.2.0")]
pub(crate) struct PushArguments {
    /// The plugin (.wasm).
    file: PathBuf,
    /// The reference of the artifact: oci://registry/repository:tag.
    #[arg(value_parser = artifact)]
    reference: OciReference,
    /// An annotation that is added to the artifact, or replaces one of the plugin's. May be given more than once.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    annotation: Vec<(String, String)>,
    /// The creation time of the artifact, in seconds since 1970.
    #[arg(long, value_name = "SECONDS", env = "SOURCE_DATE_EPOCH", hide = true, value_parser = clap::value_parser!(u64).range(..=253_402_300_799))]
    source_date_epoch: Option<u64>,
    #[command(flatten)]
    modules: ModuleArguments,
}

fn artifact(text: &str) -> Result<OciReference, String> {
    match text.parse() {
        Ok(ModuleReference::Oci(reference)) => Ok(reference),
        Ok(_) => Err("modules can be pushed only to registries: write oci://registry/repository:tag".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl PushArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        let catalog = self.modules.open_catalog(&[])?;
        let pushed = crate::block_on(self.push(&catalog))??;
        let reference = ModuleReference::Oci(pushed.reference);
        let (name, manifest, digest) = (sanitize_line(&reference.to_string()), pushed.manifest, pushed.module);
        let pin = pin_text(&reference, digest, Some(manifest));
        let text = format!("{GOOD}pushed{GOOD:#} {name}\nmanifest   {manifest}\ndigest     {digest}\n{pin}");
        Ok(write(&text)?)
    }

    async fn push(&self, catalog: &Catalog) -> crate::Result<PushedArtifact> {
        let file = ModuleReference::File(self.file.clone());
        let module = catalog.obtain(&file, None, Freshness::Resolve, &|_| {}).await?;
        let mut annotations = module_annotations(&inspect_module(&module).await?);
        annotations.extend(self.annotation.iter().cloned());
        let created = UNIX_EPOCH + Duration::from_secs(self.source_date_epoch.unwrap_or_default());
        let on_progress = transfer_display("pushing");
        let bytes = module.bytes().clone();
        let pushed = catalog.push(&self.reference, bytes, &annotations, created, &on_progress);
        Ok(pushed.await?)
    }
}

fn module_annotations(inspection: &ModuleInspection) -> BTreeMap<String, String> {
    let description = &inspection.description;
    [
        ("title", &description.name),
        ("version", &description.version),
        ("description", &description.summary),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    .map(|(name, value)| (format!("org.opencontainers.image.{name}"), value.clone()))
    .collect()
}
