//! The vocabulary of admission, and the chain that evaluates it.
//!
//! A [`Request`] to create or change a resource passes through [`Chain`]s of [`Stage`]s. Each stage
//! calls a [`Hook`] (a plugin, a webhook, or the embedder's own code), which answers with a
//! [`Verdict`] or fails with a [`Failure`]. The result of all chains is the [`Outcome`].
//!
//! This crate opens no sockets, reads no files, and knows neither WebAssembly nor CEL: it defines the
//! semantics of chains, and every other crate depends on it.

mod answers;
mod chain;
mod cluster;
mod condition;
mod deadline;
mod difference;
mod digest;
mod effect;
mod evaluation;
mod exception;
mod expansion;
mod failure;
mod fields;
mod grants;
mod group;
mod head;
mod hook;
mod http;
mod identity;
mod images;
mod index;
mod labels;
mod log;
mod long;
mod merge_patch;
mod mismatch;
mod module;
mod moment;
mod mutation;
mod namespace;
mod object;
mod offload;
mod outcome;
mod patch;
pub mod path;
mod pointer;
mod qualified;
mod reach;
mod request;
mod rule;
mod spans;
mod spelling;
mod stage;
mod tape;
mod trace_context;
mod tree;
mod turn;
mod verdict;
mod webhook;
mod word;

pub use answers::{HttpAnswer, HttpAnswerError, HttpAnswers, REDACTED};
pub use chain::{Chain, Phase, Selection};
pub use cluster::{ClusterError, ClusterKind, ClusterPage, ClusterQuery, ClusterReader, InvalidClusterKind};
pub use condition::{
    Access, AccessAttributes, Authorizer, AuthorizerError, Conditions, MatchConditions, NoAuthorizer,
};
pub use deadline::Deadline;
pub use digest::{Digest, InvalidDigest};
pub use effect::Effect;
pub use evaluation::{Evaluation, Surroundings};
pub use exception::{Exception, Glob};
pub use expansion::{Expansion, Generation};
pub use failure::{Failure, FailureKind};
pub use fields::FieldMask;
pub use grants::Grants;
pub use group::{Formula, Group};
pub use head::Head;
pub use hook::Hook;
pub use http::{
    HttpError, HttpGrant, HttpOrigin, HttpRequest, HttpResponse, HttpSender, InvalidHttpOrigin,
    InvalidPathPrefix, PathPrefix,
};
pub use identity::IdentityFields;
pub use images::{ImageError, ImageGrant, ImageManifest, ImageReader, InvalidImageGrant, Signer, Signers};
pub use index::ChainIndex;
pub use ipnet::IpNet;
pub use labels::{LabelOperator, LabelSelector, Labels, Requirement, SelectorError};
pub use log::{LogLevel, LogLine, decided_by_candidate, is_audit, noted_here};
pub use long::{Expectation, LongCall, leave, leave_for, may_leave, run_long, thread_time};
pub use merge_patch::MergePatch;
pub use mismatch::Mismatch;
pub use module::{InvalidReference, ModuleReference, OciReference};
pub use moment::Moment;
pub use mutation::{
    ImageParts, Location, LocationError, Mutation, Mutator, Mutators, PathTestError, Shape, Step,
};
pub use namespace::{NamespaceLookupError, NamespaceSelector, NamespaceSource, StaticNamespaces};
pub use object::{Object, ObjectError};
pub use offload::{apart, background_threads, ended, lower_priority, offload, pause, threads_for_long_work};
pub use outcome::{AuditAnnotation, Decision, Outcome, Refusal, SkipReason, StageResult, TraceRow};
pub use patch::{Patch, PatchBuilder, PatchError};
pub use pointer::{Pattern, Pointer, PointerError};
pub use qualified::{NAME_PART_LENGTH, is_dns_label, is_dns_subdomain, is_name_part};
pub use reach::{Reach, Unreached};
pub use request::{
    FrontEnd, GroupVersionKind, GroupVersionResource, Operation, Request, Requested, Uid, UnknownOperation,
    UserInfo,
};
pub use rule::{MatchPolicy, Matcher, Outline, ResourcePattern, Rule, RuleError, RulePart, Scope};
pub use spans::SPANS;
pub use spelling::{Spelling, SpellingError, same_key};
pub use stage::{FailurePolicy, Mode, Precedence, Reinvocation, SideEffects, Stage, StageSpec};
pub use tape::{Tape, Taped};
pub use trace_context::{TraceContext, TraceId};
pub use verdict::{Denial, Response, Verdict, bounded_warnings, cut};
pub use webhook::{Protocol, ReviewVersion, ServiceNaming, WebhookTarget};
pub use word::{UnknownWord, Word};

#[doc(hidden)]
pub use schemars as __schemars;
#[doc(hidden)]
pub use serde as __serde;

/// An attribute for implementations of this crate's async traits, such as [`Hook`].
pub use async_trait::async_trait;
