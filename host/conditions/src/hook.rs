//! The hook that evaluates a policy.

use std::sync::Arc;

use admittance_admission::{
    Authorizer, ClusterError, ClusterKind, ClusterReader, Deadline, Failure, FailureKind, FailurePolicy,
    GroupVersionKind, Hook, LongCallPredictor, Moment, PolicyHttp, RecordedCluster, Request, Response, async_trait,
    keywords, move_if_long, run_long,
};
use serde_json::Value as Json;

use self::findings::{Findings, Objection};
pub use self::params::{ParamsMissing, ParamsSelector, PolicyParams};
use crate::{
    CompiledPolicy, ConditionFailure, DenialReason, MatchCondition, PolicyExpression, Structure, TOTAL_COST_LIMIT,
    Validation,
    error::failure_message,
    find_first_false,
    machine::{Fault, Halt, Machine, ValueSources},
    value::Value,
    variables::{Uses, Variables},
};

mod findings;
mod mutation;
mod params;

/// kube-apiserver's cost limit for all validations of a policy, for all its audit annotations, and for each mutation.
const POLICY_COST_LIMIT: u64 = 10_000_000;
/// The estimated work of evaluating a policy once, in bytes. The policy is evaluated for each parameter object, and the
/// size of the parameter object is added to this number.
const PARAMETER_WORK: usize = 1 << 10;
/// The maximum length of the result of a message expression, in bytes. A longer result is ignored.
const MAX_MESSAGE_LENGTH: usize = 5 << 10;

/// A validation action, which says what happens if a policy finds an object invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The request is denied.
    Deny,
    /// The client gets a warning.
    Warn,
    /// The audit log records that the object violates the policy.
    Audit,
}

keywords!(Action, "validation action": Deny = "Deny", Warn = "Warn", Audit = "Audit");

/// The settings with which a policy is used: its parameters, and what happens when it finds an object invalid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// The system for which the policy was written, such as Kubernetes or Kyverno. Messages to the client are worded as
    /// in this system. The value also has the names that they contain, such as the name of the policy.
    pub wording: MessageWording,
    /// The actions that are taken if the policy finds an object invalid, such as a warning. A policy in a native chain
    /// ignores them, and always denies the request.
    pub actions: Vec<Action>,
    /// The failure policy for errors in expressions. A native chain uses the stage's failure policy instead.
    pub failure_policy: FailurePolicy,
    /// The parameter objects of the policy. The policy is evaluated once for each of them, as `params`.
    pub params: Option<PolicyParams>,
    /// The exceptions that allow certain images and values, but do not exempt the request from the Kyverno policy. The
    /// policy's expressions read the allowed images and values in the variable `exceptions`.
    pub allowances: Vec<Arc<Allowance>>,
    /// The structures of kinds whose schemas are known. They replace the built-in structures of the same kinds.
    pub structures: Arc<Vec<(GroupVersionKind, Structure)>>,
}

/// The system for which a policy was written. It determines the wording of messages and the effect of errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MessageWording {
    /// The policy was written for this program. Its messages do not contain the name of the policy. If an expression
    /// cannot be evaluated, the stage fails.
    #[default]
    Native,
    /// The policy was written for the API server of Kubernetes.
    Kubernetes {
        /// The name of the policy.
        policy: String,
        /// The name of the policy's binding.
        binding: String,
    },
    /// The policy was written for Gatekeeper, whose policies are applied by constraints.
    Gatekeeper {
        /// The name of the constraint in brackets. Each message begins with it.
        prefix: String,
        /// The constraint that applies the policy. Expressions read it as `params`.
        constraint: Arc<Json>,
    },
    /// The policy was written for Kyverno, where evaluation stops at the first validation that is not true.
    Kyverno {
        /// The name of the policy.
        policy: String,
    },
}

/// A Kyverno exception that allows certain images and values, but does not exempt a request. The policy is still
/// evaluated, and its expressions can read the allowed images and values.
#[derive(Debug, PartialEq)]
pub struct Allowance {
    /// The time at which the exception expires.
    pub expires_at: Moment,
    /// The conditions on a request, which must all be true for the exception to apply.
    pub conditions: Vec<MatchCondition>,
    /// The images that expressions read as `exceptions.allowedImages`.
    pub images: Vec<String>,
    /// The values that expressions read as `exceptions.allowedValues`.
    pub values: Vec<String>,
}

impl Eq for Allowance {}

/// The hook that applies a policy to the requests of a stage.
#[derive(Clone, derive_more::Debug)]
#[debug("PolicyHook {{ policy: {policy:?}, binding: {binding:?}, .. }}")]
pub struct PolicyHook {
    policy: Arc<CompiledPolicy>,
    binding: Arc<Binding>,
    authorizer: Arc<dyn Authorizer>,
    cluster: Option<Arc<dyn ClusterReader>>,
    http: Option<PolicyHttp>,
    predictor: Arc<LongCallPredictor>,
}

impl PolicyHook {
    /// Creates the hook of a policy. Its expressions call the authorizer. Parameters are read from the cluster.
    pub fn new(
        policy: Arc<CompiledPolicy>,
        binding: Binding,
        authorizer: Arc<dyn Authorizer>,
        cluster: Option<Arc<dyn ClusterReader>>,
    ) -> Self {
        Self {
            policy,
            binding: Arc::new(binding),
            authorizer,
            cluster,
            http: None,
            predictor: Arc::default(),
        }
    }

    /// Sets the HTTP requests that expressions of a Kyverno policy may send. Default: none.
    #[must_use]
    pub fn with_http(mut self, http: Option<PolicyHttp>) -> Self {
        self.http = http;
        self
    }
}

#[async_trait]
impl Hook for PolicyHook {
    async fn admit(&self, request: &Arc<Request>, deadline: Deadline) -> Result<Response, Failure> {
        let (hook, request) = (self.clone(), request.clone());
        let evaluation = Box::pin(async move { hook.evaluate(&request, deadline).await });
        run_long(evaluation, &self.predictor).await
    }
}

impl PolicyHook {
    async fn evaluate(&self, request: &Request, deadline: Deadline) -> Result<Response, Failure> {
        // An evaluation parses the request's objects, which takes long if they are large.
        let objects = [&request.object, &request.old_object].into_iter().flatten();
        move_if_long(objects.map(|object| object.text().len()).sum()).await;
        let mut findings = Findings::default();
        let params = match self.find_params(request, deadline).await? {
            Ok(params) => params,
            Err(why) => {
                let mut objection = Objection::for_error(format!("failed to configure binding: {why}"));
                if !self.policy.mutations.is_empty() {
                    objection.reason = DenialReason::Forbidden;
                }
                findings.refusals.push(objection);
                Vec::new()
            }
        };
        if params.is_empty() {
            return self.respond(request, findings, None);
        }
        let namespace = match self.look_up_namespace(request, deadline).await {
            Ok(namespace) => namespace,
            Err(why) => return self.respond_without_namespace(request, why),
        };
        let mut object = request.object.clone();
        let allowances = self.allowances(request, deadline).await;
        for params in &params {
            let inputs = Inputs {
                request,
                namespace: namespace.as_ref(),
                params: params.as_ref(),
                allowances: &allowances,
                deadline,
            };
            match self.applies(inputs).await? {
                Ok(false) => continue,
                Ok(true) if self.policy.mutations.is_empty() => self.validate(inputs, &mut findings).await?,
                Ok(true) => self.mutate(inputs, &mut object, &mut findings).await?,
                Err(objection) => findings.objections.push(objection),
            }
        }
        self.respond(request, findings, object)
    }
}

#[derive(Clone, Copy)]
struct Inputs<'a> {
    request: &'a Request,
    namespace: Option<&'a Json>,
    params: Option<&'a Json>,
    allowances: &'a [&'a Allowance],
    deadline: Deadline,
}

impl PolicyHook {
    async fn allowances(&self, request: &Request, deadline: Deadline) -> Vec<&Allowance> {
        let mut matching_allowances = Vec::new();
        if self.binding.allowances.is_empty() {
            return matching_allowances;
        }
        let now = Moment::now();
        let variables = Variables::new(request, Uses::ALL);
        for allowance in &self.binding.allowances {
            let mut machine = Machine::new(&variables, &[], TOTAL_COST_LIMIT, deadline);
            let false_condition =
                find_first_false(&mut machine, &allowance.conditions, self.value_sources(request)).await;
            if now < allowance.expires_at && matches!(false_condition, Ok(None)) {
                matching_allowances.push(&**allowance);
            }
        }
        matching_allowances
    }

    /// Returns the parameter objects. The policy is evaluated once for each of them. If the binding has no parameters,
    /// the list contains only `None`, so that the policy is evaluated once, without parameters. The inner error says
    /// why the objects could not be read.
    async fn find_params(
        &self,
        request: &Request,
        deadline: Deadline,
    ) -> Result<Result<Vec<Option<Json>>, String>, Failure> {
        if let MessageWording::Gatekeeper { constraint, .. } = &self.binding.wording {
            return Ok(Ok(vec![Some(Json::clone(constraint))]));
        }
        let Some(params) = &self.binding.params else {
            return Ok(Ok(vec![None]));
        };
        let Some(cluster) = self.recorded_cluster(request) else {
            return Ok(Err(format!(
                "its parameters ({}) are looked up in a cluster, and none is configured; write `cluster: {{}}`, or with `run` \
                 name a file that has them with `--cluster`",
                params.kind
            )));
        };
        let outcome = params.find(cluster, request.namespace.as_deref(), deadline).await;
        let texts = match outcome {
            Ok(found_texts) => found_texts,
            Err(ClusterError::Timeout) => {
                return Err(Failure::new(FailureKind::Timeout, "no parameters in time"));
            }
            Err(error) => return Ok(Err(error.to_string())),
        };
        move_if_long(texts.iter().map(|text| text.len() + PARAMETER_WORK).sum()).await;
        let mut objects = Vec::with_capacity(texts.len());
        for text in texts {
            match serde_json::from_str(&text) {
                Ok(object) => objects.push(Some(object)),
                Err(error) => return Ok(Err(format!("a parameter is not valid: {error}"))),
            }
        }
        Ok(match (objects.is_empty(), params.missing_action) {
            (true, ParamsMissing::Deny) => {
                Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned())
            }
            _ => Ok(objects),
        })
    }

    /// Reads the Namespace of the request's object, if an expression uses it and the object is not a Namespace itself.
    async fn look_up_namespace(&self, request: &Request, deadline: Deadline) -> Result<Option<Json>, String> {
        let (true, Some(cluster), Some(name)) = (
            self.policy.uses_namespace(),
            self.recorded_cluster(request),
            &request.namespace,
        ) else {
            return Ok(None);
        };
        if request.kind == GroupVersionKind::from_api_version("v1", "Namespace") {
            return Ok(None);
        }
        let kind = ClusterKind::new("v1", "Namespace");
        let answer = cluster.get(&kind, None, name, deadline).await;
        let object_text = answer.map_err(|error| format!("namespace {name}: {error}"))?;
        let text = object_text.ok_or_else(|| format!("namespace {name} not found"))?;
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| format!("namespace {name}: {error}"))
    }

    /// Returns the response if the Namespace cannot be read: a denial under any failure policy, as in kube-apiserver.
    fn respond_without_namespace(&self, request: &Request, why: String) -> Result<Response, Failure> {
        match &self.binding.wording {
            MessageWording::Kubernetes { policy, binding } if self.binding.failure_policy == FailurePolicy::Ignore => {
                let denial = self.denial((policy, binding), request, &Objection::for_error(why), &[]);
                Ok(Response::deny(denial))
            }
            _ => Err(Failure::new(FailureKind::NamespaceUnknown, why)),
        }
    }

    fn recorded_cluster<'s>(&'s self, request: &'s Request) -> Option<RecordedCluster<'s>> {
        let cluster = self.cluster.as_deref()?;
        Some(RecordedCluster::new(cluster, request.recorder.as_ref()))
    }

    fn value_sources<'s>(&'s self, request: &'s Request) -> ValueSources<'s> {
        ValueSources {
            request,
            authorizer: &*self.authorizer,
            cluster: self.recorded_cluster(request),
            http: self.http.as_ref(),
        }
    }

    fn variables<'v>(&self, inputs: Inputs<'v>) -> Variables<'v> {
        let variables =
            Variables::new(inputs.request, self.policy.uses).with_namespace_and_params(inputs.namespace, inputs.params);
        if !self.policy.uses.exceptions {
            return variables;
        }
        let exception_texts = |field: fn(&Allowance) -> &Vec<String>| {
            let texts = inputs.allowances.iter().flat_map(|allowance| field(allowance));
            texts.map(|text| Value::text(text)).collect()
        };
        variables.with_exceptions(
            exception_texts(|allowance| &allowance.images),
            exception_texts(|allowance| &allowance.values),
        )
    }

    /// Returns whether all match conditions of the policy are true. If this cannot be determined because conditions
    /// failed, the inner error describes the failed conditions.
    async fn applies(&self, inputs: Inputs<'_>) -> Result<Result<bool, Objection>, Failure> {
        let policy = &*self.policy;
        if policy.conditions.is_empty() {
            return Ok(Ok(true));
        }
        let variables = self.variables(inputs);
        // Match conditions of Kyverno policies may use the variables of the policy, so the machine gets their
        // definitions. Match conditions of Kubernetes' policies cannot use them.
        let mut machine = Machine::new(&variables, &policy.definitions, TOTAL_COST_LIMIT, inputs.deadline);
        match find_first_false(&mut machine, &policy.conditions, self.value_sources(inputs.request)).await {
            Ok(first_false) => Ok(Ok(first_false.is_none())),
            Err(_) if inputs.deadline.has_passed() => Err(timeout_failure()),
            Err(failed_conditions) => Ok(Err(Objection::for_error(
                ConditionFailure::new(failed_conditions).message(),
            ))),
        }
    }

    async fn validate(&self, inputs: Inputs<'_>, findings: &mut Findings) -> Result<(), Failure> {
        let policy = &*self.policy;
        let variables = self.variables(inputs);
        let mut machine = Machine::new(&variables, &policy.definitions, POLICY_COST_LIMIT, inputs.deadline);
        let sources = self.value_sources(inputs.request);
        let is_kyverno = matches!(self.binding.wording, MessageWording::Kyverno { .. });
        for (index, validation) in policy.validations.iter().enumerate() {
            if is_kyverno && !findings.objections.is_empty() {
                break;
            }
            let expression = &validation.expression;
            match machine.settle(expression.expression(), sources).await {
                Ok(Value::Bool(true)) => continue,
                Ok(_) => {}
                Err(fault) => {
                    findings.objections.push(Objection {
                        index,
                        ..Objection::for_error(describe_fault(expression, &fault)?)
                    });
                    if fault == Fault::Halt(Halt::TotalCost) {
                        return Ok(());
                    }
                    continue;
                }
            }
            findings.objections.push(Objection {
                message: self.message(&mut machine, validation, sources).await,
                reason: validation.reason,
                index,
                is_error: false,
                is_unreadable: false,
            });
        }
        machine.set_budget(POLICY_COST_LIMIT);
        for (key, expression) in &policy.audit_annotations {
            match machine.settle(expression.expression(), sources).await {
                Ok(Value::String(value)) if !value.trim().is_empty() => {
                    let value = shortened_annotation(value.trim());
                    match findings.annotations.iter_mut().find(|(entry_key, _)| entry_key == key) {
                        Some((_, values)) if values.contains(&value) => {}
                        Some((_, values)) => values.push(value),
                        None => findings.annotations.push((key.clone(), vec![value])),
                    }
                }
                Ok(_) => {}
                Err(fault) => findings
                    .refusals
                    .push(Objection::for_error(describe_fault(expression, &fault)?)),
            }
        }
        Ok(())
    }

    /// Returns the message for a validation that is not true, from its message expression if that is usable.
    async fn message<'a>(
        &self,
        machine: &mut Machine<'a>,
        validation: &'a Validation,
        sources: ValueSources<'_>,
    ) -> String {
        if let Some(expression) = &validation.message_expression
            && let Ok(Value::String(message)) = machine.settle(expression.expression(), sources).await
        {
            let message = message.trim();
            let is_kyverno = matches!(self.binding.wording, MessageWording::Kyverno { .. });
            if !message.is_empty() && message.len() <= MAX_MESSAGE_LENGTH && (is_kyverno || !message.contains('\n')) {
                return message.to_owned();
            }
        }
        match validation.message.as_deref().map(str::trim) {
            Some(message) if !message.is_empty() => message.to_owned(),
            _ => format!("failed expression: {}", validation.expression.text().trim()),
        }
    }
}

/// Describes why an expression of the policy failed. Returns an error if it failed because the deadline has passed.
fn describe_fault(expression: &PolicyExpression, fault: &Fault) -> Result<String, Failure> {
    if *fault == Fault::Halt(Halt::Deadline) {
        return Err(timeout_failure());
    }
    Ok(failure_message(expression.text().trim(), fault))
}

/// Truncates the value of an audit annotation. The policy gives one value for each parameter object. All these values
/// are kept in memory until they are joined, so each must be short.
fn shortened_annotation(value: &str) -> String {
    let end = value.floor_char_boundary(Response::MAX_ANNOTATION_LENGTH + 1);
    value.get(..end).unwrap_or_default().to_owned()
}

fn timeout_failure() -> Failure {
    Failure::new(FailureKind::Timeout, "the expressions were not evaluated in time")
}
