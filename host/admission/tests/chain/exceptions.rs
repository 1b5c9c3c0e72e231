//! Stages that are disabled, or from which exceptions exempt requests.

use std::time::SystemTime;

use admittance_admission::{Authorizer, CompiledConditions, Exception, MatchConditions, Moment, NameGlob, SkipReason};

use super::*;

fn moment_after(seconds: u64) -> Moment {
    Moment(SystemTime::now() + Duration::from_secs(seconds))
}

struct FixedCondition(Result<bool, Failure>);

#[async_trait]
impl CompiledConditions for FixedCondition {
    async fn first_false_condition(
        &self,
        _: &Request,
        _: &dyn Authorizer,
        _: Deadline,
    ) -> Result<Option<Arc<str>>, Failure> {
        Ok((!self.0.clone()?).then(|| "condition".into()))
    }

    fn uses_authorizer(&self) -> bool {
        false
    }

    fn expressions(&self) -> Vec<(&str, &str)> {
        vec![("condition", "")]
    }
}

fn failure() -> Failure {
    Failure::new(FailureKind::Condition, "scripted")
}

fn exception_with_condition(result: Result<bool, Failure>) -> Exception {
    let mut exception = Exception::new("legacy", moment_after(3600));
    exception.match_conditions = MatchConditions::new(FixedCondition(result));
    exception
}

fn excepted_stage(script: Script, exception: &Exception) -> Stage {
    let mut stage = Stage::new("stage", script);
    stage.spec.exceptions = vec![Arc::new(exception.clone())];
    stage
}

async fn outcome_of_stage(stage: Stage, request: Request) -> Outcome {
    run(vec![stage], request, Duration::from_secs(1)).await
}

fn matching_exception(outcome: &Outcome) -> Option<&str> {
    let [row] = &*outcome.trace else {
        panic!("{:?}", outcome.trace);
    };
    let is_skipped = row.result == StageResult::Skipped(SkipReason::Exception);
    assert_eq!(is_skipped, row.exception.is_some(), "{row:?}");
    row.exception.as_deref()
}

#[tokio::test]
async fn a_stage_with_a_matching_exception_is_not_called() {
    let exception = Exception::new("legacy", moment_after(3600));
    for script in [
        Script::Deny("no"),
        add("/spec/new", json!(1)),
        Script::Fail(FailureKind::Unreachable),
        Script::Panic,
        Script::Warn("old"),
    ] {
        for mode in Mode::ALL {
            let mut stage = excepted_stage(script.clone(), &exception);
            stage.spec.mode = mode;
            stage.spec.reinvocation = Reinvocation::IfNeeded;
            let outcome = outcome_of_stage(stage, request(Operation::Update)).await;
            assert!(outcome.is_allowed() && !outcome.is_changed());
            assert!(outcome.warnings.is_empty());
            assert_eq!(matching_exception(&outcome), Some("legacy"));
        }
    }
}

#[tokio::test]
async fn an_exception_affects_only_the_stages_that_have_it() {
    let exception = Exception::new("legacy", moment_after(3600));
    let stages = vec![
        excepted_stage(Script::Deny("no"), &exception),
        Stage::new("other", Script::Deny("never")),
    ];
    let outcome = run(stages, request(Operation::Update), Duration::from_secs(1)).await;
    let (words, refusal, _) = summary(&outcome);
    assert_eq!(words, ["skipped", "deny"]);
    assert_eq!(refusal, "stage other of chain chain denied the request: never");
}

#[tokio::test]
async fn an_exception_matches_only_if_all_its_parts_match() {
    let globs = |texts: &[&str]| texts.iter().map(|text| NameGlob::new(*text)).collect::<Vec<_>>();
    let mut request = request(Operation::Update);
    request.namespace = Some("prod".to_owned());
    request.name = "web-1".to_owned();
    request.user.username = "jane".to_owned();
    request.user.groups = vec!["admins".to_owned(), "web".to_owned()];
    type Change = fn(&mut Exception, Vec<NameGlob>);
    let fields: [(&str, Change, &[&str], bool); 8] = [
        (
            "namespace",
            |exception, globs| exception.namespaces = globs,
            &["test", "pro*"],
            true,
        ),
        (
            "namespace",
            |exception, globs| exception.namespaces = globs,
            &["test"],
            false,
        ),
        ("name", |exception, globs| exception.names = globs, &["web-*"], true),
        ("name", |exception, globs| exception.names = globs, &["web"], false),
        ("user", |exception, globs| exception.users = globs, &["j*e"], true),
        ("user", |exception, globs| exception.users = globs, &["joe"], false),
        (
            "group",
            |exception, globs| exception.groups = globs,
            &["x", "web"],
            true,
        ),
        ("group", |exception, globs| exception.groups = globs, &["x"], false),
    ];
    for (field, change, texts, expected) in fields {
        // At first, all fields of this exception match the request. `change` then replaces one field, which is the one
        // that the row tests.
        let mut exception = Exception::new("legacy", moment_after(3600));
        exception.rules = vec![
            Rule::for_operations([Operation::Create]),
            Rule::for_operations([Operation::Update]),
        ];
        exception.namespaces = globs(&["prod"]);
        exception.names = globs(&["*"]);
        exception.users = globs(&["jane"]);
        exception.groups = globs(&["admins"]);
        change(&mut exception, globs(texts));
        let outcome = outcome_of_stage(excepted_stage(Script::Deny("no"), &exception), request.clone()).await;
        assert_eq!(matching_exception(&outcome).is_some(), expected, "{field} {texts:?}");
        exception.rules = vec![Rule::for_operations([Operation::Delete])];
        let outcome = self::outcome_of_stage(excepted_stage(Script::Deny("no"), &exception), request.clone()).await;
        assert_eq!(
            matching_exception(&outcome),
            None,
            "{field}: the operation does not match"
        );
    }
}

#[tokio::test]
async fn an_exception_matches_a_generated_name_by_its_prefix() {
    let mut exception = Exception::new("legacy", moment_after(3600));
    exception.names = vec![NameGlob::new("web-*")];
    for (name, metadata, expected) in [
        ("", json!({"generateName": "web-5d-"}), true),
        ("", json!({"generateName": "job-5d-"}), false),
        ("job", json!({"generateName": "web-5d-"}), false),
        ("", json!({}), false),
        ("", json!("none"), false),
    ] {
        let mut request = request(Operation::Create);
        request.name = name.to_owned();
        let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}});
        request.object = Object::from_value(object);
        let outcome = outcome_of_stage(excepted_stage(Script::Deny("no"), &exception), request).await;
        assert_eq!(matching_exception(&outcome).is_some(), expected, "{name} {metadata}");
    }
}

#[tokio::test]
async fn an_exception_applies_while_its_conditions_are_true_and_it_has_not_expired() {
    for (exception, expected) in [
        (exception_with_condition(Ok(true)), true),
        (exception_with_condition(Ok(false)), false),
        (exception_with_condition(Err(failure())), false),
        (Exception::new("legacy", moment_after(0)), false),
    ] {
        let outcome = outcome_of_stage(
            excepted_stage(Script::Deny("no"), &exception),
            request(Operation::Update),
        )
        .await;
        assert_eq!(matching_exception(&outcome).is_some(), expected, "{exception:?}");
    }
}

#[tokio::test]
async fn a_stage_that_does_not_apply_is_skipped_without_recording_an_exception() {
    let exception = Exception::new("legacy", moment_after(3600));
    let mut stage = excepted_stage(Script::Deny("no"), &exception);
    stage.spec.match_conditions = MatchConditions::new(FixedCondition(Ok(false)));
    let outcome = outcome_of_stage(stage.clone(), request(Operation::Update)).await;
    assert_eq!(
        outcome.trace[0].result,
        StageResult::Skipped(SkipReason::MatchCondition)
    );
    stage.spec.match_conditions = MatchConditions::new(FixedCondition(Err(failure())));
    let outcome = self::outcome_of_stage(stage, request(Operation::Update)).await;
    assert_eq!(matching_exception(&outcome), Some("legacy"));
}

#[tokio::test]
async fn the_trace_names_the_first_exception_that_matches() {
    let mut stage = Stage::new("stage", Script::Deny("no"));
    let named_exception = |name: &str, result| {
        let mut exception = exception_with_condition(result);
        exception.name = name.into();
        Arc::new(exception)
    };
    stage.spec.exceptions = vec![
        named_exception("a", Ok(false)),
        named_exception("b", Ok(true)),
        named_exception("c", Ok(true)),
    ];
    let outcome = outcome_of_stage(stage, request(Operation::Update)).await;
    assert_eq!(matching_exception(&outcome), Some("b"));
}

#[tokio::test]
async fn a_disabled_stage_is_not_called() {
    for mode in Mode::ALL {
        let mut stage = Stage::new("stage", Script::Deny("no"));
        stage.spec.is_disabled = true;
        stage.spec.mode = mode;
        stage.spec.match_conditions = MatchConditions::new(FixedCondition(Err(failure())));
        for budget in [Duration::ZERO, Duration::from_secs(1)] {
            let outcome = run(vec![stage.clone()], request(Operation::Update), budget).await;
            assert!(outcome.is_allowed());
            assert_eq!(outcome.trace[0].result, StageResult::Skipped(SkipReason::Disabled));
        }
    }
}
