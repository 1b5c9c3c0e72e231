//! `admittance push`: uploads a plugin to a registry.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, UNIX_EPOCH},
};

use admittance::ModuleReference;
use admittance_catalog::{Catalog, Freshness, OciReference, Pushed};
use admittance_sandbox::{Inspection, Sandbox};
use clap::Args;

use super::{ModuleArguments, pull::pin, transfers::Transfers};
use crate::output::{GOOD, harmless, write};

/// Push a plugin to a registry, as the standard WebAssembly artifact, with the credentials of `docker login`.
///
/// The plugin's name, version and summary become the annotations for title, version and description. The same
/// plugin with the same annotations is always the same artifact, so its signatures stay valid: its creation
/// time is 1970-01-01, or SOURCE_DATE_EPOCH.
#[derive(Debug, Args)]
pub(crate) struct PushArguments {
    /// The plugin (.wasm).
    file: PathBuf,
    /// oci://registry/repository:tag
    #[arg(value_parser = artifact)]
    reference: OciReference,
    /// An annotation of the artifact to add or override. May be given more than once.
    #[arg(long, value_name = "KEY=VALUE", value_parser = annotation)]
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
        Ok(_) => {
            Err("modules can be pushed only to registries: write oci://registry/repository:tag".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn annotation(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write KEY=VALUE".to_owned()),
    }
}

pub(crate) fn run(arguments: &PushArguments) -> crate::Result<()> {
    let catalog = arguments.modules.catalog(&[])?;
    let pushed = crate::block_on(push(arguments, &catalog))??;
    let reference = ModuleReference::Oci(pushed.reference.clone());
    write(&format!(
        "{GOOD}pushed{GOOD:#} {}\nmanifest   {}\ndigest     {}\n{}",
        harmless(&reference.to_string()),
        pushed.manifest,
        pushed.module,
        pin(&reference, pushed.module, Some(pushed.manifest)),
    ))?;
    Ok(())
}

async fn push(arguments: &PushArguments, catalog: &Catalog) -> crate::Result<Pushed> {
    let file = ModuleReference::File(arguments.file.clone());
    let module = catalog.obtain(&file, None, Freshness::Again, &|_| {}).await?;
    let inspection = Sandbox::new(super::sandbox(None))?
        .inspect(module.bytes().clone())
        .await
        .map_err(|error| format!("{}: {error}", arguments.file.display()))?;
    let mut annotations = described(&inspection);
    annotations.extend(arguments.annotation.iter().cloned());
    let transfers = Transfers::on_terminal("pushing");
    let on_progress = |progress| transfers.show("", progress);
    let pushed = catalog.push(
        &arguments.reference,
        module.bytes().clone(),
        &annotations,
        UNIX_EPOCH
            + arguments
                .source_date_epoch
                .map(Duration::from_secs)
                .unwrap_or_default(),
        &on_progress,
    );
    Ok(pushed.await?)
}

/// Annotations with the names of the OCI image specification.
fn described(inspection: &Inspection) -> BTreeMap<String, String> {
    let description = &inspection.description;
    let known = [
        ("title", &description.name),
        ("version", &description.version),
        ("description", &description.summary),
    ];
    let known = known.into_iter().filter(|(_, value)| !value.is_empty());
    known
        .map(|(name, value)| (format!("org.opencontainers.image.{name}"), value.clone()))
        .collect()
}
