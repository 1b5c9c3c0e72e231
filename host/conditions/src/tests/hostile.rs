use admittance_admission::{Hook, Verdict};

use super::{policies::policy, *};

fn with_spec(spec: serde_json::Value) -> Request {
    let mut request = pod();
    request.kind = GroupVersionKind::from_api_version("example.com/v1", "Widget");
    request.object = Object::from_value(json!({ "spec": spec }));
    request
}

const COST_LIMIT_ERROR: &str = "operation cancelled: actual cost limit exceeded";

#[tokio::test]
async fn expensive_expressions_fail_at_the_cost_limit() {
    let numbers: Vec<u32> = (0..1000).collect();
    let large = "x".repeat(100_000);
    let deep = (0..100).fold(json!(1), |inner, _| json!([inner, inner_copy()]));
    let request = with_spec(json!({
        "a": numbers,
        "text": large,
        "deep": deep,
        "pattern": "(a+)+$",
        "bomb": "((a{1,100}){1,100}){1,100}",
        "texts": vec!["x".repeat(1000); 1000],
    }));
    // Evaluating any of these expressions would take long or use much memory. kube-apiserver's cost limit must stop
    // them.
    for expression in [
        "object.spec.a.all(x, object.spec.a.all(y, object.spec.a.all(z, x + y + z >= 0)))",
        "object.spec.a.map(x, object.spec.a.map(y, [x, y])).size() > 0",
        "object.spec.a.filter(x, object.spec.a.filter(y, x > y).size() > 0).size() > 0",
        "object.spec.a.exists_one(x, object.spec.a.exists_one(y, x + y == -1))",
        "object.spec.a.all(x, object.spec.text.contains('y') == false)",
        "object.spec.a.all(x, object.spec.text.matches('^(x+)+$'))",
        "object.spec.a.all(x, size(object.spec.text) > 0)",
        "object.spec.a.all(x, object.spec.texts == object.spec.texts.map(y, y))",
        "object.spec.a.all(x, object.spec.text.replace('x', 'xxxxxxxx').size() > 0)",
        "object.spec.a.all(x, object.spec.text.split('').size() > 0)",
        "object.spec.texts.map(x, object.spec.texts.join(x).size()).size() > 0",
        "object.spec.a.map(x, object.spec.texts + object.spec.texts).size() > 0",
        "object.spec.a.all(x, !(x in object.spec.texts) && sets.contains(object.spec.a, object.spec.a))",
        "object.spec.a.all(x, object.spec.text + object.spec.text != '')",
        "object.spec.a.map(x, bytes(object.spec.text) + bytes(object.spec.text)).size() > 0",
        "object.spec.a.all(x, 'aaaaaaaaaaaa'.matches(object.spec.pattern))",
        "object.spec.a.all(x, object.spec.a.all(y, authorizer.group(object.spec.text).resource(object.spec.text) != null))",
        "object.spec.a.all(x, object.spec.texts.indexOf('y') == -1)",
        "object.spec.a.all(x, object.spec.texts.isSorted())",
        "object.spec.a.all(x, object.spec.text.lowerAscii() == object.spec.text)",
        "object.spec.a.all(x, object.spec.text.lastIndexOf('xy') == -1)",
        "object.spec.a.all(x, object.spec.text.findAll('x').size() > 0)",
    ] {
        assert_eq!(
            evaluate(expression, &request).await,
            Err(COST_LIMIT_ERROR.to_owned()),
            "{expression}"
        );
    }
    for (expression, expected) in [
        (
            "[0].map(x, 'xxxxxxxx').map(x, x+x+x+x+x+x+x+x).map(x, x+x+x+x+x+x+x+x).map(x, x+x+x+x+x+x+x+x)\
             .map(x, x+x+x+x+x+x+x+x).map(x, x+x+x+x+x+x+x+x).map(x, x+x+x+x+x+x+x+x).map(x, x+x+x+x+x+x+x+x)\
             .size() > 0",
            Err(COST_LIMIT_ERROR.to_owned()),
        ),
        (
            "'a'.matches(object.spec.bomb)",
            Err("error parsing regexp: `((a{1,100}){1,100}){1,100}`".to_owned()),
        ),
        // In this row, a regular expression engine that backtracks would not finish.
        (
            "'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab'.matches('^(a+)+$')",
            Ok(false),
        ),
        ("object.spec.deep == object.spec.deep", Ok(true)),
        ("object.spec.a.all(x, x >= 0)", Ok(true)),
    ] {
        let outcome = evaluate(expression, &request).await;
        match (&outcome, &expected) {
            (Err(text), Err(expected)) => {
                assert!(text.starts_with(expected.as_str()), "{expression}: {text}")
            }
            _ => assert_eq!(outcome, expected, "{expression}"),
        }
    }
}

fn inner_copy() -> serde_json::Value {
    json!({"a": [1, 2, 3]})
}

#[tokio::test]
async fn all_conditions_of_a_stage_share_a_cost_limit() {
    let numbers: Vec<u32> = (0..1000).collect();
    let request = with_spec(json!({ "a": numbers }));
    // Each expression costs about 900,000, so that the third one exceeds the limit for all expressions together.
    let costly = "object.spec.a.filter(x, x < 150).all(x, object.spec.a.all(y, x + y >= 0))";
    let costly_conditions = compile_conditions(&[("a", costly), ("b", costly), ("c", costly), ("d", "true")]);
    let failure = costly_conditions
        .evaluate(&request, &NoAuthorizer, minute_deadline())
        .await
        .unwrap_err();
    let names: Vec<&str> = failure.failed_conditions().iter().map(|failed| &*failed.name).collect();
    assert_eq!(names, ["c"]);
    assert_eq!(
        failure.message(),
        "validation failed due to running out of cost budget, no further validation rules will be run"
    );
}

#[tokio::test]
async fn a_deadline_ends_an_evaluation() {
    let numbers: Vec<u32> = (0..1000).collect();
    let request = with_spec(json!({ "a": numbers }));
    let costly_condition = compile_conditions(&[("a", "object.spec.a.all(x, object.spec.a.all(y, x + y >= 0))")]);
    let failure = costly_condition
        .evaluate(&request, &NoAuthorizer, Deadline::after(Duration::ZERO))
        .await
        .unwrap_err();
    assert!(failure.message().ends_with("the deadline has passed"), "{failure}");
}

#[test]
fn large_and_deep_expressions_are_refused_with_the_reason() {
    let longest = compile::MAX_LENGTH;
    for (case, expression, expected) in [
        ("parentheses", "(".repeat(100_000), "has 100000 bytes"),
        (
            "too long by one",
            format!("true{}", " ".repeat(longest - 3)),
            "has 16385 bytes",
        ),
        ("open parentheses", "(".repeat(longest), "nested more than 96"),
        (
            "parentheses that close",
            format!("{}true{}", "(".repeat(5000), ")".repeat(5000)),
            "nested more than 96",
        ),
        ("open brackets", "[".repeat(longest), "nested more than 96"),
        ("open braces", "{".repeat(longest), "nested more than 96"),
        (
            "calls in calls",
            format!("{}true{}", "f(".repeat(5000), ")".repeat(5000)),
            "nested more than 96",
        ),
        (
            "fields of fields",
            format!("object{} == 1", ".a".repeat(8000)),
            "nested more than 200",
        ),
        (
            "indexes",
            format!("object{} == 1", "[0]".repeat(5000)),
            "nested more than 200",
        ),
        ("sums", format!("1{} == 1", "+1".repeat(8000)), "nested more than 200"),
        (
            "methods",
            format!("object{} == 1", ".f()".repeat(4000)),
            "undeclared reference",
        ),
        (
            "trims",
            format!("object{} == ''", ".trim()".repeat(2000)),
            "nested more than 200",
        ),
        (
            "choices",
            format!("{}true", "true?true:".repeat(1600)),
            "nested more than 96",
        ),
        (
            "minuses",
            format!("{}object", "-".repeat(longest - 7)),
            "must evaluate to bool",
        ),
        ("quotes", "'".repeat(longest), "Syntax error"),
        ("nothing known", "$".repeat(longest), "Syntax error"),
        ("backticks", "`".repeat(longest), "Syntax error"),
        (
            "a code point beyond all",
            r"'\U00110000' == ''".to_owned(),
            "invalid string literal",
        ),
        (
            "too large a number",
            "99999999999999999999 == 1".to_owned(),
            "invalid int literal",
        ),
        ("no characters", "\0\0\0".to_owned(), "Syntax error"),
        (
            "a pattern that is large",
            "request.name.matches('((a{1,100}){1,100}){1,100}')".to_owned(),
            "error parsing regexp",
        ),
        (
            "a deep pattern",
            format!("request.name.matches('{}a{}')", "(".repeat(5000), ")".repeat(5000)),
            "error parsing regexp",
        ),
    ] {
        let error = MatchCondition::compile("a", &expression).map(drop);
        let text = error.expect_err(case).to_string();
        assert!(text.contains(expected), "{case}: {text:.300}");
    }
}

#[test]
fn the_deepest_expression_runs_on_a_small_stack() {
    let sum = format!("1{} > 0", "+1".repeat(190));
    let conjunction = format!("true{}", " && true".repeat(1500));
    let nested = (0..60).fold("true".to_owned(), |inner, _| format!("[1].all(x, {inner})"));
    for expression in [sum, conjunction, nested] {
        let condition = MatchCondition::compile("a", &expression).unwrap();
        let run = move || {
            let request = pod();
            let variables = Variables::new(&request, Uses::default());
            let mut machine = Machine::new(&variables, &[], TOTAL_COST_LIMIT, minute_deadline());
            let outcome = machine.run(&condition.checked.expression);
            matches!(outcome, Ok(Value::Bool(true)))
        };
        // This stack is half as large as the stack of a worker thread. So this test crashes long before an expression
        // needs enough stack to crash a worker.
        let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap();
        assert!(thread.join().unwrap(), "{expression:.40}");
    }
}

#[derive(Debug)]
struct LongWorkThreadAuthorizer;

#[async_trait]
impl Authorizer for LongWorkThreadAuthorizer {
    async fn authorize(&self, _: &UserInfo, _: &AccessAttributes) -> Result<AccessCheckResult, AuthorizerError> {
        Ok(AccessCheckResult {
            allowed: std::thread::current().name() == Some("long-work"),
            reason: String::new(),
        })
    }
}

#[tokio::test]
async fn a_long_evaluation_moves_off_the_serving_threads() {
    let numbers: Vec<u32> = (0..200).collect();
    let spec = |length: usize| json!({"a": numbers, "text": "x".repeat(length)});
    let nothing = "patch []";
    for (case, object, first, expected) in [
        ("little", 10_000, nothing, false),
        ("a large object", 40_000, nothing, true),
        (
            "an expression that costs much",
            10,
            "patch object.spec.a.all(x, object.spec.a.all(y, x + y >= 0)) ? [] : []",
            true,
        ),
        (
            "a mutation that writes much",
            10_000,
            "patch [JSONPatch{op: 'add', path: '/spec/b', value: [1, 2, 3, 4, 5].map(x, object.spec.text)}]",
            true,
        ),
    ] {
        let asking = "patch [JSONPatch{op: 'add', path: '/spec/apart', value: \
                      authorizer.path('/').check('get').allowed()}]";
        let hook = PolicyHook::new(
            Arc::new(policy(&[first, asking])),
            Binding::default(),
            Arc::new(LongWorkThreadAuthorizer),
            None,
        );
        let response = hook
            .admit(&Arc::new(with_spec(spec(object))), minute_deadline())
            .await
            .unwrap();
        let Verdict::Replace(object) = response.verdict else {
            panic!("{case}: {response:?}");
        };
        assert_eq!(object.value()["spec"]["apart"], expected, "{case}");
    }
}
