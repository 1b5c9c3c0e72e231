use admittance_admission::{GroupVersionKind, Operation};

use super::*;
use crate::load_text;

const STAGE: &str = "Mutating:pods/images";

fn request(namespace: Option<&str>, name: &str, user: &str) -> Request {
    let kind = GroupVersionKind::from_api_version("v1", "Pod");
    let mut request = Request::new(Operation::Create, kind.clone(), kind.guess_resource());
    request.namespace = namespace.map(str::to_owned);
    request.name = name.to_owned();
    request.user.username = user.to_owned();
    request
}

fn share(text: &str) -> Share {
    text.parse().unwrap()
}

/// Returns the document of a chain with this rollout, followed by the text `more`. The field `rollout` begins on line 9
/// in column 18.
fn document(rollout: &str, more: &str) -> String {
    format!(
        "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: c }}\nspec:\n  rules: [ {{ \
         operations: ['*'], resources: [pods] }} ]\n  stages:\n  - name: s\n    plugin: {{ source: file:a.wasm }}\n    \
         candidate: {{ rollout: {rollout}, source: file:b.wasm }}\n{more}"
    )
}

fn read(rollout: &str) -> RolloutDefinition {
    let mut chains = load_text("f", &document(rollout, "")).unwrap();
    chains.remove(0).stages.remove(0).candidate.unwrap().rollout.unwrap()
}

#[test]
fn unset_fields_of_a_rollout_have_defaults() {
    let percents = |percents: &[u16]| -> Vec<_> {
        let shares = percents.iter().map(|percent| Share::of_ten_thousand(percent * 100));
        shares.collect::<Option<_>>().unwrap()
    };
    let five = RolloutLimit::Share(share("5%"));
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    use RolloutKey::{Namespace, Uid, User};
    for (written, shares, by, pause, failures, refusals) in [
        ("{ percent: 10 }", &[10][..], Namespace, 10, five, five),
        ("{ steps: [1, 50, 100] }", &[1, 50, 100], Namespace, 10, five, five),
        (
            "{ percent: 10, by: user, steps: [25, 100], pause: 1h, abortOn: { failures: 3, refusals: 100% } }",
            &[10, 25, 100],
            User,
            60,
            RolloutLimit::Count(3),
            RolloutLimit::Share(Share::WHOLE),
        ),
        (
            "{ percent: 100, by: uid, abortOn: { refusals: 0.5% } }",
            &[100],
            Uid,
            10,
            five,
            RolloutLimit::Share(share("0.5%")),
        ),
    ] {
        let rollout = read(written);
        let expected = RolloutDefinition {
            shares: percents(shares),
            rollout_key: by,
            pause: minutes(pause),
            failure_limit: failures,
            refusal_limit: refusals,
        };
        assert_eq!(rollout, expected, "{written}");
        assert_eq!(read(&rollout.to_json().to_string()), rollout, "{written}");
    }
}

#[test]
fn mistakes_in_a_rollout_are_reported() {
    let grow = "write steps that grow, the first one larger than `percent`";
    for (written, column, expected) in [
        (
            "{ by: user }",
            27,
            ": the candidate gets no share of the requests; write `percent: 10`, or `steps: [10, 25, 50, 100]`".to_owned(),
        ),
        ("{ percent: 0 }", 38, ".percent: 0 is out of range; write 1 to 100".to_owned()),
        ("{ percent: 101 }", 38, ".percent: 101 is out of range; write 1 to 100".to_owned()),
        (
            "{ percent: 10% }",
            38,
            ".percent: a string where a whole number is expected; write 1 to 100".to_owned(),
        ),
        (
            "{ steps: [10, 10] }",
            41,
            format!(".steps[1]: the step of 10% comes after 10%; {grow}"),
        ),
        (
            "{ percent: 50, steps: [25] }",
            50,
            format!(".steps[0]: the step of 25% comes after 50%; {grow}"),
        ),
        ("{ steps: [] }", 36, ".steps: the list is empty; list percentages, `[25, 50, 100]`".to_owned()),
        (
            "{ percent: 10, by: group }",
            46,
            ".by: \"group\" is not a valid key of a rollout; write namespace, user or uid".to_owned(),
        ),
        (
            "{ percent: 10, pause: 1s }",
            49,
            ".pause: 1s is out of range; write 10s to 7days".to_owned(),
        ),
        (
            "{ percent: 10, abortOn: { failures: 0 } }",
            63,
            ".abortOn.failures: 0 is out of range; write 1 to 1000000".to_owned(),
        ),
        (
            "{ percent: 10, abortOn: { refusals: few } }",
            63,
            ".abortOn.refusals: `few` is not a valid share; write 0.01% to 100%, with at most two digits after the point"
                .to_owned(),
        ),
        (
            "{ percent: 10, step: [20] }",
            42,
            ".step: unknown field; did you mean `steps`?".to_owned(),
        ),
    ] {
        let message = load_text("f", &document(written, "")).unwrap_err().to_string();
        let expected = format!("f:9:{column}: spec.stages[0].candidate.rollout{expected}");
        assert_eq!(message, expected, "{written}");
    }
    let audited = document("{ percent: 10 }", "    mode: Audit\n");
    let message = load_text("f", &audited).unwrap_err().to_string();
    assert!(
        message.starts_with("f:9:27: spec.stages[0].candidate.rollout: a stage in mode Audit decides nothing"),
        "{message}"
    );
}

#[test]
fn requests_with_the_same_key_are_decided_by_the_same_plugin() {
    let read_rollout = |by: &str| read(&format!("{{ percent: 50, by: {by} }}"));
    let half = share("50%");
    for number in 0..50 {
        let number = number.to_string();
        let includes = |rollout: &RolloutDefinition, request: &Request| rollout.includes(STAGE, request, half);
        let by_namespace = read_rollout("namespace");
        let first = includes(&by_namespace, &request(Some(&number), "a", "alice"));
        assert_eq!(includes(&by_namespace, &request(Some(&number), "b", "bob")), first);
        // A Namespace and the objects in it must be decided by the same plugin.
        assert_eq!(includes(&by_namespace, &request(None, &number, "bob")), first);
        let by_user = read_rollout("user");
        let first = includes(&by_user, &request(Some("a"), "a", &number));
        assert_eq!(includes(&by_user, &request(Some("b"), "b", &number)), first);
        let by_uid = read_rollout("uid");
        let request = request(Some("a"), "a", "alice");
        assert_eq!(includes(&by_uid, &request), includes(&by_uid, &request.clone()));
    }
}

#[test]
fn a_larger_share_includes_the_requests_of_a_smaller_one() {
    let rollout = read("{ percent: 1 }");
    let requests: Vec<_> = (0..2000)
        .map(|number| request(Some(&format!("team-{number}")), "a", ""))
        .collect();
    let included = |stage: &str, share: Share| -> Vec<_> {
        let included = requests.iter().map(|request| rollout.includes(stage, request, share));
        included.collect()
    };
    let mut before = vec![false; requests.len()];
    for percent in [1, 10, 25, 50, 99, 100_u16] {
        let share = Share::of_ten_thousand(percent * 100).unwrap();
        let now = included(STAGE, share);
        assert!(
            before.iter().zip(&now).all(|(before, now)| !before || *now),
            "{percent}"
        );
        let count = now.iter().filter(|is_in| **is_in).count();
        let expected = requests.len() * usize::from(percent) / 100;
        // The number of included requests varies as if they were chosen at random. The test tolerates a difference of
        // five standard deviations from the expected number.
        assert!(count.abs_diff(expected) <= 112, "{count} of {percent}%");
        before = now;
    }
    assert!(before.iter().all(|is_in| *is_in), "all of them at the end");
    let half = share("50%");
    assert_ne!(included(STAGE, half), included("Mutating:pods/labels", half));
    // All replicas and later versions of the program must choose the same requests, so the exact numbers are tested.
    let first: Vec<_> = included(STAGE, share("10%")).into_iter().take(40).collect();
    let first: Vec<_> = (0..)
        .zip(first)
        .filter_map(|(number, is_in)| is_in.then_some(number))
        .collect();
    assert_eq!(first, [12, 26, 31]);
}

#[test]
fn a_rollout_limit_is_reached_at_its_count_or_percentage() {
    let five = RolloutLimit::default();
    assert_eq!(five.to_string(), "5%");
    for (limit, number, of, expected) in [
        (five, 4, 4, false),
        (five, 5, 5, true),
        (five, 5, 100, true),
        (five, 9, 200, false),
        (five, 10, 200, true),
        (five, 0, 0, false),
        (RolloutLimit::Count(1), 0, 10, false),
        (RolloutLimit::Count(1), 1, 1_000_000, true),
        (RolloutLimit::Share(Share::WHOLE), 99, 99, false),
        (RolloutLimit::Share(Share::WHOLE), u64::MAX, u64::MAX, true),
    ] {
        assert_eq!(number >= limit.allowed_count(of), expected, "{limit}: {number} of {of}");
    }
}
