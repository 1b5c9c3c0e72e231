//! `admittance pull`: fetches a module into the store, or into a file.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use admittance::{Digest, ModuleReference};
use admittance_catalog::{Catalog, Freshness, Module, OciReference};
use bytesize::ByteSize;
use clap::Args;

use super::{ModuleArguments, transfers::Transfers};
use crate::output::{BOLD, GOOD, harmless, write};

/// Fetch a module, check it as a chain would, and keep it in the store, so that the next start needs no
/// network.
///
/// A tag or URL is resolved again, even if it is in the store. Prints the digest, and what to write into a
/// definition to pin it.
#[derive(Debug, Args)]
pub(crate) struct PullArguments {
    /// An https:// URL, oci://registry/repository:tag, or file: and a path.
    reference: ModuleReference,
    /// Also write the module to this file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The public key that must have signed it (PEM, as cosign writes it). May be given more than once; one
    /// of them must match.
    #[arg(long, value_name = "FILE")]
    key: Vec<PathBuf>,
    #[command(flatten)]
    modules: ModuleArguments,
}

pub(crate) fn run(arguments: &PullArguments) -> crate::Result<()> {
    let catalog = arguments.modules.catalog(&arguments.key)?;
    let reference = &arguments.reference;
    let transfers = Transfers::on_terminal("fetching");
    let on_progress = |progress| transfers.show("", progress);
    let module = catalog.obtain(reference, None, Freshness::Again, &on_progress);
    let module = crate::block_on(module)??;
    if let Some(path) = &arguments.output {
        save(path, module.bytes())?;
    }
    let manifest = manifest(&catalog, reference).map(|(digest, _)| digest);
    write(&report(&catalog, &module, manifest, arguments.output.as_deref()))?;
    Ok(())
}

/// The digest of the manifest that this reference last resolved to.
pub(super) fn manifest(catalog: &Catalog, reference: &ModuleReference) -> Option<(Digest, Vec<u8>)> {
    let resolution = catalog.store()?.resolution(reference)?;
    let (digest, bytes) = resolution.manifest?;
    Some((digest, bytes.to_vec()))
}

/// Writes it atomically.
fn save(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", path.display());
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(wrong)?;
    file.write_all(bytes).map_err(wrong)?;
    use std::os::unix::fs::PermissionsExt;
    let public = fs::Permissions::from_mode(0o644);
    file.as_file().set_permissions(public).map_err(wrong)?;
    file.as_file().sync_all().map_err(wrong)?;
    file.persist(path).map(drop).map_err(|error| wrong(error.error))
}

fn report(catalog: &Catalog, module: &Module, manifest: Option<Digest>, file: Option<&Path>) -> String {
    let mut text = format!(
        "{GOOD}pulled{GOOD:#} {}\ndigest     {}\n",
        harmless(&module.reference().to_string()),
        module.digest()
    );
    let mut line = |name: &str, value: &str| {
        text.push_str(&format!("{name:9}  {}\n", harmless(value)));
    };
    if let Some(manifest) = manifest {
        line("manifest", &manifest.to_string());
    }
    line("size", &ByteSize(module.bytes().len() as u64).to_string());
    line("signature", &module.verified().to_string());
    let store = catalog
        .store()
        .map(|store| store.directory().display().to_string());
    if !matches!(module.reference(), ModuleReference::File(_)) {
        line(
            "store",
            store
                .as_deref()
                .unwrap_or("none: it is fetched again when it is used"),
        );
    }
    if let Some(file) = file {
        line("file", &file.display().to_string());
    }
    text.push_str(&pin(module.reference(), module.digest(), manifest));
    text
}

/// The lines for a definition that pin this module.
pub(super) fn pin(reference: &ModuleReference, digest: Digest, manifest: Option<Digest>) -> String {
    let source = match (reference, manifest) {
        (ModuleReference::Oci(artifact), Some(manifest)) => pinned(artifact, manifest),
        _ => reference.to_string(),
    };
    format!(
        "\n{BOLD}pin it under `plugin:`{BOLD:#}\nsource: {}\ndigest: {digest}\n",
        harmless(&source)
    )
}

/// The name with the tag, for readers, and with the digest of the manifest, which takes precedence.
fn pinned(artifact: &OciReference, manifest: Digest) -> String {
    let tag = artifact.tag().map(|tag| format!(":{tag}")).unwrap_or_default();
    let (registry, repository) = (artifact.registry(), artifact.repository());
    format!("oci://{registry}/{repository}{tag}@{manifest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::plain;

    #[test]
    fn what_to_pin() {
        let digest = Digest::of("module");
        let manifest = Digest::of("manifest");
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
            (
                "oci://r.example.com/a:1",
                None,
                "oci://r.example.com/a:1".to_owned(),
            ),
            (
                &format!("oci://r.example.com/a@{manifest}"),
                Some(manifest),
                format!("oci://r.example.com/a@{manifest}"),
            ),
        ] {
            let text = plain(&pin(&reference.parse().unwrap(), digest, manifest));
            assert_eq!(
                text,
                format!("\npin it under `plugin:`\nsource: {source}\ndigest: {digest}\n")
            );
            let written = text
                .lines()
                .find_map(|line| line.strip_prefix("source: "))
                .unwrap();
            assert!(written.parse::<ModuleReference>().is_ok(), "{written}");
        }
    }

    #[test]
    fn a_file_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.wasm");
        for content in ["first", "second"] {
            save(&path, content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        let error = save(&folder.path().join("none/a.wasm"), b"").unwrap_err();
        assert!(error.contains("none/a.wasm"), "{error}");
    }
}
