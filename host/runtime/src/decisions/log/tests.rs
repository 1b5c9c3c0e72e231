use admittance_admission::{
    Decision, Denial, FrontEnd, GroupVersionKind, LogLevel, LogLine, Mode, Object, Operation, Outcome, Patch, Phase,
    RefusalCause, Request, RequestRefusal, Selection, StageResult, TraceRow, Uid,
};
use futures_util::FutureExt;
use serde_json::{Value, json};

use super::*;
use crate::decisions::observer::ObservedDecision;

fn request(uid: &str, kind: &str, object: &Value) -> Request {
    let kind = GroupVersionKind::from_api_version("v1", kind);
    let resource = kind.guess_resource();
    let object = Object::parse(object.to_string()).unwrap();
    let mut request = Request::new(Operation::Create, kind, resource).with_object(object);
    request.uid = Uid::from(uid.to_owned());
    request.user.username = "alice".to_owned();
    request.front = Some(Arc::new(FrontEnd {
        dialect: Some("kubernetes".into()),
        ..FrontEnd::default()
    }));
    request
}

fn pod(uid: &str, namespace: &str) -> Request {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": namespace},
                        "spec": {"token": "hidden"}});
    request(uid, "Pod", &object)
}

fn observed_decision(request: Request, outcome: &Outcome) -> ObservedDecision<'_> {
    ObservedDecision {
        request,
        selection: &Selection::All,
        outcome,
        duration: Duration::from_micros(1500),
        time: Moment::now(),
        revision: 7,
    }
}

fn allowed_outcome(uid: &str) -> Outcome {
    let mut outcome = Outcome::new(Uid::from(uid.to_owned()), Decision::Allowed);
    let row = TraceRow::new("pods", Phase::Mutating, "images", StageResult::Allowed);
    outcome.trace.push(row);
    outcome
}

fn changed_outcome(uid: &str) -> Outcome {
    let patch = Patch::builder()
        .add("/spec/token", &"other")
        .unwrap()
        .add("/spec/size", &3)
        .unwrap()
        .build();
    let mut outcome = allowed_outcome(uid);
    outcome.patch = patch.clone();
    let mut row = TraceRow::new("pods", Phase::Mutating, "sidecar", StageResult::Changed(patch));
    row.duration = Duration::from_micros(100);
    row.log.push(LogLine {
        level: LogLevel::Info,
        context: "cache".to_owned(),
        message: "hit".to_owned(),
    });
    outcome.trace.push(row);
    outcome
}

fn denied_outcome(uid: &str) -> Outcome {
    let denial = Denial::forbidden("no");
    let refusal = RequestRefusal {
        chain: "names".into(),
        stage: "short".into(),
        cause: RefusalCause::Denied(denial.clone()),
    };
    let mut outcome = Outcome::new(Uid::from(uid.to_owned()), Decision::Refused(refusal));
    let result = StageResult::Denied(denial);
    outcome
        .trace
        .push(TraceRow::new("names", Phase::Validating, "short", result));
    let row = TraceRow::new("names", Phase::Validating, "long", StageResult::NotReached);
    outcome.trace.push(row);
    outcome
}

fn new_log(count: usize, bytes: usize, redact: &[&str]) -> DecisionLog {
    DecisionLog::new(Some(DecisionsConfig {
        count,
        bytes,
        redact: redact.iter().map(|text| text.parse().unwrap()).collect(),
    }))
}

/// Creates a log of three requests, of which the first was allowed, the second changed, and the third denied.
fn log_of_three() -> DecisionLog {
    let log = new_log(10, 1 << 20, &[]);
    log.add(&observed_decision(pod("a", "shop"), &allowed_outcome("a")));
    log.add(&observed_decision(pod("b", "shop"), &changed_outcome("b")));
    log.add(&observed_decision(pod("c", "bank"), &denied_outcome("c")));
    log
}

fn uids(list: &DecisionList) -> Vec<&str> {
    list.decisions.iter().map(|decision| decision.uid.as_str()).collect()
}

#[test]
fn a_filter_selects_the_decisions_that_meet_all_conditions() {
    let log = log_of_three();
    let filter = |change: fn(&mut DecisionFilter)| {
        let mut filter = DecisionFilter::default();
        change(&mut filter);
        filter
    };
    let later = |filter: &mut DecisionFilter| {
        filter.since = Some(Moment(SystemTime::now() + Duration::from_secs(60)));
    };
    for (filter, expected) in [
        (filter(|_| {}), vec!["c", "b", "a"]),
        (filter(|filter| filter.chain = Some("pods".to_owned())), vec!["b", "a"]),
        (filter(|filter| filter.stage = Some("sidecar".to_owned())), vec!["b"]),
        (
            filter(|filter| {
                filter.chain = Some("names".to_owned());
                filter.stage = Some("sidecar".to_owned());
            }),
            vec![],
        ),
        (filter(|filter| filter.stage = Some("long".to_owned())), vec![]),
        (
            filter(|filter| filter.namespace = Some("shop".to_owned())),
            vec!["b", "a"],
        ),
        (filter(|filter| filter.namespace = Some(String::new())), vec![]),
        (
            filter(|filter| filter.user = Some("alice".to_owned())),
            vec!["c", "b", "a"],
        ),
        (filter(|filter| filter.user = Some("bob".to_owned())), vec![]),
        (filter(|filter| filter.text = Some("shop".to_owned())), vec!["b", "a"]),
        (
            filter(|filter| filter.text = Some("lic".to_owned())),
            vec!["c", "b", "a"],
        ),
        (filter(|filter| filter.text = Some("Shop".to_owned())), vec![]),
        (
            filter(|filter| filter.verdict = vec![DecisionVerdict::Denied, DecisionVerdict::Allowed]),
            vec!["c", "a"],
        ),
        (filter(later), vec![]),
    ] {
        let list = log.list(&filter, None, 10);
        assert_eq!(uids(&list), expected, "{filter:?}");
        assert_eq!(list.next, None);
    }
}

#[test]
fn a_long_list_of_decisions_is_split_into_pages() {
    let log = log_of_three();
    let filter = DecisionFilter::default();
    let first_page = log.list(&filter, None, 2);
    assert_eq!(uids(&first_page), ["c", "b"]);
    let second_page = log.list(&filter, first_page.next, 2);
    assert_eq!(uids(&second_page), ["a"]);
    assert_eq!(second_page.next, None);
    assert_eq!(log.list(&filter, None, 3).next, None);
}

#[test]
fn decision_ids_grow_even_if_the_clock_does_not() {
    let log = log_of_three();
    let list_before = log.list(&DecisionFilter::default(), None, 10);
    assert_eq!(uids(&list_before), ["c", "b", "a"]);
    let outcome = allowed_outcome("d");
    let mut early_decision = observed_decision(pod("d", "shop"), &outcome);
    early_decision.time = Moment(SystemTime::UNIX_EPOCH);
    log.add(&early_decision);
    let list = log.list(&DecisionFilter::default(), None, 10);
    assert_eq!(uids(&list), ["d", "c", "b", "a"]);
    assert!(list.decisions.is_sorted_by(|one, other| one.id > other.id));
}

#[test]
fn a_decision_record_describes_the_request_and_each_stage() {
    let log = log_of_three();
    let [logged] = log.get("b", None).0.try_into().unwrap();
    let mut record = serde_json::to_value(logged.record()).unwrap();
    for varying_key in ["id", "at"] {
        record.as_object_mut().unwrap().remove(varying_key);
    }
    let patch = json!([{"op": "add", "path": "/spec/token", "value": "other"},
                       {"op": "add", "path": "/spec/size", "value": 3}]);
    let stage = |name: &str, result: &str| {
        json!({"chain": "pods", "phase": "Mutating", "stage": name, "round": 1, "mode": "Enforce",
               "result": result, "startMicroseconds": 0, "microseconds": 0})
    };
    let mut sidecar = stage("sidecar", "patch");
    sidecar["microseconds"] = 100.into();
    sidecar["patch"] = patch.clone();
    sidecar["log"] = json!([{"level": "info", "context": "cache", "message": "hit"}]);
    assert_eq!(
        record,
        json!({"uid": "b", "revision": 7, "dialect": "kubernetes", "user": "alice", "operation": "CREATE",
               "kind": "v1/Pod", "resource": "v1/pods", "namespace": "shop", "name": "web", "verdict": "changed",
               "patch": patch, "microseconds": 1500, "stages": [stage("images", "allow"), sidecar]})
    );
    let [refused] = log.get("c", None).0.try_into().unwrap();
    let refused = refused.record();
    assert_eq!((refused.verdict, refused.code), (DecisionVerdict::Denied, Some(403)));
    assert!(refused.message.unwrap().contains("denied the request: no"));
    assert_eq!(refused.stages[0].reason.as_deref(), Some("no"));
    assert_eq!(refused.stages[1].result, "not-reached");
    assert!(log.get("d", None).0.is_empty());
}

#[test]
fn decision_details_contain_the_objects_of_the_request() {
    let [logged] = log_of_three().get("b", None).0.try_into().unwrap();
    let detail = logged.detail();
    let review = detail.review.unwrap();
    assert_eq!(review.request["object"]["spec"], json!({"token": "hidden"}));
    assert_eq!(review.response["allowed"], true);
    assert_eq!(detail.result.unwrap()["spec"], json!({"token": "other", "size": 3}));
    let (request, _) = logged.request().unwrap();
    assert_eq!(request.object.unwrap().value()["spec"]["token"], "hidden");
}

#[test]
fn configured_values_are_redacted_in_decisions() {
    let log = new_log(10, 1 << 20, &["/spec/token"]);
    log.add(&observed_decision(pod("b", "shop"), &changed_outcome("b")));
    let [logged] = log.get("b", None).0.try_into().unwrap();
    let text = serde_json::to_string(&logged.detail()).unwrap();
    assert!(!text.contains("hidden") && !text.contains("other"), "{text}");
    let detail = logged.detail();
    assert_eq!(detail.result.unwrap()["spec"]["size"], 3);
    assert_eq!(detail.decision.patch.unwrap()[1]["value"], 3);
}

#[test]
fn decisions_do_not_contain_the_content_of_secrets() {
    for (kind, field) in [("Secret", "data"), ("secret", "datas")] {
        let log = new_log(10, 1 << 20, &[]);
        let object = json!({"metadata": {"name": "s"}, field: {"key": "c2VjcmV0"}});
        let patch = Patch::builder()
            .add(&format!("/{field}/key"), &"b3RoZXI=")
            .unwrap()
            .build();
        let mut outcome = changed_outcome("s");
        outcome.trace.pop();
        outcome.trace[0].result = StageResult::Changed(patch.clone());
        outcome.patch = patch;
        log.add(&observed_decision(request("s", kind, &object), &outcome));
        let [logged] = log.get("s", None).0.try_into().unwrap();
        let debug_text = format!("{:?}", logged.decided_request);
        assert!(
            !debug_text.contains("c2VjcmV0") && !debug_text.contains("b3RoZXI"),
            "{debug_text}"
        );
        let detail = logged.detail();
        assert_eq!(detail.decision.verdict, DecisionVerdict::Changed);
        assert_eq!((detail.review, detail.result), (None, None));
        assert!(logged.request().is_none());
    }
}

#[test]
fn a_decision_record_without_values_keeps_the_paths_of_patches() {
    let [logged] = log_of_three().get("b", None).0.try_into().unwrap();
    let mut record = logged.record();
    record.remove_values();
    assert_eq!(
        record.patch.as_ref().unwrap()[0],
        json!({"op": "add", "path": "/spec/token"})
    );
    assert_eq!(record.stages[1].patch, record.patch);
}

#[test]
fn the_decision_log_is_limited_by_count_and_bytes() {
    let log_by_count = new_log(3, 1 << 20, &[]);
    for uid in ["a", "b", "c", "d", "e"] {
        log_by_count.add(&observed_decision(pod(uid, "shop"), &allowed_outcome(uid)));
    }
    let filter = DecisionFilter::default();
    assert_eq!(uids(&log_by_count.list(&filter, None, 10)), ["e", "d", "c"]);

    let one_decision_log = new_log(1, 1 << 20, &[]);
    one_decision_log.add(&observed_decision(pod("a", "shop"), &allowed_outcome("a")));
    let size = one_decision_log.0.memory.collect_into_ring().size;
    let log_by_bytes = new_log(1000, 20 * size, &[]);
    for _ in 0..100 {
        log_by_bytes.add(&observed_decision(pod("a", "shop"), &allowed_outcome("a")));
    }
    assert_eq!(log_by_bytes.list(&filter, None, 100).decisions.len(), 20);
    assert_eq!(log_by_bytes.0.memory.collect_into_ring().size, 20 * size);

    let object = json!({"metadata": {"name": "large"}, "data": "x".repeat(30 * size)});
    log_by_bytes.add(&observed_decision(
        request("large", "ConfigMap", &object),
        &allowed_outcome("large"),
    ));
    let [logged] = log_by_bytes.get("large", None).0.try_into().unwrap();
    assert!(logged.request().is_none() && logged.detail().review.is_none());

    let mut outcome = allowed_outcome("huge");
    outcome.warnings.push("x".repeat(30 * size));
    log_by_bytes.add(&observed_decision(pod("huge", "shop"), &outcome));
    assert!(log_by_bytes.get("huge", None).0.is_empty());
    assert!(log_by_bytes.0.memory.collect_into_ring().size <= 20 * size);
}

#[test]
fn decisions_of_several_threads_are_ordered_by_time() {
    let log = new_log(300, 1 << 20, &[]);
    let add = |name: &str| {
        for number in 0..200 {
            let uid = format!("{name}{number}");
            log.add(&observed_decision(pod(&uid, "shop"), &allowed_outcome(&uid)));
        }
    };
    std::thread::scope(|scope| {
        for name in ["a", "b", "c"] {
            scope.spawn(move || add(name));
        }
    });
    let list = log.list(&DecisionFilter::default(), None, 1000);
    assert_eq!(list.decisions.len(), 300);
    assert!(list.decisions.is_sorted_by(|one, other| one.id > other.id));
    for name in ["a", "b", "c"] {
        let numbers: Vec<u32> = uids(&list)
            .into_iter()
            .filter_map(|uid| uid.strip_prefix(name))
            .map(|number| number.parse().unwrap())
            .collect();
        assert!(numbers.is_sorted_by(|one, other| one > other), "{numbers:?}");
    }
    let newest = uids(&list)[0];
    assert_eq!(log.get(newest, None).0.len(), 1);
}

#[test]
fn a_disabled_decision_log_keeps_no_decisions() {
    let log = DecisionLog::new(None);
    assert!(!log.is_on());
    assert!(log.list(&DecisionFilter::default(), None, 10).decisions.is_empty());
}

/// Returns the next `count` items of a stream: the uid of each decision, or the number of missed decisions.
async fn next_items(stream: &mut DecisionStream, count: usize) -> Vec<String> {
    let results: Vec<_> = stream.by_ref().take(count).collect().await;
    let items = results.into_iter().map(|item| match item {
        StreamItem::Decision(decision) => decision.record().uid,
        StreamItem::Missed(missed) => format!("{missed} missed"),
    });
    items.collect()
}

#[tokio::test(start_paused = true)]
async fn a_follower_gets_new_decisions_that_match_its_filter() {
    let log = log_of_three();
    let all = DecisionFilter::default();
    let refused_filter = DecisionFilter {
        verdict: vec![DecisionVerdict::Denied],
        ..DecisionFilter::default()
    };
    let mut stream_from_now = log.follow(all.clone(), None);
    let mut refusal_stream = log.follow(refused_filter, None);
    let [b] = log.get("b", None).0.try_into().unwrap();
    let mut stream_after_b = log.follow(all, Some(b.id()));
    assert!(stream_from_now.next().now_or_never().is_none());
    assert_eq!(next_items(&mut stream_after_b, 1).await, ["c"]);
    let add = async {
        tokio::task::yield_now().await;
        log.add(&observed_decision(pod("d", "shop"), &allowed_outcome("d")));
        log.add(&observed_decision(pod("e", "shop"), &denied_outcome("e")));
    };
    let (new_items, refusals, items_after_b, ()) = tokio::join!(
        next_items(&mut stream_from_now, 2),
        next_items(&mut refusal_stream, 1),
        next_items(&mut stream_after_b, 2),
        add
    );
    assert_eq!(new_items, ["d", "e"]);
    assert_eq!(refusals, ["e"]);
    assert_eq!(items_after_b, ["d", "e"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_follower_gets_the_number_of_missed_decisions() {
    let log = new_log(3, 1 << 20, &[]);
    let mut slow_stream = log.follow(DecisionFilter::default(), None);
    for uid in ["a", "b", "c", "d", "e"] {
        log.add(&observed_decision(pod(uid, "shop"), &allowed_outcome(uid)));
    }
    assert_eq!(next_items(&mut slow_stream, 4).await, ["2 missed", "c", "d", "e"]);
}

#[test]
fn rates_count_the_decisions_of_each_chain() {
    let log = log_of_three();
    log.add(&observed_decision(pod("d", "shop"), &denied_outcome("d")));
    let rates = log.rates(Duration::from_secs(60));
    let [pods, names] = rates.as_slice() else {
        panic!("{rates:?}");
    };
    assert_eq!((pods.chain.as_str(), pods.phase), ("pods", Phase::Mutating));
    assert_eq!((pods.requests, pods.changed, pods.denied), (2, 1, 0));
    assert_eq!((pods.p50_microseconds, pods.p99_microseconds), (0, 100));
    assert_eq!((names.requests, names.denied), (2, 2));
    assert!((pods.seconds - 60.0).abs() < f64::EPSILON);
    assert_eq!((pods.requests_series.len(), pods.p99_series.len()), (12, 12));
    assert_eq!(pods.requests_series.iter().sum::<u64>(), 2);
    assert_eq!(pods.p99_series.iter().max(), Some(&100));
}

#[test]
fn denials_and_durations_of_an_audit_only_chain_are_counted() {
    let log = new_log(10, 1 << 20, &[]);
    let mut outcome = allowed_outcome("a");
    let denial = StageResult::Denied(Denial::forbidden("no"));
    let mut row = TraceRow::new("trial", Phase::Validating, "tags", denial);
    row.mode = Mode::Audit;
    row.duration = Duration::from_micros(250);
    outcome.trace.push(row);
    log.add(&observed_decision(pod("a", "shop"), &outcome));
    let rates = log.rates(Duration::from_secs(60));
    let trial = rates.iter().find(|rates| rates.chain == "trial").unwrap();
    assert_eq!((trial.requests, trial.denied, trial.would_deny), (1, 0, 1));
    assert_eq!(trial.p99_microseconds, 250);
}

#[test]
fn rates_do_not_count_a_change_if_the_request_is_denied_later() {
    let log = new_log(10, 1 << 20, &[]);
    let mut outcome = changed_outcome("a");
    let denied = denied_outcome("a");
    outcome.decision = denied.decision;
    outcome.trace.extend(denied.trace);
    log.add(&observed_decision(pod("a", "shop"), &outcome));
    let rates = log.rates(Duration::from_secs(60));
    let pods = rates.iter().find(|rates| rates.chain == "pods").unwrap();
    assert_eq!((pods.requests, pods.changed), (1, 0));
}

#[test]
fn pages_of_decisions_have_a_size_limit() {
    let log = new_log(100, 64 << 20, &[]);
    let large_text = "x".repeat(900 << 10);
    let mut oldest = 0;
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"large": large_text}});
    for uid in ["objects", "patches"] {
        for _ in 0..10 {
            let (object, outcome) = match uid {
                "objects" => (object.clone(), allowed_outcome(uid)),
                _ => {
                    let mut outcome = changed_outcome(uid);
                    outcome.patch = Patch::builder().add("/spec/token", &large_text).unwrap().build();
                    (json!({"metadata": {"name": "web"}}), outcome)
                }
            };
            log.add(&observed_decision(request(uid, "Pod", &object), &outcome));
        }
        let (mut before_id, mut ids) = (None, Vec::new());
        loop {
            let (page, older) = log.get(uid, before_id);
            assert!((1..10).contains(&page.len()), "{uid}: {}", page.len());
            ids.extend(page.iter().rev().map(LoggedDecision::id));
            assert_eq!(ids.len() + older, 10, "{uid}");
            before_id = ids.last().copied();
            if older == 0 {
                break;
            }
        }
        assert!(ids.is_sorted_by(|newer, older| newer > older), "{uid}: {ids:?}");
        oldest = before_id.unwrap();
    }
    let filter = DecisionFilter::default();
    let first_page = log.list(&filter, None, 100);
    assert!(
        (1..10).contains(&first_page.decisions.len()),
        "{}",
        first_page.decisions.len()
    );
    let objects = log.list(&filter, Some(oldest), 100);
    assert_eq!((objects.decisions.len(), objects.next), (10, None));
}
