//! `admittance rollout`: steers the rollout of a candidate.

use std::fmt::Write as _;

use admittance::{Moment, RolloutAction, RolloutState, RolloutStatus, Steered};
use admittance_admin::api::RolloutRequest;
use admittance_definitions::StageId;
use clap::{Args, builder::PossibleValuesParser, builder::TypedValueParser};

use super::{Query, completion};
use crate::{
    human,
    output::{BAD, BOLD, DIM, GOOD, WARN, sanitize_line},
};

/// Steer the rollout of a candidate: begin its next step now, pause, resume or abort it.
///
/// The command takes effect at once, even if definitions, registries or stores have problems. If replicas go live
/// together, they follow one rollout, so send the command to any one of them. If they do not, send it to each.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance rollout pause images/registries
  admittance rollout abort images/registries")]
pub(crate) struct RolloutArguments {
    /// `next` begins the next step now. `pause` keeps the present share of requests. `resume` lets a paused rollout
    /// continue by itself, and restarts an aborted one at the first step. `abort` lets the plugin decide all requests
    /// again.
    #[arg(value_name = "ACTION", value_parser = action())]
    action: RolloutAction,
    /// The stage: pods/images, or Mutating:pods/images if both phases have a chain of that name.
    #[arg(value_name = "CHAIN/STAGE", add = completion::stages())]
    stage: StageId,
    #[command(flatten)]
    query: Query,
}

fn action() -> impl TypedValueParser<Value = RolloutAction> {
    let words = RolloutAction::ALL.map(RolloutAction::as_str);
    PossibleValuesParser::new(words).try_map(|word| word.parse::<RolloutAction>())
}

impl RolloutArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        let request = RolloutRequest {
            stage: self.stage.to_string(),
            action: self.action,
        };
        let text = |steered: &Steered| rollout_text(steered, Moment::now());
        self.query.post_and_print(&["stages", "rollout"], &request, text)
    }
}

fn rollout_text(steered: &Steered, now: Moment) -> String {
    let mut text = rollout_line(&steered.stage, &steered.rollout, now);
    if let Some(why) = &steered.not_kept {
        let _ = writeln!(
            text,
            "{BAD}a restart of the driver forgets this:{BAD:#} {}",
            sanitize_line(why)
        );
    }
    text
}

pub(super) fn rollout_line(stage: &str, rollout: &RolloutStatus, now: Moment) -> String {
    let style = match rollout.state {
        RolloutState::Progressing => BOLD,
        RolloutState::Paused => WARN,
        RolloutState::Aborted => BAD,
        RolloutState::Completed => GOOD,
    };
    let stage = sanitize_line(stage);
    let RolloutStatus { share, state, by, .. } = rollout;
    let mut text = match state {
        RolloutState::Aborted => {
            format!("{style}the plugin of {stage} decides all requests{style:#}: aborted")
        }
        _ => format!("{style}the candidate of {stage} decides {share} of the requests{style:#}, by {by}: {state}"),
    };
    let since = human::age(rollout.since, now);
    let _ = write!(text, " for {since}");
    if let Some(next) = rollout.next {
        let following = rollout.steps.iter().skip_while(|step| *step != share).nth(1);
        let next_step = following.map_or("completed".to_owned(), |step| sanitize_line(step));
        let _ = write!(text, ", {next_step} in {}", human::age(now, next));
    }
    if let Some(reason) = &rollout.reason {
        let _ = write!(text, "; {}", sanitize_line(reason));
    }
    if *state == RolloutState::Completed {
        text.push_str("; `promote` makes it the plugin");
    }
    let _ = writeln!(
        text,
        " {DIM}({} decided, {} failed, {} of {} compared refused){DIM:#}",
        rollout.decided, rollout.failed, rollout.refused, rollout.compared
    );
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::table::strip_styles;

    #[test]
    fn a_rollout_is_printed_as_one_line() {
        let rollout = |state: &str, more: serde_json::Value| {
            let mut rollout = json!({
                "state": state, "share": "25%", "steps": ["10%", "25%", "100%"], "by": "namespace",
                "since": "1970-01-01T00:00:00Z", "decided": 40, "failed": 1, "compared": 30, "refused": 2,
            });
            for (key, value) in more.as_object().unwrap() {
                rollout[key] = value.clone();
            }
            serde_json::from_value::<RolloutStatus>(rollout).unwrap()
        };
        let now = Moment(std::time::UNIX_EPOCH + std::time::Duration::from_secs(60));
        for (rollout, expected) in [
            (
                rollout("progressing", json!({"next": "1970-01-01T00:10:00Z"})),
                "the candidate of Mutating:pods/images decides 25% of the requests, by namespace: progressing for 1m0s, 100% \
                 in 9m0s (40 decided, 1 failed, 2 of 30 compared refused)\n",
            ),
            (
                rollout("paused", json!({"reason": "paused by ops"})),
                "the candidate of Mutating:pods/images decides 25% of the requests, by namespace: paused for 1m0s; paused by \
                 ops (40 decided, 1 failed, 2 of 30 compared refused)\n",
            ),
            (
                rollout("aborted", json!({"share": "0%", "reason": "it\nfailed"})),
                "the plugin of Mutating:pods/images decides all requests: aborted for 1m0s; it failed (40 decided, 1 failed, 2 \
                 of 30 compared refused)\n",
            ),
            (
                rollout("completed", json!({"share": "100%"})),
                "the candidate of Mutating:pods/images decides 100% of the requests, by namespace: completed for 1m0s; \
                 `promote` makes it the plugin (40 decided, 1 failed, 2 of 30 compared refused)\n",
            ),
        ] {
            assert_eq!(
                strip_styles(&rollout_line("Mutating:pods/images", &rollout, now)),
                expected
            );
            let steered = json!({"stage": "a/b", "rollout": rollout, "notKept": "disk full"});
            let text = rollout_text(&serde_json::from_value(steered).unwrap(), now);
            assert!(
                strip_styles(&text).ends_with("a restart of the driver forgets this: disk full\n"),
                "{text}"
            );
        }
    }

    #[test]
    fn invalid_arguments_of_rollout_are_refused() {
        crate::assert_acceptance(&[
            ("rollout next pods/images", true),
            ("rollout abort Mutating:pods/images -o json", true),
            ("rollout stop pods/images", false),
            ("rollout pause pods", false),
            ("rollout pods/images", false),
        ]);
    }
}
