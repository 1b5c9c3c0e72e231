//! Reads `ValidatingAdmissionPolicy`, `MutatingAdmissionPolicy` and their bindings.

use std::{sync::Arc, time::Duration};

use admittance_admission::{
    ClusterKind, FailurePolicy, LabelSelector, MatchPolicy, Matcher, Operation, Phase, Reinvocation, Rule, StageSpec,
    suggestion_or,
};
use admittance_conditions::{
    Action, Binding, CompiledPolicy, MessageWording, ParamsMissing, ParamsSelector, PolicyParams,
};

use super::{
    read_head, read_kind,
    resource::ResourceDocument,
    typing::{self, Structures, WrittenExpression},
};
use crate::{
    CelDefinition, Location, cel,
    document::{Mistake, Mistakes, Node, ValueLocation, quoted, readers},
    model::{ChainDefinition, StageDefinition},
    names, rules,
    selectors::{self, LabelSyntax},
};

#[cfg(test)]
mod tests;

/// The timeout of a policy's stage. Kubernetes has no timeout for policies, so the default timeout of webhooks is used.
pub(in crate::forms) const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct PolicyDocument {
    pub(super) name: String,
    source: Location,
    phase: Phase,
    policy: Arc<CompiledPolicy>,
    expressions: Vec<WrittenExpression>,
    params: Option<ClusterKind>,
    constraints: MatchConstraints,
    failure_policy: FailurePolicy,
    reinvocation: Reinvocation,
}

#[derive(Debug)]
pub(super) struct BindingDocument {
    pub(super) name: String,
    source: Location,
    phase: Phase,
    policy: String,
    policy_location: ValueLocation,
    params: Option<ParamRef>,
    constraints: MatchConstraints,
    actions: Vec<Action>,
}

#[derive(Clone, Debug)]
struct ParamRef {
    namespace: Option<String>,
    which: ParamsSelector,
    missing: ParamsMissing,
}

/// The `matchConstraints` of a policy, or the `matchResources` of a binding: which requests match.
#[derive(Clone, Debug, Default)]
pub(in crate::forms) struct MatchConstraints {
    pub(in crate::forms) rules: Vec<Rule>,
    pub(in crate::forms) exclude_rules: Vec<Rule>,
    pub(in crate::forms) namespace_labels: LabelSelector,
    pub(in crate::forms) object_labels: LabelSelector,
}

pub(super) fn read_policy(root: &Node<'_>, phase: Phase) -> Option<PolicyDocument> {
    let (name, mut spec) = read_head(root, "write what it does")?;
    let params = spec.get_optional("paramKind", read_kind);
    let has_params = spec.has("paramKind");
    let fix = "say which requests the policy is for: `matchConstraints: { resourceRules: [...] }`";
    let constraints = spec.required("matchConstraints", fix).and_then(|node| {
        let constraints = read_constraints(&node, true)?;
        let mut operations = constraints.rules.iter().map(|rule| &rule.operations);
        let names_delete = |operations: &Matcher<Operation>| match operations {
            Matcher::Any => false,
            Matcher::Only(operations) => operations.contains(&Operation::Delete),
        };
        if phase == Phase::Mutating && operations.any(names_delete) {
            let message = "a mutating policy cannot be for DELETE: there is no object to change";
            node.add_mistake(message, "list CREATE, UPDATE, CONNECT, or `*` alone");
        }
        Some(constraints)
    });
    let failure_policy = spec.get("failurePolicy", FailurePolicy::default(), Node::word);
    let foreign: &[&'static str] = match phase {
        Phase::Validating => &["mutations", "reinvocationPolicy"],
        Phase::Mutating => &["validations", "auditAnnotations"],
    };
    for &field in foreign {
        spec.refuse(field, "a policy of this kind has no such field", "remove it");
    }
    let reinvocation = match phase {
        Phase::Mutating => {
            let policy = spec.get_required("reinvocationPolicy", "write Never or IfNeeded", Node::word);
            policy.unwrap_or_default()
        }
        Phase::Validating => Reinvocation::Never,
    };
    let mistakes_before = spec.node().mistake_count();
    let (policy, expressions) = cel::read_policy(&mut spec, has_params);
    if spec.node().mistake_count() == mistakes_before {
        refuse_empty(&policy, phase, spec.node());
    }
    Some(PolicyDocument {
        name: name?,
        source: root.location(),
        phase,
        policy: Arc::new(policy),
        expressions,
        params,
        constraints: constraints?,
        failure_policy,
        reinvocation,
    })
}

pub(in crate::forms) fn refuse_empty(policy: &CompiledPolicy, phase: Phase, spec: &Node<'_>) {
    let is_empty = policy.validations.is_empty() && policy.audit_annotations.is_empty() && policy.mutations.is_empty();
    if is_empty {
        let fix = match phase {
            Phase::Validating => "write `validations` or `auditAnnotations`",
            Phase::Mutating => "write `mutations`",
        };
        spec.add_mistake("the policy has no expressions", fix);
    }
}

pub(super) fn read_binding(root: &Node<'_>, phase: Phase) -> Option<BindingDocument> {
    let (name, mut spec) = read_head(root, "write what it does")?;
    let policy_node = spec.required("policyName", "name the policy");
    let policy = policy_node
        .as_ref()
        .and_then(|node| node.parse_with(names::check_subdomain));
    let params = spec.get_optional("paramRef", read_param_ref);
    let read_match = |node: &Node<'_>| read_constraints(node, false);
    let constraints = spec.get_or_default("matchResources", read_match);
    let actions = match phase {
        Phase::Validating => {
            let fix = "list Deny, Warn, Audit, or Audit with one of the others";
            spec.get_required("validationActions", fix, read_actions)
        }
        Phase::Mutating => Some(Vec::new()),
    };
    Some(BindingDocument {
        name: name?,
        source: root.location(),
        phase,
        policy: policy?,
        policy_location: policy_node?.value_location(),
        params,
        constraints,
        actions: actions?,
    })
}

pub(in crate::forms) fn read_constraints(node: &Node<'_>, needs_rules: bool) -> Option<MatchConstraints> {
    let mut fields = node.object()?;
    let match_policy = fields.get("matchPolicy", MatchPolicy::default(), Node::word);
    let read_rules = |node: &Node<'_>| Some(rules::read_kubernetes(node, match_policy, true));
    let rules = if needs_rules {
        let fix = "list the rules of the requests that the policy is for";
        let read_required_rules = |node: &Node<'_>| {
            node.filled_list(fix)?;
            read_rules(node)
        };
        fields
            .get_required("resourceRules", fix, read_required_rules)
            .unwrap_or_default()
    } else {
        fields.get_or_default("resourceRules", read_rules)
    };
    let exclude = fields.get_or_default("excludeResourceRules", read_rules);
    let namespaces = selectors::read_labels_of_field(&mut fields, "namespaceSelector", LabelSyntax::Kubernetes);
    let objects = selectors::read_labels_of_field(&mut fields, "objectSelector", LabelSyntax::Kubernetes);
    Some(MatchConstraints {
        rules,
        exclude_rules: exclude,
        namespace_labels: namespaces,
        object_labels: objects,
    })
}

fn read_param_ref(node: &Node<'_>) -> Option<ParamRef> {
    let mut fields = node.object()?;
    let name = fields.get_optional("name", readers::text);
    let has_selector = fields.has("selector");
    let selector = selectors::read_labels_of_field(&mut fields, "selector", LabelSyntax::Kubernetes);
    let namespace = fields.get_optional("namespace", readers::parse_with(names::check_subdomain));
    let missing = fields.get_required("parameterNotFoundAction", "write Allow or Deny", Node::word);
    if fields.has("name") == has_selector {
        let message = "the parameters are named by one of `name` and `selector`";
        node.add_mistake(message, "write one of the two");
    }
    Some(ParamRef {
        namespace,
        which: match name {
            Some(name) => ParamsSelector::Name(name),
            None => ParamsSelector::Labels(selector),
        },
        missing: missing?,
    })
}

pub(in crate::forms) fn read_actions(node: &Node<'_>) -> Option<Vec<Action>> {
    let twice = "the action is listed twice";
    let actions: Vec<Action> = node.different_words("list Deny, Warn or Audit", twice)?;
    if actions.contains(&Action::Deny) && actions.contains(&Action::Warn) {
        let message = "Deny and Warn exclude each other: the client would get the same message twice";
        node.add_mistake(message, "remove one of them");
    }
    Some(actions)
}

impl BindingDocument {
    pub(super) fn check(&self, policies: &[&PolicyDocument], mistakes: &mut Mistakes) {
        if policies.iter().any(|policy| self.binds(policy)) {
            return;
        }
        let kind = match self.phase {
            Phase::Validating => "ValidatingAdmissionPolicy",
            Phase::Mutating => "MutatingAdmissionPolicy",
        };
        let message = format!("there is no {kind} {}", quoted(&self.policy));
        let phase_policies = policies.iter().filter(|policy| policy.phase == self.phase);
        let names = phase_policies.map(|policy| &policy.name);
        let fix = suggestion_or(&self.policy, names, "add its document, or correct the name");
        mistakes.push(self.policy_location.mistake(message, fix));
    }

    fn binds(&self, policy: &PolicyDocument) -> bool {
        (self.phase, &self.policy) == (policy.phase, &policy.name)
    }
}

impl PolicyDocument {
    /// Creates the policy's chain. It has a stage for each binding, in the order of the bindings' names. Warns about
    /// type errors in the expressions.
    pub(super) fn chain(&self, bindings: &[&BindingDocument], resources: &[&ResourceDocument]) -> ChainDefinition {
        let mut bindings: Vec<_> = bindings.iter().copied().filter(|binding| binding.binds(self)).collect();
        bindings.sort_by(|one, other| one.name.cmp(&other.name));
        let structures = match self.phase {
            Phase::Mutating => typing::collect_structures(resources),
            Phase::Validating => Structures::default(),
        };
        let stages = bindings
            .iter()
            .map(|binding| self.stage(binding, &structures))
            .collect();
        let rules = &self.constraints.rules;
        let mut warnings = Vec::new();
        if bindings.is_empty() {
            warnings.push(self.unbound_warning());
        }
        let params = self.params.as_ref();
        if params.is_none() {
            let unused = bindings.iter().filter(|binding| binding.params.is_some());
            warnings.extend(unused.map(|binding| {
                let message = format!(
                    "the policy {} has no parameters: nothing is looked up",
                    quoted(&self.name)
                );
                let fix = "remove it, or add `paramKind` to the policy";
                Mistake::new(&binding.source, "spec.paramRef", message, fix)
            }));
        }
        warnings.extend(typing::compile_warnings(&self.expressions, rules, params, resources));
        warnings.extend(typing::misfits(&self.expressions, &self.policy, rules, resources));
        ChainDefinition {
            phase: self.phase,
            location: self.source.clone(),
            warnings,
            ..ChainDefinition::new(&*self.name, rules.clone(), stages)
        }
    }

    fn unbound_warning(&self) -> Mistake {
        let kind = match self.phase {
            Phase::Validating => "ValidatingAdmissionPolicyBinding",
            Phase::Mutating => "MutatingAdmissionPolicyBinding",
        };
        let message = format!(
            "the policy {} does nothing: no binding has its name",
            quoted(&self.name)
        );
        let fix = format!("add a {kind} with `policyName: {}`", self.name);
        Mistake::new(&self.source, "", message, fix)
    }

    fn stage(&self, binding: &BindingDocument, structures: &Structures) -> StageDefinition {
        let MatchConstraints {
            rules,
            exclude_rules: exclude,
            namespace_labels: namespaces,
            object_labels: objects,
        } = binding.constraints.clone();
        let namespaces = self.constraints.namespace_labels.clone().and(namespaces);
        let mut spec = StageSpec::new(binding.name.as_str());
        spec.rules = rules;
        spec.exclude_rules = [self.constraints.exclude_rules.clone(), exclude].concat();
        spec.namespace_selector = selectors::namespaces_with_labels(namespaces);
        spec.object_selector = self.constraints.object_labels.clone().and(objects);
        spec.failure_policy = self.failure_policy;
        spec.timeout = TIMEOUT;
        spec.reinvocation = self.reinvocation;
        spec.reinvoked_by_itself = true;
        let params = self.params.clone().zip(binding.params.clone());
        let hook = CelDefinition {
            policy: Arc::clone(&self.policy),
            binding: Binding {
                wording: MessageWording::Kubernetes {
                    policy: self.name.clone(),
                    binding: binding.name.clone(),
                },
                actions: binding.actions.clone(),
                failure_policy: self.failure_policy,
                params: params.map(|(kind, param_ref)| PolicyParams {
                    kind,
                    namespace: param_ref.namespace,
                    selector: param_ref.which,
                    missing_action: param_ref.missing,
                }),
                allowances: Vec::new(),
                structures: Arc::clone(structures),
            },
            expressions: Arc::default(),
        };
        StageDefinition {
            spec,
            hook: hook.into(),
            candidate: None,
            location: binding.source.clone(),
        }
    }
}
