//! Collects what the evaluation of a policy has found, and turns it into a response.

use admittance_admission::{Denial, Failure, FailureKind, FailurePolicy, Object, Request, Response, Verdict};
use serde_json::{Value as Json, json};

use super::{Action, MessageWording, PolicyHook};
use crate::DenialReason;

#[derive(Debug, PartialEq)]
pub(super) struct Objection {
    pub(super) message: String,
    pub(super) reason: DenialReason,
    pub(super) index: usize,
    /// Whether there is an objection because an expression could not be evaluated. If so, the failure policy decides.
    pub(super) is_error: bool,
    /// Whether the API server could not read the result of a mutation. If so, the failure policy does not apply.
    pub(super) is_unreadable: bool,
}

impl Objection {
    pub(super) fn for_error(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            reason: DenialReason::Invalid,
            index: 0,
            is_error: true,
            is_unreadable: false,
        }
    }

    pub(super) fn for_unreadable_object(message: impl Into<String>) -> Self {
        Self {
            is_error: false,
            is_unreadable: true,
            ..Self::for_error(message)
        }
    }
}

#[derive(Default)]
pub(super) struct Findings {
    /// The objections to which the binding's actions apply. For example, the action `Warn` turns each into a warning.
    pub(super) objections: Vec<Objection>,
    /// The objections that always deny the request, even if the binding's actions do not include `Deny`.
    pub(super) refusals: Vec<Objection>,
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
        let names = match &self.binding.wording {
            MessageWording::Gatekeeper { prefix, .. } => {
                objections.extend(refusals);
                self.respond_as_gatekeeper(prefix, objections, &mut response);
                return Ok(response);
            }
            MessageWording::Kyverno { policy } => {
                objections.extend(refusals);
                self.respond_as_kyverno(policy, objections, &mut response);
                if matches!(response.verdict, Verdict::Allow) {
                    response.verdict = replacement_verdict(request, object);
                }
                return Ok(response);
            }
            MessageWording::Native => {
                // If one expression denies the request and another one fails, the request is denied.
                let (failures, denials): (Vec<_>, Vec<_>) = objections
                    .into_iter()
                    .chain(refusals)
                    .partition(|objection| objection.is_error || objection.is_unreadable);
                response.verdict = match (denials.into_iter().next(), failures.into_iter().next()) {
                    (Some(denied), _) => Verdict::Deny(Denial::new(
                        denied.reason.code(),
                        denied.reason.as_str(),
                        denied.message,
                    )),
                    (None, Some(failed)) => return Err(Failure::new(FailureKind::Error, failed.message)),
                    (None, None) => replacement_verdict(request, object),
                };
                return Ok(response);
            }
            MessageWording::Kubernetes { policy, binding } => (policy.as_str(), binding.as_str()),
        };
        if self.binding.failure_policy == FailurePolicy::Ignore {
            objections.retain(|objection| !objection.is_error);
            refusals.retain(|objection| !objection.is_error);
        }
        self.report_objections(names, &objections, &mut response);
        // A policy with mutations has no validation actions, so each objection to a mutation denies the request.
        let is_enforced = self.binding.actions.contains(&Action::Deny) || !self.policy.mutations.is_empty();
        let denying_objections: Vec<Objection> =
            objections.into_iter().filter(|_| is_enforced).chain(refusals).collect();
        // If the API server cannot read the result of a mutation, it ends the request at that point. So an objection
        // about this is reported before all others.
        let unreadable = denying_objections.iter().find(|objection| objection.is_unreadable);
        response.verdict = match (unreadable, denying_objections.split_first()) {
            (Some(objection), _) => Verdict::Deny(internal_error(&objection.message)),
            (None, Some((first, others))) => Verdict::Deny(self.denial(names, request, first, others)),
            (None, None) => replacement_verdict(request, object),
        };
        Ok(response)
    }

    fn respond_as_gatekeeper(&self, prefix: &str, mut objections: Vec<Objection>, response: &mut Response) {
        if self.binding.failure_policy == FailurePolicy::Ignore {
            objections.retain(|objection| !objection.is_error);
        }
        let messages: Vec<String> = objections
            .iter()
            .map(|objection| format!("{prefix} {}", objection.message))
            .collect();
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

    /// Completes the response for a Kyverno policy. Objections deny the request if the actions include `Deny`. If the
    /// policy has mutations, objections always deny the request, because such a policy has no actions.
    fn respond_as_kyverno(&self, policy: &str, mut objections: Vec<Objection>, response: &mut Response) {
        if self.binding.failure_policy == FailurePolicy::Ignore {
            objections.retain(|objection| !objection.is_error);
        }
        let format_message = |objection: &Objection| {
            let status = if objection.is_error { "error" } else { "failed" };
            format!("Policy {policy} {status}: {}", objection.message)
        };
        let messages: Vec<String> = objections.iter().map(format_message).collect();
        if messages.is_empty() {
            return;
        }
        let has_action = |action: Action| self.binding.actions.contains(&action);
        if has_action(Action::Audit) {
            response
                .audit_annotations
                .push(("validation_failure".to_owned(), messages.join("; ")));
        }
        if has_action(Action::Warn) {
            response.warnings.extend(messages.iter().cloned());
        }
        if has_action(Action::Deny) || !self.policy.mutations.is_empty() {
            // Kyverno's response gives no status code for the denial, so kube-apiserver replies to the client with 400.
            response.verdict = Verdict::Deny(Denial::new(400, "", messages.join("; ")));
        }
    }

    fn report_objections(&self, (policy, binding): (&str, &str), objections: &[Objection], response: &mut Response) {
        let has_action = |action: Action| self.binding.actions.contains(&action);
        if has_action(Action::Warn) {
            response.warnings.extend(objections.iter().map(|objection| {
                format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {}",
                    objection.message
                )
            }));
        }
        if has_action(Action::Audit) && !objections.is_empty() {
            let actions: Vec<&str> = self.binding.actions.iter().map(|action| action.as_str()).collect();
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

    /// Creates a denial in kube-apiserver's wording. The first objection becomes a cause in the details. If the policy
    /// has mutations, the other objections become causes, too.
    pub(super) fn denial(
        &self,
        (policy, binding): (&str, &str),
        request: &Request,
        first: &Objection,
        other_objections: &[Objection],
    ) -> Denial {
        let mutates = !self.policy.mutations.is_empty();
        let policy_kind = if mutates { "policy" } else { "ValidatingAdmissionPolicy" };
        let format_message = |objection: &Objection| {
            format!(
                "{policy_kind} '{policy}' with binding '{binding}' denied request: {}",
                objection.message
            )
        };
        let message = format_message(first);
        let (resource, name) = (&request.resource, object_name(request));
        let mut denial = if mutates {
            Denial::new(403, first.reason.as_str(), message.clone())
        } else {
            let dot = if resource.group.is_empty() { "" } else { "." };
            let full_message = format!(
                "{}{dot}{} {name:?} is forbidden: {message}",
                resource.resource, resource.group
            );
            Denial::new(first.reason.code(), first.reason.as_str(), full_message)
        };
        denial.names_policy = true;
        denial.details.insert("name".to_owned(), name.into());
        if !resource.group.is_empty() {
            denial.details.insert("group".to_owned(), resource.group.clone().into());
        }
        denial
            .details
            .insert("kind".to_owned(), resource.resource.clone().into());
        denial.add_cause(None, message);
        for other in other_objections.iter().filter(|_| mutates) {
            denial.add_cause(None, format_message(other));
        }
        denial
    }
}

/// Creates the denial for an internal error. kube-apiserver ends a request with such an error under any failure policy.
fn internal_error(why: &str) -> Denial {
    let mut denial = Denial::new(500, "InternalError", format!("Internal error occurred: {why}"));
    denial.names_policy = true;
    denial.add_cause(None, why);
    denial
}

/// Returns the name of the object in messages: its name, else its `generateName`, else `Unknown`, as in kube-apiserver.
fn object_name(request: &Request) -> String {
    let generate_name = request.object.as_ref().and_then(|object| {
        let name = object.value().pointer("/metadata/generateName")?.as_str()?;
        Some(name.to_owned())
    });
    let name = Some(request.name.clone())
        .filter(|name| !name.is_empty())
        .or(generate_name);
    name.unwrap_or_else(|| "Unknown".to_owned())
}

fn replacement_verdict(request: &Request, object: Option<Object>) -> Verdict {
    match object {
        // The text of the object has changed. Its JSON value may still be the same, for example if only white space
        // differs. The chain compares the values later, and then finds no change.
        Some(object) if request.object.as_ref().map(Object::text) != Some(object.text()) => Verdict::Replace(object),
        _ => Verdict::Allow,
    }
}
