//! The description of a policy in its custom section, which `kwctl annotate` writes.

use std::collections::BTreeMap;

use admittance_admission::ClusterKind;
use serde::Deserialize;
use wasmparser::{Parser, Payload};

use super::{PolicyMode, wapc};
use crate::{Capability, Description, Error, ResourceHint};

const SECTION_NAME: &str = "io.kubewarden.metadata";

const MAX_SECTION: usize = 1 << 20;

/// The version of the waPC protocol that this host supports.
pub(super) const PROTOCOL_VERSION: &str = "v1";

/// The only type of policies that this host supports. Such policies receive Kubernetes requests.
const POLICY_TYPE: &str = "kubernetes";

/// The annotations whose values become part of the plugin's description.
const DESCRIPTION_ANNOTATIONS: [&str; 3] = [
    "io.kubewarden.policy.title",
    "io.kubewarden.policy.version",
    "io.kubewarden.policy.description",
];

#[derive(Debug)]
pub(super) struct PolicyMetadata {
    pub(super) mode: PolicyMode,
    pub(super) description: Description,
    pub(super) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetadataSection {
    protocol_version: Option<String>,
    #[serde(default)]
    rules: Vec<PolicyRule>,
    #[serde(default)]
    mutating: bool,
    #[serde(default)]
    context_aware_resources: Vec<ContextResource>,
    #[serde(default)]
    execution_mode: ExecutionMode,
    policy_type: Option<String>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ExecutionMode {
    #[default]
    KubewardenWapc,
    Opa,
    Gatekeeper,
    Wasi,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PolicyRule {
    #[serde(default)]
    api_groups: Vec<String>,
    #[serde(default)]
    api_versions: Vec<String>,
    #[serde(default)]
    resources: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContextResource {
    api_version: String,
    kind: String,
}

impl PolicyMetadata {
    pub(super) fn parse(module: &[u8]) -> Result<Self, Error> {
        let (section, imports_wapc) = find_section(module)?;
        let section = match section {
            Some(bytes) if bytes.len() > MAX_SECTION => {
                return Err(Error::Policy(format!(
                    "its section `{SECTION_NAME}` has {} bytes; the limit is {MAX_SECTION}",
                    bytes.len()
                )));
            }
            Some(bytes) => serde_json::from_slice(bytes).map_err(|error| {
                Error::Policy(format!(
                    "its section `{SECTION_NAME}` cannot be read: {error}; annotate it again with `kwctl annotate`"
                ))
            })?,
            // The module has no metadata. A waPC policy may lack it, because its imports show that it is a policy.
            None if imports_wapc => MetadataSection::default(),
            None => {
                return Err(Error::Unusable(
                    "this is a WebAssembly core module, but a plugin must be a component; build it for wasm32-wasip2, \
                     or convert it with `wasm-tools component new`; if it is a policy of Kubewarden, annotate it with \
                     `kwctl annotate`"
                        .to_owned(),
                ));
            }
        };
        let mode = section.mode(imports_wapc)?;
        let annotations = section.annotations.clone().unwrap_or_default();
        Ok(Self {
            mode,
            description: section.description(&annotations),
            annotations: annotations
                .into_iter()
                .filter(|(key, _)| !DESCRIPTION_ANNOTATIONS.contains(&key.as_str()))
                .collect(),
        })
    }
}

fn find_section(module: &[u8]) -> Result<(Option<&[u8]>, bool), Error> {
    let mut section = None;
    let mut imports_wapc = false;
    for payload in Parser::new(0).parse_all(module) {
        // In practice, this does not fail, because the complexity check has parsed the whole module.
        let payload = payload.map_err(|error| Error::Compile(error.to_string()))?;
        match payload {
            Payload::CustomSection(custom) if custom.name() == SECTION_NAME => section = Some(custom.data()),
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import.map_err(|error| Error::Compile(error.to_string()))?;
                    imports_wapc |= import.module == wapc::MODULE_NAME;
                }
            }
            _ => {}
        }
    }
    Ok((section, imports_wapc))
}

impl MetadataSection {
    fn mode(&self, imports_wapc: bool) -> Result<PolicyMode, Error> {
        if let Some(version) = self
            .protocol_version
            .as_deref()
            .filter(|version| *version != PROTOCOL_VERSION)
        {
            return Err(unknown_protocol_error(version));
        }
        if let Some(other) = self.policy_type.as_deref().filter(|kind| *kind != POLICY_TYPE) {
            return Err(Error::Policy(format!(
                "its metadata says `policyType: {other}`, and this host calls policies with the AdmissionRequests of \
                 type `{POLICY_TYPE}`; use a policy of that type"
            )));
        }
        match (self.execution_mode, imports_wapc) {
            (ExecutionMode::KubewardenWapc, true) => Ok(PolicyMode::Wapc),
            (ExecutionMode::KubewardenWapc, false) => Err(Error::Policy(
                "its metadata says `executionMode: kubewarden-wapc`, but it imports nothing of `wapc`; annotate it \
                 again with the mode that it is built for"
                    .to_owned(),
            )),
            // The metadata says that the module is a WASI program. Imports of `wapc` do not matter, because the SDK for
            // WASI programs may import these functions without calling them.
            (ExecutionMode::Wasi, _) => Ok(PolicyMode::Program),
            (ExecutionMode::Opa | ExecutionMode::Gatekeeper, _) => Err(Error::Policy(
                "it is Rego that was compiled to WebAssembly (`executionMode: opa` or `gatekeeper`), which this host \
                 does not run; use its source, in a `ConstraintTemplate` or as `rego` of a stage"
                    .to_owned(),
            )),
            (ExecutionMode::Unknown, _) => Err(Error::Policy(
                "its metadata has an `executionMode` that this host does not know; it runs `kubewarden-wapc` and `wasi`"
                    .to_owned(),
            )),
        }
    }

    fn description(self, annotations: &BTreeMap<String, String>) -> Description {
        let [name, version, summary] =
            DESCRIPTION_ANNOTATIONS.map(|key| annotations.get(key).cloned().unwrap_or_default());
        Description {
            name: if name.is_empty() { "policy".to_owned() } else { name },
            version,
            summary,
            mutates: self.mutating,
            resources: self
                .rules
                .into_iter()
                .map(|rule| ResourceHint {
                    api_groups: rule.api_groups,
                    api_versions: rule.api_versions,
                    resources: rule.resources,
                })
                .collect(),
            settings_schema: None,
            capabilities: self
                .context_aware_resources
                .into_iter()
                .map(|kind| Capability::Cluster(ClusterKind::new(kind.api_version, kind.kind).to_string()))
                .collect(),
        }
    }
}

pub(super) fn unknown_protocol_error(version: &str) -> Error {
    Error::Policy(format!(
        "it speaks version `{version}` of Kubewarden's protocol, and this host speaks `{PROTOCOL_VERSION}`; use a policy of \
         that version"
    ))
}
