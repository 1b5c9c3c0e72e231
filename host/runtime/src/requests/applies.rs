//! Explains which live chains and stages apply to a request, and why the others do not.

use admittance_admission::{
    Authorizer, Deadline, EvaluationSources, LabelSelector, Labels, MatchConditions, Mode, NamespaceSelector,
    NamespaceSource, Object, Phase, Request, RulePart, SkipReason, Stage,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Host, Table, live::stage::LiveChain};

/// Whether a chain of the live table applies to a request, and if not, why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ChainApplies {
    /// The name of the chain.
    pub chain: String,
    /// The phase of the chain.
    pub phase: Phase,
    /// Whether the chain applies to the request, which is so if one of its rules matches.
    pub applies: Applies,
    /// The reason why no rule of the chain matches. If that depends on something that the request lacks, such as the
    /// object's name, the reason says so. Absent if a rule matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The stages of the chain, in order; empty if the chain does not apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageApplies>,
}

/// Whether a stage would be called for a request to which its chain applies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StageApplies {
    /// The name of the stage.
    pub stage: String,
    /// The mode of the stage: its verdict is enforced (`Enforce`), or only recorded (`Audit`).
    pub mode: Mode,
    /// Whether the stage would be called for the request.
    pub applies: Applies,
    /// The reason why the stage would not be called, or why this cannot be told, for example because the request has no
    /// object. Absent if the stage would be called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Whether a chain or stage applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Applies {
    /// The chain or stage applies: all of its selectors match the request.
    Yes,
    /// The chain or stage does not apply: one of its selectors does not match the request.
    No,
    /// Whether the chain or stage applies depends on the object or the name, which the request lacks.
    Depends,
    /// A lookup or a condition of the stage failed, so it cannot be told whether the stage applies. For a real request,
    /// the stage would fail as well.
    Unknown,
}

impl Host {
    /// Explains which chains and stages of the live table a request would pass, provided that no earlier stage changes
    /// its object. No hook is called. A request without objects stands for all objects of its kind and namespace.
    ///
    /// The chains that apply come first, and then the chains that do not. Each of the two groups is in the order in
    /// which requests pass the chains.
    pub async fn explain_chains(&self, request: &Request) -> Vec<ChainApplies> {
        let table = self.table();
        let deadline = Deadline::after(table.request_timeout);
        let mut chains = Vec::new();
        for chain in table.chains() {
            chains.push(table.chain_applies(chain, request, deadline).await);
        }
        chains.sort_by_key(|chain| chain.applies == Applies::No);
        chains
    }
}

impl Table {
    async fn chain_applies(&self, chain: &LiveChain, request: &Request, deadline: Deadline) -> ChainApplies {
        let mut applicability = ChainApplies {
            chain: chain.name.to_string(),
            phase: chain.phase,
            applies: Applies::Yes,
            reason: None,
            stages: Vec::new(),
        };
        if let Some(mismatch) = chain.mismatch(request) {
            // The parts of a rule are compared in order, and its names come last. So if the names are the first
            // mismatch, all other parts match. If the request has no name yet, its later name may match as well.
            let depends_on_name = mismatch.part == Some(RulePart::Names) && request.name.is_empty();
            applicability.applies = if depends_on_name { Applies::Depends } else { Applies::No };
            applicability.reason = Some(mismatch.to_string());
            if !depends_on_name {
                return applicability;
            }
        }
        for stage in &chain.stages {
            let (applies, reason) = self.stage_applies(stage, request, deadline).await;
            applicability.stages.push(StageApplies {
                stage: stage.spec.name.to_string(),
                mode: stage.spec.mode,
                applies,
                reason,
            });
        }
        applicability
    }

    async fn stage_applies(&self, stage: &Stage, request: &Request, deadline: Deadline) -> (Applies, Option<String>) {
        let sources = EvaluationSources {
            namespaces: &*self.namespaces,
            authorizer: &*self.authorizer,
        };
        let deadline = deadline.within(stage.spec.timeout);
        let is_described = request.object.is_some() || request.old_object.is_some();
        let of_object = if is_described {
            Vec::new()
        } else {
            conditions_of_object(stage)
        };
        let skipped = if of_object.is_empty() {
            stage.skip_reason(request, sources, deadline).await
        } else {
            let mut stage = stage.clone();
            stage.spec.object_selector = LabelSelector::default();
            stage.spec.match_conditions = MatchConditions::default();
            stage.spec.yields_to.clear();
            stage.skip_reason(request, sources, deadline).await
        };
        match skipped {
            Err(failure) => (Applies::Unknown, Some(failure.message)),
            Ok(None) if of_object.is_empty() => (Applies::Yes, None),
            Ok(None) => (Applies::Depends, Some(of_object.join("; "))),
            Ok(Some(reason)) => {
                let explanation = self.explain_skip(reason, stage, request, deadline).await;
                (Applies::No, Some(explanation))
            }
        }
    }

    async fn explain_skip(&self, reason: SkipReason, stage: &Stage, request: &Request, deadline: Deadline) -> String {
        let spec = &stage.spec;
        let detail = match reason {
            SkipReason::Rules => stage.mismatch(request).map(|mismatch| mismatch.to_string()),
            SkipReason::NamespaceSelector => match &spec.namespace_selector {
                Some(selector) => Some(namespace_mismatch(selector, request, &*self.namespaces).await),
                None => None,
            },
            SkipReason::ObjectSelector => Some(format!(
                "{}: the object has {}",
                spec.object_selector,
                format_labels(
                    request
                        .object
                        .as_ref()
                        .or(request.old_object.as_ref())
                        .map(Object::labels)
                )
            )),
            SkipReason::MatchCondition => {
                explain_first_false_condition(&spec.match_conditions, request, &*self.authorizer, deadline).await
            }
            _ => None,
        };
        match detail {
            Some(detail) if reason == SkipReason::Rules => detail,
            Some(detail) => format!("{reason}: {detail}"),
            None => reason.to_string(),
        }
    }
}

fn conditions_of_object(stage: &Stage) -> Vec<String> {
    let selector = &stage.spec.object_selector;
    let selector = (!selector.is_empty()).then(|| format!("objectSelector: {selector}"));
    let expressions = stage.spec.match_conditions.expressions();
    let conditions = expressions
        .into_iter()
        .map(|(name, expression)| format!("condition {name}: {expression}"));
    let yields_to = stage.spec.yields_to.iter();
    let exclusions = yields_to.map(|other| format!("not for {}: {}", other.chain, other.objects));
    selector.into_iter().chain(conditions).chain(exclusions).collect()
}

async fn namespace_mismatch(
    selector: &NamespaceSelector,
    request: &Request,
    namespaces: &dyn NamespaceSource,
) -> String {
    let namespace = request.namespace.as_deref().unwrap_or_default();
    match selector {
        NamespaceSelector::In(names) => format!("{namespace:?} is not one of {}", names.join(", ")),
        NamespaceSelector::NotIn(_) => format!("{namespace:?} is excluded"),
        NamespaceSelector::Labels(selector) => {
            let namespace_labels = namespaces.labels(namespace).await.ok();
            format!(
                "{selector}: the namespace has {}",
                format_labels(namespace_labels.as_ref())
            )
        }
    }
}

fn format_labels(labels: Option<&Labels>) -> String {
    let entries = labels.into_iter().flatten();
    let pairs: Vec<_> = entries.map(|(key, value)| format!("{key}={value}")).collect();
    if pairs.is_empty() {
        "no labels".to_owned()
    } else {
        pairs.join(", ")
    }
}

async fn explain_first_false_condition(
    conditions: &MatchConditions,
    request: &Request,
    authorizer: &dyn Authorizer,
    deadline: Deadline,
) -> Option<String> {
    let name = conditions
        .first_false_condition(request, authorizer, deadline)
        .await
        .ok()??;
    let mut expressions = conditions.expressions().into_iter();
    let (name, expression) = expressions.find(|(condition_name, _)| **condition_name == *name)?;
    Some(format!("{name}: {expression}"))
}
