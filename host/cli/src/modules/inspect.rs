//! `admittance inspect`: describes a module before it runs.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

use admittance::ModuleReference;
use admittance_catalog::{
    Catalog, Freshness, Module,
    signature::{SignatureDescription, Verified},
};
use admittance_sandbox::{Capability, Grant, Import, Inspection, ResourceHint, Sandbox};
use bytesize::ByteSize;
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::{ModuleArguments, module_or_file, pull::manifest, transfers::Transfers};
use crate::output::{BAD, BOLD, DIM, Form, GOOD, ODD, harmless, harmless_lines};

/// Show information about a module: name, version, contract, resources, settings, imports and the grants that
/// they need, digests, annotations and signatures.
///
/// The module's `describe` runs in the sandbox, without settings and without grants. A tag or URL is resolved
/// again.
#[derive(Debug, Args)]
pub(crate) struct InspectArguments {
    /// A file, an https:// URL, or oci://registry/repository:tag.
    #[arg(value_name = "REFERENCE|FILE", value_parser = module_or_file)]
    module: ModuleReference,
    /// How to print it.
    #[arg(long, short, value_enum, default_value_t)]
    output: Form,
    /// The public key that must have signed it (PEM, as cosign writes it). May be given more than once; one
    /// of them must match.
    #[arg(long, value_name = "FILE")]
    key: Vec<PathBuf>,
    #[command(flatten)]
    modules: ModuleArguments,
}

/// Information about a module. Its JSON form is part of the program's interface: fields are only added.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Inspected {
    reference: String,
    name: String,
    version: String,
    summary: String,
    /// The version of the contract between plugin and host.
    contract: Option<String>,
    mutates: bool,
    resources: Vec<ResourceHint>,
    capabilities: Vec<Capability>,
    imports: Vec<Import>,
    settings_schema: Option<Value>,
    size: u64,
    digest: String,
    /// The digest of the manifest in the registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    /// The result of the signature check.
    verified: Verified,
    /// The signatures that were found, unverified.
    signatures: Vec<SignatureDescription>,
}

pub(crate) fn run(arguments: &InspectArguments) -> crate::Result<()> {
    let aside = tempfile::tempdir()?;
    let catalog = arguments.modules.catalog_aside(&arguments.key, aside.path())?;
    let inspected = crate::block_on(inspect(&arguments.module, &catalog))??;
    arguments.output.print(&inspected, for_people)
}

async fn inspect(reference: &ModuleReference, catalog: &Catalog) -> crate::Result<Inspected> {
    let transfers = Transfers::on_terminal("fetching");
    let on_progress = |progress| transfers.show("", progress);
    let module = catalog
        .obtain(reference, None, Freshness::Again, &on_progress)
        .await?;
    let signatures = catalog.signatures(&module, &on_progress).await?;
    let inspection = Sandbox::new(super::sandbox(None))?
        .inspect(module.bytes().clone())
        .await
        .map_err(|error| format!("{reference}: {error}"))?;
    Ok(Inspected::of(
        &module,
        inspection,
        manifest(catalog, reference),
        signatures,
    ))
}

impl Inspected {
    fn of(
        module: &Module,
        inspection: Inspection,
        manifest: Option<(admittance::Digest, Vec<u8>)>,
        signatures: Vec<SignatureDescription>,
    ) -> Self {
        let Inspection {
            description,
            contract,
            imports,
        } = inspection;
        let schema = description.settings_schema.as_deref();
        Self {
            reference: module.reference().to_string(),
            name: description.name,
            version: description.version,
            summary: description.summary,
            contract,
            mutates: description.mutates,
            resources: description.resources,
            capabilities: description.capabilities,
            imports,
            // A plugin may give any text as its schema.
            settings_schema: schema
                .map(|text| serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))),
            size: module.bytes().len() as u64,
            digest: module.digest().to_string(),
            manifest: manifest.as_ref().map(|(digest, _)| digest.to_string()),
            annotations: manifest.map(|(_, bytes)| annotations(&bytes)).unwrap_or_default(),
            verified: module.verified().clone(),
            signatures,
        }
    }
}

fn annotations(manifest: &[u8]) -> BTreeMap<String, String> {
    #[derive(serde::Deserialize)]
    struct Manifest {
        #[serde(default)]
        annotations: BTreeMap<String, String>,
    }
    serde_json::from_slice::<Manifest>(manifest)
        .map(|manifest| manifest.annotations)
        .unwrap_or_default()
}

/// With ANSI colours.
fn for_people(inspected: &Inspected) -> String {
    let mut text = format!(
        "{BOLD}{} {}{BOLD:#}  {}\n\n",
        harmless(&inspected.name),
        harmless(&inspected.version),
        harmless(&inspected.summary)
    );
    let effect = if inspected.mutates {
        "may change objects"
    } else {
        "allows or denies; changes nothing"
    };
    let contract = match &inspected.contract {
        Some(version) => format!("admittance:plugin {version}"),
        None => "admittance:plugin".to_owned(),
    };
    line(&mut text, "reference", &inspected.reference);
    line(&mut text, "contract", &contract);
    line(&mut text, "effect", effect);
    for resource in &inspected.resources {
        line(&mut text, "resources", &hint(resource));
    }
    line(&mut text, "size", &ByteSize(inspected.size).to_string());
    line(&mut text, "digest", &inspected.digest);
    if let Some(manifest) = &inspected.manifest {
        line(&mut text, "manifest", manifest);
    }
    for (key, value) in &inspected.annotations {
        line(&mut text, "annotation", &format!("{key}={value}"));
    }
    // Writing into a String does not fail.
    let _ = match &inspected.verified {
        Verified::Unrequired => writeln!(text, "{:11} {DIM}not required{DIM:#}", "verified"),
        verified => writeln!(
            text,
            "{:11} {GOOD}{}{GOOD:#}",
            "verified",
            harmless(&verified.to_string())
        ),
    };
    if inspected.signatures.is_empty() {
        line(&mut text, "signatures", "none");
    }
    for signature in &inspected.signatures {
        match &signature.damage {
            None => line(&mut text, "signature", &signature.to_string()),
            Some(damage) => {
                let _ = writeln!(
                    text,
                    "{:11} {} {BAD}{}{BAD:#}",
                    "signature",
                    harmless(&signature.name),
                    harmless(damage)
                );
            }
        }
    }
    for capability in &inspected.capabilities {
        line(&mut text, "asks for", &wanted(capability));
    }
    for import in &inspected.imports {
        imported(&mut text, import);
    }
    if let Some(schema) = &inspected.settings_schema {
        let _ = writeln!(
            text,
            "\n{BOLD}settings{BOLD:#}\n{}",
            harmless_lines(&format!("{schema:#}"))
        );
    }
    text
}

fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "{name:11} {}", harmless(value));
}

fn hint(resource: &ResourceHint) -> String {
    let groups = resource.api_groups.iter();
    let groups: Vec<_> = groups
        .map(|group| if group.is_empty() { "core" } else { group })
        .collect();
    format!(
        "{} ({} {})",
        resource.resources.join(", "),
        groups.join(", "),
        resource.api_versions.join(", ")
    )
}

/// The requested capability, as a stage would grant it.
fn wanted(capability: &Capability) -> String {
    match capability {
        Capability::Cluster(kind) => format!("allow.cluster: [{kind}]"),
        Capability::Http(origin) => format!("allow.http: [{origin}]"),
        Capability::Environment(name) => format!("allow.environment: {{{name}: ...}}"),
    }
}

fn imported(text: &mut String, import: &Import) {
    let (style, what) = match import.grant {
        Grant::None => (DIM, "always available"),
        Grant::Cluster => (ODD, "needs `allow.cluster`"),
        Grant::Http => (ODD, "needs `allow.http`"),
        Grant::Environment => (DIM, "empty without `allow.environment`"),
        Grant::Never => (BAD, "never granted: a call that uses it fails"),
    };
    let _ = writeln!(
        text,
        "{:11} {}  {style}{what}{style:#}",
        "import",
        harmless(&import.name)
    );
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::table::plain;

    #[test]
    fn everything_is_shown() {
        let inspected = Inspected {
            reference: "oci://r/a:1".to_owned(),
            name: "images".to_owned(),
            version: "1.0.0".to_owned(),
            summary: "Checks\nimages.".to_owned(),
            contract: Some("0.1.0".to_owned()),
            mutates: false,
            resources: vec![ResourceHint {
                api_groups: vec![String::new(), "apps".to_owned()],
                api_versions: vec!["v1".to_owned()],
                resources: vec!["pods".to_owned()],
            }],
            capabilities: vec![
                Capability::Cluster("v1/Node".to_owned()),
                Capability::Environment("ZONE".to_owned()),
            ],
            imports: vec![
                Import {
                    name: "admittance:plugin/cluster@0.1.0".to_owned(),
                    grant: Grant::Cluster,
                },
                Import {
                    name: "wasi:sockets/tcp@0.2.6".to_owned(),
                    grant: Grant::Never,
                },
            ],
            settings_schema: Some(json!({"type": "object"})),
            size: 2048,
            digest: "sha256:aa".to_owned(),
            manifest: Some("sha256:bb".to_owned()),
            annotations: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            verified: Verified::Key {
                fingerprint: admittance::Digest::of("key"),
            },
            signatures: Vec::new(),
        };
        let fingerprint = admittance::Digest::of("key").to_string();
        assert_eq!(
            plain(&for_people(&inspected)).replace(&fingerprint, "sha256:cc"),
            r#"images 1.0.0  Checks images.

reference   oci://r/a:1
contract    admittance:plugin 0.1.0
effect      allows or denies; changes nothing
resources   pods (core, apps v1)
size        2.0 KiB
digest      sha256:aa
manifest    sha256:bb
annotation  a=b
verified    by the key sha256:cc
signatures  none
asks for    allow.cluster: [v1/Node]
asks for    allow.environment: {ZONE: ...}
import      admittance:plugin/cluster@0.1.0  needs `allow.cluster`
import      wasi:sockets/tcp@0.2.6  never granted: a call that uses it fails

settings
{
  "type": "object"
}
"#
        );
        let json = serde_json::to_value(&inspected).unwrap();
        assert_eq!(json["imports"][0]["grant"], "cluster");
        assert_eq!(json["verified"]["by"], "key");
    }

    #[test]
    fn annotations_of_a_manifest() {
        for (manifest, count) in [
            (r#"{"annotations": {"a": "b"}}"#, 1),
            (r#"{"layers": []}"#, 0),
            ("none", 0),
        ] {
            assert_eq!(annotations(manifest.as_bytes()).len(), count, "{manifest}");
        }
    }
}
