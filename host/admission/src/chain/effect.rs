//! Applies the verdicts of hooks to objects, and checks the resulting objects.

use crate::{
    Deadline, Denial, Failure, FailureKind, Object, Patch, Request, SpellingError, Verdict,
    object::head::check_unique_keys, scheduling::offload::offload,
};

/// The effect of a verdict on the request.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// The request passes unchanged.
    None,
    /// The patch changes the request's object, and this object is the result.
    Change(Object, Patch),
    /// The request is refused.
    Deny(Denial),
}

impl Verdict {
    /// Computes the effect of the verdict on this request.
    ///
    /// The changed object must satisfy the same rules as the client's object: each key of [`Request::spelling`] occurs
    /// once, in its canonical spelling, and [`Request::identity`] is unchanged. Duplicate keys in a hook's output are
    /// refused. Large objects are processed on a thread for long work.
    ///
    /// # Errors
    ///
    /// Fails when the verdict cannot be applied by the deadline, breaks a rule, or exceeds a limit of [`Patch`].
    pub async fn into_effect(self, request: &Request, deadline: Deadline) -> Result<Effect, Failure> {
        match self {
            Self::Allow => return Ok(Effect::None),
            Self::Deny(denial) => return Ok(Effect::Deny(denial)),
            Self::Patch(patch) if patch.is_empty() => return Ok(Effect::None),
            Self::Patch(_) | Self::Replace(_) => {}
        }
        let Some(before) = request.object.clone() else {
            return Err(Failure::new(
                FailureKind::PatchFailed,
                format!(
                    "the verdict changes the object, but a {} request has none",
                    request.operation
                ),
            ));
        };
        let rules = ChangeRules {
            before,
            identity: request.identity.clone(),
            spelling: request.spelling.clone(),
        };
        let size = rules.before.text().len();
        let change_size = match &self {
            Self::Patch(patch) => patch.work(size),
            Self::Replace(after) => after.text().len(),
            Self::Allow | Self::Deny(_) => 0,
        };
        offload(size + change_size, deadline, move || match self {
            Self::Patch(patch) => rules.apply_patch(patch, deadline),
            Self::Replace(after) => rules.check_replacement(after),
            Self::Allow | Self::Deny(_) => Ok(Effect::None),
        })
        .await?
    }
}

struct ChangeRules {
    before: Object,
    identity: crate::IdentityFields,
    spelling: crate::EnforcedSpelling,
}

impl ChangeRules {
    fn apply_patch(&self, patch: Patch, deadline: Deadline) -> Result<Effect, Failure> {
        let after = patch.apply_with_deadline(&self.before, Some(deadline))?;
        if self.before.is_same(&after) {
            return Ok(Effect::None);
        }
        if self.spelling.may_be_broken_by(&patch)
            && let Some(after) = self.canonical_object(&after)?
        {
            return self.effect_of_difference(after);
        }
        self.keep_identity(&after, Some(&patch))?;
        Ok(Effect::Change(after, patch))
    }

    fn check_replacement(&self, after: Object) -> Result<Effect, Failure> {
        let (before, text) = (self.before.text(), after.text());
        if before == text {
            return Ok(Effect::None);
        }
        let limit = Patch::result_limit(before.len());
        if text.len() > limit {
            return Err(Failure::new(
                FailureKind::OutputTooLarge,
                format!(
                    "the answer contains an object of {} bytes; the limit is {limit}",
                    text.len()
                ),
            ));
        }
        check_unique_keys(text).map_err(invalid_object)?;
        self.effect_of_difference(self.canonical_object(&after)?.unwrap_or(after))
    }

    fn canonical_object(&self, after: &Object) -> Result<Option<Object>, Failure> {
        let text = self
            .spelling
            .canonical_text(after.text())
            .map_err(|error| match error {
                SpellingError::Json(error) | SpellingError::Ambiguous(error) => invalid_object(error),
            })?;
        text.map(|text| Object::parse(text).map_err(invalid_object)).transpose()
    }

    fn effect_of_difference(&self, after: Object) -> Result<Effect, Failure> {
        self.keep_identity(&after, None)?;
        let patch = Patch::between(&self.before, &after);
        Ok(if patch.is_empty() {
            Effect::None
        } else {
            Effect::Change(after, patch)
        })
    }

    fn keep_identity(&self, after: &Object, patch: Option<&Patch>) -> Result<(), Failure> {
        match self.identity.describe_change(&self.before, after, patch) {
            None => Ok(()),
            Some(change) => Err(Failure::new(FailureKind::IdentityChanged, change)),
        }
    }
}

fn invalid_object(error: impl std::fmt::Display) -> Failure {
    Failure::new(
        FailureKind::InvalidResponse,
        format!("the verdict results in an ambiguous object: {error}"),
    )
}
