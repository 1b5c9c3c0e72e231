//! Reads documents as definitions of chains, and reports all mistakes at once.
//!
//! [`load`] reads files and directories. Documents of the following policy systems become [`ChainDefinition`]s.
//! [`DocumentForms`] lists the systems, and a program may add its own [`DocumentForm`] to it:
//!
//! - the native form: chains, and `AdmissionException`, which excepts requests from stages;
//! - Kubernetes: webhook configurations, and policies in CEL; each policy is a chain, and each of its bindings a stage;
//! - Kubewarden: policies, and groups of policies;
//! - Kyverno: policies in CEL, and exceptions to them;
//! - Gatekeeper: templates, which are chains; their constraints, which are stages; all mutators, which are one stage;
//! - OpenKruise: `SidecarSet`;
//! - BCS: `admissionwebhook`, in the form of the driver's API, and as the custom resource in Kubernetes.
//!
//! A [`DefinitionStore`] stores definitions in files, or in a database that several programs share. A [`DefinitionSet`]
//! contains the texts of all stores at one moment, and plans a checked [`Change`] of them.
//!
//! This crate fetches no modules and opens no connections; it only checks the texts of definitions. The module
//! [`document`] is also used for other configuration files.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(test)]
mod certificates;
mod change;
mod conditions;
pub mod document;
mod forms;
mod hook;
mod identity;
mod model;
mod names;
mod redact;
mod rollout;
mod rules;
mod selectors;
mod set;
mod share;
mod store;
mod warnings;

/// The JSON Schema of an `AdmissionChain`, for editors.
pub const CHAIN_SCHEMA: &str = include_str!("chain.schema.json");

pub use admittance_admission::{Digest, ModuleReference, OciReference};
pub use change::import::{Import, ImportResult, ImportedDefinition, import};
pub use change::{AppliedEffect, Change, Destination, ExpectedDefinitions, FileChange, PlanError};
pub use document::{Location, Mistake, Mistakes};
pub use forms::bcs::{BcsObject, NoBcsObject};
pub use forms::native::{ambiguities, exception::ExceptionDefinition};
pub use forms::{DocumentForm, DocumentForms, DocumentKind, FormContent, FormDocuments, ReadDefinition, TypedDocument};
pub use hook::{
    ConnectWebhook, HookContext, HookDefinition, HookError, HookKind, HookStatus, HookValue, PreparedHook,
    cel::CelDefinition,
    group::{GroupDefinition, MemberDefinition},
    mutators::MutatorsDefinition,
    plugin::{
        CandidateDefinition, PluginDefinition, PluginPart, PluginRole, module_location, read_allow, read_http_grant,
        setting_location,
    },
    webhook::WebhookDefinition,
};
use hook::{cel, client, group, plugin, rego};
pub use identity::{ChainId, DefinitionId, InvalidId, StageId, definition_name};
pub use model::{ChainDefinition, StageDefinition};
pub use redact::without_granted_values;
pub use rollout::{RolloutDefinition, RolloutKey, RolloutLimit};
pub use set::chains::{Definitions, load, load_text};
pub use set::{BadDefinition, DefinitionSet, OnBadDefinition, Served, StoredDefinition, Usable};
pub use share::{InvalidShare, Share};
pub use store::{
    DefinitionFile, DefinitionStore, FileStore, StoreError, StoreKind, empty_directory_mistake, files_in, read_files,
};
