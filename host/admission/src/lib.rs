//! The vocabulary of admission, and the chain that evaluates it.
//!
//! A [`Request`] to create or change a resource passes through [`Chain`]s of [`Stage`]s. Each stage
//! calls a [`Hook`] (a plugin, a webhook, or the embedder's own code), which answers with a
//! [`Verdict`] or fails with a [`Failure`]. The result of all chains is the [`Outcome`].
//!
//! This crate opens no sockets, reads no files, and knows neither WebAssembly nor CEL: it defines the
//! semantics of chains, and every other crate depends on it.

mod chain;
mod cluster;
mod condition;
mod deadline;
mod difference;
mod digest;
mod effect;
mod evaluation;
mod failure;
mod grants;
mod head;
mod hook;
mod identity;
mod index;
mod labels;
mod module;
mod namespace;
mod object;
mod offload;
mod outcome;
mod patch;
mod pointer;
mod qualified;
mod request;
mod rule;
mod spelling;
mod stage;
mod tree;
mod turn;
mod verdict;
mod webhook;
mod word;

pub use chain::{Chain, Phase, Selection};
pub use cluster::{ClusterError, ClusterKind, ClusterReader, InvalidClusterKind};
pub use condition::{
    Access, AccessAttributes, Authorizer, AuthorizerError, Conditions, MatchConditions, NoAuthorizer,
};
pub use deadline::Deadline;
pub use digest::{Digest, InvalidDigest};
pub use effect::Effect;
pub use evaluation::{Evaluation, Surroundings};
pub use failure::{Failure, FailureKind};
pub use grants::{Grants, HttpOrigin, InvalidHttpOrigin};
pub use head::Head;
pub use hook::Hook;
pub use identity::IdentityFields;
pub use index::ChainIndex;
pub use labels::{LabelOperator, LabelSelector, Labels, Requirement, SelectorError};
pub use module::{InvalidReference, ModuleReference, OciReference};
pub use namespace::{NamespaceLookupError, NamespaceSelector, NamespaceSource, StaticNamespaces};
pub use object::{Object, ObjectError};
pub use offload::offload;
pub use outcome::{AuditAnnotation, Decision, Outcome, Refusal, SkipReason, StageResult, TraceRow};
pub use patch::{Patch, PatchBuilder, PatchError};
pub use pointer::{Pattern, Pointer, PointerError};
pub use qualified::{NAME_PART_LENGTH, is_dns_label, is_dns_subdomain, is_name_part};
pub use request::{
    GroupVersionKind, GroupVersionResource, Operation, Request, Requested, Uid, UnknownOperation, UserInfo,
};
pub use rule::{MatchPolicy, Matcher, Outline, ResourcePattern, Rule, RuleError, Scope};
pub use spelling::{Spelling, SpellingError, same_key};
pub use stage::{FailurePolicy, Mode, Reinvocation, SideEffects, Stage, StageSpec};
pub use verdict::{Denial, Response, Verdict, bounded_warnings};
pub use webhook::{Protocol, ReviewVersion, ServiceNaming, WebhookTarget};
pub use word::{UnknownWord, Word};

#[doc(hidden)]
pub use serde as __serde;

/// An attribute for implementations of this crate's async traits, such as [`Hook`].
pub use async_trait::async_trait;
