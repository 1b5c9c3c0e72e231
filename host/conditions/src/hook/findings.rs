//! What a policy finds, and the response that comes of it.

use admittance_admission::{Denial, Failure, FailureKind, FailurePolicy, Object, Request, Response, Verdict};
use serde_json::{Value as Json, json};

use super::{Action, PolicyHook};
use crate::DenialReason;

/// Why a request is not admitted.
#[derive(Debug, PartialEq)]
pub(super) struct Objection {
    pub(super) message: String,
    pub(super) reason: DenialReason,
    /// The index of its validation.
    pub(super) index: usize,
    /// Whether an expression could not be evaluated, so that the failure policy applies.
    pub(super) failed: bool,
}

impl Objection {
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            reason: DenialReason::Invalid,
            index: 0,
            failed: true,
        }
    }
}

/// What the evaluations of a policy for all of its parameters say.
#[derive(Default)]
pub(super) struct Findings {
    /// The objections that `validationActions` apply to.
    pub(super) objections: Vec<Objection>,
    /// The objections for which the request is denied whatever the actions are.
    pub(super) refusals: Vec<Objection>,
    /// Key and values, in the order of the policy.
    pub(super) annotations: Vec<(String, Vec<String>)>,
}

impl PolicyHook {
    pub(super) fn respond(
        &self,
        request: &Request,
        findings: Findings,
        object: Option<Object>,
    ) -> Result<Response, Failure> {
        let Findings {
            mut objections,
            mut refusals,
            annotations,
        } = findings;
        let mut response = Response::allow();
        response.audit_annotations = annotations
            .into_iter()
            .map(|(key, values)| (key, values.join(", ")))
            .collect();
        if let Some(constraint) = &self.binding.constraint {
            objections.extend(refusals);
            self.answer_of(&constraint.prefix, objections, &mut response);
            return Ok(response);
        }
        let Some(names) = &self.binding.names else {
            // A stage of a native chain. An expression that fails does not undo the denial of another.
            let (failed, denied): (Vec<_>, Vec<_>) = objections
                .into_iter()
                .chain(refusals)
                .partition(|objection| objection.failed);
            response.verdict = match (denied.into_iter().next(), failed.into_iter().next()) {
                (Some(denied), _) => Verdict::Deny(Denial::new(
                    denied.reason.code(),
                    denied.reason.as_str(),
                    denied.message,
                )),
                (None, Some(failed)) => return Err(Failure::new(FailureKind::Error, failed.message)),
                (None, None) => replaced(request, object),
            };
            return Ok(response);
        };
        if self.binding.failure_policy == FailurePolicy::Ignore {
            objections.retain(|objection| !objection.failed);
            refusals.retain(|objection| !objection.failed);
        }
        self.note(names, &objections, &mut response);
        // Without validations there are no validation actions.
        let enforced = self.binding.actions.contains(&Action::Deny) || !self.policy.mutations.is_empty();
        let denied = objections.into_iter().filter(|_| enforced).chain(refusals).next();
        response.verdict = match denied {
            Some(objection) => Verdict::Deny(self.denial(names, request, objection)),
            None => replaced(request, object),
        };
        Ok(response)
    }

    /// The response for a constraint, in the words of Gatekeeper.
    fn answer_of(&self, prefix: &str, mut objections: Vec<Objection>, response: &mut Response) {
        if self.binding.failure_policy == FailurePolicy::Ignore {
            objections.retain(|objection| !objection.failed);
        }
        let messages = objections
            .iter()
            .map(|objection| format!("{prefix} {}", objection.message));
        let messages: Vec<String> = messages.collect();
        if messages.is_empty() {
            return;
        }
        if self.binding.actions.contains(&Action::Deny) {
            response.verdict = Verdict::Deny(Denial::forbidden(messages.join("\n")));
        }
        if self.binding.actions.contains(&Action::Warn) {
            response.warnings.extend(messages);
        }
    }

    /// Warnings and the note for the audit log, as the binding asks for them.
    fn note(&self, (policy, binding): &(String, String), objections: &[Objection], response: &mut Response) {
        let does = |action: Action| self.binding.actions.contains(&action);
        if does(Action::Warn) {
            response.warnings.extend(objections.iter().map(|objection| {
                format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {}",
                    objection.message
                )
            }));
        }
        if does(Action::Audit) && !objections.is_empty() {
            let actions: Vec<&str> = self
                .binding
                .actions
                .iter()
                .map(|action| action.as_str())
                .collect();
            let failures = objections.iter().map(|objection| {
                json!({
                    "message": objection.message,
                    "policy": policy,
                    "binding": binding,
                    "expressionIndex": objection.index,
                    "validationActions": actions,
                })
            });
            let failures = Json::Array(failures.collect()).to_string();
            response
                .audit_annotations
                .push(("validation_failure".to_owned(), failures));
        }
    }

    /// In the words of kube-apiserver.
    pub(super) fn denial(
        &self,
        (policy, binding): &(String, String),
        request: &Request,
        objection: Objection,
    ) -> Denial {
        let what = if self.policy.mutations.is_empty() {
            "ValidatingAdmissionPolicy"
        } else {
            "policy"
        };
        let message = format!(
            "{what} '{policy}' with binding '{binding}' denied request: {}",
            objection.message
        );
        let whole = format!("{} is forbidden: {message}", subject(request));
        let mut denial = Denial::new(objection.reason.code(), objection.reason.as_str(), whole);
        denial.is_whole = true;
        denial.add_cause(None, message);
        denial
    }
}

/// The object in messages, as kube-apiserver names it: `deployments.apps "web"`.
fn subject(request: &Request) -> String {
    let generated = request.object.as_ref().and_then(|object| {
        let name = object.value().pointer("/metadata/generateName")?.as_str()?;
        Some(name.to_owned())
    });
    let name = Some(request.name.clone())
        .filter(|name| !name.is_empty())
        .or(generated);
    let resource = &request.resource;
    let dot = if resource.group.is_empty() { "" } else { "." };
    let name = name.unwrap_or_else(|| "Unknown".to_owned());
    format!("{}{dot}{} {name:?}", resource.resource, resource.group)
}

fn replaced(request: &Request, object: Option<Object>) -> Verdict {
    match object {
        // By their texts: whether they differ as JSON is found out with the other rules for changes.
        Some(object) if request.object.as_ref().map(Object::text) != Some(object.text()) => {
            Verdict::Replace(object)
        }
        _ => Verdict::Allow,
    }
}
