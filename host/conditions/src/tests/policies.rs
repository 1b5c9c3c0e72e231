//! Policies as hooks. The cases are from Kubernetes' documentation, and from kube-apiserver's dispatchers, validators
//! and patchers.

use admittance_admission::{
    ClusterError, ClusterKind, ClusterPage, ClusterQuery, ClusterReader, Failure, FailureKind, FailurePolicy, Hook,
    LabelRequirement, LabelSelector, Response, Verdict,
};

use super::*;

/// Compiles a policy. Each part has one of these forms: `name = variable`, `validate expression | message | message
/// expression`, `when condition`, `note expression`, `apply expression` or `patch expression`.
pub(super) fn policy(parts: &[&str]) -> CompiledPolicy {
    let mut compiler = PolicyCompiler::new(true);
    let (mut conditions, mut validations, mut notes, mut mutations) = (vec![], vec![], vec![], vec![]);
    for part in parts {
        let (word, argument) = part.split_once(' ').unwrap();
        let mut compile = |role, text: &str| {
            compiler
                .compile(role, text)
                .unwrap_or_else(|error| panic!("{text}: {error}"))
        };
        match word {
            "validate" => {
                let mut texts = argument.split(" | ");
                validations.push(Validation {
                    expression: compile(Role::Validation, texts.next().unwrap()),
                    message: texts.next().filter(|text| !text.is_empty()).map(str::to_owned),
                    message_expression: texts.next().map(|text| compile(Role::Message, text)),
                    reason: DenialReason::Forbidden,
                });
            }
            "when" => conditions.push(compiler.compile_condition("when", argument).unwrap()),
            "note" => notes.push(("replicas".to_owned(), compile(Role::Annotation, argument))),
            "apply" => mutations.push(compile(Role::ApplyConfiguration, argument)),
            "patch" => mutations.push(compile(Role::JsonPatch, argument)),
            name => {
                let value = compile(Role::Variable, argument.strip_prefix("= ").unwrap());
                compiler.define(name, value);
            }
        }
    }
    compiler.finish(conditions, validations, notes, mutations)
}

async fn admit(parts: &[&str], binding: Binding) -> Result<Response, Failure> {
    admit_request(parts, binding, &pod(), minute_deadline()).await
}

async fn admit_request(
    parts: &[&str],
    binding: Binding,
    request: &Request,
    deadline: Deadline,
) -> Result<Response, Failure> {
    let cluster = Arc::new(PolicyConfigMaps);
    let hook = PolicyHook::new(Arc::new(policy(parts)), binding, Arc::new(NoAuthorizer), Some(cluster));
    hook.admit(&Arc::new(request.clone()), deadline).await
}

#[derive(Debug)]
struct PolicyConfigMaps;

#[async_trait]
impl ClusterReader for PolicyConfigMaps {
    async fn get(
        &self,
        kind: &ClusterKind,
        namespace: Option<&str>,
        name: &str,
        _: Deadline,
    ) -> Result<Option<String>, ClusterError> {
        Ok(match (kind.kind(), namespace, name) {
            ("Namespace", None, "shop") => Some(
                json!({"metadata": {"name": "shop", "labels": {"tier": "gold"},
                       "creationTimestamp": "2024-02-29T00:00:00Z"}})
                .to_string(),
            ),
            ("ConfigMap", Some("shop"), "few" | "many") => {
                let limit = if name == "few" { "2" } else { "9" };
                Some(json!({"metadata": {"name": name, "namespace": "shop"}, "data": {"most": limit}}).to_string())
            }
            ("ConfigMap", None, _) => return Err(ClusterError::Refused("it is namespaced".to_owned())),
            _ => None,
        })
    }

    async fn list(
        &self,
        kind: &ClusterKind,
        query: &ClusterQuery,
        deadline: Deadline,
    ) -> Result<ClusterPage, ClusterError> {
        assert_eq!(query.label_selector, "limits in (yes)");
        let mut page = ClusterPage::default();
        let namespace = query.namespace.as_deref().unwrap_or("shop");
        for name in ["many", "few"] {
            let object = self.get(kind, Some(namespace), name, deadline).await?;
            page.objects.extend(object.map(Into::into));
        }
        Ok(page)
    }
}

fn kubernetes_binding(actions: &[Action]) -> Binding {
    Binding {
        wording: MessageWording::Kubernetes {
            policy: "p".to_owned(),
            binding: "b".to_owned(),
        },
        actions: actions.to_vec(),
        ..Binding::default()
    }
}

fn binding_with_params(selector: ParamsSelector, missing: ParamsMissing) -> Binding {
    Binding {
        params: Some(PolicyParams {
            kind: ClusterKind::new("v1", "ConfigMap"),
            namespace: None,
            selector,
            missing_action: missing,
        }),
        ..kubernetes_binding(&[Action::Deny])
    }
}

fn describe(answer: Result<Response, Failure>) -> String {
    let response = match answer {
        Ok(response) => response,
        Err(failure) => return failure.to_string(),
    };
    let verdict = match response.verdict {
        Verdict::Allow => "allow".to_owned(),
        Verdict::Deny(denial) => format!("{} {}: {}", denial.code(), denial.reason, denial.message),
        Verdict::Replace(object) => format!(
            "{} {}",
            object.value()["metadata"]["labels"],
            object.value()["spec"]["containers"]
        ),
        Verdict::Patch(_) => unreachable!(),
    };
    let notes = response
        .audit_annotations
        .iter()
        .map(|(key, value)| format!("{key}={value}"));
    let extras: Vec<String> = response.warnings.iter().cloned().chain(notes).collect();
    [vec![verdict], extras].concat().join("; ")
}

const DENIAL_PREFIX: &str =
    "403 Forbidden: pods \"web\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";

#[tokio::test]
async fn validations_decide_according_to_actions_and_parameters() {
    let deny_binding = || kubernetes_binding(&[Action::Deny]);
    let ignore_binding = || Binding {
        failure_policy: FailurePolicy::Ignore,
        ..deny_binding()
    };
    let few_params_binding = || binding_with_params(ParamsSelector::Name("few".to_owned()), ParamsMissing::Deny);
    let missing_params_binding = |missing| binding_with_params(ParamsSelector::Name("none".to_owned()), missing);
    let label_selector = LabelSelector::new(vec![LabelRequirement::equals("limits", "yes").unwrap()]);
    let limit_parts = [
        "most = int(params.data.most)",
        "validate object.spec.replicas <= variables.most |  | 'at most %d'.format([variables.most])",
    ];
    let table: Vec<(&[&str], Binding, String)> = vec![
        (&["validate object.spec.replicas == 3"], deny_binding(), "allow".into()),
        (&["validate object.spec.replicas < 3"], deny_binding(), format!("{DENIAL_PREFIX}failed expression: object.spec.replicas < 3")),
        (&["validate false | no way "], deny_binding(), format!("{DENIAL_PREFIX}no way")),
        (&["validate false | no way | 'because'"], deny_binding(), format!("{DENIAL_PREFIX}because")),
        // A message expression is ignored if it fails, or if its result is empty or has several lines.
        (&["validate false | no way | string(object.nope)"], deny_binding(), format!("{DENIAL_PREFIX}no way")),
        (&["validate false | no way | ' '"], deny_binding(), format!("{DENIAL_PREFIX}no way")),
        (&["validate false | no way | 'a\\nb'"], deny_binding(), format!("{DENIAL_PREFIX}no way")),
        (&["validate true", "validate false | second", "validate false | third"], deny_binding(), format!("{DENIAL_PREFIX}second")),
        (&["validate object.nope == 1"], deny_binding(), "422 Invalid: pods \"web\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: expression 'object.nope == 1' resulted in error: no such key: nope".into()),
        (&["validate object.nope == 1"], ignore_binding(), "allow".into()),
        (&["validate object.nope == 1", "validate false | no"], ignore_binding(), format!("{DENIAL_PREFIX}no")),
        // A variable is not evaluated if its value is not needed.
        (&["a = object.nope", "b = 2", "c = variables.b + 1", "validate variables.c == 3 && (true || variables.a == 1)"], deny_binding(), "allow".into()),
        (&["a = object.nope", "validate variables.a == 1"], ignore_binding(), "allow".into()),
        (&["a = object.nope.x", "validate variables.a == 1"], deny_binding(), "422 Invalid: pods \"web\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: expression 'variables.a == 1' resulted in error: composited variable \"a\" fails to evaluate: no such key: nope".into()),
        (&["when object.kind == 'Service'", "validate false"], deny_binding(), "allow".into()),
        (&["when object.nope == 1", "validate true"], deny_binding(), "422 Invalid: pods \"web\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: expression 'object.nope == 1' resulted in error: no such key: nope".into()),
        (&["when object.nope == 1", "validate false"], ignore_binding(), "allow".into()),
        (&["validate false | no"], kubernetes_binding(&[Action::Warn]), "allow; Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no".into()),
        (&["validate false | no"], kubernetes_binding(&[Action::Audit, Action::Deny]), format!("{DENIAL_PREFIX}no; validation_failure=[{{\"message\":\"no\",\"policy\":\"p\",\"binding\":\"b\",\"expressionIndex\":0,\"validationActions\":[\"Audit\",\"Deny\"]}}]")),
        (&["note string(object.spec.replicas)"], deny_binding(), "allow; replicas=3".into()),
        (&limit_parts, few_params_binding(), format!("{DENIAL_PREFIX}at most 2")),
        (&limit_parts, binding_with_params(ParamsSelector::Name("many".to_owned()), ParamsMissing::Deny), "allow".into()),
        (&limit_parts, binding_with_params(ParamsSelector::Labels(label_selector), ParamsMissing::Deny), format!("{DENIAL_PREFIX}at most 2")),
        (&limit_parts, missing_params_binding(ParamsMissing::Allow), "allow".into()),
        (&limit_parts, missing_params_binding(ParamsMissing::Deny), "422 Invalid: pods \"web\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction".into()),
        (&["validate params == null"], deny_binding(), "allow".into()),
        (&["validate namespaceObject.metadata.labels['tier'] == 'gold' && namespaceObject.metadata.creationTimestamp < timestamp('2024-03-01T00:00:00Z')"], deny_binding(), "allow".into()),
        // The messages of a native chain do not contain the names of policy and binding.
        (&["validate false | no"], Binding::default(), "403 Forbidden: no".into()),
        (&["validate object.nope == 1", "validate false | no"], Binding::default(), "403 Forbidden: no".into()),
        (&["validate object.nope == 1"], Binding::default(), "error: expression 'object.nope == 1' resulted in error: no such key: nope".into()),
    ];
    for (parts, binding, expected) in table {
        assert_eq!(describe(admit(parts, binding).await), expected, "{parts:?}");
    }
}

#[tokio::test]
async fn missing_namespaces_and_parameters_are_handled_as_in_kubernetes() {
    let label_selector = LabelSelector::new(vec![LabelRequirement::equals("limits", "yes").unwrap()]);
    let refusal_text = |why: &str| {
        format!(
            "422 Invalid: pods \"web\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {why}"
        )
    };
    let unknown_message = "namespace nowhere not found";
    let ignore_binding = Binding {
        failure_policy: FailurePolicy::Ignore,
        ..kubernetes_binding(&[Action::Warn])
    };
    for (kind, namespace, binding, expected) in [
        (
            "Pod",
            Some("nowhere"),
            kubernetes_binding(&[Action::Warn]),
            format!("namespace-unknown: {unknown_message}"),
        ),
        (
            "Pod",
            Some("nowhere"),
            Binding::default(),
            format!("namespace-unknown: {unknown_message}"),
        ),
        // The binding has the failure policy `Ignore`. The request is still denied, because the Namespace cannot be
        // read.
        ("Pod", Some("nowhere"), ignore_binding, refusal_text(unknown_message)),
        (
            "Namespace",
            Some("nowhere"),
            kubernetes_binding(&[Action::Deny]),
            "allow".to_owned(),
        ),
        ("Pod", None, kubernetes_binding(&[Action::Deny]), "allow".to_owned()),
        (
            "Pod",
            None,
            binding_with_params(ParamsSelector::Labels(label_selector), ParamsMissing::Allow),
            refusal_text(
                "failed to configure binding: refused: cannot use namespaced paramRef in policy binding that matches \
                 cluster-scoped resources",
            ),
        ),
    ] {
        let hook = PolicyHook::new(
            Arc::new(policy(&["validate namespaceObject == null"])),
            binding,
            Arc::new(NoAuthorizer),
            Some(Arc::new(PolicyConfigMaps)),
        );
        let mut request = pod();
        request.kind.kind = kind.to_owned();
        request.namespace = namespace.map(str::to_owned);
        let description = describe(hook.admit(&Arc::new(request), minute_deadline()).await);
        assert_eq!(description, expected, "{kind} in {namespace:?}");
    }
}

#[tokio::test]
async fn mutations_change_the_object_in_order() {
    const OLD: &str = r#"{"app":"web","tier":"front"}"#;
    let container = r#"{"name":"a","image":"one","resources":{"limits":{"memory":"2Gi"}}}"#;
    let table: Vec<(&[&str], String)> = vec![
        (
            &["apply Object{metadata: Object.metadata{labels: {'team': request.userInfo.username}}}"],
            format!(r#"{{"app":"web","tier":"front","team":"alice"}} [{container},{{"name":"b","image":"two"}}]"#),
        ),
        (
            &["apply Object{spec: Object.spec{containers: [Object.spec.containers{name: 'b', image: 'three'}, Object.spec.containers{name: 'c'}]}}"],
            format!(r#"{OLD} [{container},{{"name":"b","image":"three"}},{{"name":"c"}}]"#),
        ),
        (
            &[
                "n = size(object.metadata.labels)",
                "apply Object{metadata: Object.metadata{labels: {'n': string(variables.n)}}}",
                "patch [JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: string(variables.n)}, JSONPatch{op: 'remove', path: '/spec/containers/1'}]",
            ],
            format!(r#"{{"app":"web","tier":"front","n":"2","a/b":"3"}} [{container}]"#),
        ),
        (&["patch object.kind == 'Job' ? [JSONPatch{op: 'remove', path: '/spec'}] : []"], "allow".into()),
        (&["apply Object{metadata: Object.metadata{?labels: object.?nope}}"], "allow".into()),
        (&["apply Object{}"], "allow".into()),
        (&["when false", "apply Object{kind: 'Job'}"], "allow".into()),
        (&["patch [JSONPatch{op: 'remove', path: '/nope'}]"], "403 Invalid: policy 'p' with binding 'b' denied request: ".into()),
        (&["apply Object{spec: Object.spec{containers: ['x', 'y', 'x'].map(n, Object.spec.containers{name: n})}}"], "403 Invalid: policy 'p' with binding 'b' denied request: error applying patch: failed to convert patch object to typed object: .spec.containers: duplicate entries for key [name=\"x\"]".into()),
        (&["apply Object{kind: 'Job'}"], "allow".into()),
        (&["apply Object{spec: Object.metadata{name: 'a'}}"], "403 Invalid: policy 'p' with binding 'b' denied request: type mismatch: unexpected type name \"Object.metadata\", expected \"Object.spec\"".into()),
        (&["apply Object{spec: Object.spec{tolerations: [Object.spec.tolerations{key: 'a'}]}}"], "403 Invalid: policy 'p' with binding 'b' denied request: error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.tolerations".into()),
        (&["apply Object{spec: Object.spec{nodeSelector: {'a': 'b'}}}"], "403 Invalid: policy 'p' with binding 'b' denied request: error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.nodeSelector".into()),
        (&["apply Object{metadata: Object.metadata{name: string(object.nope)}}"], "403 Invalid: policy 'p' with binding 'b' denied request: expression 'Object{metadata: Object.metadata{name: string(object.nope)}}' resulted in error: no such key: nope".into()),
    ];
    for (parts, expected) in table {
        let description = describe(admit(parts, kubernetes_binding(&[])).await);
        assert!(description.starts_with(&expected), "{parts:?}: {description}");
    }
}

/// A value may contain the same part many times, as in `[a, a, a]`. Such a value has a low cost, but may be very long
/// when it is written as JSON.
#[tokio::test]
async fn the_size_of_mutated_objects_is_limited() {
    let tenfold = ".map(a, [a, a, a, a, a, a, a, a, a, a])".repeat(9);
    let nested_lists = format!("['{}']{tenfold}", "x".repeat(1_000));
    let label_copies = "object.spec.containers.map(c, object.metadata.labels)".to_owned();
    let patch = |value: &str| format!("patch [JSONPatch{{op: 'add', path: '/spec/x', value: {value}}}]");
    let apply = |value: &str| format!("apply Object{{spec: Object.spec{{x: {{'y': {value}}}}}}}");
    let labels_patch =
        |number: u8| format!("patch [JSONPatch{{op: 'add', path: '/spec/p{number}', value: object.metadata.labels}}]");
    let large_request = |containers: usize, filler: usize| {
        let mut request = pod();
        let object = json!({
            "metadata": {"labels": {"a": "x".repeat(1_000_000)}},
            "spec": {"containers": vec![json!({"name": "a"}); containers], "filler": "x".repeat(filler)},
        });
        request.kind.kind = "Load".to_owned();
        request.object = Object::from_value(object);
        request
    };
    let ample_deadline = Deadline::after(Duration::from_secs(600));
    let past_deadline = Deadline::after(Duration::ZERO);
    for (case, parts, request, deadline, expected) in [
        (
            "lists in lists, patched",
            vec![patch(&nested_lists)],
            pod(),
            ample_deadline,
            Some(FailureKind::OutputTooLarge),
        ),
        (
            "lists in lists, applied",
            vec![apply(&nested_lists)],
            pod(),
            ample_deadline,
            Some(FailureKind::OutputTooLarge),
        ),
        (
            "copies of labels, patched",
            vec![patch(&label_copies)],
            large_request(10_000, 0),
            ample_deadline,
            Some(FailureKind::OutputTooLarge),
        ),
        (
            "copies of labels, applied",
            vec![apply(&label_copies)],
            large_request(10_000, 0),
            ample_deadline,
            Some(FailureKind::OutputTooLarge),
        ),
        // In this row, each mutation alone is within the size limit, but both together are not.
        (
            "two together",
            vec![labels_patch(1), labels_patch(2)],
            large_request(0, 15 << 20),
            ample_deadline,
            Some(FailureKind::OutputTooLarge),
        ),
        (
            "one alone",
            vec![labels_patch(1)],
            large_request(0, 15 << 20),
            ample_deadline,
            None,
        ),
        (
            "no time, patched",
            vec![patch(&label_copies)],
            large_request(10, 0),
            past_deadline,
            Some(FailureKind::Timeout),
        ),
        (
            "no time, applied",
            vec![apply(&label_copies)],
            large_request(10, 0),
            past_deadline,
            Some(FailureKind::Timeout),
        ),
        (
            "a few copies",
            vec![patch(&label_copies)],
            large_request(10, 0),
            ample_deadline,
            None,
        ),
    ] {
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        // A result that exceeds the size limit fails the stage, even if the binding ignores failures of expressions.
        for binding in [Binding::default(), kubernetes_binding(&[])] {
            let answer = admit_request(&parts, binding, &request, deadline).await;
            assert_eq!(answer.err().map(|failure| failure.kind), expected, "{case}");
        }
    }
}

#[tokio::test]
async fn the_lengths_of_messages_and_annotations_of_policies_are_limited() {
    let mut request = pod();
    let object = json!({"metadata": {"name": "x".repeat(1_000_000)}, "spec": {"n": [1, 2]}});
    request.object = Object::from_value(object);
    for (part, max_length) in [
        ("note string(object.metadata.name)", 5_000),
        ("validate int(object.metadata.name) == 0", 5_000),
        ("validate {'a': true}[object.metadata.name]", 5_000),
        ("validate object.spec.n.all(n, {n: true}[object.metadata.name])", 5_000),
    ] {
        let answer = admit_request(&[part], Binding::default(), &request, minute_deadline()).await;
        let length = match answer {
            Ok(response) => response.audit_annotations.iter().map(|(_, value)| value.len()).sum(),
            Err(failure) => failure.message.len(),
        };
        assert!((1..max_length).contains(&length), "{part}: {length}");
    }
}

#[test]
fn an_expression_of_the_wrong_type_is_refused() {
    let mut compiler = PolicyCompiler::new(false);
    let value = compiler.compile(Role::Variable, "[1, 2]").unwrap();
    compiler.define("numbers", value);
    for (role, text, expected) in [
        (Role::Validation, "1", "must evaluate to bool but got int"),
        (Role::Message, "1", "must evaluate to string but got int"),
        (Role::Message, "object.x", "must evaluate to string but got dyn"),
        (Role::Annotation, "1", "must evaluate to string or null but got int"),
        (
            Role::ApplyConfiguration,
            "Object.spec{}",
            "must evaluate to Object but got Object.spec",
        ),
        (
            Role::ApplyConfiguration,
            "{'a': 1}",
            "must evaluate to Object but got map(string, int)",
        ),
        (Role::JsonPatch, "[1]", "must evaluate to list(JSONPatch)"),
        (
            Role::JsonPatch,
            "[JSONPatch{op: 1}]",
            "expected type of field 'op' is 'string'",
        ),
        (Role::JsonPatch, "[JSONPatch{verb: 'add'}]", "undefined field 'verb'"),
        (Role::Validation, "variables.nope == 1", "undefined field 'nope'"),
        (
            Role::Validation,
            "variables.numbers == 'a'",
            "'_==_' applied to '(list(int), string)'",
        ),
        (Role::Validation, "params.x == 1", "undeclared reference to 'params'"),
        (Role::Validation, "Object{} != null", "undeclared reference to 'Object'"),
    ] {
        let error = compiler.compile(role, text).map(drop).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    assert!(compiler.compile_condition("a", "variables.numbers == []").is_err());
}

#[test]
fn the_depth_of_nested_variables_is_limited() {
    let mut compiler = PolicyCompiler::new(false);
    let mut last_expression = "1".to_owned();
    let mut refusal = None;
    for number in 0..64 {
        match compiler.compile(Role::Variable, &format!("{last_expression}{}", "+1".repeat(20))) {
            Ok(value) => compiler.define(&format!("v{number}"), value),
            Err(error) => {
                refusal = Some((number, error));
                break;
            }
        }
        last_expression = format!("variables.v{number}");
    }
    assert_eq!(refusal, Some((9, ConditionError::TooDeep(200))));
}

#[tokio::test]
async fn all_expressions_of_a_policy_share_a_cost_limit() {
    // Each of these validations costs about 800,000 when it is evaluated.
    let costly_validation = "validate lists.range(100).all(x, lists.range(1000).all(y, x + y >= 0))";
    let expected = "validation failed due to running out of cost budget, no further validation rules will be run";
    let describe_admission =
        |parts: Vec<&'static str>| async move { describe(admit(&parts, kubernetes_binding(&[Action::Deny])).await) };
    assert_eq!(describe_admission(vec![costly_validation; 5]).await, "allow");
    let description = describe_admission(vec![costly_validation; 20]).await;
    assert!(description.ends_with(expected), "{description}");
}

#[tokio::test]
async fn a_policy_with_parameters_is_refused_without_a_cluster() {
    let hook = PolicyHook::new(
        Arc::new(policy(&["validate params == null"])),
        binding_with_params(ParamsSelector::Name("few".to_owned()), ParamsMissing::Deny),
        Arc::new(NoAuthorizer),
        None,
    );
    let answer = hook
        .admit(&Arc::new(pod()), Deadline::after(Duration::from_secs(60)))
        .await;
    assert!(
        describe(answer).ends_with(
            "failed to configure binding: its parameters (v1/ConfigMap) are looked up in a cluster, and none is configured; \
             write `cluster: {}`, or with `run` name a file that has them with `--cluster`"
        )
    );
}

#[tokio::test]
async fn a_deadline_ends_a_policy() {
    let hook = PolicyHook::new(
        Arc::new(policy(&[
            "validate lists.range(900).all(x, lists.range(900).all(y, true))",
        ])),
        kubernetes_binding(&[Action::Deny]),
        Arc::new(NoAuthorizer),
        None,
    );
    let failure = hook
        .admit(&Arc::new(pod()), Deadline::after(Duration::ZERO))
        .await
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Timeout);
}
