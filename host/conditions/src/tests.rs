use std::{sync::Mutex, time::Duration};

use serde_json::json;

use super::*;
use admittance_admission::{
    AccessAttributes, AccessCheckResult, AuthorizerError, GroupVersionKind, NoAuthorizer, Object, Operation, UserInfo,
    async_trait,
};

mod groups;
mod hostile;
mod kyverno;
mod language;
mod library;
mod policies;
mod refused;

#[derive(Default)]
struct ListedActions {
    allowed_actions: Vec<AccessAttributes>,
    requests: Mutex<Vec<(String, AccessAttributes)>>,
}

#[async_trait]
impl Authorizer for ListedActions {
    async fn authorize(
        &self,
        user: &UserInfo,
        attributes: &AccessAttributes,
    ) -> Result<AccessCheckResult, AuthorizerError> {
        let mut requests = self.requests.lock().unwrap();
        requests.push((user.username.clone(), attributes.clone()));
        Ok(AccessCheckResult {
            allowed: self.allowed_actions.contains(attributes),
            reason: "as the table says".to_owned(),
        })
    }
}

struct SilentAuthorizer;

#[async_trait]
impl Authorizer for SilentAuthorizer {
    async fn authorize(&self, _: &UserInfo, _: &AccessAttributes) -> Result<AccessCheckResult, AuthorizerError> {
        std::future::pending().await
    }
}

fn pod() -> Request {
    let kind = GroupVersionKind::from_api_version("v1", "Pod");
    let resource = kind.guess_resource();
    let object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "labels": {"app": "web", "tier": "front"},
            "annotations": {},
            "creationTimestamp": "2024-02-29T12:30:15Z",
        },
        "spec": {
            "replicas": 3,
            "ratio": 0.5,
            "large": 18446744073709551615_u64,
            "host": null,
            "image": "Example.com/Web:1.2",
            "containers": [
                {"name": "a", "image": "one", "resources": {"limits": {"memory": "2Gi"}}},
                {"name": "b", "image": "two"},
            ],
            "ports": [80, 443, 8080],
        },
    });
    let mut request = Request::new(Operation::Create, kind, resource).with_object(Object::from_value(object).unwrap());
    request.user = UserInfo {
        username: "alice".into(),
        groups: vec!["dev".into(), "system:authenticated".into()],
        extra: [("example.com/scopes".into(), vec!["all".into()])].into(),
        ..Default::default()
    };
    request
}

fn minute_deadline() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

fn compile_conditions(expressions: &[(&str, &str)]) -> CelConditions {
    expressions
        .iter()
        .map(|(name, expression)| {
            MatchCondition::compile(name, expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
        })
        .collect()
}

async fn evaluate(expression: &str, request: &Request) -> Result<bool, String> {
    compile_conditions(&[("only", expression)])
        .evaluate(request, &NoAuthorizer, minute_deadline())
        .await
        .map(|unmet| unmet.is_none())
        .map_err(|failure| {
            let message = failure.message();
            let prefix = format!("expression '{expression}' resulted in error: ");
            message.strip_prefix(&prefix).unwrap_or(&message).to_owned()
        })
}

#[tokio::test]
async fn a_false_condition_takes_precedence_over_an_error() {
    const TRUE: &str = "true";
    const FALSE: &str = "false";
    const ERROR: &str = "object.missing == 1";
    let error = "expression 'object.missing == 1' resulted in error: no such key: missing";
    // The cases are from the unit tests of kube-apiserver's matcher of match conditions.
    let table: [(&str, &[&str], Result<Option<&str>, String>); 13] = [
        ("none", &[], Ok(None)),
        ("one true", &[TRUE], Ok(None)),
        ("many true", &[TRUE, TRUE, TRUE, TRUE], Ok(None)),
        ("first false", &[FALSE, TRUE, TRUE], Ok(Some("c0"))),
        ("middle false", &[TRUE, FALSE, TRUE], Ok(Some("c1"))),
        ("last false", &[TRUE, TRUE, FALSE], Ok(Some("c2"))),
        ("two false: the first is named", &[TRUE, FALSE, FALSE], Ok(Some("c1"))),
        ("error", &[ERROR], Err(error.to_owned())),
        ("true and error", &[TRUE, ERROR], Err(error.to_owned())),
        ("true, error, false", &[TRUE, ERROR, FALSE], Ok(Some("c2"))),
        ("true, false, error", &[TRUE, FALSE, ERROR], Ok(Some("c1"))),
        ("error, true, true", &[ERROR, TRUE, TRUE], Err(error.to_owned())),
        ("two errors", &[ERROR, TRUE, ERROR], Err(format!("[{error}, {error}]"))),
    ];
    for (case, expressions, expected) in table {
        let named_texts: Vec<(String, &str)> = expressions
            .iter()
            .enumerate()
            .map(|(index, expression)| (format!("c{index}"), *expression))
            .collect();
        let pairs: Vec<(&str, &str)> = named_texts.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        let outcome = compile_conditions(&pairs)
            .evaluate(&pod(), &NoAuthorizer, minute_deadline())
            .await;
        let outcome = outcome.map_err(|failure| failure.message());
        let outcome = outcome.as_ref().map(|unmet| unmet.as_deref());
        assert_eq!(outcome, expected.as_ref().map(|unmet| *unmet), "{case}");
    }
}

#[tokio::test]
async fn the_message_of_a_failure_contains_the_names_of_the_failed_conditions() {
    let failure = compile_conditions(&[("a", "object.x == 1"), ("b", "true"), ("c", "1 / 0 == 1")])
        .evaluate(&pod(), &NoAuthorizer, minute_deadline())
        .await
        .unwrap_err();
    assert_eq!(
        failure.to_string(),
        "match condition `a`: expression 'object.x == 1' resulted in error: no such key: x; match condition `c`: \
         expression '1 / 0 == 1' resulted in error: division by zero"
    );
    let names: Vec<&str> = failure.failed_conditions().iter().map(|failed| &*failed.name).collect();
    assert_eq!(names, ["a", "c"]);
}

fn resource_access(verb: &str, group: &str, resource: &str) -> AccessAttributes {
    AccessAttributes::Resource {
        verb: verb.into(),
        group: group.into(),
        version: "*".into(),
        resource: resource.into(),
        subresource: String::new(),
        namespace: String::new(),
        name: String::new(),
        field_selector: String::new(),
        label_selector: String::new(),
    }
}

#[tokio::test]
async fn the_authorizer_is_called_with_the_attributes_in_the_expression() {
    let request_resource = |verb: &str| AccessAttributes::Resource {
        verb: verb.into(),
        group: String::new(),
        version: "*".into(),
        resource: "pods".into(),
        subresource: String::new(),
        namespace: "shop".into(),
        name: "web".into(),
        field_selector: String::new(),
        label_selector: String::new(),
    };
    let scale_access = AccessAttributes::Resource {
        verb: "get".into(),
        group: "apps".into(),
        version: "*".into(),
        resource: "deployments".into(),
        subresource: "scale".into(),
        namespace: "x".into(),
        name: "y".into(),
        field_selector: String::new(),
        label_selector: String::new(),
    };
    let health_access = AccessAttributes::Path {
        verb: "get".into(),
        path: "/healthz".into(),
    };
    let account = "system:serviceaccount:shop:robot";
    // (expression, actions that the authorizer allows, expected result, expected calls), as in Kubernetes' library.
    let table = [
        (
            "authorizer.group('apps').resource('deployments').subresource('scale').namespace('x').name('y').check('get').allowed()",
            vec![scale_access.clone()],
            true,
            vec![("alice", scale_access.clone())],
        ),
        (
            "authorizer.path('/healthz').check('get').allowed()",
            vec![],
            false,
            vec![("alice", health_access.clone())],
        ),
        (
            "authorizer.serviceAccount('shop', 'robot').path('/healthz').check('get').allowed()",
            vec![health_access.clone()],
            true,
            vec![(account, health_access.clone())],
        ),
        (
            "authorizer.requestResource.check('update').allowed()",
            vec![request_resource("update")],
            true,
            vec![("alice", request_resource("update"))],
        ),
        (
            "authorizer.requestResource.check('update').reason() == 'as the table says'",
            vec![],
            true,
            vec![("alice", request_resource("update"))],
        ),
        (
            "!authorizer.group('admissionregistration.k8s.io').resource('validatingwebhookconfigurations').check('breakglass').allowed()",
            vec![],
            true,
            vec![(
                "alice",
                resource_access(
                    "breakglass",
                    "admissionregistration.k8s.io",
                    "validatingwebhookconfigurations",
                ),
            )],
        ),
        (
            "the same question twice is asked once",
            vec![health_access.clone()],
            true,
            vec![("alice", health_access.clone())],
        ),
        (
            "request.userInfo.username == 'alice' || authorizer.path('/healthz').check('get').allowed()",
            vec![],
            true,
            vec![],
        ),
        (
            "['get', 'put'].exists(verb, authorizer.requestResource.check(verb).allowed())",
            vec![request_resource("put")],
            true,
            vec![("alice", request_resource("get")), ("alice", request_resource("put"))],
        ),
    ];
    for (expression, allowed, expected, requests) in table {
        let authorizer = ListedActions {
            allowed_actions: allowed,
            ..Default::default()
        };
        let repeated_expression =
            "authorizer.path('/healthz').check('get').allowed() && authorizer.path('/healthz').check('get').allowed()";
        let text = if expression.starts_with("the same") {
            repeated_expression
        } else {
            expression
        };
        let conditions = compile_conditions(&[("only", text)]);
        assert!(conditions.uses_authorizer());
        let outcome = conditions.evaluate(&pod(), &authorizer, minute_deadline()).await;
        assert_eq!(outcome.unwrap().is_none(), expected, "{expression}");
        let requests: Vec<_> = requests
            .into_iter()
            .map(|(user, action)| (user.to_owned(), action))
            .collect();
        assert_eq!(*authorizer.requests.lock().unwrap(), requests, "{expression}");
    }
}

#[tokio::test]
async fn a_permission_check_fails_if_the_authorizer_fails_or_does_not_reply() {
    let denied_conditions = compile_conditions(&[(
        "ask",
        "authorizer.path('/x').check('get').errored() && !authorizer.path('/x').check('get').allowed()",
    )]);
    assert_eq!(
        denied_conditions
            .evaluate(&pod(), &NoAuthorizer, minute_deadline())
            .await,
        Ok(None)
    );
    let reason_conditions = compile_conditions(&[(
        "ask",
        "authorizer.path('/x').check('get').error().contains('needs a cluster')",
    )]);
    assert_eq!(
        reason_conditions
            .evaluate(&pod(), &NoAuthorizer, minute_deadline())
            .await,
        Ok(None)
    );
    let asking_expression = "authorizer.path('/x').check('get').allowed()";
    let failure = compile_conditions(&[("ask", asking_expression)])
        .evaluate(&pod(), &SilentAuthorizer, Deadline::after(Duration::ZERO))
        .await
        .unwrap_err();
    assert_eq!(
        failure.message(),
        format!("expression '{asking_expression}' resulted in error: operation interrupted: the deadline has passed")
    );
}

#[tokio::test]
async fn the_third_call_of_the_authorizer_exceeds_the_cost_limit() {
    let authorizer = ListedActions::default();
    // As in kube-apiserver, the cost limit of an expression allows two calls of the authorizer. This one makes three.
    let three_calls = compile_conditions(&[(
        "three",
        "['a', 'b', 'c'].exists(verb, authorizer.path('/x').check(verb).allowed())",
    )]);
    let failure = three_calls
        .evaluate(&pod(), &authorizer, minute_deadline())
        .await
        .unwrap_err();
    assert!(
        failure
            .message()
            .ends_with("operation cancelled: actual cost limit exceeded"),
        "{failure}"
    );
    assert_eq!(authorizer.requests.lock().unwrap().len(), 2);
    // Here nine conditions call the authorizer once each. The cost limit for all conditions of a stage together allows
    // only seven calls.
    let rules = ListedActions::default();
    let condition_texts: Vec<(String, String)> = (0..9)
        .map(|number| {
            let expression = format!("!authorizer.path('/{number}').check('get').allowed()");
            (format!("c{number}"), expression)
        })
        .collect();
    let conditions_by_name: Vec<(&str, &str)> = condition_texts
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect();
    let failure = compile_conditions(&conditions_by_name)
        .evaluate(&pod(), &rules, minute_deadline())
        .await
        .unwrap_err();
    assert_eq!(
        failure.message(),
        "validation failed due to running out of cost budget, no further validation rules will be run"
    );
    assert_eq!(rules.requests.lock().unwrap().len(), 7);
}

#[test]
fn conditions_with_equal_names_and_expressions_are_equal() {
    let single_condition = |name, text| MatchConditions::from(compile_conditions(&[(name, text)]));
    assert_eq!(single_condition("a", "true"), single_condition("a", "true"));
    assert_ne!(single_condition("a", "true"), single_condition("b", "true"));
    assert_ne!(single_condition("a", "true"), single_condition("a", "false"));
    assert_ne!(single_condition("a", "true"), MatchConditions::default());
    assert_eq!(
        MatchConditions::from(compile_conditions(&[])),
        MatchConditions::default()
    );
    assert!(MatchConditions::from(compile_conditions(&[])).is_empty());
}
