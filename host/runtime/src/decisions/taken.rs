//! A request and its outcome, as they are kept: for the log of decisions and for recordings.

use std::{mem::size_of, sync::Arc, time::Duration};

use admittance_admission::{
    Decision, Denial, Object, Outcome, Patch, Refusal, Request, Selection, StageResult, Taped, TraceRow,
};

use bytestring::ByteString;

use super::DecisionVerdict;
use crate::{Moment, recording::is_secret};

/// A request with its outcome. Objects are kept as texts, without what was parsed of them; the object of the outcome is
/// what the patch makes of that of the request.
#[derive(Debug)]
pub(crate) struct Taken {
    /// Without its objects.
    pub(crate) request: Request,
    pub(crate) texts: Texts,
    pub(crate) selection: Selection,
    /// Without its object.
    pub(crate) outcome: Outcome,
    pub(crate) verdict: DecisionVerdict,
    /// What its plugins learned from outside, if it is recorded.
    pub(crate) taped: Taped,
    pub(crate) at: Moment,
    pub(crate) revision: u64,
    pub(crate) duration: Duration,
}

/// Texts of up to so many bytes are copied: otherwise, a small object keeps the whole body of its request in memory.
const COPIED: usize = 64 << 10;

/// The objects of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    object: Option<ByteString>,
    old_object: Option<ByteString>,
    options: Option<ByteString>,
    /// Whether they were left out.
    are_missing: bool,
}

impl Texts {
    /// Takes the objects out of a request.
    pub(crate) fn take(request: &mut Request) -> Self {
        let text = |object: &mut Option<Object>| {
            let object = object.take()?;
            let text = object.shared_text();
            Some(match text.len() {
                ..=COPIED => ByteString::from(&**text),
                _ => text.clone(),
            })
        };
        Self {
            object: text(&mut request.object),
            old_object: text(&mut request.old_object),
            options: text(&mut request.options),
            are_missing: false,
        }
    }

    fn bytes(&self) -> usize {
        let texts = [&self.object, &self.old_object, &self.options];
        texts.into_iter().flatten().map(|text| text.len()).sum()
    }
}

impl Taken {
    /// The request with its objects; `None` if they are not kept.
    pub(crate) fn request(&self) -> Option<Request> {
        let Texts {
            object,
            old_object,
            options,
            are_missing,
        } = &self.texts;
        let parsed = |text: &Option<ByteString>| text.as_ref().and_then(|text| Object::parse(&**text).ok());
        let mut request = self.request.clone();
        request.object = parsed(object);
        request.old_object = parsed(old_object);
        request.options = parsed(options);
        Some(request).filter(|_| !are_missing)
    }

    /// `metadata.generateName` of the object, if it is kept.
    pub(super) fn generate_name(&self) -> Option<String> {
        metadata(self.texts.object.as_ref()?, "generateName")
    }

    /// `metadata.uid` of the object before the request, if there is one and it is kept.
    pub(super) fn stored_uid(&self) -> Option<String> {
        metadata(self.texts.old_object.as_ref()?, "uid")
    }

    /// The object after the chains, if they changed it and it is kept.
    pub(crate) fn result(&self) -> Option<Object> {
        let before = Object::parse(&**self.texts.object.as_ref()?).ok()?;
        let patch = Some(&self.outcome.patch).filter(|patch| !patch.is_empty())?;
        patch.apply(&before).ok()
    }

    /// Whether a text is in what [`DecisionFilter::text`](super::DecisionFilter::text) names.
    pub(super) fn contains(&self, text: &str) -> bool {
        let Request {
            uid,
            kind,
            namespace,
            name,
            user,
            ..
        } = &self.request;
        let texts = [
            uid.as_str(),
            name,
            &user.username,
            namespace.as_deref().unwrap_or_default(),
        ];
        texts.iter().any(|part| part.contains(text))
            || kind.to_string().contains(text)
            || match &self.outcome.decision {
                Decision::Allowed => false,
                Decision::Refused(refusal) => refusal.to_string().contains(text),
            }
    }

    /// As it is kept in the log: nothing of the content of a Secret, and no objects that are larger than this.
    pub(crate) fn for_log(self: Arc<Self>, most: usize) -> Arc<Self> {
        let is_secret = is_secret(&self.request);
        if !is_secret && self.texts.bytes() <= most && self.taped == Taped::default() {
            return self;
        }
        let are_missing = is_secret || self.texts.bytes() > most;
        let mut outcome = self.outcome.clone();
        if is_secret {
            outcome.patch = Patch::default();
            for row in &mut outcome.trace {
                if let StageResult::Changed(patch) = &mut row.result {
                    *patch = Patch::default();
                }
            }
        }
        Arc::new(Self {
            request: self.request.clone(),
            texts: if are_missing {
                Texts {
                    are_missing,
                    ..Texts::default()
                }
            } else {
                self.texts.clone()
            },
            selection: self.selection.clone(),
            outcome,
            // What recordings need is not kept for long.
            taped: Taped::default(),
            ..*self
        })
    }

    /// An estimate of the memory that it takes, in bytes; rather too much than too little.
    pub(crate) fn size(&self) -> usize {
        let Request {
            uid,
            kind,
            resource,
            subresource,
            requested,
            name,
            namespace,
            user,
            ..
        } = &self.request;
        let strings = [
            uid.as_str(),
            &kind.group,
            &kind.version,
            &kind.kind,
            &resource.group,
            &resource.version,
            &resource.resource,
            subresource.as_deref().unwrap_or_default(),
            name,
            namespace.as_deref().unwrap_or_default(),
            &user.username,
            &user.uid,
            // The uid of the outcome.
            uid.as_str(),
        ];
        let extra = user.extra.iter().map(|(key, values)| {
            // A node of the map has room for eleven entries.
            1024 + key.len() + list(values)
        });
        let own = size_of::<Self>()
            + strings.iter().map(|text| text.len()).sum::<usize>()
            + list(&user.groups)
            + extra.sum::<usize>()
            + requested.as_ref().map_or(0, |_| 512)
            + self.texts.bytes()
            + outcome(&self.outcome);
        // What allocations are rounded up by.
        own + own / 8
    }
}

/// A text in the metadata of an object.
fn metadata(object: &ByteString, field: &str) -> Option<String> {
    let object = Object::parse(&**object).ok()?;
    let text = object.value().get("metadata")?.get(field)?.as_str()?;
    Some(text.to_owned())
}

/// The memory of a list of texts.
fn list(texts: &Vec<String>) -> usize {
    let spare = texts.capacity() * size_of::<String>();
    spare + texts.iter().map(String::capacity).sum::<usize>()
}

fn outcome(outcome: &Outcome) -> usize {
    let annotations = outcome.audit_annotations.iter();
    let refusal = match &outcome.decision {
        Decision::Refused(Refusal::Denied { denial, .. }) => denied(denial),
        Decision::Refused(Refusal::Failed { failure, .. }) => failure.message.len(),
        _ => 0,
    };
    outcome.patch.memory()
        + list(&outcome.warnings)
        + annotations
            .map(|note| size_of_val(note) + note.key.len() + note.value.len())
            .sum::<usize>()
        + refusal
        + outcome.trace.iter().map(row).sum::<usize>()
}

fn row(row: &TraceRow) -> usize {
    let result = match &row.result {
        StageResult::Changed(patch) => patch.memory(),
        StageResult::Denied(denial) => denied(denial),
        StageResult::Failed { failure, .. } => failure.message.len(),
        _ => 0,
    };
    let log = row.log.iter();
    let log: usize = log
        .map(|line| size_of_val(line) + line.context.len() + line.message.len())
        .sum();
    size_of_val(row) + result + log
}

fn denied(denial: &Denial) -> usize {
    let details = match denial.details.is_empty() {
        true => 0,
        // Trees take several times the memory of their text.
        false => 8 * serde_json::to_string(&denial.details).map_or(0, |text| text.len()),
    };
    denial.reason.len() + denial.message.len() + details
}
