//! Applies a client's patch to the stored object, so that stages see the result. The stages' changes are forwarded as a
//! patch of the same type.

use admittance_admission::{MergePatch, Object, Patch, PatchError};
use bytes::Bytes;
use http::{Method, header::CONTENT_TYPE, request::Parts};

use super::{MatchedRoute, PatchType, document::malformed_rejection, replace_at};
use crate::{BodyReading, Rejection, RejectionKind, StoredState, ambiguous_rejection, template::wrap_at};

const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const JSON: &str = "application/json";

/// A patch from a client. Its paths begin at the root of a request's body, in which the object may be only a member,
/// such as `Job`. The stored object is therefore put into a document at the same place before the patch is applied.
pub(super) enum ClientPatch {
    /// A merge patch with its keys in the spelling that the route configures.
    Merge(MergePatch),
    Json(Patch),
}

impl ClientPatch {
    fn apply(&self, before: &Object) -> Result<Object, PatchError> {
        match self {
            Self::Merge(patch) => patch.apply(before),
            Self::Json(patch) => patch.apply(before),
        }
    }
}

impl MatchedRoute {
    pub(super) fn applies_patch(&self, head: &Parts) -> bool {
        head.method == Method::PATCH && self.route.config.applies_patches()
    }

    /// Returns `None` if the patch does not change the object.
    pub(super) fn parse_patch(&self, head: &Parts, body: &Bytes) -> Result<Option<ClientPatch>, Rejection> {
        let text = std::str::from_utf8(body).map_err(malformed_rejection)?;
        let is_optional = self.route.config.optional;
        if is_optional && text.trim().is_empty() {
            return Ok(None);
        }
        match self.patch_type(head)? {
            PatchType::Json => Patch::parse(text)
                .map(ClientPatch::Json)
                .map(Some)
                .map_err(patch_rejection),
            PatchType::Merge => {
                let text = self.canonical_text(text)?;
                if is_optional && self.object_text(&text)?.is_none() {
                    return Ok(None);
                }
                let patch = MergePatch::parse(&*text).map_err(malformed_rejection)?;
                Ok(Some(ClientPatch::Merge(patch)))
            }
        }
    }

    fn patch_type(&self, head: &Parts) -> Result<PatchType, Rejection> {
        let mut values = head.headers.get_all(CONTENT_TYPE).iter();
        let value = values.next().map(|value| value.to_str().unwrap_or("?"));
        if values.next().is_some() {
            return Err(ambiguous_rejection(
                "the header content-type is set more than once; keep one",
            ));
        }
        let essence = value.and_then(|value| value.split(';').next()).unwrap_or(JSON).trim();
        match essence.to_ascii_lowercase().as_str() {
            MERGE => Ok(PatchType::Merge),
            JSON_PATCH => Ok(PatchType::Json),
            JSON => Ok(self.route.config.default_patch_type),
            _ => Err(Rejection::new(
                RejectionKind::MediaType,
                format!("chains inspect this patch, and its type is `{essence}`: send {MERGE} or {JSON_PATCH}"),
            )),
        }
    }

    /// Applies a patch to the stored object, and reads the request as an update to the result.
    pub(super) fn read_patch(&self, head: &Parts, body: &Bytes) -> Result<BodyReading, Rejection> {
        let Some(patch) = self.parse_patch(head, body)? else {
            return Ok(BodyReading::Nothing);
        };
        let stored = self.stored_object(head)?;
        let result = patch.apply(&self.wrap_in_body(&stored)?).map_err(patch_rejection)?;
        let text = result.text();
        // All keys of the result must have the spelling of the API. A server that ignores case would also use a key
        // with another spelling, such as `Name`, but the chains would not look at that key.
        let is_plain = Object::parse_unique(text).is_ok() && *self.canonical_text(text)? == *text;
        if !is_plain {
            return Err(ambiguous_rejection(
                "the result of the patch has a key twice, or not in the spelling of the API",
            ));
        }
        // The stored object was fetched by some of its fields, such as its name. If the patch changed one of them, the
        // request would be about another object.
        if self.stored_uri(head, text)? != self.stored_uri(head, "")? {
            return Err(ambiguous_rejection("the patch names another object than the request"));
        }
        let object = self
            .object_text(text)?
            .ok_or_else(|| malformed_rejection("it removes the object"))?;
        let object = Object::parse(object)
            .map_err(|error| malformed_rejection(format!("the result of the patch is {error}")))?;
        let mut request = self.build_request(head, text, Some(object))?;
        request.old_object = Some(stored);
        Ok(BodyReading::Admit {
            request: Box::new(request),
            canonical: match &patch {
                ClientPatch::Merge(patch) if patch.text().as_bytes() != body => {
                    Some(Bytes::copy_from_slice(patch.text().as_bytes()))
                }
                _ => None,
            },
        })
    }

    pub(super) fn changed_patch(
        &self,
        head: &Parts,
        body: &Bytes,
        object: &Object,
        changes: &Patch,
    ) -> Result<Bytes, Rejection> {
        let unchangeable = || {
            Rejection::new(
                RejectionKind::Unchangeable,
                "a chain would change the result of this patch in a way that a patch of its type cannot express: send the \
                 whole object with an update",
            )
        };
        let pointer = &self.route.config.object;
        match self.parse_patch(head, body)? {
            None => Ok(body.clone()),
            Some(ClientPatch::Json(patch)) => {
                let patch = serde_json::to_vec(&patch.followed_by(changes, pointer));
                Ok(patch.map_err(malformed_rejection)?.into())
            }
            Some(ClientPatch::Merge(patch)) => {
                let before = self.wrap_in_body(&self.stored_object(head)?)?;
                let result = patch.apply(&before).map_err(patch_rejection)?;
                let after = replace_at(result.text(), pointer, object).ok_or_else(unchangeable)?;
                let after = Object::parse(after).map_err(malformed_rejection)?;
                let amended = patch.amend(&before, &after).ok_or_else(unchangeable)?;
                Ok(Bytes::copy_from_slice(amended.text().as_bytes()))
            }
        }
    }

    fn stored_object(&self, head: &Parts) -> Result<Object, Rejection> {
        let state = head.extensions.get::<StoredState>();
        let stored = state.and_then(|state| state.object.clone());
        stored.ok_or_else(|| malformed_rejection("it is a patch, and the stored object is not known"))
    }

    fn wrap_in_body(&self, object: &Object) -> Result<Object, Rejection> {
        let pointer = &self.route.config.object;
        if pointer.segments().is_empty() {
            return Ok(object.clone());
        }
        Object::parse(wrap_at(object.text(), pointer)).map_err(malformed_rejection)
    }
}

fn patch_rejection(error: PatchError) -> Rejection {
    match error {
        PatchError::Malformed(error) => malformed_rejection(error),
        error => Rejection::new(
            RejectionKind::PatchFailed,
            format!("the patch does not apply to the stored object: {error}"),
        ),
    }
}

#[cfg(test)]
mod tests;
