use std::{sync::Arc, time::Duration};

use admittance_admission::{Digest, Phase};
use admittance_definitions::{RolloutDefinition, load_text};
use tokio::{
    sync::Notify,
    time::{Instant, advance},
};

use super::*;

const STAGE: &str = "Mutating:pods/images";

fn definition(rollout: &str) -> RolloutDefinition {
    let text = format!(
        "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: {{ name: pods }}\nspec:\n  rules: [ {{ \
         operations: ['*'], resources: [pods] }} ]\n  stages:\n  - name: images\n    plugin: {{ source: file:a.wasm }}\n    \
         candidate: {{ source: file:b.wasm, rollout: {rollout} }}\n"
    );
    let mut chains = load_text("f", &text).unwrap();
    chains.remove(0).stages.remove(0).candidate.unwrap().rollout.unwrap()
}

fn new_rollout(subject: &str, definition_text: &str) -> Arc<Rollout> {
    let (subject, limit_reached) = (Digest::of_bytes(subject), Arc::new(Notify::new()));
    Arc::new(Rollout::new(STAGE, subject, definition(definition_text), limit_reached))
}

/// Creates a rollout that has three steps of ten minutes each.
fn three_step_rollout() -> Arc<Rollout> {
    new_rollout("one", "{ steps: [10, 50, 100] }")
}

fn live_rollouts(rollout: &Arc<Rollout>) -> Rollouts {
    let mut rollouts = Rollouts::default();
    assert!(rollouts.adopt([rollout.clone()].into_iter()), "it begins");
    rollouts
}

/// Returns the state, the share and the reason that the status shows for a rollout.
fn shown_status(rollouts: &Rollouts, rollout: &Rollout) -> (RolloutState, String, Option<String>) {
    let progress = rollouts.get(Phase::Mutating, "pods", "images").unwrap();
    let status = progress.status(rollout);
    assert_eq!(status.next.is_some(), status.state == RolloutState::Progressing);
    (status.state, status.share, status.reason)
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

use RolloutAction::{Abort, Next, Pause, Resume};
use RolloutState::{Aborted, Completed, Paused, Progressing};

#[tokio::test(start_paused = true)]
async fn the_steps_of_a_rollout_begin_automatically() {
    let rollout = three_step_rollout();
    let mut rollouts = live_rollouts(&rollout);
    for (state, share) in [(Progressing, "10%"), (Progressing, "50%"), (Progressing, "100%")] {
        assert_eq!(shown_status(&rollouts, &rollout), (state, share.to_owned(), None));
        assert_eq!(rollouts.next_end(), Some(Instant::now() + minutes(10)));
        advance(minutes(10) - Duration::from_secs(1)).await;
        assert!(!rollouts.advance());
        advance(Duration::from_secs(1)).await;
        assert!(rollouts.advance());
    }
    assert_eq!(shown_status(&rollouts, &rollout), (Completed, "100%".to_owned(), None));
    assert_eq!(rollouts.next_end(), None);
    advance(minutes(100)).await;
    assert!(!rollouts.advance());
}

#[tokio::test(start_paused = true)]
async fn a_rollout_with_one_step_completes_after_a_pause() {
    let rollout = new_rollout("one", "{ percent: 20 }");
    let mut rollouts = live_rollouts(&rollout);
    advance(minutes(10)).await;
    assert!(rollouts.advance());
    assert_eq!(shown_status(&rollouts, &rollout), (Completed, "20%".to_owned(), None));
}

#[tokio::test(start_paused = true)]
async fn each_state_of_a_rollout_allows_only_some_user_actions() {
    let rollout = three_step_rollout();
    let mut rollouts = live_rollouts(&rollout);
    for (action, expected) in [
        (Next, Ok((Progressing, "50%", None))),
        (Pause, Ok((Paused, "50%", Some("paused by ops")))),
        (Next, Ok((Paused, "100%", Some("paused by ops")))),
        (Resume, Ok((Progressing, "100%", None))),
        (Resume, Err(Progressing)),
        (Next, Ok((Completed, "100%", None))),
        (Next, Err(Completed)),
        (Pause, Err(Completed)),
        (Resume, Err(Completed)),
        (Abort, Ok((Aborted, "0%", Some("aborted by ops")))),
        (Abort, Err(Aborted)),
        (Next, Err(Aborted)),
        (Pause, Err(Aborted)),
        (Resume, Ok((Progressing, "10%", None))),
    ] {
        let steer_result = rollouts.steer(STAGE, action, Some("ops"));
        match (steer_result, expected) {
            (Ok(status), Ok((state, share, reason))) => {
                assert_eq!((status.state, status.share.as_str()), (state, share), "{action}");
                assert_eq!(status.reason.as_deref(), reason, "{action}");
            }
            (steered, expected) => assert_eq!(steered.map(drop), expected.map(drop), "{action}"),
        }
        let is_progressing = shown_status(&rollouts, &rollout).0 == Progressing;
        assert_eq!(rollouts.next_end().is_some(), is_progressing, "{action}");
    }
    assert_eq!(rollouts.next_end(), Some(Instant::now() + minutes(10)));
}

#[tokio::test(start_paused = true)]
async fn a_rollout_continues_in_a_new_table_with_the_same_candidate() {
    let old_rollout = three_step_rollout();
    let mut rollouts = live_rollouts(&old_rollout);
    rollouts.steer(STAGE, Next, None).unwrap();
    advance(minutes(4)).await;
    let same_rollout = three_step_rollout();
    assert!(!rollouts.adopt([same_rollout.clone()].into_iter()));
    assert_eq!(shown_status(&rollouts, &same_rollout).1, "50%");
    assert_eq!(rollouts.next_end(), Some(Instant::now() + minutes(6)));
    for _ in 0..5 {
        same_rollout.count_decided(true);
    }
    assert!(rollouts.advance());
    assert_eq!(shown_status(&rollouts, &same_rollout).0, Aborted);
    let other_rollout = new_rollout("two", "{ steps: [10, 50, 100] }");
    assert!(rollouts.adopt([other_rollout.clone()].into_iter()));
    assert_eq!(
        shown_status(&rollouts, &other_rollout),
        (Progressing, "10%".to_owned(), None)
    );
    assert!(rollouts.adopt(std::iter::empty()));
    assert!(rollouts.get(Phase::Mutating, "pods", "images").is_none());
    assert_eq!(rollouts.next_end(), None);
}

#[tokio::test(start_paused = true)]
async fn a_rollout_continues_after_a_restart() {
    let rollout = three_step_rollout();
    let mut rollouts = live_rollouts(&rollout);
    rollouts.steer(STAGE, Next, None).unwrap();
    let stored_json = serde_json::to_string(&rollouts.list()).unwrap();
    let restart = |rollout: &Arc<Rollout>| {
        let mut rollouts = Rollouts::new(serde_json::from_str(&stored_json).unwrap());
        let is_changed = rollouts.adopt([rollout.clone()].into_iter());
        (rollouts, is_changed)
    };
    let (mut restarted_rollouts, is_changed) = restart(&three_step_rollout());
    assert!(!is_changed);
    assert_eq!(
        shown_status(&restarted_rollouts, &rollout),
        shown_status(&rollouts, &rollout)
    );
    // The test pauses tokio's clock, but the time on disk comes from the system clock, which goes on. So a little less
    // than the 10 minutes of the step may be left.
    let remaining_time = restarted_rollouts.next_end().unwrap() - Instant::now();
    assert!(
        remaining_time > minutes(9) && remaining_time <= minutes(10),
        "{remaining_time:?}"
    );
    advance(remaining_time).await;
    assert!(restarted_rollouts.advance());
    assert_eq!(shown_status(&restarted_rollouts, &rollout).1, "100%");
    let other_rollout = super::tests::new_rollout("two", "{ percent: 20 }");
    let (restarted_rollouts, is_changed) = restart(&other_rollout);
    assert!(is_changed);
    assert_eq!(
        shown_status(&restarted_rollouts, &other_rollout),
        (Progressing, "20%".to_owned(), None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_step_that_expired_while_the_host_was_stopped_ends_on_restart() {
    let rollout = three_step_rollout();
    let stored_json = serde_json::to_value(live_rollouts(&rollout).list()).unwrap();
    let mut stored_rollouts = serde_json::from_value::<Vec<serde_json::Value>>(stored_json).unwrap();
    let since = Moment(Moment::now().0 - minutes(60));
    stored_rollouts[0]["since"] = serde_json::to_value(since).unwrap();
    let mut rollouts = Rollouts::new(serde_json::from_value(stored_rollouts.into()).unwrap());
    rollouts.adopt([rollout.clone()].into_iter());
    assert_eq!(shown_status(&rollouts, &rollout).1, "10%");
    assert_eq!(rollouts.next_end(), Some(Instant::now()));
    assert!(rollouts.advance());
    assert_eq!(shown_status(&rollouts, &rollout).1, "50%");
    assert!(!rollouts.advance());
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_reaches_a_limit_is_aborted() {
    // (requests for which the candidate failed, requests that the candidate decided, requests that only the candidate
    // denied, requests whose verdicts were compared, expected reason for the abort)
    for (failed, decided, refused, compared, expected) in [
        (1, 20, 2, 20, None),
        (
            2,
            20,
            0,
            20,
            Some("the candidate failed for 2 of 2 requests; the limit is 2"),
        ),
        (
            0,
            20,
            3,
            20,
            Some("the candidate denied 3 of 3 compared requests that the plugin does not deny; the limit is 3%"),
        ),
    ] {
        let (limit_reached, definition_text) = (
            Arc::new(Notify::new()),
            "{ percent: 10, abortOn: { failures: 2, refusals: 3% } }",
        );
        let rollout = Rollout::new(
            STAGE,
            Digest::of_bytes(""),
            definition(definition_text),
            limit_reached.clone(),
        );
        let rollout = Arc::new(rollout);
        let mut rollouts = live_rollouts(&rollout);
        for number in 0..decided {
            rollout.count_decided(number < failed);
        }
        for number in 0..compared {
            rollout.count_compared(number < refused);
        }
        let is_notified = tokio::time::timeout(Duration::ZERO, limit_reached.notified())
            .await
            .is_ok();
        assert_eq!(
            (is_notified, rollouts.advance()),
            (expected.is_some(), expected.is_some())
        );
        let (state, _, reason) = shown_status(&rollouts, &rollout);
        assert_eq!(state == Aborted, expected.is_some());
        assert_eq!(reason.as_deref(), expected);
        if state == Aborted {
            rollouts.steer(STAGE, Resume, None).unwrap();
            assert!(!rollouts.advance());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn limits_of_a_rollout_are_counted_anew_after_each_pause() {
    let rollout = new_rollout("one", "{ percent: 10 }");
    let mut rollouts = live_rollouts(&rollout);
    for _ in 0..4 {
        rollout.count_decided(true);
    }
    advance(minutes(10)).await;
    assert!(rollouts.advance());
    for _ in 0..1000 {
        rollout.count_decided(false);
    }
    rollout.count_decided(true);
    assert!(!rollouts.advance());
    advance(minutes(10)).await;
    for _ in 0..5 {
        rollout.count_decided(true);
    }
    assert!(rollouts.advance());
    assert_eq!(shown_status(&rollouts, &rollout).0, Aborted);
}

/// Gives each of two replicas the progress that the other reports.
fn exchange(one: &mut Rollouts, other: &mut Rollouts) {
    one.follow(other.list());
    other.follow(one.list());
    assert!(
        !one.follow(other.list()) && !other.follow(one.list()),
        "nothing is left to follow"
    );
}

#[tokio::test(start_paused = true)]
async fn replicas_adopt_the_latest_change_of_any_replica() {
    let rollouts = [three_step_rollout(), three_step_rollout()];
    let [mut first_replica, mut second_replica] = rollouts.each_ref().map(live_rollouts);
    let state_and_share = |replica: &Rollouts| {
        let (state, share, _) = shown_status(replica, &rollouts[0]);
        (state, share)
    };
    for (actions, expected) in [
        ((Some(Next), None), (Progressing, "50%")),
        ((None, Some(Pause)), (Paused, "50%")),
        ((None, Some(Resume)), (Progressing, "50%")),
        // One replica begins the next step (100 %), and the other one pauses the rollout at the current step (50 %), at
        // the same time. Both replicas then stay at the smaller step.
        ((Some(Next), Some(Pause)), (Paused, "50%")),
        ((Some(Resume), None), (Progressing, "50%")),
        // One replica aborts the rollout, and the other one begins the next step at the same time. Both replicas then
        // abort the rollout.
        ((Some(Abort), Some(Next)), (Aborted, "0%")),
        ((None, Some(Resume)), (Progressing, "10%")),
        ((None, Some(Next)), (Progressing, "50%")),
    ] {
        for (replica, action) in [(&mut first_replica, actions.0), (&mut second_replica, actions.1)] {
            if let Some(action) = action {
                replica.steer(STAGE, action, Some("ops")).unwrap();
            }
        }
        exchange(&mut first_replica, &mut second_replica);
        let expected = (expected.0, expected.1.to_owned());
        assert_eq!(
            (state_and_share(&first_replica), state_and_share(&second_replica)),
            (expected.clone(), expected),
            "{actions:?}"
        );
        assert_eq!(first_replica.next_end(), second_replica.next_end(), "{actions:?}");
    }
    for _ in 0..5 {
        rollouts[1].count_decided(true);
    }
    first_replica.steer(STAGE, Next, None).unwrap();
    first_replica.steer(STAGE, Pause, None).unwrap();
    assert!(second_replica.advance());
    exchange(&mut first_replica, &mut second_replica);
    assert_eq!(
        shown_status(&first_replica, &rollouts[0]),
        shown_status(&second_replica, &rollouts[1])
    );
    assert_eq!(state_and_share(&first_replica).0, Aborted);

    let mut late_replica = live_rollouts(&rollouts[0]);
    exchange(&mut late_replica, &mut first_replica);
    assert_eq!(state_and_share(&late_replica).0, Aborted);
    let mut replica_of_other_rollout = Rollouts::default();
    replica_of_other_rollout.adopt([new_rollout("two", "{ percent: 20 }")].into_iter());
    assert!(!replica_of_other_rollout.follow(first_replica.list()));
}

#[tokio::test(start_paused = true)]
async fn replicas_agree_on_a_rollout_although_their_clocks_differ() {
    let rollout = three_step_rollout();
    let [mut leader, mut follower] = [live_rollouts(&rollout), live_rollouts(&rollout)];
    follower.set_led(true);
    assert_eq!(follower.next_end(), None);
    advance(minutes(10)).await;
    assert!(!follower.advance(), "the leader begins the steps");
    assert!(leader.advance());
    for (minutes_ahead, action) in [(-60, Pause), (60, Resume)] {
        leader.steer(STAGE, action, None).unwrap();
        let mut reported_progress = leader.list();
        for progress in &mut reported_progress {
            let shift = minutes(60);
            if minutes_ahead < 0 {
                progress.since.0 -= shift
            } else {
                progress.since.0 += shift
            }
        }
        follower.follow(reported_progress);
        let state = |replica: &Rollouts| shown_status(replica, &rollout).0;
        assert_eq!(state(&follower), state(&leader), "{minutes_ahead}");
    }
    follower.set_led(false);
    assert_eq!(follower.next_end(), Some(Instant::now() + minutes(10)));
    advance(minutes(10)).await;
    assert!(follower.advance());
    assert_eq!(shown_status(&follower, &rollout).1, "100%");
}
