//! Rollouts, in which the candidate of a plugin decides a growing share of the requests.

use serde_json::{Value, json};

use super::setup::{OperatorSetup, annotations_by, chain};
use crate::scene::{source, write};

const STAGE_LABEL: (&str, &str) = ("stage", "Mutating:versions/version");

fn chain_with_rollout(rollout: &str) -> String {
    let candidate = format!("      candidate:\n        source: file:../two.wasm\n        rollout: {rollout}\n");
    chain("one.wasm", &candidate)
}

async fn rollout_summary(setup: &OperatorSetup) -> String {
    let status = setup.json_of(&["status"]).await;
    let rollout = &status["chains"][0]["stages"][0]["candidate"]["rollout"];
    let text = |field: &str| rollout[field].as_str().unwrap_or_default().to_owned();
    format!("{} {}", text("state"), text("share"))
}

async fn stage_metric(setup: &OperatorSetup, name: &str) -> Option<f64> {
    setup.program.metrics().await.unwrap().sum(name, &[STAGE_LABEL])
}

#[tokio::test]
async fn a_candidate_decides_its_share_of_the_requests() {
    let setup = OperatorSetup::start_with_chain(&chain_with_rollout("{ steps: [50, 100], by: uid, pause: 1h }")).await;
    let mut decided = [0; 2];
    for number in 0..40 {
        let versions = setup.versions_of(&format!("a{number}")).await;
        assert!([annotations_by(1), annotations_by(2)].contains(&versions), "{versions}");
        decided[usize::from(versions == annotations_by(2))] += 1;
    }
    assert!(decided.iter().all(|count| *count >= 5), "{decided:?}");
    let list = setup.json_of(&["decisions"]).await;
    let decision_count = |is_by_candidate: bool| {
        let decisions = list["decisions"].as_array().unwrap().iter();
        let rows = decisions.map(|decision| decision["stages"][0]["byCandidate"] == json!(true));
        rows.filter(|by_candidate| *by_candidate == is_by_candidate).count()
    };
    assert_eq!([decision_count(false), decision_count(true)], decided, "{list:#}");
    let metrics = setup.program.metrics().await.unwrap();
    assert_eq!(metrics.sum("admittance_rollout_share", &[STAGE_LABEL]), Some(0.5));
    let count = |result| metrics.sum("admittance_rollout_requests_total", &[STAGE_LABEL, ("result", result)]);
    let of_candidate = u32::try_from(decided[1]).map(f64::from).ok();
    assert_eq!(
        [count("decided"), count("failed"), count("refused")],
        [of_candidate, Some(0.0), Some(0.0)]
    );

    // If the definition of a rollout changes, the rollout begins again with its first step.
    setup.stdout_of(["rollout", "next", "versions/version"]).await;
    assert_eq!(setup.versions_of("b").await, annotations_by(2));
    write(
        &setup.directory,
        "chains/versions.yaml",
        chain_with_rollout("{ percent: 50, by: user, pause: 1h }"),
    );
    let is_by_user = |status: &Value| {
        let rollout = &status["chains"][0]["stages"][0]["candidate"]["rollout"];
        (&rollout["by"], &rollout["share"]) == (&json!("user"), &json!("50%"))
    };
    setup
        .program
        .wait_for_status("the new rollout", is_by_user)
        .await
        .unwrap();
    // The rollout now chooses by user, so the same version of the plugin decides all requests of a user.
    let first = setup.versions_of("c").await;
    for name in ["d", "e", "f", "g"] {
        assert_eq!(setup.versions_of(name).await, first);
    }
}

#[tokio::test]
async fn a_rollout_follows_commands_and_survives_a_restart() {
    let mut setup = OperatorSetup::start_with_chain(&chain_with_rollout("{ steps: [1, 100], pause: 1h }")).await;
    assert_eq!(rollout_summary(&setup).await, "progressing 1%");
    // The candidate decides requests of 1 % of the namespaces, chosen by a hash of their names. `shop` is not chosen.
    assert_eq!(setup.versions_of("a").await, annotations_by(1));
    for (number, (action, expected, version)) in [
        ("next", "progressing 100%", 2),
        ("pause", "paused 100%", 2),
        ("next", "completed 100%", 2),
        ("abort", "aborted 0%", 1),
        ("resume", "progressing 1%", 1),
        ("next", "progressing 100%", 2),
    ]
    .into_iter()
    .enumerate()
    {
        setup.stdout_of(["rollout", action, "versions/version"]).await;
        assert_eq!(rollout_summary(&setup).await, expected, "{action}");
        let name = format!("steered-{number}");
        assert_eq!(setup.versions_of(&name).await, annotations_by(version), "{action}");
        setup.restart().await;
        assert_eq!(rollout_summary(&setup).await, expected, "{action}, after a restart");
        let name = format!("restarted-{number}");
        assert_eq!(setup.versions_of(&name).await, annotations_by(version), "{action}");
    }
    for (action, stage, reason) in [
        (
            "resume",
            "versions/version",
            "is progressing, which leaves nothing to resume",
        ),
        (
            "abort",
            "versions/other",
            "the rollouts are of: Mutating:versions/version",
        ),
    ] {
        let refusal = setup.run_command(["rollout", action, stage]).await;
        assert_eq!(refusal.code, Some(2));
        assert!(refusal.stderr.contains(reason), "{}", refusal.stderr);
    }

    setup.stdout_of(["promote", "versions/version"]).await;
    assert_eq!(setup.versions_of("promoted").await, annotations_by(2));
    let text = setup.read("chains/versions.yaml");
    assert!(!text.contains("rollout"), "{text}");
    assert_eq!(stage_metric(&setup, "admittance_rollout_share").await, Some(0.0));
}

/// A rollout is aborted if the candidate fails, or if it denies requests that the plugin allows.
#[tokio::test]
async fn a_harmful_candidate_is_aborted() {
    for (package, settings, limit, at_least, reason) in [
        (
            "guest-misbehaves",
            "{ behaviour: traps }",
            "failures: 3",
            3,
            "the candidate failed for 3 of 3 requests; the limit is 3",
        ),
        (
            "image-policy",
            "{ allowedRegistries: [registry.example.com] }",
            "refusals: 1",
            1,
            "the candidate denied 1 of 1 compared requests that the plugin does not deny; the limit is 1",
        ),
    ] {
        let candidate = format!(
            "      candidate:\n        source: \"{}\"\n        settings: {settings}\n        rollout: {{ percent: 100, \
             pause: 1h, abortOn: {{ {limit} }} }}\n",
            source(package)
        );
        let setup = OperatorSetup::start_with_chain(&chain("one.wasm", &candidate)).await;
        let mark = setup.program.mark();
        let mut refused_count = 0;
        // The rollout is aborted shortly after the limit is reached, so further requests may be refused.
        while setup.create(&format!("a{refused_count}")).await.status != 200 {
            refused_count += 1;
        }
        assert!(refused_count >= at_least, "{refused_count} {package}");
        assert_eq!(setup.versions_of("after").await, annotations_by(1));
        let line = setup
            .program
            .wait_for_log_after(mark, "the abort", |line| line.field("state") == "aborted")
            .await
            .unwrap();
        assert!(line.message().contains(reason), "{}", line.message());
        assert_eq!(rollout_summary(&setup).await, "aborted 0%");
        let status = setup.stdout_of(["status"]).await;
        assert!(status.contains(reason), "{status}");
        assert_eq!(stage_metric(&setup, "admittance_rollout_aborted").await, Some(1.0));
    }
}
