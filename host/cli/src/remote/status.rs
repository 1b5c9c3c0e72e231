//! `admittance status`: shows the live table, and everything that the driver depends on.

mod dependencies;
mod fleet;

use std::{fmt::Write as _, process::ExitCode, time::Duration};

use admittance::{
    ChainStatus, ExceptionStatus, FailureStatus, Moment, Origin, StageState, StageStatus, Status, admission::Mode,
};
use admittance_driver::status::DriverStatus;
use clap::Args;

use super::{Query, candidates, disable, rollout};
use crate::{
    human,
    output::{BAD, BOLD, DIM, GOOD, WARN, sanitize_line},
    table::{TableCell, TextTable},
};

/// Show the live revision with its chains, stages, plugins and calls, and the state of the upstream, ZooKeeper, the
/// cluster and the certificates. If the newest definitions are not live, show the reason.
///
/// Exits with 1 when the newest definitions are not live.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance status --server http://127.0.0.1:9090
  admittance status --fleet --server http://127.0.0.1:9090")]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    query: Query,
    /// Show for every replica which revision is live and which one is prepared, instead of the state of this driver.
    #[arg(long)]
    fleet: bool,
}

impl StatusArguments {
    pub(crate) fn run(&self) -> crate::Result<ExitCode> {
        let text = |status: &DriverStatus| {
            if self.fleet {
                fleet::fleet_text(status, Moment::now())
            } else {
                status_text(status, Moment::now())
            }
        };
        Ok(match self.query.get_and_print(&["status"], &[], text)?.table.problem {
            None => ExitCode::SUCCESS,
            Some(_) => ExitCode::FAILURE,
        })
    }
}

fn status_text(status: &DriverStatus, now: Moment) -> String {
    let mut text = String::new();
    if status.stopping {
        let _ = writeln!(text, "{BAD}the driver is stopping{BAD:#}");
    }
    write_table_status(&mut text, &status.table, now);
    text.extend(status.replicas.as_ref().map(fleet::waiting_text));
    text.push_str(&dependencies::dependencies_text(status, now));
    text.push('\n');
    let chains = &status.table.chains;
    text.push_str(&stages_table(chains));
    if !status.table.exceptions.is_empty() {
        text.push('\n');
        text.push_str(&exceptions_table(&status.table.exceptions, now));
    }
    let candidates = chains.iter().flat_map(|chain| {
        let stages = chain.stages.iter();
        stages.filter_map(|stage| Some((stage_id(chain, stage), stage.candidate.as_ref()?)))
    });
    let mut candidates = candidates.peekable();
    if candidates.peek().is_some() {
        text.push('\n');
        text.push_str(&candidates::candidates_table(candidates));
    }
    text
}

fn write_table_status(text: &mut String, status: &Status, now: Moment) {
    let _ = writeln!(
        text,
        "{BOLD}revision {}{BOLD:#} ({}), live for {} ({}), by {}",
        status.revision,
        status.hash.to_short_hex(),
        human::age(status.live_since, now),
        human::timestamp(status.live_since),
        made_by(&status.origin, status.by.as_deref()),
    );
    if let Some(problem) = &status.problem {
        let next = match problem.next_attempt {
            Some(next) => format!("the next attempt is in {}", human::age(now, next)),
            None => "change the definitions or their modules to fix it".to_owned(),
        };
        let headline = match problem.bad_definitions.len() {
            0 => "the newest definitions are not live".to_owned(),
            bad => format!(
                "{} cannot be used, all others are live",
                human::count(bad, "definition")
            ),
        };
        let _ = writeln!(
            text,
            "{BAD}{headline}{BAD:#}, for {}; {}, {next}",
            human::age(problem.since, now),
            human::count(problem.attempts, "attempt"),
        );
        for mistake in &problem.mistakes {
            let _ = writeln!(text, "  {BAD}{}{BAD:#}", sanitize_line(mistake));
        }
    }
    let stages = status.chains.iter().flat_map(|chain| &chain.stages);
    let disabled = stages.filter_map(|stage| Some((stage.disabled.as_ref()?, false)));
    let missing = status.disabled_missing.iter().map(|disabled| (disabled, true));
    for (disabled, is_missing) in disabled.chain(missing) {
        text.push_str(&disable::disabled_line(disabled, is_missing, now));
    }
    for chain in &status.chains {
        for stage in &chain.stages {
            let candidate = stage.candidate.as_ref();
            if let Some(rollout) = candidate.and_then(|candidate| candidate.rollout.as_ref()) {
                text.push_str(&rollout::rollout_line(&stage_id(chain, stage), rollout, now));
            }
        }
    }
    if let Some(prepared) = status.prepared {
        let hash = prepared.to_short_hex();
        let _ = writeln!(
            text,
            "{WARN}{hash} is prepared,{WARN:#} and goes live when all replicas have prepared it"
        );
    }
    if status.building {
        let _ = writeln!(text, "{WARN}a new table is being built{WARN:#}");
    }
    if let Some(problem) = &status.history.problem {
        let _ = writeln!(
            text,
            "{BAD}the newest revision could not be written to the history:{BAD:#} {}",
            sanitize_line(problem)
        );
    }
    let retention = match &status.history.directory {
        Some(directory) => format!("kept in {}", directory.display()),
        None => "kept until the program ends".to_owned(),
    };
    let _ = writeln!(
        text,
        "{DIM}admittance {}; {}, {}; {} and {} in memory{DIM:#}",
        sanitize_line(&status.version),
        human::count(status.history.revisions, "revision"),
        sanitize_line(&retention),
        human::count(status.tables, "table"),
        human::count(status.plugins, "plugin"),
    );
}

/// Describes why a revision went live, such as `a change of definitions or modules`. The caller writes it at the end of
/// a sentence.
pub(super) fn made_by(origin: &Origin, by: Option<&str>) -> String {
    let change = match origin {
        Origin::Start => "the start of the program".to_owned(),
        Origin::Files => "a change of definitions or modules".to_owned(),
        Origin::Refreshed => "a new module at its source".to_owned(),
        Origin::Applied => "apply".to_owned(),
        Origin::Deleted => "delete".to_owned(),
        Origin::Promoted { stage } => format!("promotion of {}", sanitize_line(stage)),
        Origin::RolledBack { to } => format!("rollback to {to}"),
        _ => "an unknown action".to_owned(),
    };
    match by {
        Some(by) => format!("{change} ({})", sanitize_line(by)),
        None => change,
    }
}

fn stage_id(chain: &ChainStatus, stage: &StageStatus) -> String {
    format!("{}:{}/{}", chain.phase.as_str(), chain.name, stage.name)
}

fn stages_table(chains: &[ChainStatus]) -> String {
    let mut table = TextTable::new([
        "CHAIN",
        "PHASE",
        "STAGE",
        "HOOK",
        "VERSION",
        "DIGEST",
        "MODE",
        "STATE",
        "CALLS",
        "DENIED",
        "FAILED",
        "P50",
        "P99",
        "LAST FAILURE",
    ]);
    for chain in chains {
        for stage in &chain.stages {
            table.push_row(stage_row(chain, stage));
        }
    }
    table.text()
}

fn stage_row(chain: &ChainStatus, stage: &StageStatus) -> [TableCell; 14] {
    let hook = &stage.hook;
    let digest = match (hook.fact_text("digest"), hook.fact_text("reason")) {
        (Some(digest), _) => human::short_digest(digest),
        (None, Some(_)) => "not fetched",
        (None, None) => "",
    };
    let (state, style) = match stage.state {
        StageState::Idle => ("idle", DIM),
        StageState::Healthy => ("healthy", GOOD),
        StageState::Failing => ("failing", BAD),
        _ => ("unknown", WARN),
    };
    let mode = match (&stage.disabled, stage.mode) {
        (Some(disabled), _) if !disabled.audit => TableCell::text("disabled").with_style(WARN),
        (Some(_), _) | (None, Mode::Audit) => TableCell::text(Mode::Audit.as_str()).with_style(WARN),
        (None, Mode::Enforce) => TableCell::text(stage.mode.as_str()),
    };
    let calls = &stage.calls;
    [
        TableCell::text(&chain.name),
        TableCell::text(chain.phase.as_str()),
        TableCell::text(&stage.name),
        TableCell::text(&hook.summary),
        TableCell::text(hook.fact_text("version").unwrap_or_default()),
        TableCell::text(digest),
        mode,
        TableCell::text(state).with_style(style),
        TableCell::number(calls.total),
        TableCell::number(calls.denied),
        TableCell::count(calls.failed, BAD),
        latency_cell(calls.p50_microseconds),
        latency_cell(calls.p99_microseconds),
        stage.last_failure.as_ref().map(last_failure_cell).unwrap_or_default(),
    ]
}

fn exceptions_table(exceptions: &[ExceptionStatus], now: Moment) -> String {
    let mut table = TextTable::new(["EXCEPTION", "OWNER", "EXPIRES", "STAGES", "REASON"]);
    for exception in exceptions {
        let expires = if exception.expired {
            TableCell::text(format!("expired {}", human::timestamp(exception.expires))).with_style(BAD)
        } else {
            TableCell::text(format!("in {}", human::age(now, exception.expires)))
        };
        let stages = match exception.stages.join(", ") {
            none if none.is_empty() => TableCell::text("none").with_style(WARN),
            stages => TableCell::text(stages),
        };
        table.push_row([
            TableCell::text(&exception.name),
            TableCell::text(&exception.owner),
            expires,
            stages,
            TableCell::text(&exception.reason),
        ]);
    }
    let texts = exceptions.iter().flat_map(|exception| &exception.unknown);
    let unknown = texts.map(|text| format!("{WARN}warning:{WARN:#} {}\n", sanitize_line(text)));
    table.text() + &unknown.collect::<String>()
}

fn latency_cell(microseconds: Option<u64>) -> TableCell {
    let duration = microseconds.map(|number| human::duration(Duration::from_micros(number)));
    TableCell::number(duration.unwrap_or_default())
}

fn last_failure_cell(failure: &FailureStatus) -> TableCell {
    let (at, kind, message) = (human::timestamp(failure.at), &failure.kind, &failure.message);
    TableCell::text(format!("{at} {kind}: {message}"))
}

#[cfg(test)]
mod tests;
