use std::time::SystemTime;

use admittance_admission::{Chain, Deadline, Failure};
use admittance_admission::{
    Denial, GroupVersionKind, Hook, Mode, Operation, Outcome, Phase, Request, Response, Rule, SkipReason, Stage,
    StageResult, async_trait,
};
use tempfile::TempDir;

use super::*;
use crate::{HostBuilder, history::HistoryDirectory};

struct DenyingHook;

#[async_trait]
impl Hook for DenyingHook {
    async fn admit(&self, _: &Arc<Request>, _: Deadline) -> Result<Response, Failure> {
        Ok(Response::deny(Denial::forbidden("no")))
    }
}

fn chain(name: &str, phase: Phase) -> Chain {
    let rules = vec![Rule::for_operations(Operation::ALL)];
    let mut chain = Chain::new(name, rules, vec![Stage::new("images", DenyingHook)]);
    chain.phase = phase;
    chain
}

fn host_builder() -> HostBuilder {
    Host::builder().chain(chain("pods", Phase::Mutating))
}

fn id(text: &str) -> StageId {
    text.parse().unwrap()
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

fn disable_options(duration: Duration, reason: &str) -> DisableOptions {
    DisableOptions {
        audit: false,
        duration,
        reason: reason.to_owned(),
        by: Some("ops".to_owned()),
    }
}

async fn admit(host: &Host) -> Outcome {
    let kind = GroupVersionKind::from_api_version("v1", "Pod");
    let resource = kind.guess_resource();
    host.admit(Request::new(Operation::Delete, kind, resource)).await
}

fn disabled_stages(host: &Host) -> Vec<DisabledStage> {
    let stages = host.status().chains.into_iter().flat_map(|chain| chain.stages);
    stages.filter_map(|stage| stage.disabled).collect()
}

async fn wait_until_all_are_enabled(host: &Host) {
    let mut ends = host.0.disabled_stages.lock().ends();
    ends.wait_for(Option::is_none).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_disabled_stage_is_not_called_until_its_time_ends() {
    let host = host_builder().build().await.unwrap();
    assert!(!admit(&host).await.is_allowed());
    let start_time = Instant::now();
    let switched = host
        .disable(&id("pods/images"), disable_options(minutes(30), " broken "))
        .await
        .unwrap();
    assert_eq!(start_time, Instant::now(), "disabling waits for nothing");
    assert_eq!(switched.disabled.stage, "Mutating:pods/images");
    assert_eq!(switched.disabled.reason, "broken");
    assert!(switched.not_kept.unwrap().contains("directory"));
    assert_eq!(disabled_stages(&host), std::slice::from_ref(&switched.disabled));
    assert_eq!(host.table().revision(), 1);

    let outcome = admit(&host).await;
    assert!(outcome.is_allowed());
    assert_eq!(outcome.trace[0].result, StageResult::Skipped(SkipReason::Disabled));

    wait_until_all_are_enabled(&host).await;
    assert_eq!(start_time.elapsed(), minutes(30));
    assert!(!admit(&host).await.is_allowed());
    assert_eq!(disabled_stages(&host), []);
}

#[tokio::test(start_paused = true)]
async fn a_stage_disabled_to_audit_is_called_but_not_enforced() {
    let host = host_builder().build().await.unwrap();
    let options = DisableOptions {
        audit: true,
        ..disable_options(minutes(1), "false denials")
    };
    host.disable(&id("pods/images"), options).await.unwrap();
    let outcome = admit(&host).await;
    assert!(outcome.is_allowed());
    assert_eq!(outcome.trace[0].mode, Mode::Audit);
    assert_eq!(outcome.trace[0].result.as_str(), "deny");
    assert_eq!(host.status().chains[0].stages[0].mode, Mode::Enforce);
    wait_until_all_are_enabled(&host).await;
    assert!(!admit(&host).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn disabling_a_stage_again_replaces_its_end_and_reason() {
    let host = host_builder().build().await.unwrap();
    let stage = id("Mutating:pods/images");
    let first = host.disable(&stage, disable_options(minutes(30), "one")).await.unwrap();
    let start_time = Instant::now();
    let second = host.disable(&stage, disable_options(minutes(10), "two")).await.unwrap();
    assert_eq!((first.replaced, second.replaced), (None, Some(first.disabled)));
    assert_eq!(disabled_stages(&host), std::slice::from_ref(&second.disabled));
    wait_until_all_are_enabled(&host).await;
    assert_eq!(start_time.elapsed(), minutes(10));

    host.disable(&stage, disable_options(minutes(10), "three"))
        .await
        .unwrap();
    let enabled = host.enable(&id("pods/images"), Some("ops".to_owned())).await.unwrap();
    assert_eq!(enabled.disabled.reason, "three");
    assert!(!admit(&host).await.is_allowed());
}

#[tokio::test]
async fn an_unknown_stage_or_an_invalid_duration_or_reason_is_refused() {
    let host = host_builder()
        .chain(chain("pods", Phase::Validating))
        .build()
        .await
        .unwrap();
    let long = "a".repeat(MAX_REASON_LENGTH + 1);
    for (stage, duration, reason, expected) in [
        (
            "pods/image",
            minutes(1),
            "x",
            "there is no stage pods/image; did you mean pods/images?",
        ),
        (
            "pods/images",
            minutes(1),
            "x",
            "several stages of the name pods/images; write one of: Mutating:pods/images, Validating:pods/images",
        ),
        ("Mutating:pods/images", minutes(1), " \n", "give the reason"),
        ("Mutating:pods/images", minutes(1), &*long, "at most 1000 characters"),
        ("Mutating:pods/images", Duration::ZERO, "x", "1s to 24h, not for 0ns"),
        (
            "Mutating:pods/images",
            minutes(24 * 60) + minutes(1),
            "x",
            "1s to 24h, not for 86460s",
        ),
    ] {
        let error = host
            .disable(&id(stage), disable_options(duration, reason))
            .await
            .unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_eq!(disabled_stages(&host), []);
    let error = host.enable(&id("pods/images"), None).await.unwrap_err();
    assert!(error.to_string().ends_with("the disabled stages are: none"), "{error}");
    for stage in ["Mutating:pods/images", "Validating:pods/images"] {
        host.disable(&id(stage), disable_options(minutes(24 * 60), "x"))
            .await
            .unwrap();
    }
    let error = host.enable(&id("pods/images"), None).await.unwrap_err();
    assert!(matches!(error, DisableError::Invalid(_)), "{error}");
    assert!(admit(&host).await.is_allowed());
}

#[test]
fn an_error_about_an_unknown_stage_lists_at_most_thirty_names() {
    let names: Vec<_> = (0..MAX_LISTED_NAMES + 2).map(|number| number.to_string()).collect();
    let text = list_names(&names).to_string();
    assert!(
        text.starts_with("0, 1, 2, ") && text.ends_with(", 29 and 2 more"),
        "{text}"
    );
}

#[tokio::test]
async fn disabling_a_stage_does_not_wait_for_changes_or_table_slots() {
    let host = host_builder().build().await.unwrap();
    let _state = host.0.state.lock().await;
    let mut tables = Vec::new();
    while host.status().tables < crate::live::MAX_TABLES {
        tables.push(host.wait_for_slot().await.unwrap());
    }
    host.disable(&id("pods/images"), disable_options(minutes(1), "x"))
        .await
        .unwrap();
    assert!(admit(&host).await.is_allowed());
    host.enable(&id("pods/images"), None).await.unwrap();
    assert!(!admit(&host).await.is_allowed());
    assert_eq!(
        host.status().tables,
        crate::live::MAX_TABLES,
        "derived tables need no slots"
    );
}

#[tokio::test]
async fn a_disabled_stage_stays_disabled_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let start = async || host_builder().history(folder.path()).build().await.unwrap();
    let host = start().await;
    let switched = host
        .disable(&id("pods/images"), disable_options(minutes(30), "x"))
        .await
        .unwrap();
    assert_eq!(switched.not_kept, None);
    drop(host);
    let host = start().await;
    let stages = disabled_stages(&host);
    assert_eq!(stages.len(), 1);
    // The time was read from disk, where it is rounded to milliseconds. So the test compares the times as texts, which
    // contain only milliseconds as well.
    assert_eq!(stages[0].until.to_string(), switched.disabled.until.to_string());
    assert!(admit(&host).await.is_allowed());
    host.enable(&id("pods/images"), None).await.unwrap();
    drop(host);
    assert!(!admit(&start().await).await.is_allowed());
}

#[tokio::test]
async fn a_start_enables_stages_that_were_disabled_until_an_earlier_time() {
    let folder = TempDir::new().unwrap();
    let since = SystemTime::now() - minutes(60);
    let disabled = |stage: &str, until: SystemTime| DisabledStage {
        stage: stage.to_owned(),
        audit: false,
        reason: "x".to_owned(),
        by: None,
        since: Moment(since),
        until: Moment(until),
    };
    let directory = HistoryDirectory::open(folder.path()).unwrap();
    let stages = [
        disabled("Mutating:pods/images", since + minutes(30)),
        disabled("Validating:gone/images", since + minutes(90)),
    ];
    directory.write_disabled_stages(&stages).unwrap();
    drop(directory);
    let host = host_builder().history(folder.path()).build().await.unwrap();
    assert!(!admit(&host).await.is_allowed());
    let missing = host.status().disabled_missing;
    assert_eq!(missing.len(), 1);
    assert_eq!(missing[0].stage, "Validating:gone/images");
    host.enable(&id("gone/images"), None).await.unwrap();
    assert_eq!(host.status().disabled_missing, []);
}

#[tokio::test]
async fn all_stages_are_enabled_if_the_file_of_disabled_stages_is_damaged() {
    let folder = TempDir::new().unwrap();
    let host = host_builder().history(folder.path()).build().await.unwrap();
    host.disable(&id("pods/images"), disable_options(minutes(30), "x"))
        .await
        .unwrap();
    drop(host);
    let path = folder.path().join("disabled");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("false", "true")).unwrap();
    let host = host_builder().history(folder.path()).build().await.unwrap();
    assert!(!admit(&host).await.is_allowed());
    host.disable(&id("pods/images"), disable_options(minutes(30), "x"))
        .await
        .unwrap();
    drop(host);
    let host = host_builder().history(folder.path()).build().await.unwrap();
    assert!(admit(&host).await.is_allowed());
}

#[tokio::test(start_paused = true)]
async fn a_stage_is_enabled_early_if_the_clock_is_set_forward() {
    let host = host_builder().build().await.unwrap();
    let mut disabled = host
        .disable(&id("pods/images"), disable_options(minutes(30), "x"))
        .await
        .unwrap()
        .disabled;
    disabled.until = Moment::now();
    let start_time = Instant::now();
    host.0
        .disabled_stages
        .lock()
        .insert(disabled, Instant::now() + minutes(30));
    wait_until_all_are_enabled(&host).await;
    assert!(start_time.elapsed() <= CLOCK_CHECK_INTERVAL);
}
