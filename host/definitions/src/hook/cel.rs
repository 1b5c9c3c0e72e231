//! The hook that evaluates CEL expressions of native stages, and of policies of Kubernetes, Kyverno and Gatekeeper.

mod read;

use std::{collections::BTreeSet, sync::Arc};

use admittance_admission::{Authorizer, ClusterKind, ClusterReader, FailureKind, Hook};
use admittance_conditions::{
    Action, Binding, CompiledPolicy, MessageWording, PolicyExpression, PolicyHook, Validation,
};
use serde_json::{Map, Value as Json, json};

pub(crate) use self::read::{read, read_kyverno, read_policy, read_template};
use super::{HookContext, HookDefinition, HookError, HookKind, HookStatus, PreparedHook};
use crate::forms::{kubernetes::typing::WrittenExpression, native::write::put};

/// A hook that evaluates CEL expressions.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CelDefinition {
    /// The compiled expressions.
    pub policy: Arc<CompiledPolicy>,
    /// The actions on a violation, and the parameters with which the expressions are evaluated.
    pub binding: Binding,
    /// The texts of the expressions, and their locations in the document. The list is only filled for a native stage,
    /// and empty in other policy systems.
    pub(crate) expressions: Arc<[WrittenExpression]>,
}

impl CelDefinition {
    /// Returns a copy of the definition in which `Deny` is the only action on a violation.
    #[must_use]
    pub fn with_deny_action(&self) -> Self {
        let mut denying = self.clone();
        denying.binding.actions = vec![Action::Deny];
        denying
    }

    /// Creates the hook. Its expressions check permissions with `authorizer`, and read parameters from `cluster`.
    pub fn hook(&self, authorizer: Arc<dyn Authorizer>, cluster: Option<Arc<dyn ClusterReader>>) -> Arc<dyn Hook> {
        let policy = Arc::clone(&self.policy);
        Arc::new(PolicyHook::new(policy, self.binding.clone(), authorizer, cluster))
    }
}

impl HookKind for CelDefinition {
    fn cluster_kinds(&self) -> BTreeSet<ClusterKind> {
        let params = self.binding.params.iter().map(|params| params.kind.clone());
        let uses_namespace = self.policy.uses_namespace();
        let namespace = uses_namespace.then(|| ClusterKind::new("v1", "Namespace"));
        let access = self.policy.uses_authorizer().then(ClusterKind::any_access_review);
        let lookups = self.policy.lookups().cloned();
        params.chain(namespace).chain(access).chain(lookups).collect()
    }

    fn conditions(&self) -> Vec<(&str, &str)> {
        let conditions = self.policy.conditions.iter();
        conditions
            .map(|condition| (condition.name(), condition.expression()))
            .collect()
    }

    fn to_native(&self) -> Option<(&'static str, Json)> {
        let policy = &self.policy;
        let mut object = Map::new();
        let variables: Vec<_> = policy
            .variables()
            .map(|(name, expression)| json!({"name": name, "expression": expression}))
            .collect();
        let validations: Vec<_> = policy.validations.iter().map(validation_json).collect();
        let annotations: Vec<_> = policy
            .audit_annotations
            .iter()
            .map(|(key, value)| json!({"key": key, "valueExpression": value.text()}))
            .collect();
        let mutation = |mutation: &PolicyExpression| {
            let expression = json!({"expression": mutation.text()});
            if mutation.is_json_patch() {
                json!({"patchType": "JSONPatch", "jsonPatch": expression})
            } else {
                json!({"patchType": "ApplyConfiguration", "applyConfiguration": expression})
            }
        };
        let mutations: Vec<_> = policy.mutations.iter().map(mutation).collect();
        let lists = [
            ("variables", variables),
            ("validations", validations),
            ("auditAnnotations", annotations),
            ("mutations", mutations),
        ];
        for (key, list) in lists {
            if !list.is_empty() {
                put(&mut object, key, list);
            }
        }
        Some(("cel", Json::Object(object)))
    }

    fn native_form_obstacles(&self) -> Vec<&'static str> {
        let actions = &self.binding.actions;
        let sees_namespace = |(_, expression): &(&str, &str)| expression.contains("namespaceObject");
        [
            (self.binding.params.is_some(), "parameters have no native form"),
            (
                !actions.is_empty() && **actions != [Action::Deny],
                "`validationActions` other than Deny have no native form",
            ),
            (
                self.conditions().iter().any(sees_namespace),
                "a match condition of a native stage does not see `namespaceObject`",
            ),
        ]
        .into_iter()
        .filter_map(|(is_there, reason)| is_there.then_some(reason))
        .collect()
    }

    fn native_form_differences(&self) -> Vec<&'static str> {
        match self.binding.wording {
            MessageWording::Native => Vec::new(),
            MessageWording::Kyverno { .. } => vec!["messages do not name the policy"],
            MessageWording::Kubernetes { .. } | MessageWording::Gatekeeper { .. } => {
                vec!["messages and audit annotations do not name the policy and the binding"]
            }
        }
    }

    fn is_complete_in(&self, native: &HookDefinition) -> bool {
        native.get::<Self>().is_some_and(|native| {
            let mut binding = self.binding.clone();
            (binding.wording, binding.actions) = (MessageWording::Native, Vec::new());
            binding.failure_policy = native.binding.failure_policy;
            let (policy, other) = (&self.policy, &native.policy);
            policy.variables().eq(other.variables())
                && policy.validations == other.validations
                && policy.audit_annotations == other.audit_annotations
                && policy.mutations == other.mutations
                && binding == native.binding
        })
    }

    fn prepare(&self, context: HookContext<'_>) -> Result<PreparedHook, HookError> {
        let summary = self.policy.summary();
        let status = HookStatus::new("cel", summary.clone()).with_fact("expressions", summary);
        let http = context.http.filter(|_| self.policy.uses_http());
        if self.policy.uses_http() && http.is_none_or(|http| http.grants.is_empty()) {
            let reason = "the policy sends requests, and none are granted; list the servers in `pluginHttp.kyverno` of the \
                       configuration";
            return Err(reason.into());
        }
        let hook = PolicyHook::new(
            Arc::clone(&self.policy),
            self.binding.clone(),
            Arc::clone(context.authorizer),
            context.cluster.cloned(),
        );
        let hook = Arc::new(hook.with_http(http.cloned()));
        Ok(PreparedHook {
            identity: self.policy.identity(),
            // Calls of an expression that reads the request's namespace fail if the host does not know this namespace.
            failures: &[FailureKind::NamespaceUnknown],
            ..PreparedHook::new(hook, status)
        })
    }
}

fn validation_json(validation: &Validation) -> Json {
    let mut object = Map::new();
    put(&mut object, "expression", validation.expression.text());
    if let Some(message) = &validation.message {
        put(&mut object, "message", message.as_str());
    }
    if let Some(expression) = &validation.message_expression {
        put(&mut object, "messageExpression", expression.text());
    }
    if validation.reason != Default::default() {
        put(&mut object, "reason", validation.reason.as_str());
    }
    Json::Object(object)
}
