//! `admittance disable` and `enable`: for a time, a stage is not called, or its answers are not enforced.

use std::{fmt::Write as _, time::Duration};

use admittance::{DisabledStage, Moment, Switched};
use admittance_admin::api::{DisableRequest, EnableRequest};
use admittance_definitions::StageId;
use clap::Args;

use super::{Query, completion};
use crate::{
    human,
    output::{BAD, DIM, GOOD, WARN, sanitize_line},
};

/// Disable a stage for a time: requests are handled without calling it. The stage is enabled again automatically.
///
/// The command takes effect at once, even if definitions, registries or stores have problems. It applies to this driver
/// only: disable the stage in each replica.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance disable pods/images --for 30m --reason 'the registry is down'
  admittance disable pods/images --for 2h --reason 'false denials, ticket 4711' --audit")]
pub(crate) struct DisableArguments {
    /// The stage: pods/images, or Mutating:pods/images if both phases have a chain of that name.
    #[arg(value_name = "CHAIN/STAGE", add = completion::stages())]
    stage: StageId,
    /// The time until the stage is enabled again: 1s to 24h.
    #[arg(long = "for", value_name = "TIME", value_parser = crate::arguments::duration)]
    duration: Duration,
    /// The reason, which is shown in `status` and in the log.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Call the stage as in mode Audit: its answers are recorded and not enforced.
    #[arg(long)]
    audit: bool,
    #[command(flatten)]
    query: Query,
}

/// Enable a stage that is disabled, before the given time is over.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance enable pods/images")]
pub(crate) struct EnableArguments {
    /// The stage: pods/images, or Mutating:pods/images if both phases have a chain of that name.
    #[arg(value_name = "CHAIN/STAGE", add = completion::stages())]
    stage: StageId,
    #[command(flatten)]
    query: Query,
}

impl DisableArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        let request = DisableRequest {
            stage: self.stage.to_string(),
            expires_in: self.duration.as_secs(),
            reason: self.reason.clone(),
            audit: self.audit,
        };
        self.query
            .post_and_print(&["stages", "disable"], &request, disabled_text)
    }
}

impl EnableArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        let stage = self.stage.to_string();
        self.query
            .post_and_print(&["stages", "enable"], &EnableRequest { stage }, enabled_text)
    }
}

fn disabled_text(switched: &Switched) -> String {
    let Switched { disabled, replaced, .. } = switched;
    let mut text = format!(
        "{WARN}{} is {}{WARN:#} until {}\n",
        sanitize_line(&disabled.stage),
        state_word(disabled),
        human::timestamp(disabled.until)
    );
    if let Some(replaced) = replaced {
        let _ = writeln!(text, "before, it was {}", disabling_text(replaced));
    }
    text + &not_kept_note(switched)
}

fn enabled_text(switched: &Switched) -> String {
    let disabled = &switched.disabled;
    let text = format!(
        "{GOOD}{} is enabled{GOOD:#}; it was {}\n",
        sanitize_line(&disabled.stage),
        disabling_text(disabled)
    );
    text + &not_kept_note(switched)
}

fn not_kept_note(switched: &Switched) -> String {
    match &switched.not_kept {
        Some(why) => format!(
            "{BAD}a restart of the driver forgets this:{BAD:#} {}\n",
            sanitize_line(why)
        ),
        None => String::new(),
    }
}

fn state_word(disabled: &DisabledStage) -> &'static str {
    if disabled.audit { "only audited" } else { "disabled" }
}

fn disabling_text(disabled: &DisabledStage) -> String {
    format!(
        "{} until {}, {}",
        state_word(disabled),
        human::timestamp(disabled.until),
        by_and_reason(disabled)
    )
}

fn by_and_reason(disabled: &DisabledStage) -> String {
    let by = disabled.by.as_deref().unwrap_or("unknown");
    format!("by {}: {}", sanitize_line(by), sanitize_line(&disabled.reason))
}

pub(super) fn disabled_line(disabled: &DisabledStage, is_missing: bool, now: Moment) -> String {
    let missing = if is_missing {
        " (the live table does not have it)"
    } else {
        ""
    };
    format!(
        "{WARN}{} is {}{WARN:#}{missing} for {} more {DIM}(until {}){DIM:#}, {}\n",
        sanitize_line(&disabled.stage),
        state_word(disabled),
        human::age(now, disabled.until),
        human::timestamp(disabled.until),
        by_and_reason(disabled)
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::table::strip_styles;

    #[test]
    fn a_disabled_stage_is_shown_with_its_reason() {
        let stage = json!({
            "stage": "Mutating:pods/images",
            "audit": false,
            "reason": "the registry\nis down",
            "by": "token ops",
            "since": "1970-01-01T00:00:00Z",
            "until": "1970-01-01T00:30:00Z",
        });
        let mut audited = stage.clone();
        audited["audit"] = true.into();
        audited["reason"] = "ticket 4711".into();
        let answer = json!({"disabled": audited, "replaced": stage, "notKept": "disk full"});
        let mut switched: Switched = serde_json::from_value(answer).unwrap();
        assert_eq!(
            strip_styles(&disabled_text(&switched)),
            "\
Mutating:pods/images is only audited until 1970-01-01T00:30:00Z
before, it was disabled until 1970-01-01T00:30:00Z, by token ops: the registry is down
a restart of the driver forgets this: disk full
"
        );
        switched.not_kept = None;
        assert_eq!(
            strip_styles(&enabled_text(&switched)),
            "Mutating:pods/images is enabled; it was only audited until 1970-01-01T00:30:00Z, by token ops: ticket 4711\n"
        );
        let now = Moment(switched.disabled.until.0 - Duration::from_secs(90));
        assert_eq!(
            strip_styles(&disabled_line(&switched.disabled, true, now)),
            "Mutating:pods/images is only audited (the live table does not have it) for 1m30s more (until \
             1970-01-01T00:30:00Z), by token ops: ticket 4711\n"
        );
    }

    #[test]
    fn invalid_arguments_of_disable_and_enable_are_refused() {
        crate::assert_acceptance(&[
            ("disable pods/images --for 30m --reason x", true),
            ("disable Mutating:pods/images --for 1h --reason x --audit -o json", true),
            ("disable pods --for 30m --reason x", false),
            ("disable pods/images --reason x", false),
            ("disable pods/images --for 30 --reason x", false),
            ("disable pods/images --for 30m", false),
            ("enable pods/images", true),
            ("enable", false),
        ]);
    }
}
