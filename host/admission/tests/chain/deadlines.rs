//! Deadlines, and work that must not block a serving thread.

use std::{
    pin::pin,
    sync::mpsc,
    task::{Context, Waker},
    thread::available_parallelism,
};

use admittance_admission::offload;
use tokio::spawn;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn large_request() -> Request {
    let mut request = request(Operation::Create);
    let mut value = pod();
    value["spec"]["text"] = json!("x".repeat(200 << 10));
    value["spec"]["list"] = json!(vec![1; 200_000]);
    request.object = Object::from_value(value);
    request
}

fn failure_of(outcome: &Outcome) -> &Failure {
    match &outcome.trace[0].result {
        StageResult::Failed { failure, .. } => failure,
        _ => panic!("{outcome:?}"),
    }
}

/// The test keeps all threads for long work busy. An evaluation that needs one of them has to wait, so its first poll
/// does not finish it.
#[tokio::test]
async fn a_large_patch_is_applied_on_another_thread() {
    let copies: Vec<Value> = (0..35)
        .map(|i| json!({"op": "copy", "from": "", "path": format!("/b{i}")}))
        .collect();
    let request = large_request();
    let thread_count = (available_parallelism().unwrap().get() - 1).max(1);
    for mode in Mode::ALL {
        let mut stage = Stage::new("stage", Script::Patch(copies.clone().into()));
        (stage.spec.mode, stage.spec.timeout) = (mode, MINUTE);
        let (release_sender, mut release_receiver) = tokio::sync::mpsc::unbounded_channel();
        let blockers: Vec<_> = (0..thread_count)
            .map(|_| {
                let (release_sender, (free, until_free)) = (release_sender.clone(), mpsc::channel::<()>());
                let hold = move || {
                    release_sender.send(free).unwrap();
                    let _ = until_free.recv();
                };
                spawn(offload(usize::MAX, Deadline::after(MINUTE), hold))
            })
            .collect();
        let mut releases = Vec::new();
        for _ in &blockers {
            releases.push(release_receiver.recv().await.unwrap());
        }
        let mut run = pin!(run(vec![stage], request.clone(), MINUTE));
        let first = run.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(first.is_pending(), "{mode}: the worker was held");
        drop(releases);
        for blocker in blockers {
            blocker.await.unwrap().unwrap();
        }
        let outcome = run.await;
        assert_eq!(failure_of(&outcome).kind, FailureKind::OutputTooLarge);
        assert_eq!(outcome.is_allowed(), mode == Mode::Audit);
    }
}

#[tokio::test]
async fn applying_a_patch_ends_at_the_timeout_of_its_stage() {
    let middle = vec![json!({"op": "add", "path": "/spec/list/100000", "value": 1}); 9_999];
    for mode in Mode::ALL {
        let mut stage = Stage::new("stage", Script::Patch(middle.clone().into()));
        (stage.spec.mode, stage.spec.timeout) = (mode, Duration::from_millis(1));
        let outcome = run(vec![stage], large_request(), MINUTE).await;
        assert_eq!(failure_of(&outcome).kind, FailureKind::Timeout);
        assert_eq!(outcome.is_allowed(), mode == Mode::Audit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stage_ends_at_its_timeout_or_the_requests_deadline() {
    use FailurePolicy::{Fail, Ignore};
    use Script::*;
    let second = 1000;
    // (case, milliseconds until the request's deadline, stages, results in the trace, refusal)
    // A stage is (script of its hook, timeout in ms, failure policy).
    // The timeouts work as in kube-apiserver.
    let table: Vec<(&str, u64, Vec<(Script, u64, FailurePolicy)>, &[&str], &str)> = vec![
        ("within both", 10 * second, vec![(Slow(400), 500, Fail)], &["allow"], ""),
        (
            "over its own",
            10 * second,
            vec![(Slow(600), 500, Fail)],
            &["failed"],
            "stage stage of chain chain failed (timeout): no verdict within the stage's timeout of 500ms",
        ),
        (
            "over the request's",
            300,
            vec![(Slow(400), 500, Fail)],
            &["failed"],
            "stage stage of chain chain failed (timeout): no verdict before the request's deadline",
        ),
        (
            "stages eat the request's time",
            1000,
            vec![(Slow(400), 500, Fail), (Slow(400), 500, Fail), (Slow(400), 500, Fail)],
            &["allow", "allow", "failed"],
            "stage stage of chain chain failed (timeout): no verdict before the request's deadline",
        ),
        (
            "nothing left for the next, whatever its policy",
            300,
            vec![(Hang, 500, Ignore), (Allow, 500, Ignore)],
            &["failed", "not-reached"],
            "the request's deadline passed before stage stage of chain chain could be called",
        ),
    ];
    for (case, budget, stages, words, refusal) in table {
        let stages = stages
            .into_iter()
            .map(|(script, timeout, policy)| {
                let mut stage = enforced_stage(script, policy);
                stage.spec.timeout = Duration::from_millis(timeout);
                stage
            })
            .collect();
        let outcome = run(stages, request(Operation::Create), Duration::from_millis(budget)).await;
        assert_eq!(
            summary(&outcome),
            (words.to_vec(), refusal.to_owned(), json!([])),
            "{case}"
        );
    }
}

#[tokio::test]
async fn dropping_an_evaluation_drops_the_call_of_its_hook() {
    struct GuardedHook(Arc<AtomicUsize>);
    struct DropSignal(Arc<AtomicUsize>);
    impl Drop for DropSignal {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    #[async_trait]
    impl Hook for GuardedHook {
        async fn admit(&self, _: &Arc<Request>, _: Deadline) -> Result<Response, Failure> {
            let _guard = DropSignal(self.0.clone());
            std::future::pending().await
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut stage = Stage::new("stage", GuardedHook(dropped.clone()));
    stage.spec.timeout = Duration::from_millis(1);
    let outcome = run(vec![stage], request(Operation::Create), Duration::from_secs(1)).await;
    assert!(!outcome.is_allowed());
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}
