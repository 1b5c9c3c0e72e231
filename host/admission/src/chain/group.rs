//! A hook that combines the verdicts of other hooks.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{Deadline, Denial, Effect, Failure, FailureKind, Hook, Request, Response, Verdict, verdict::shorten};

/// An expression over the verdicts of a group's members. The group allows a request if the expression is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Formula {
    /// A value that does not depend on the request.
    Constant(bool),
    /// Whether the member with this index allows the request.
    Member(usize),
    /// True if the operand is false, and false if the operand is true.
    Not(Box<Formula>),
    /// Whether both operands are true.
    And(Box<[Formula; 2]>),
    /// Whether at least one operand is true.
    Or(Box<[Formula; 2]>),
    /// Whether both operands are equal.
    Equal(Box<[Formula; 2]>),
}

/// The value of a group's formula; `None` if it depends on a member that failed.
type Truth = Option<bool>;

impl Formula {
    /// Computes the value of the formula. If the value depends on a member that has not been called yet, the error is
    /// the index of this member. The caller then calls the member, and computes the value again.
    fn evaluate(&self, member: &impl Fn(usize) -> Result<Truth, usize>) -> Result<Truth, usize> {
        Ok(match self {
            Self::Constant(value) => Some(*value),
            Self::Member(index) => member(*index)?,
            Self::Not(operand) => operand.evaluate(member)?.map(|value| !value),
            Self::And(sides) => short_circuit(false, sides, member)?,
            Self::Or(sides) => short_circuit(true, sides, member)?,
            Self::Equal(sides) => {
                let [left, right] = &**sides;
                match left.evaluate(member)? {
                    Some(left_truth) => right.evaluate(member)?.map(|other| left_truth == other),
                    None => None,
                }
            }
        })
    }

    /// Returns whether the formula contains this member.
    pub fn uses(&self, member: usize) -> bool {
        match self {
            Self::Constant(_) => false,
            Self::Member(index) => *index == member,
            Self::Not(operand) => operand.uses(member),
            Self::And(sides) | Self::Or(sides) | Self::Equal(sides) => sides.iter().any(|side| side.uses(member)),
        }
    }
}

/// Returns the value of `&&` or `||`. An operand with the value `deciding` decides, even if the other operand failed.
fn short_circuit(
    deciding: bool,
    [left, right]: &[Formula; 2],
    member: &impl Fn(usize) -> Result<Truth, usize>,
) -> Result<Truth, usize> {
    let left_truth = left.evaluate(member)?;
    if left_truth == Some(deciding) {
        return Ok(left_truth);
    }
    let right_truth = right.evaluate(member)?;
    Ok(match (left_truth, right_truth) {
        (_, Some(other)) if other == deciding => Some(deciding),
        (Some(_), other) => other,
        (None, _) => None,
    })
}

/// A hook that combines the verdicts of other hooks, which are its members. The members are called one after the other,
/// each at most once for a request. A member is not called if its verdict cannot change the value of the formula. The
/// response has the warnings and audit annotations of all members that were called.
#[derive(Clone, derive_more::Debug)]
#[debug("HookGroup {{ formula: {formula:?}, .. }}")]
pub struct HookGroup {
    members: Vec<(Arc<str>, Arc<dyn Hook>)>,
    formula: Formula,
    denial: Denial,
    field: Arc<str>,
}

enum MemberAnswer {
    Allowed,
    Denied(Denial),
    Failed(Failure),
}

impl HookGroup {
    /// Creates a group of named members. It allows a request if the formula is true for the verdicts of the members.
    /// Otherwise it denies the request with `denial`, to which it adds a cause for each member that was called and did
    /// not allow the request. The field of such a cause is `{field}.{member}`.
    pub fn new(
        members: Vec<(Arc<str>, Arc<dyn Hook>)>,
        formula: Formula,
        denial: Denial,
        field: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            members,
            formula,
            denial,
            field: field.into(),
        }
    }

    fn combined_denial(&self, answers: &[Option<MemberAnswer>]) -> Denial {
        let mut denial = self.denial.clone();
        // A denial loses all its details if they are larger than the limit. To prevent this, the messages of all
        // members together get half of the limit. Each member gets an equal share, and a longer message is shortened.
        let max_message_size = Denial::MAX_DETAILS / 2 / self.members.len().max(1);
        for ((name, _), answer) in self.members.iter().zip(answers) {
            let mut message = match answer {
                None | Some(MemberAnswer::Allowed) => continue,
                Some(MemberAnswer::Denied(denial)) => denial.to_string(),
                Some(MemberAnswer::Failed(failure)) => failure.to_string(),
            };
            shorten(&mut message, max_message_size);
            denial.add_cause(Some(&format!("{}.{name}", self.field)), message);
        }
        denial
    }

    fn combined_failure(&self, answers: &[Option<MemberAnswer>]) -> Failure {
        let mut failures = self.members.iter().zip(answers).filter_map(|((name, _), answer)| {
            let Some(MemberAnswer::Failed(failure)) = answer else {
                return None;
            };
            let message = format!("plugin {name} of the group: {}", failure.message);
            Some(Failure::new(failure.kind, message))
        });
        let first = failures.next();
        first.unwrap_or_else(|| Failure::new(FailureKind::Error, "the group has no such member"))
    }
}

#[async_trait]
impl Hook for HookGroup {
    async fn admit(&self, request: &Arc<Request>, deadline: Deadline) -> Result<Response, Failure> {
        let mut answers: Vec<Option<MemberAnswer>> = self.members.iter().map(|_| None).collect();
        let mut response = Response::allow();
        let group_truth = loop {
            let member_truth = |index: usize| match answers.get(index) {
                Some(Some(MemberAnswer::Allowed)) => Ok(Some(true)),
                Some(Some(MemberAnswer::Denied(_))) => Ok(Some(false)),
                Some(Some(MemberAnswer::Failed(_))) => Ok(None),
                Some(None) | None => Err(index),
            };
            let next = match self.formula.evaluate(&member_truth) {
                Ok(truth) => break truth,
                Err(next) => next,
            };
            let (Some((name, hook)), Some(answer)) = (self.members.get(next), answers.get_mut(next)) else {
                break None;
            };
            *answer = Some(call_member(name, &**hook, request, deadline, &mut response).await);
        };
        match group_truth {
            Some(true) => {
                // The verdict does not depend on members that have failed. Their failures become audit annotations.
                for ((name, _), answer) in self.members.iter().zip(&answers) {
                    if let Some(MemberAnswer::Failed(failure)) = answer {
                        let key = format!("{name}.failure");
                        response.audit_annotations.push((key, failure.to_string()));
                    }
                }
                Ok(response)
            }
            Some(false) => {
                response.verdict = Verdict::Deny(self.combined_denial(&answers));
                Ok(response)
            }
            None => Err(self.combined_failure(&answers)),
        }
    }
}

async fn call_member(
    name: &str,
    hook: &dyn Hook,
    request: &Arc<Request>,
    deadline: Deadline,
    response: &mut Response,
) -> MemberAnswer {
    let answer = match hook.admit(request, deadline).await {
        Ok(answer) => answer,
        Err(failure) => return MemberAnswer::Failed(failure),
    };
    response.warnings.extend(answer.warnings);
    let notes = answer.audit_annotations.into_iter();
    let prefixed_annotations = notes.map(|(key, value)| (format!("{name}.{key}"), value));
    response.audit_annotations.extend(prefixed_annotations);
    match answer.verdict.into_effect(request, deadline).await {
        Ok(Effect::None) => MemberAnswer::Allowed,
        Ok(Effect::Deny(denial)) => MemberAnswer::Denied(denial),
        Ok(Effect::Change(..)) => MemberAnswer::Failed(Failure::new(
            FailureKind::InvalidResponse,
            "the verdict changes the object, but a member of a group may only allow or deny",
        )),
        Err(failure) => MemberAnswer::Failed(failure),
    }
}
