//! Policies that validate or change objects, like Kubernetes' ValidatingAdmissionPolicy and MutatingAdmissionPolicy.

use std::collections::BTreeSet;

use admittance_admission::{ClusterKind, keywords};

use crate::{
    ConditionError, MatchCondition, ObjectSchema, Structure,
    check::{CheckScope, CheckedExpression, DeclaredVariable, KyvernoScope},
    compile,
    expression::{Expression, VariableDefinition},
    types::{JSON_PATCH, Type, list},
    variables::Uses,
};

/// A compiled policy. A [`PolicyCompiler`] compiles the parts of a policy in the order in which they are written.
#[derive(Debug, Default, PartialEq)]
pub struct CompiledPolicy {
    pub(crate) definitions: Vec<VariableDefinition>,
    pub(crate) uses: Uses,
    lookups: BTreeSet<ClusterKind>,
    /// The match conditions of the policy. It applies to a request if all of them are true.
    pub conditions: Vec<MatchCondition>,
    /// The expressions that must be true for the request to be allowed.
    pub validations: Vec<Validation>,
    /// The audit annotations: a key, and an expression that returns a string, or null to add no annotation.
    pub audit_annotations: Vec<(String, PolicyExpression)>,
    /// The expressions that change the object, in the order in which they are applied.
    pub mutations: Vec<PolicyExpression>,
}

/// An expression that must be true for a request to be allowed, and the denial if the expression is false.
#[derive(Debug, PartialEq)]
pub struct Validation {
    /// The expression that must be true.
    pub expression: PolicyExpression,
    /// The message of the denial. If it is missing, the denial has a message with the expression.
    pub message: Option<String>,
    /// An expression that returns the message. `message` is used if its result is empty, too long or has several lines.
    pub message_expression: Option<PolicyExpression>,
    /// The reason for the denial, which determines the HTTP status.
    pub reason: DenialReason,
}

/// The reason for a denial. Each reason has one HTTP status, such as 403.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DenialReason {
    /// The HTTP status 401.
    Unauthorized,
    /// The HTTP status 403.
    Forbidden,
    /// The HTTP status 422, for an object that is not valid.
    #[default]
    Invalid,
    /// The HTTP status 413.
    RequestEntityTooLarge,
}

keywords!(DenialReason, "reason": Unauthorized = "Unauthorized", Forbidden = "Forbidden", Invalid = "Invalid",
    RequestEntityTooLarge = "RequestEntityTooLarge");

impl DenialReason {
    /// Returns the HTTP status code that belongs to the reason.
    pub fn code(self) -> u16 {
        match self {
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::Invalid => 422,
            Self::RequestEntityTooLarge => 413,
        }
    }
}

/// The purpose of an expression in a policy, which determines the type of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A variable, whose value may have any type.
    Variable,
    /// A validation, whose result is a bool.
    Validation,
    /// A message, whose result is a string.
    Message,
    /// An audit annotation, whose result is a string or null.
    Annotation,
    /// A mutation with a result `Object{...}`, which is merged into the object, as server-side apply does.
    ApplyConfiguration,
    /// A mutation with a result `[JSONPatch{op: ..., path: ...}]`.
    JsonPatch,
}

/// A compiled expression of a policy. It is equal to another if text and type are equal.
#[derive(Debug)]
pub struct PolicyExpression {
    text: Box<str>,
    checked: CheckedExpression,
}

impl PolicyExpression {
    /// Returns the text of the expression.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether the result of the expression is a JSON Patch.
    pub fn is_json_patch(&self) -> bool {
        matches!(self.checked.kind, Type::List(_))
    }

    /// Describes each value that the mutation sets, but that objects of the changed kind cannot have. `structure` is
    /// the structure of this kind; `None` if it is unknown.
    pub fn misfits(&self, structure: Option<&Structure>) -> Vec<String> {
        let values = self.checked.set_values.iter();
        values.filter_map(|value| value.misfit(structure)).collect()
    }

    pub(crate) fn expression(&self) -> &Expression {
        &self.checked.expression
    }
}

impl PartialEq for PolicyExpression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.checked.kind == other.checked.kind
    }
}

/// Compiles the conditions, variables and expressions of one policy.
#[derive(Debug)]
pub struct PolicyCompiler {
    scope: CheckScope,
    policy: CompiledPolicy,
}

impl PolicyCompiler {
    /// Creates a compiler. `has_params` says whether expressions may use the variable `params`.
    pub fn new(has_params: bool) -> Self {
        Self {
            scope: CheckScope {
                variables: Some(Vec::new()),
                has_params,
                ..CheckScope::default()
            },
            policy: CompiledPolicy::default(),
        }
    }

    /// Lets the compiler compile expressions of a Kyverno policy, which may call Kyverno's functions, and use variables
    /// in match conditions. With a `namespace`, the policy may look up objects only in that namespace.
    #[must_use]
    pub fn for_kyverno(mut self, namespace: Option<&str>) -> Self {
        let namespace = namespace.map(Into::into);
        self.scope.kyverno = Some(KyvernoScope { namespace });
        self
    }

    /// Sets the type of `object` and `oldObject`, and the type of `params` if it is known.
    #[must_use]
    pub fn with_schemas(mut self, object: ObjectSchema, params: Option<ObjectSchema>) -> Self {
        self.scope.object = Some(object.0);
        self.scope.params_type = params.map(|params| params.0);
        self
    }

    /// Compiles a match condition, which may use `params` and, in a Kyverno policy, the policy's variables.
    ///
    /// # Errors
    ///
    /// Fails like [`MatchCondition::compile`].
    pub fn compile_condition(&mut self, name: &str, expression: &str) -> Result<MatchCondition, ConditionError> {
        let kubernetes_scope = CheckScope {
            has_params: self.scope.has_params,
            ..CheckScope::default()
        };
        let scope = if self.scope.kyverno.is_some() {
            &self.scope
        } else {
            &kubernetes_scope
        };
        let condition = MatchCondition::compile_in(name, expression, scope)?;
        self.policy.record(&condition.checked);
        Ok(condition)
    }

    /// Compiles an expression of the policy, which may use the variables that were defined before.
    ///
    /// # Errors
    ///
    /// Returns an error for invalid syntax, an unknown name, a wrong type, or a result that the role does not allow.
    pub fn compile(&mut self, role: Role, text: &str) -> Result<PolicyExpression, ConditionError> {
        let expected_types = match role {
            Role::Variable => vec![],
            Role::Validation => vec![Type::Bool],
            Role::Message => vec![Type::String],
            Role::Annotation => vec![Type::String, Type::Null],
            Role::ApplyConfiguration => vec![Type::Part("Object".into())],
            Role::JsonPatch => vec![list(JSON_PATCH), list(Type::Free)],
        };
        self.scope.mutates = matches!(role, Role::ApplyConfiguration | Role::JsonPatch);
        let checked = compile::compile(text, &self.scope, &expected_types)?;
        self.policy.record(&checked);
        Ok(PolicyExpression {
            text: text.into(),
            checked,
        })
    }

    /// Returns whether the policy defines a variable with this name.
    pub fn is_defined(&self, name: &str) -> bool {
        self.policy
            .definitions
            .iter()
            .any(|definition| &*definition.name == name)
    }

    /// Defines `variables.name` for the expressions that are compiled later.
    pub fn define(&mut self, name: &str, value: PolicyExpression) {
        if let Some(variables) = &mut self.scope.variables {
            variables.push(DeclaredVariable {
                name: name.into(),
                kind: value.checked.kind,
                height: value.checked.height,
            });
        }
        self.policy.definitions.push(VariableDefinition {
            name: name.into(),
            text: value.text,
            expression: value.checked.expression,
        });
    }

    /// Declares the variable `variables.name` without a value. Later expressions can then be compiled, to check them,
    /// but the policy cannot be evaluated.
    pub fn declare(&mut self, name: &str) {
        if let Some(variables) = &mut self.scope.variables {
            variables.push(DeclaredVariable {
                name: name.into(),
                kind: Type::Dyn,
                height: 0,
            });
        }
    }

    /// Creates the policy from conditions and expressions that this compiler has compiled.
    pub fn finish(
        self,
        conditions: Vec<MatchCondition>,
        validations: Vec<Validation>,
        audit_annotations: Vec<(String, PolicyExpression)>,
        mutations: Vec<PolicyExpression>,
    ) -> CompiledPolicy {
        CompiledPolicy {
            conditions,
            validations,
            audit_annotations,
            mutations,
            ..self.policy
        }
    }
}

impl CompiledPolicy {
    /// Returns the names and expressions of the policy's variables, in the order of their definitions.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.definitions
            .iter()
            .map(|definition| (&*definition.name, &*definition.text))
    }

    fn record(&mut self, checked: &CheckedExpression) {
        self.uses = self.uses.union(checked.uses);
        self.lookups.extend(checked.lookups.iter().cloned());
    }

    /// Returns the kinds of objects that expressions of a Kyverno policy look up.
    pub fn lookups(&self) -> impl Iterator<Item = &ClusterKind> {
        self.lookups.iter()
    }

    /// Returns whether an expression of the policy may call the authorizer, so that the stage needs a cluster.
    pub fn uses_authorizer(&self) -> bool {
        self.uses.authorizer
    }

    /// Returns whether an expression of the policy reads the request's Namespace, which must be looked up.
    pub fn uses_namespace(&self) -> bool {
        self.uses.namespace
    }

    /// Returns whether an expression of the policy sends HTTP requests.
    pub fn uses_http(&self) -> bool {
        self.uses.http
    }

    /// Returns a short text about the policy, with the numbers of its validations and mutations.
    pub fn summary(&self) -> String {
        let count = |number: usize, noun: &str| match number {
            0 => None,
            1 => Some(format!("1 {noun}")),
            _ => Some(format!("{number} {noun}s")),
        };
        let parts = [
            count(self.validations.len(), "validation"),
            count(self.mutations.len(), "mutation"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        parts.join(", ")
    }

    /// Returns a text that identifies the policy: equal policies have the same text.
    pub fn identity(&self) -> String {
        let definitions = self.definitions.iter().map(|definition| &*definition.text);
        let conditions = self.conditions.iter().map(MatchCondition::expression);
        let validations = self.validations.iter().map(|validation| validation.expression.text());
        let mutations = self.mutations.iter().map(PolicyExpression::text);
        let texts = definitions.chain(conditions).chain(validations).chain(mutations);
        texts.collect::<Vec<_>>().join("\n")
    }
}
