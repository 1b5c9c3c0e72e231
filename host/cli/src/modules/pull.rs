//! `admittance pull`: fetches a module into the store, or into a file.

use std::path::{Path, PathBuf};

use admittance::{Digest, ModuleReference};
use admittance_catalog::{Catalog, Freshness, Module};
use bytesize::ByteSize;
use clap::Args;

use super::ModuleArguments;
use crate::{
    arguments::parse_existing_path,
    files::{self, PUBLIC_MODE},
    output::{BOLD, GOOD, sanitize_line, write},
    progress::transfer_display,
};

/// Fetch a module, check it as a chain would, and keep it in the store, so that the next start needs no network.
///
/// A tag or URL is looked up again, because it may name another module now. The
/// command prints the digest, and the lines that pin the module in a definition.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance pull oci://registry.example.com/plugins/images:1.2.0 --key cosign.pub")]
pub(crate) struct PullArguments {
    /// An https:// URL, oci://registry/repository:tag, or file: and a path.
    reference: ModuleReference,
    /// The file to which the module is written, in addition to the store.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The public key that must have signed the module (PEM, as cosign writes it). May be given more than once; one of
    /// the keys must match.
    #[arg(long, value_name = "FILE", value_parser = parse_existing_path)]
    key: Vec<PathBuf>,
    #[command(flatten)]
    modules: ModuleArguments,
}

impl PullArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        let catalog = self.modules.open_catalog(&self.key)?;
        let on_progress = transfer_display("fetching");
        let module = catalog.obtain(&self.reference, None, Freshness::Resolve, &on_progress);
        let module = crate::block_on(module)??;
        if let Some(path) = &self.output {
            files::replace_file(path, module.bytes(), PUBLIC_MODE)?;
        }
        Ok(write(&pull_report(&catalog, &module, self.output.as_deref()))?)
    }
}

pub(super) fn resolved_manifest(catalog: &Catalog, reference: &ModuleReference) -> Option<(Digest, Vec<u8>)> {
    let (digest, bytes) = catalog.store()?.read_resolution(reference)?.manifest?;
    Some((digest, bytes.to_vec()))
}

fn pull_report(catalog: &Catalog, module: &Module, file: Option<&Path>) -> String {
    let (reference, digest) = (module.reference(), module.digest());
    let manifest = resolved_manifest(catalog, reference).map(|(digest, _)| digest);
    let store = match (reference, catalog.store()) {
        (ModuleReference::File(_), _) => None,
        (_, Some(store)) => Some(store.directory().display().to_string()),
        (_, None) => Some("none: it is fetched again when it is used".to_owned()),
    };
    let size = ByteSize(module.bytes().len() as u64);
    let mut text = format!("{GOOD}pulled{GOOD:#} {}\n", sanitize_line(&reference.to_string()));
    for (name, value) in [
        ("digest", Some(digest.to_string())),
        ("manifest", manifest.map(|digest| digest.to_string())),
        ("size", Some(size.to_string())),
        ("signature", Some(module.verified_signature().to_string())),
        ("store", store),
        ("file", file.map(|file| file.display().to_string())),
    ] {
        if let Some(value) = value {
            text += &format!("{name:9}  {}\n", sanitize_line(&value));
        }
    }
    text + &pin_text(reference, digest, manifest)
}

pub(super) fn pin_text(reference: &ModuleReference, digest: Digest, manifest: Option<Digest>) -> String {
    let source = match (reference, manifest) {
        // The source contains the tag of the artifact and also the digest of its manifest. The tag tells people which
        // version it is. Registries look only at the digest.
        (ModuleReference::Oci(artifact), Some(manifest)) => {
            let tag = artifact.tag().map(|tag| format!(":{tag}")).unwrap_or_default();
            let (registry, repository) = (artifact.registry(), artifact.repository());
            format!("oci://{registry}/{repository}{tag}@{manifest}")
        }
        _ => reference.to_string(),
    };
    format!(
        "\n{BOLD}pin it under `plugin:`{BOLD:#}\nsource: {}\ndigest: {digest}\n",
        sanitize_line(&source)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::strip_styles;

    #[test]
    fn the_printed_pin_of_a_module_has_its_tag_and_digests() {
        let digest = Digest::of_bytes("module");
        let manifest = Digest::of_bytes("manifest");
        for (reference, manifest, source) in [
            ("file:a.wasm", None, "file:a.wasm".to_owned()),
            (
                "https://example.com/a.wasm",
                None,
                "https://example.com/a.wasm".to_owned(),
            ),
            (
                "oci://r.example.com/a:1",
                Some(manifest),
                format!("oci://r.example.com/a:1@{manifest}"),
            ),
            (
                "oci://r.example.com/a",
                Some(manifest),
                format!("oci://r.example.com/a:latest@{manifest}"),
            ),
            ("oci://r.example.com/a:1", None, "oci://r.example.com/a:1".to_owned()),
            (
                &format!("oci://r.example.com/a@{manifest}"),
                Some(manifest),
                format!("oci://r.example.com/a@{manifest}"),
            ),
        ] {
            let text = strip_styles(&pin_text(&reference.parse().unwrap(), digest, manifest));
            assert_eq!(
                text,
                format!("\npin it under `plugin:`\nsource: {source}\ndigest: {digest}\n")
            );
            let printed_source = text.lines().find_map(|line| line.strip_prefix("source: ")).unwrap();
            assert!(printed_source.parse::<ModuleReference>().is_ok(), "{printed_source}");
        }
    }
}
