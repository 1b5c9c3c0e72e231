//! Combines a request with its outcome, for recordings and for the decisions that the log returns.

use std::time::Duration;

use admittance_admission::{Object, Outcome, RecordedResponses, Request, Selection};

use bytestring::ByteString;

use super::DecisionVerdict;
use crate::Moment;

/// A request and its outcome without the resulting object, which follows from the request's object and the patch.
#[derive(Debug)]
pub(crate) struct DecidedRequest {
    pub(crate) request: Request,
    pub(crate) texts: Option<ObjectTexts>,
    pub(crate) selection: Selection,
    pub(crate) outcome: Outcome,
    pub(crate) verdict: DecisionVerdict,
    /// The HTTP responses and objects that plugins fetched for the request. Empty unless the request is recorded.
    pub(crate) recorded_responses: RecordedResponses,
    pub(crate) time: Moment,
    pub(crate) revision: u64,
    pub(crate) duration: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct ObjectTexts {
    pub(super) object: Option<ByteString>,
    pub(super) old_object: Option<ByteString>,
    pub(super) options: Option<ByteString>,
}

impl ObjectTexts {
    pub(crate) fn take(request: &mut Request) -> Self {
        let text = |object: &mut Option<Object>| Some(object.take()?.shared_text().clone());
        Self {
            object: text(&mut request.object),
            old_object: text(&mut request.old_object),
            options: text(&mut request.options),
        }
    }
}

impl DecidedRequest {
    pub(crate) fn request_with_objects(&self) -> Option<Request> {
        let ObjectTexts {
            object,
            old_object,
            options,
        } = self.texts.as_ref()?;
        let parse = |text: &Option<ByteString>| text.as_ref().and_then(|text| Object::parse(&**text).ok());
        let mut request = self.request.clone();
        request.object = parse(object);
        request.old_object = parse(old_object);
        request.options = parse(options);
        Some(request)
    }

    pub(super) fn generate_name(&self) -> Option<String> {
        metadata_field(self.texts.as_ref()?.object.as_ref()?, "generateName")
    }

    pub(super) fn stored_uid(&self) -> Option<String> {
        metadata_field(self.texts.as_ref()?.old_object.as_ref()?, "uid")
    }

    pub(crate) fn resulting_object(&self) -> Option<Object> {
        let before = Object::parse(&**self.texts.as_ref()?.object.as_ref()?).ok()?;
        let patch = Some(&self.outcome.patch).filter(|patch| !patch.is_empty())?;
        patch.apply(&before).ok()
    }
}

fn metadata_field(object: &ByteString, field: &str) -> Option<String> {
    let object = Object::parse(&**object).ok()?;
    Some(object.value().get("metadata")?.get(field)?.as_str()?.to_owned())
}
