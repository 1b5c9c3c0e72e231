//! Packs decisions into bytes, as far as possible. When an old decision leaves the log, its memory is no longer in a
//! processor cache, so freeing many small allocations would be slow. A single block of bytes is freed much faster.

use std::{borrow::Cow, mem::size_of, sync::Arc, time::Duration};

use admittance_admission::{
    Decision, Denial, EnforcedSpelling, FrontEnd, GroupVersionKind, GroupVersionResource, IdentityFields, Mode, Object,
    Operation, Outcome, Patch, Phase, RefusalCause, Request, RequestedKind, Scope, Selection, SkipReason, StageResult,
    TraceContext, TraceRow, Uid, UserInfo,
};
use serde::{Deserialize, Serialize};

use super::{DecidedRequest, DecisionVerdict, ObjectTexts};
use crate::{Moment, decisions::observer::ObservedDecision, decisions::recording::is_secret};

#[derive(Debug)]
pub(super) struct PackedDecision {
    pub(super) id: u64,
    /// The memory that the decision takes in the log, in bytes.
    pub(super) size: usize,
    pub(super) packed_bytes: Box<[u8]>,
    pub(super) unpacked_parts: UnpackedParts,
}

#[derive(Clone, Debug)]
pub(super) struct UnpackedParts {
    pub(super) time: Moment,
    /// The outcome without the resulting object. `None` if the packed part of the decision contains all of it: the
    /// request was allowed, and there was no change, warning, audit annotation or log line.
    outcome: Option<Arc<Outcome>>,
    origin: RequestOrigin,
}

/// Those properties of a request that all requests of a front end have in common. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestOrigin(Option<Arc<(Option<Arc<FrontEnd>>, IdentityFields, EnforcedSpelling)>>);

/// The serialized part of a decision. Reading it copies no strings, so filters and the log can read it quickly.
#[derive(Serialize, Deserialize)]
pub(super) struct PackedPart<'a> {
    pub(super) uid: &'a str,
    operation: Operation,
    kind: Cow<'a, GroupVersionKind>,
    resource: Cow<'a, GroupVersionResource>,
    subresource: Option<&'a str>,
    requested: Option<Cow<'a, RequestedKind>>,
    name: &'a str,
    pub(super) namespace: Option<&'a str>,
    pub(super) user: &'a str,
    user_uid: &'a str,
    groups: Vec<&'a str>,
    extra: Vec<(&'a str, Vec<&'a str>)>,
    dry_run: bool,
    #[serde(borrow)]
    objects: Option<PackedObjects<'a>>,
    phase: Option<(Phase, Scope)>,
    chain: Option<&'a str>,
    trace: Option<(Cow<'a, str>, Option<&'a str>)>,
    pub(super) verdict: DecisionVerdict,
    revision: u64,
    duration: Duration,
    rows: Vec<PackedRow<'a>>,
}

#[derive(Serialize, Deserialize)]
struct PackedObjects<'a> {
    object: Option<&'a str>,
    old_object: Option<&'a str>,
    options: Option<&'a str>,
}

/// The packed form of a trace row, for a stage that allowed the request or was not called.
#[derive(Serialize, Deserialize)]
struct PackedRow<'a> {
    chain: &'a str,
    phase: Phase,
    stage: &'a str,
    round: u8,
    mode: Mode,
    result: PassiveResult,
    exception: Option<&'a str>,
    start: Duration,
    duration: Duration,
    by_candidate: bool,
}

#[derive(Serialize, Deserialize)]
enum PassiveResult {
    Skipped(SkipReason),
    NotReached,
    Allowed,
}

impl<'a> PackedRow<'a> {
    /// Packs a trace row; returns `None` if its stage changed or denied the request, failed, or wrote log lines.
    fn pack(row: &'a TraceRow) -> Option<Self> {
        let result = match &row.result {
            StageResult::Skipped(reason) => PassiveResult::Skipped(*reason),
            StageResult::NotReached => PassiveResult::NotReached,
            StageResult::Allowed => PassiveResult::Allowed,
            _ => return None,
        };
        Some(Self {
            chain: &row.chain,
            phase: row.phase,
            stage: &row.stage,
            round: row.round,
            mode: row.mode,
            result,
            exception: row.exception.as_deref(),
            start: row.start,
            duration: row.duration,
            by_candidate: row.by_candidate,
        })
        .filter(|_| row.log.is_empty())
    }

    fn unpack(&self) -> TraceRow {
        let result = match self.result {
            PassiveResult::Skipped(reason) => StageResult::Skipped(reason),
            PassiveResult::NotReached => StageResult::NotReached,
            PassiveResult::Allowed => StageResult::Allowed,
        };
        let mut row = TraceRow::new(self.chain, self.phase, self.stage, result);
        row.round = self.round;
        row.mode = self.mode;
        row.exception = self.exception.map(Arc::from);
        row.start = self.start;
        row.duration = self.duration;
        row.by_candidate = self.by_candidate;
        row
    }
}

/// Returns the packed trace rows of an outcome that allows the request and does nothing else: no change, no warning, no
/// audit annotation. Returns `None` for any other outcome.
fn pack_rows(outcome: &Outcome) -> Option<Vec<PackedRow<'_>>> {
    let is_plain = outcome.is_allowed()
        && !outcome.is_changed()
        && outcome.warnings.is_empty()
        && outcome.audit_annotations.is_empty();
    outcome
        .trace
        .iter()
        .map(PackedRow::pack)
        .collect::<Option<_>>()
        .filter(|_| is_plain)
}

impl<'a> PackedObjects<'a> {
    fn from_request(request: &'a Request) -> Self {
        let text = |object: &'a Option<Object>| object.as_ref().map(Object::text);
        Self {
            object: text(&request.object),
            old_object: text(&request.old_object),
            options: text(&request.options),
        }
    }

    fn text_size(&self) -> usize {
        let texts = [self.object, self.old_object, self.options];
        texts.into_iter().flatten().map(str::len).sum()
    }
}

impl<'a> PackedPart<'a> {
    fn new(observed: &'a ObservedDecision<'_>, objects: Option<PackedObjects<'a>>, rows: Vec<PackedRow<'a>>) -> Self {
        let request = &observed.request;
        let (phase, chain) = match observed.selection {
            Selection::All => (None, None),
            Selection::Phase(phase, scope) => (Some((*phase, *scope)), None),
            Selection::Chain(phase, chain) => (Some((*phase, Scope::Any)), Some(chain.as_str())),
        };
        let user = &request.user;
        Self {
            uid: request.uid.as_str(),
            operation: request.operation,
            kind: Cow::Borrowed(&request.kind),
            resource: Cow::Borrowed(&request.resource),
            subresource: request.subresource.as_deref(),
            requested: request.requested_kind.as_deref().map(Cow::Borrowed),
            name: &request.name,
            namespace: request.namespace.as_deref(),
            user: &user.username,
            user_uid: &user.uid,
            groups: texts(&user.groups),
            extra: user
                .extra
                .iter()
                .map(|(key, values)| (key.as_str(), texts(values)))
                .collect(),
            dry_run: request.dry_run,
            objects,
            phase,
            chain,
            trace: request
                .trace
                .as_ref()
                .map(|trace| (trace.to_string().into(), trace.state())),
            verdict: DecisionVerdict::from_outcome(observed.outcome),
            revision: observed.revision,
            duration: observed.duration,
            rows,
        }
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        let texts = [self.uid, self.name, self.user, self.namespace.unwrap_or_default()];
        texts.iter().any(|part| part.contains(text)) || self.kind.to_string().contains(text)
    }

    fn request(&self) -> Request {
        let mut request = Request::new(self.operation, (*self.kind).clone(), (*self.resource).clone());
        request.uid = Uid::from(self.uid.to_owned());
        request.subresource = self.subresource.map(str::to_owned);
        request.requested_kind = self.requested.as_deref().cloned().map(Box::new);
        request.name = self.name.to_owned();
        request.namespace = self.namespace.map(str::to_owned);
        request.user = UserInfo {
            username: self.user.to_owned(),
            uid: self.user_uid.to_owned(),
            groups: owned_texts(&self.groups),
            extra: self
                .extra
                .iter()
                .map(|(key, values)| ((*key).to_owned(), owned_texts(values)))
                .collect(),
        };
        request.dry_run = self.dry_run;
        let trace = self.trace.as_ref();
        request.trace = trace.and_then(|(parent, state)| TraceContext::parse(parent, *state));
        request
    }

    fn selection(&self) -> Selection {
        match (self.phase, self.chain) {
            (None, _) => Selection::All,
            (Some((phase, scope)), None) => Selection::Phase(phase, scope),
            (Some((phase, _)), Some(chain)) => Selection::Chain(phase, chain.to_owned()),
        }
    }
}

impl RequestOrigin {
    /// Keeps the properties of `request` that most requests of a front end share: the front end, the identity and the
    /// spelling. Many decisions share one copy of them. A new copy is made only if `request` differs from the last one.
    fn update(&mut self, request: &Request) {
        let is_same = self.0.as_deref().is_some_and(|(front, identity, spelling)| {
            let is_same_front = match (front, &request.front) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (one, other) => one.is_none() && other.is_none(),
            };
            is_same_front && *identity == request.identity && spelling.is_same(&request.spelling)
        });
        if !is_same {
            let Request {
                front,
                identity,
                spelling,
                ..
            } = request;
            self.0 = Some(Arc::new((front.clone(), identity.clone(), spelling.clone())));
        }
    }
}

impl UnpackedParts {
    /// Appends the packed part of a decision to `bytes`, and returns the unpacked part. Leaves out the content of
    /// Secrets, and objects that are larger than `max_objects_size` bytes together.
    pub(super) fn pack(
        observed: &ObservedDecision<'_>,
        max_objects_size: usize,
        origin: &mut RequestOrigin,
        bytes: &mut Vec<u8>,
    ) -> Self {
        let ObservedDecision { request, outcome, .. } = observed;
        let is_secret = is_secret(request);
        let objects = PackedObjects::from_request(request);
        let objects = (!is_secret && objects.text_size() <= max_objects_size).then_some(objects);
        let rows = pack_rows(outcome);
        let unpacked_outcome = rows.is_none().then(|| Arc::new(without_objects(outcome, is_secret)));
        let packed = PackedPart::new(observed, objects, rows.unwrap_or_default());
        // Serializing fails only if the buffer is full, which cannot happen because this buffer grows.
        *bytes = postcard::to_extend(&packed, std::mem::take(bytes)).unwrap_or_default();
        origin.update(request);
        Self {
            time: observed.time,
            outcome: unpacked_outcome,
            origin: origin.clone(),
        }
    }

    /// Returns an upper bound for the heap memory of the outcome, in bytes; 0 if this value has no outcome.
    pub(super) fn size(&self) -> usize {
        self.outcome.as_deref().map_or(0, size_of_outcome)
    }
}

impl PackedDecision {
    /// Reads the packed part of the decision. Never returns `None`, because [`UnpackedParts::pack`] wrote the bytes.
    pub(super) fn read_part(&self) -> Option<PackedPart<'_>> {
        postcard::from_bytes(&self.packed_bytes).ok()
    }

    pub(super) fn size_without_objects(&self) -> usize {
        let packed_objects = self.read_part().and_then(|packed| packed.objects);
        let objects_size = packed_objects.map_or(0, |objects| objects.text_size());
        self.unpacked_parts.size() + self.packed_bytes.len().saturating_sub(objects_size)
    }

    pub(super) fn trace_rows(&self, packed: &PackedPart<'_>) -> Vec<TraceRow> {
        match &self.unpacked_parts.outcome {
            Some(outcome) => outcome.trace.clone(),
            None => packed.rows.iter().map(PackedRow::unpack).collect(),
        }
    }

    pub(super) fn decision(&self) -> &Decision {
        self.unpacked_parts
            .outcome
            .as_ref()
            .map_or(&Decision::Allowed, |outcome| &outcome.decision)
    }

    pub(super) fn unpack(&self) -> Option<DecidedRequest> {
        let packed = self.read_part()?;
        let mut request = packed.request();
        if let Some((front, identity, spelling)) = self.unpacked_parts.origin.0.as_deref() {
            request.front.clone_from(front);
            request.identity = identity.clone();
            request.spelling = spelling.clone();
        }
        let outcome = match &self.unpacked_parts.outcome {
            Some(outcome) => Outcome::clone(outcome),
            None => {
                let mut outcome = Outcome::new(request.uid.clone(), Decision::Allowed);
                outcome.trace = self.trace_rows(&packed);
                outcome
            }
        };
        let text = |text: Option<&str>| text.map(Into::into);
        Some(DecidedRequest {
            request,
            texts: packed.objects.as_ref().map(|objects| ObjectTexts {
                object: text(objects.object),
                old_object: text(objects.old_object),
                options: text(objects.options),
            }),
            selection: packed.selection(),
            outcome,
            verdict: packed.verdict,
            recorded_responses: Default::default(),
            time: self.unpacked_parts.time,
            revision: packed.revision,
            duration: packed.duration,
        })
    }
}

/// Copies an outcome, but not the object that the chains returned, nor the patches if the request is about a Secret.
fn without_objects(outcome: &Outcome, is_secret: bool) -> Outcome {
    let mut copy = Outcome::new(outcome.uid.clone(), outcome.decision.clone());
    copy.warnings.clone_from(&outcome.warnings);
    copy.audit_annotations.clone_from(&outcome.audit_annotations);
    copy.trace.clone_from(&outcome.trace);
    if !is_secret {
        copy.patch = outcome.patch.clone();
        return copy;
    }
    for row in &mut copy.trace {
        if let StageResult::Changed(patch) = &mut row.result {
            *patch = Patch::default();
        }
    }
    copy
}

fn texts(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

fn owned_texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn size_of_outcome(outcome: &Outcome) -> usize {
    let annotations = outcome.audit_annotations.iter();
    let refusal_size = match &outcome.decision {
        Decision::Refused(refusal) => size_of_cause(&refusal.cause),
        Decision::Allowed => 0,
    };
    let warnings = outcome.warnings.iter();
    size_of::<Outcome>()
        + outcome.uid.as_str().len()
        + outcome.patch.memory_size()
        + warnings
            .map(|warning| size_of_val(warning) + warning.len())
            .sum::<usize>()
        + annotations
            .map(|note| size_of_val(note) + note.key.len() + note.value.len())
            .sum::<usize>()
        + refusal_size
        + outcome.trace.iter().map(size_of_row).sum::<usize>()
}

fn size_of_cause(cause: &RefusalCause) -> usize {
    match cause {
        RefusalCause::Denied(denial) => size_of_denial(denial),
        RefusalCause::Failed(failure) => failure.message.len(),
        _ => 0,
    }
}

fn size_of_row(row: &TraceRow) -> usize {
    let result_size = match &row.result {
        StageResult::Changed(patch) => patch.memory_size(),
        StageResult::Denied(denial) => size_of_denial(denial),
        StageResult::Failed { failure, .. } => failure.message.len(),
        _ => 0,
    };
    let log_size: usize = row
        .log
        .iter()
        .map(|line| size_of_val(line) + line.context.len() + line.message.len())
        .sum();
    size_of_val(row) + result_size + log_size
}

fn size_of_denial(denial: &Denial) -> usize {
    let mut details_size = 0;
    if !denial.details.is_empty() {
        // Parsed JSON takes about eight times the memory of its text.
        details_size = 8 * serde_json::to_string(&denial.details).map_or(0, |text| text.len());
    }
    denial.reason.len() + denial.message.len() + details_size
}

#[cfg(test)]
mod tests {
    use admittance_admission::RequestRefusal;

    use super::*;

    fn object(name: &str) -> Option<Object> {
        Object::parse(format!(r#"{{"metadata": {{"name": "{name}"}}}}"#)).ok()
    }

    /// Creates a request with every field set.
    fn request() -> Request {
        let kind = GroupVersionKind::from_api_version("apps/v1", "Deployment");
        let mut request = Request::new(Operation::Update, kind.clone(), kind.guess_resource());
        request.subresource = Some("scale".to_owned());
        request.requested_kind = Some(Box::new(RequestedKind {
            kind: GroupVersionKind::from_api_version("extensions/v1beta1", "Deployment"),
            resource: kind.guess_resource(),
            subresource: Some("scale".to_owned()),
        }));
        request.trace = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Some("a=1"));
        request.name = "web".to_owned();
        request.namespace = Some("shop".to_owned());
        request.user = UserInfo {
            username: "alice".to_owned(),
            uid: "1".to_owned(),
            groups: vec!["dev".to_owned(), "ops".to_owned()],
            extra: [("scopes".to_owned(), vec!["all".to_owned()])].into(),
        };
        request.object = object("new");
        request.old_object = object("old");
        request.options = object("options");
        request.dry_run = true;
        request.identity = IdentityFields::new(["/ID".parse().unwrap()]);
        request.front = Some(Arc::new(FrontEnd::default()));
        request
    }

    #[test]
    fn a_packed_decision_unpacks_to_the_same_decision() {
        let mut rows: Vec<_> = [
            StageResult::Allowed,
            StageResult::NotReached,
            StageResult::Skipped(SkipReason::Exception),
        ]
        .map(|result| TraceRow::new("chain", Phase::Validating, "stage", result))
        .into();
        rows[2].exception = Some("maintenance".into());
        rows[2].mode = Mode::Audit;
        rows[2].round = 2;
        rows[2].start = Duration::from_nanos(5);
        rows[0].duration = Duration::from_micros(7);
        rows[0].by_candidate = true;
        let mut plain_outcome = Outcome::new(Uid::generate(), Decision::Allowed);
        plain_outcome.trace = rows;
        let mut warned_outcome = plain_outcome.clone();
        warned_outcome.warnings.push("careful".to_owned());
        let refusal = RequestRefusal {
            chain: "chain".into(),
            stage: "stage".into(),
            cause: RefusalCause::DeadlinePassed,
        };
        let refused_outcome = Outcome::new(Uid::generate(), Decision::Refused(refusal));
        for mut outcome in [plain_outcome, warned_outcome, refused_outcome] {
            for selection in [
                Selection::All,
                Selection::Phase(Phase::Mutating, Scope::Namespaced),
                Selection::Chain(Phase::Validating, "chain".to_owned()),
            ] {
                let request = request();
                outcome.uid = request.uid.clone();
                let observed = ObservedDecision {
                    request,
                    selection: &selection,
                    outcome: &outcome,
                    duration: Duration::from_micros(1500),
                    time: Moment::now(),
                    revision: 7,
                };
                let (mut origin, mut bytes) = (RequestOrigin::default(), Vec::new());
                let restored_decision = PackedDecision {
                    id: 1,
                    size: 0,
                    unpacked_parts: UnpackedParts::pack(&observed, 1 << 20, &mut origin, &mut bytes),
                    packed_bytes: bytes.into(),
                }
                .unpack()
                .unwrap();
                let decided = observed.into_decided_request();
                assert_eq!(format!("{restored_decision:?}"), format!("{decided:?}"));
            }
        }
    }
}
