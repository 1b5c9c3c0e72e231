//! `admittance inspect`: describes a module before it runs.

use std::{collections::BTreeMap, path::PathBuf};

use admittance::ModuleReference;
use admittance_catalog::{
    Catalog, Freshness,
    signature::{SignatureDescription, VerifiedSignature},
};
use admittance_sandbox::{Description, Grant, ModuleImport, ModuleInspection, ResourceHint};
use anstyle::Style;
use bytesize::ByteSize;
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::{ModuleArguments, inspect_module, module_or_file, pull::resolved_manifest};
use crate::{
    arguments::parse_existing_path,
    output::{BAD, BOLD, DIM, GOOD, Output, WARN, sanitize_line, sanitize_lines},
    progress::transfer_display,
};

/// Show information about a module: name, version, contract, resources, settings, imports and the grants that they
/// need, digests, annotations and signatures.
///
/// The function `describe` of the module runs in the sandbox, without settings and grants. A tag or URL is looked up
/// again, because it may name another module now.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance inspect images.wasm
  admittance inspect oci://registry.example.com/plugins/images:1.2.0 --key cosign.pub --output json")]
pub(crate) struct InspectArguments {
    /// A file, an https:// URL, or oci://registry/repository:tag.
    #[arg(value_name = "REFERENCE|FILE", value_parser = module_or_file)]
    module: ModuleReference,
    /// The output format.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
    /// The public key that must have signed the module (PEM, as cosign writes it). May be given more than once; one of
    /// the keys must match.
    #[arg(long, value_name = "FILE", value_parser = parse_existing_path)]
    key: Vec<PathBuf>,
    #[command(flatten)]
    modules: ModuleArguments,
}

/// The description of a module. Scripts depend on its JSON form, so fields may only be added.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ModuleDescription {
    reference: String,
    #[serde(flatten)]
    description: Description,
    /// The name of the contract between the inspected plugin and its host.
    interface: String,
    /// The version of the contract between the inspected plugin and its host.
    contract: Option<String>,
    imports: Vec<ModuleImport>,
    /// The JSON Schema of the plugin's settings.
    settings_schema: Option<Value>,
    size: u64,
    digest: String,
    /// The digest of the module's manifest in the registry.
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    verified: VerifiedSignature,
    /// The signatures that were found for the module. They have not been verified.
    signatures: Vec<SignatureDescription>,
}

impl InspectArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        let directory = tempfile::tempdir()?;
        let catalog = self.modules.open_catalog_in(&self.key, directory.path())?;
        let inspected = crate::block_on(inspect(&self.module, &catalog))??;
        self.output.print(&inspected, text)
    }
}

async fn inspect(reference: &ModuleReference, catalog: &Catalog) -> crate::Result<ModuleDescription> {
    let on_progress = transfer_display("fetching");
    let module = catalog
        .obtain(reference, None, Freshness::Resolve, &on_progress)
        .await?;
    let signatures = catalog.signatures(&module, &on_progress).await?;
    let ModuleInspection {
        mut description,
        interface,
        contract,
        imports,
        annotations: own,
    } = inspect_module(&module).await?;
    let manifest = resolved_manifest(catalog, reference);
    let schema = description.settings_schema.take();
    Ok(ModuleDescription {
        reference: module.reference().to_portable_text(),
        description,
        interface,
        contract,
        imports,
        // A plugin may describe its settings by a text that is not JSON.
        settings_schema: schema.map(|text| serde_json::from_str(&text).unwrap_or(Value::String(text))),
        size: module.bytes().len() as u64,
        digest: module.digest().to_string(),
        manifest: manifest.as_ref().map(|(digest, _)| digest.to_string()),
        annotations: own
            .into_iter()
            .chain(
                manifest
                    .map(|(_, bytes)| manifest_annotations(&bytes))
                    .unwrap_or_default(),
            )
            .collect(),
        verified: module.verified_signature().clone(),
        signatures,
    })
}

fn manifest_annotations(manifest: &[u8]) -> BTreeMap<String, String> {
    #[derive(serde::Deserialize)]
    struct ArtifactManifest {
        #[serde(default)]
        annotations: BTreeMap<String, String>,
    }
    serde_json::from_slice::<ArtifactManifest>(manifest)
        .map(|manifest| manifest.annotations)
        .unwrap_or_default()
}

fn text(inspected: &ModuleDescription) -> String {
    let description = &inspected.description;
    let mut text = format!(
        "{BOLD}{} {}{BOLD:#}  {}\n\n",
        sanitize_line(&description.name),
        sanitize_line(&description.version),
        sanitize_line(&description.summary)
    );
    let mut line = |name: &str, style: Style, value: &str| {
        text += &format!("{name:11} {style}{}{style:#}\n", sanitize_line(value));
    };
    let plain = Style::new();
    let effect = if description.mutates {
        "may change objects"
    } else {
        "allows or denies; changes nothing"
    };
    let versions = inspected.contract.iter().map(|version| format!(" {version}"));
    let contract: String = versions.collect();
    line("reference", plain, &inspected.reference);
    line("contract", plain, &format!("{}{contract}", inspected.interface));
    line("effect", plain, effect);
    for resource in &description.resources {
        line("resources", plain, &hint_text(resource));
    }
    line("size", plain, &ByteSize(inspected.size).to_string());
    line("digest", plain, &inspected.digest);
    if let Some(manifest) = &inspected.manifest {
        line("manifest", plain, manifest);
    }
    for (key, value) in &inspected.annotations {
        line("annotation", plain, &format!("{key}={value}"));
    }
    match &inspected.verified {
        VerifiedSignature::Unrequired => line("verified", DIM, "not required"),
        verified => line("verified", GOOD, &verified.to_string()),
    }
    if inspected.signatures.is_empty() {
        line("signatures", plain, "none");
    }
    for signature in &inspected.signatures {
        match &signature.damage {
            None => line("signature", plain, &signature.to_string()),
            Some(damage) => line("signature", BAD, &format!("{} {damage}", signature.name)),
        }
    }
    for capability in &description.capabilities {
        line("asks for", plain, &capability.to_string());
    }
    for ModuleImport { name, grant } in &inspected.imports {
        let style = grant_style(*grant);
        let name = sanitize_line(name);
        text += &format!("{:11} {name}  {style}{grant}{style:#}\n", "import");
    }
    if let Some(schema) = &inspected.settings_schema {
        let schema = sanitize_lines(&format!("{schema:#}"));
        text += &format!("\n{BOLD}settings{BOLD:#}\n{schema}\n");
    }
    text
}

fn hint_text(resource: &ResourceHint) -> String {
    let groups: Vec<_> = resource
        .api_groups
        .iter()
        .map(|group| if group.is_empty() { "core" } else { group })
        .collect();
    format!(
        "{} ({} {})",
        resource.resources.join(", "),
        groups.join(", "),
        resource.api_versions.join(", ")
    )
}

fn grant_style(grant: Grant) -> Style {
    match grant {
        Grant::None | Grant::Environment => DIM,
        Grant::Never => BAD,
        _ => WARN,
    }
}

#[cfg(test)]
mod tests {
    use admittance_sandbox::Capability;
    use serde_json::json;

    use super::*;
    use crate::table::strip_styles;

    #[test]
    fn inspect_shows_all_properties_of_a_module() {
        let inspected = ModuleDescription {
            reference: "oci://r/a:1".to_owned(),
            description: Description {
                name: "images".to_owned(),
                version: "1.0.0".to_owned(),
                summary: "Checks\nimages.".to_owned(),
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
                settings_schema: None,
            },
            interface: "admittance:plugin".to_owned(),
            contract: Some("0.1.0".to_owned()),
            imports: vec![
                ModuleImport {
                    name: "admittance:plugin/cluster@0.1.0".to_owned(),
                    grant: Grant::Cluster,
                },
                ModuleImport {
                    name: "wasi:sockets/tcp@0.2.6".to_owned(),
                    grant: Grant::Never,
                },
            ],
            settings_schema: Some(json!({"type": "object"})),
            size: 2048,
            digest: "sha256:aa".to_owned(),
            manifest: Some("sha256:bb".to_owned()),
            annotations: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            verified: VerifiedSignature::Key {
                fingerprint: admittance::Digest::of_bytes("key"),
            },
            signatures: Vec::new(),
        };
        let fingerprint = admittance::Digest::of_bytes("key").to_string();
        assert_eq!(
            strip_styles(&text(&inspected)).replace(&fingerprint, "sha256:cc"),
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
        assert_eq!(json["name"], "images");
        assert_eq!(json["settingsSchema"]["type"], "object");
        assert_eq!(json["imports"][0]["grant"], "cluster");
        assert_eq!(json["verified"]["by"], "key");
    }

    #[test]
    fn annotations_of_a_module_are_read_from_its_manifest() {
        for (manifest, count) in [
            (r#"{"annotations": {"a": "b"}}"#, 1),
            (r#"{"layers": []}"#, 0),
            ("none", 0),
        ] {
            assert_eq!(manifest_annotations(manifest.as_bytes()).len(), count, "{manifest}");
        }
    }
}
