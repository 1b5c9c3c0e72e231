//! Groups, which combine the verdicts of several hooks.

use std::sync::Mutex;

use admittance_admission::{Formula, HookGroup};

use super::*;

struct RecordingMember {
    name: &'static str,
    script: Script,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

#[async_trait]
impl Hook for RecordingMember {
    async fn admit(&self, request: &Arc<Request>, deadline: Deadline) -> Result<Response, Failure> {
        self.calls.lock().unwrap().push(self.name);
        self.script.admit(request, deadline).await
    }
}

/// Creates a group with the members `a`, `b` and so on, and a list to which each called member adds its name.
fn new_group(formula: Formula, scripts: Vec<Script>) -> (HookGroup, Arc<Mutex<Vec<&'static str>>>) {
    let calls = Arc::new(Mutex::default());
    let members = ["a", "b", "c"].into_iter().zip(scripts).map(|(name, script)| {
        let calls = Arc::clone(&calls);
        let hook: Arc<dyn Hook> = Arc::new(RecordingMember { name, script, calls });
        (name.into(), hook)
    });
    let denial = Denial::new(422, "", "the group says no");
    (HookGroup::new(members.collect(), formula, denial, "plugins"), calls)
}

fn not(operand: Formula) -> Formula {
    Formula::Not(Box::new(operand))
}

fn and(one: Formula, other: Formula) -> Formula {
    Formula::And(Box::new([one, other]))
}

fn or(one: Formula, other: Formula) -> Formula {
    Formula::Or(Box::new([one, other]))
}

fn equal(one: Formula, other: Formula) -> Formula {
    Formula::Equal(Box::new([one, other]))
}

#[tokio::test(start_paused = true)]
async fn only_members_on_which_the_formula_depends_are_called() {
    use Script::{Allow, Deny, Fail};
    let (a, b, c) = (Formula::Member(0), Formula::Member(1), Formula::Member(2));
    let trap = || Fail(FailureKind::Trap);
    for (formula, scripts, called, verdict) in [
        (a.clone(), vec![Allow], "a", "allow"),
        (a.clone(), vec![Deny("x")], "a", "deny"),
        (not(a.clone()), vec![Allow], "a", "deny"),
        (not(a.clone()), vec![Deny("x")], "a", "allow"),
        (or(a.clone(), b.clone()), vec![Allow, Allow], "a", "allow"),
        (or(a.clone(), b.clone()), vec![Deny("x"), Allow], "ab", "allow"),
        (or(a.clone(), b.clone()), vec![Deny("x"), Deny("y")], "ab", "deny"),
        (and(a.clone(), b.clone()), vec![Deny("x"), Allow], "a", "deny"),
        (and(a.clone(), b.clone()), vec![Allow, Allow], "ab", "allow"),
        (
            or(a.clone(), and(b.clone(), c.clone())),
            vec![Deny("x"), Deny("y"), Allow],
            "ab",
            "deny",
        ),
        (
            and(a.clone(), or(b.clone(), a.clone())),
            vec![Allow, Deny("x")],
            "ab",
            "allow",
        ),
        (equal(a.clone(), b.clone()), vec![Deny("x"), Deny("y")], "ab", "allow"),
        (
            not(equal(a.clone(), b.clone())),
            vec![Deny("x"), Deny("y")],
            "ab",
            "deny",
        ),
        (or(Formula::Constant(true), a.clone()), vec![Deny("x")], "", "allow"),
        // In the next rows, members fail. The group fails only if its verdict depends on a failed member.
        (or(a.clone(), b.clone()), vec![trap(), Allow], "ab", "allow"),
        (and(a.clone(), b.clone()), vec![trap(), Deny("x")], "ab", "deny"),
        (or(a.clone(), b.clone()), vec![trap(), Deny("x")], "ab", "failed"),
        (and(a.clone(), b.clone()), vec![trap(), Allow], "ab", "failed"),
        (and(a.clone(), b.clone()), vec![Allow, trap()], "ab", "failed"),
        (not(a.clone()), vec![trap()], "a", "failed"),
        (equal(a.clone(), b.clone()), vec![trap(), Allow], "a", "failed"),
        // The group in this row has one member, `a`. The formula `c` refers to a member that does not exist, so the
        // group fails.
        (c.clone(), vec![Allow], "", "failed"),
    ] {
        let case = format!("{formula:?}");
        let (group, calls) = new_group(formula, scripts);
        let outcome = run(
            vec![Stage::new("stage", group)],
            request(Operation::Create),
            Duration::from_secs(1),
        )
        .await;
        let (words, _, change) = summary(&outcome);
        assert_eq!(words, [verdict], "{case}");
        assert_eq!(change, json!([]), "{case}");
        assert_eq!(calls.lock().unwrap().concat(), called, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_has_a_cause_for_each_member_that_did_not_allow_the_request() {
    let formula = or(and(Formula::Member(0), Formula::Member(1)), Formula::Member(2));
    let fails = Script::Fail(FailureKind::Timeout);
    let (group, _) = new_group(formula, vec![Script::Deny("no owner"), fails, Script::Deny("no team")]);
    let request = Arc::new(request(Operation::Create));
    let response = group
        .admit(&request, Deadline::after(Duration::from_secs(1)))
        .await
        .unwrap();
    let Verdict::Deny(denial) = response.verdict else {
        panic!("{response:?}")
    };
    assert_eq!((denial.code(), &*denial.message), (422, "the group says no"));
    assert_eq!(
        Value::from(denial.details),
        json!({"causes": [
            {"field": "plugins.a", "message": "no owner"},
            {"field": "plugins.c", "message": "no team"},
        ]})
    );
}

#[tokio::test(start_paused = true)]
async fn a_group_keeps_the_warnings_annotations_and_failures_of_its_members() {
    let formula = || or(and(Formula::Member(0), Formula::Member(1)), Formula::Member(2));
    let deadline = || Deadline::after(Duration::from_secs(1));
    let request = Arc::new(request(Operation::Create));
    let changes = add("/metadata/labels/a", json!("x"));
    let (allowed, _) = new_group(formula(), vec![Script::Warn("w"), changes.clone(), Script::Allow]);
    let response = allowed.admit(&request, deadline()).await.unwrap();
    assert!(matches!(response.verdict, Verdict::Allow), "{response:?}");
    assert_eq!(response.warnings, ["w"]);
    let notes: Vec<_> = response.audit_annotations.iter().map(|(key, _)| &**key).collect();
    assert_eq!(notes, ["a.key", "b.failure"]);
    assert!(
        response.audit_annotations[1].1.contains("may only allow or deny"),
        "{:?}",
        response.audit_annotations
    );
    // The hook sets the label to the value that the label already has. This does not count as a change, so the request
    // is allowed unchanged.
    let same = add("/metadata/labels/inject", json!("yes"));
    let (unchanged, _) = new_group(Formula::Member(0), vec![same]);
    let response = unchanged.admit(&request, deadline()).await.unwrap();
    assert!(matches!(response.verdict, Verdict::Allow), "{response:?}");

    let (failed, _) = new_group(formula(), vec![Script::Allow, changes, Script::Deny("x")]);
    let failure = failed.admit(&request, deadline()).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::InvalidResponse);
    assert_eq!(
        failure.message,
        "plugin b of the group: the verdict changes the object, but a member of a group may only allow or deny"
    );
}
