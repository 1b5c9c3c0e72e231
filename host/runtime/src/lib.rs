//! Admission hooks as WebAssembly components, inside your own program.
//!
//! A [`Host`] holds the live table of chains. Build one from definitions on disk, from chains of your
//! own hooks, or from both, and pass requests through it:
//!
//! ```
//! # use std::sync::Arc;
//! use admittance::{Host, admission::{Chain, Denial, Object, Operation, Request, Response, Rule, Stage}};
//! # use admittance::admission::{async_trait, Deadline, Failure, GroupVersionKind, Hook};
//! # struct OwnerRequired;
//! # #[async_trait]
//! # impl Hook for OwnerRequired {
//! #     async fn admit(&self, _: &Arc<Request>, _: Deadline) -> Result<Response, Failure> {
//! #         Ok(Response::deny(Denial::forbidden("who owns it?")))
//! #     }
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let stage = Stage::new("owner-required", OwnerRequired);
//! let chain = Chain::new("owners", vec![Rule::for_operations([Operation::Create])], vec![stage]);
//! let host = Host::builder().chain(chain).build().await?;
//!
//! let object = Object::parse(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"}}"#)?;
//! let kind = GroupVersionKind::from_api_version("v1", "Pod");
//! let resource = kind.guess_resource();
//! let outcome = host.admit(Request::new(Operation::Create, kind, resource).with_object(object)).await;
//! assert!(!outcome.is_allowed());
//! # Ok(()) }
//! ```
//!
//! [`Host::layer`] puts a host in front of any `tower` service that speaks HTTP, and [`Host::reviews`] is a
//! service that answers kube-apiserver's AdmissionReviews.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod builder;
mod changes;
mod decisions;
mod error;
mod history;
mod host;
mod live;
pub mod replicas;
mod requests;
mod rollout;
mod status;

pub use builder::HostBuilder;
pub use changes::change::{Application, Applied, AppliedDefinition, AppliedEffect, ChangeError};
pub use changes::check::CheckResult;
pub use decisions::recording::{
    InvalidRedaction, RecordedRequest, RecordingConfig, RecordingNote, Redacted, Redaction, RequestRecording,
};
pub use decisions::{
    ChainRates, DecisionDetail, DecisionFilter, DecisionList, DecisionLog, DecisionRecord, DecisionStream,
    DecisionVerdict, DecisionsConfig, LoggedDecision, ReplayError, StageRecord, StreamItem,
};
pub use error::{Error, StageError, StageErrorCause};
pub use history::{
    Comparison, HistoryError, ModuleChange, Origin, Revision, RevisionDetail, RevisionFile, RevisionModule,
};
pub use host::Host;
pub use live::disabled::{DisableError, DisableOptions, DisabledStage, Switched};
pub use live::namespaced::{NamespacedChains, NamespacedWebhooks};
pub use live::plugins::{LivePlugin, Progress};
pub use live::prepared::TableHashes;
pub use live::stage::LiveStage;
pub use live::table::Table;
pub use live::version_state::VersionState;
pub use replicas::agreement;
pub use requests::applies::{Applies, ChainApplies, StageApplies};
pub use requests::body::{BodyError, BodyLimits, content_encoding};
pub use requests::evaluate::{EvaluateError, EvaluateOptions, EvaluatedChains, EvaluationResult, UnmatchedChain};
pub use requests::layer::{AdmissionLayer, AdmissionService, Passage, REQUEST_ID, request_uid};
pub use requests::reviews::ReviewService;
pub use requests::trace::{request_span, trace_context};
pub use rollout::{RolloutAction, RolloutProgress, RolloutState, RolloutStatus, Steered};
pub use status::candidate::{
    AnswerSample, CandidateReport, CandidateStatus, ComparedKind, DifferenceEffect, DifferenceSample,
};
pub use status::metrics::{DURATION_BUCKETS, METRICS, describe_metrics};
#[doc(hidden)]
pub use status::traffic::Traffic;
pub use status::traffic::{TrafficCounts, TrafficHour};
pub use status::{
    BadDefinitionStatus, CallStatus, ChainStatus, ExceptionStatus, FailureStatus, HistoryStatus, PluginStatus, Problem,
    RecentCalls, StageState, StageStatus, Status, StorageStatus, StoreStatus,
};

pub use admittance_admission::{Digest, ModuleReference, Moment, OciReference};
pub use admittance_definitions::{ExpectedDefinitions, HookStatus, OnBadDefinition, Served};
pub use admittance_sandbox::SandboxConfig;

/// Requests, chains, stages and hooks, verdicts and outcomes.
pub mod admission {
    pub use admittance_admission::{
        AccessAttributes, AccessCheckResult, AuditAnnotation, Authorizer, AuthorizerError, Chain, ClusterError,
        ClusterKind, ClusterPage, ClusterQuery, ClusterReader, Deadline, Decision, Denial, EnforcedSpelling, Exception,
        Failure, FailureKind, FailurePolicy, FieldMask, Formula, FrontEnd, Grants, GroupVersionKind,
        GroupVersionResource, Hook, HookGroup, HttpAnswer, HttpAnswerError, HttpAnswers, HttpError, HttpGrant,
        HttpOrigin, HttpRequest, HttpResponse, HttpSender, IdentityFields, ImageError, ImageGrant, ImageManifest,
        ImageReader, InvalidClusterKind, InvalidHttpOrigin, InvalidImageGrant, InvalidPathPrefix, IpNet, LabelOperator,
        LabelRequirement, LabelSelector, Labels, LogLevel, LogLine, MatchConditions, MatchPolicy, Matcher, Mode,
        NameGlob, NamespaceLookupError, NamespaceSelector, NamespaceSource, NoAuthorizer, Object, ObjectError,
        Operation, Outcome, Outline, Patch, PatchBuilder, PatchError, PathPrefix, Phase, Pointer, PointerError,
        PointerPattern, Precedence, Protocol, Reach, RecordedResponses, RefusalCause, Reinvocation, Request,
        RequestRefusal, RequestedKind, ResourcePattern, Response, ResponseRecorder, Review, ReviewError, ReviewVersion,
        Rule, RuleError, Scope, Selection, SelectorError, ServiceNaming, SideEffects, Signer, Signers, SkipReason,
        Stage, StageResult, StageSpec, StaticNamespaces, TraceRow, Uid, UnknownOperation, Unreached, UserInfo, Verdict,
        WebhookTarget, async_trait, read_review, write_response, write_review,
    };
}

/// Sources of modules, and rules for their signatures.
pub mod catalog {
    pub use admittance_catalog::{CatalogConfig, Error, FetchProgress, NetworkConfig, Store};

    /// Rules that say which modules must be signed, and by whom.
    pub mod signature {
        pub use admittance_catalog::signature::{
            IdentityPattern, InvalidPattern, InvalidTrust, IssuerUrl, Keyless, PublicKey, PublicKeys, Requirement,
            SignaturePolicy, SignatureRule, SourcePattern, TrustRoot,
        };
    }
}

/// Definitions of chains, and stores of them.
pub mod definitions {
    pub use admittance_definitions::{
        BadDefinition, CandidateDefinition, CelDefinition, ChainDefinition, ChainId, DefinitionFile, DefinitionId,
        DefinitionStore, Definitions, DocumentForm, DocumentForms, DocumentKind, ExceptionDefinition,
        ExpectedDefinitions, FileChange, FileStore, FormContent, FormDocuments, GroupDefinition, HookContext,
        HookDefinition, HookError, HookKind, HookStatus, ImportResult, InvalidId, InvalidShare, Location,
        MemberDefinition, Mistake, Mistakes, MutatorsDefinition, OnBadDefinition, PluginDefinition, PluginPart,
        PluginRole, PreparedHook, ReadDefinition, Served, Share, StageDefinition, StageId, StoreError, StoreKind,
        StoredDefinition, TypedDocument, WebhookDefinition, document, load, load_text,
    };
}

/// Dialects, which read HTTP requests and write replies, for [`Host::layer`].
pub mod dialect {
    pub use admittance_dialect::{
        BodyReading, Class, Dialect, EndReason, Inspection, KindSource, PatchType, Rejection, RejectionKind, Rest,
        RestConfig, RestRoute, RouteError, RouteProblem, StoredQuery, StoredRoute, StoredState, UnmatchedWrites,
        ValueSource,
    };
}

/// The configuration of the plugin sandbox.
pub mod sandbox {
    #[cfg(feature = "plugins")]
    pub use admittance_sandbox::{CallCost, CallMeter, compile};
    pub use admittance_sandbox::{Error, SandboxConfig};
}

/// The examples in the documentation, which are tested with this crate.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../docs/embedders.md")]
    struct Embedders;
}
