//! Defines admission requests, and the chains that decide about them.
//!
//! A [`Request`] to create or change a resource passes through [`Chain`]s of [`Stage`]s. Each stage calls a [`Hook`] (a
//! plugin, a webhook, or native code), which returns a [`Verdict`] or a [`Failure`]. All chains together result in one
//! [`Outcome`].
//!
//! This crate opens no sockets, reads no files, and knows neither WebAssembly nor CEL. All other crates use it.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod capabilities;
mod chain;
mod keyword;
mod module;
mod moment;
mod object;
mod patch;
mod qualified;
mod request;
mod review;
mod rules;
mod scheduling;
mod similar;
mod verdict;

pub use capabilities::cluster::{
    ClusterError, ClusterKind, ClusterPage, ClusterQuery, ClusterReader, InvalidClusterKind, RecordedCluster,
};
pub use capabilities::grants::{Grants, InvalidGrant};
pub use capabilities::http::answers::{HttpAnswer, HttpAnswerError, HttpAnswers, REDACTED};
pub use capabilities::http::{
    HttpError, HttpGrant, HttpOrigin, HttpRequest, HttpResponse, HttpSender, InvalidHttpOrigin, InvalidPathPrefix,
    PathPrefix, PolicyHttp,
};
pub use capabilities::images::{
    ImageError, ImageGrant, ImageManifest, ImageReader, InvalidImageGrant, Signer, Signers,
};
pub use capabilities::log::{LogLevel, LogLine, is_audit, record_candidate_decision};
pub use capabilities::response_recorder::{RecordedResponses, ResponseRecorder};
pub use chain::effect::Effect;
pub use chain::evaluation::{Evaluation, EvaluationSources};
pub use chain::exception::{Exception, NameGlob};
pub use chain::expansion::ObjectGenerator;
pub use chain::group::{Formula, HookGroup};
pub use chain::hook::Hook;
pub use chain::spans::SPAN_TARGET;
pub use chain::stage::{FailurePolicy, Mode, Precedence, Reinvocation, SideEffects, Stage, StageSpec};
pub use chain::{Chain, Phase, Selection};
pub use ipnet::IpNet;
pub use keyword::{Keyword, UnknownKeyword, enumerated};
pub use module::digest::{Digest, InvalidDigest};
pub use module::{InvalidReference, ModuleReference, OciReference};
pub use moment::Moment;
pub use object::fields::FieldMask;
pub use object::head::ObjectHead;
pub use object::identity::IdentityFields;
pub use object::spelling::{EnforcedSpelling, SpellingError, same_key};
pub use object::{Object, ObjectError};
pub use patch::merge_patch::MergePatch;
pub use patch::pointer::{Pointer, PointerError, PointerPattern, unescaped_token};
pub use patch::{Patch, PatchBuilder, PatchError};
pub use qualified::{NAME_PART_LENGTH, is_dns_label, is_dns_subdomain, is_name_part};
pub use request::trace_context::{TraceContext, TraceId};
pub use request::webhook::{Protocol, ReviewVersion, ServiceNaming, WebhookTarget};
pub use request::{
    FrontEnd, GroupVersionKind, GroupVersionResource, Operation, Request, RequestedKind, Uid, UnknownOperation,
    UserInfo,
};
pub use review::Review;
pub use review::request::{ReviewError, read_review, write_request, write_review};
pub use review::response::{RefusalStatus, read_response, write_response};
pub use rules::condition::{
    AccessAttributes, AccessCheckResult, Authorizer, AuthorizerError, CompiledConditions, MatchConditions, NoAuthorizer,
};
pub use rules::index::ChainIndex;
pub use rules::labels::{LabelOperator, LabelRequirement, LabelSelector, Labels, SelectorError};
pub use rules::mismatch::Mismatch;
pub use rules::namespace::{NamespaceLookupError, NamespaceSelector, NamespaceSource, StaticNamespaces};
pub use rules::path;
pub use rules::rule::{MatchPolicy, Matcher, Outline, ResourcePattern, Rule, RuleError, RulePart, Scope};
pub use rules::unreached::{Reach, ReachedResource, Unreached, UnreachedEntry};
pub use scheduling::deadline::Deadline;
pub use scheduling::long_calls::{
    LongCall, LongCallPredictor, is_call_movable, move_if_long, move_to_long_work_thread, run_long, thread_time,
};
pub use scheduling::offload::{
    background_threads, lower_priority, offload, offload_without_deadline, on_thread_for_long_work,
    pause_between_items, resume_panic_or_wait,
};
pub use scheduling::reschedule::poll_with_rescheduling;
pub use scheduling::ticker::{Tick, Ticker, TickerGuard};
pub use similar::{did_you_mean, find_similar, suggestion, suggestion_or};
pub use verdict::failure::{Failure, FailureKind};
pub use verdict::outcome::{
    AuditAnnotation, Decision, Outcome, RefusalCause, RequestRefusal, SkipReason, StageResult, TraceRow,
};
pub use verdict::{Denial, Response, Verdict, bounded_warnings, shorten, shortened};

#[doc(hidden)]
pub use schemars as __schemars;
#[doc(hidden)]
pub use serde as __serde;

/// The attribute for implementations of this crate's async traits, such as [`Hook`].
pub use async_trait::async_trait;
