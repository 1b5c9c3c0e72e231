//! `admittance status`: the live table, and what the driver depends on.

mod dependencies;

use std::{fmt::Write as _, process::ExitCode, time::Duration};

use admittance::{
    ChainStatus, FailureStatus, HookStatus, Moment, Origin, PluginStatus, StageState, StageStatus, Status,
    admission::Mode,
};
use admittance_admin::api::DriverStatus;
use anstyle::Style;
use clap::Args;

use super::{candidates, client::Client, connection::Connection};
use crate::{
    human,
    output::{BAD, BOLD, DIM, Form, GOOD, ODD, harmless},
    table::{Cell, Table},
};

/// Show what is live: revision, chains, stages, plugins, calls, and why the newest definitions are not
/// live if they are not; and the upstream, ZooKeeper, the cluster and the certificates.
///
/// Exits with 1 when the newest definitions are not live.
#[derive(Debug, Args)]
pub(crate) struct StatusArguments {
    /// How to print it.
    #[arg(long, short, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn run(arguments: &StatusArguments) -> crate::Result<ExitCode> {
    let client = Client::new(&arguments.connection)?;
    let status: DriverStatus = crate::block_on(client.get(&["status"], &[]))??;
    let now = Moment::now();
    arguments
        .output
        .print(&status, |status| for_people(status, now))?;
    Ok(match status.table.problem {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
    })
}

/// With ANSI colours.
fn for_people(status: &DriverStatus, now: Moment) -> String {
    let mut text = String::new();
    if status.stopping {
        let _ = writeln!(text, "{BAD}the driver is stopping{BAD:#}");
    }
    table(&mut text, &status.table, now);
    text.push_str(&dependencies::lines(status, now));
    text.push('\n');
    let chains = &status.table.chains;
    text.push_str(&stages(chains));
    let on_trial = chains.iter().flat_map(|chain| {
        let of_chain = |stage: &StageStatus| Some((stage_id(chain, stage), stage.candidate.clone()?));
        chain.stages.iter().filter_map(of_chain)
    });
    let on_trial: Vec<_> = on_trial.collect();
    if !on_trial.is_empty() {
        text.push('\n');
        text.push_str(&candidates::table(&on_trial));
    }
    text
}

/// The live table, but for its chains.
fn table(text: &mut String, status: &Status, now: Moment) {
    // Writing into a String does not fail.
    let _ = writeln!(
        text,
        "{BOLD}revision {}{BOLD:#}, live for {} ({}), by {}",
        status.revision,
        human::age(status.live_since, now),
        human::clock(status.live_since),
        made_by(&status.origin, status.by.as_deref()),
    );
    if let Some(problem) = &status.problem {
        let next = match problem.next_attempt {
            Some(next) => format!("the next attempt is in {}", human::until(next, now)),
            None => "change the definitions or their modules to fix it".to_owned(),
        };
        let what = match u64::try_from(problem.bad_definitions.len()).unwrap_or(u64::MAX) {
            0 => "what the definitions say now is not live".to_owned(),
            bad => {
                let bad = human::count(bad, "definition", "definitions");
                format!("{bad} cannot be used, all others are live")
            }
        };
        let _ = writeln!(
            text,
            "{BAD}{what}{BAD:#}, for {}; {}, {next}",
            human::age(problem.since, now),
            human::count(problem.attempts, "attempt", "attempts"),
        );
        for mistake in &problem.mistakes {
            let _ = writeln!(text, "  {BAD}{}{BAD:#}", harmless(mistake));
        }
    }
    if status.building {
        let _ = writeln!(text, "{ODD}a new table is being made{ODD:#}");
    }
    if let Some(problem) = &status.history.problem {
        let _ = writeln!(
            text,
            "{BAD}the newest revision could not be written down:{BAD:#} {}",
            harmless(problem)
        );
    }
    let kept = match &status.history.directory {
        Some(directory) => format!("kept in {}", directory.display()),
        None => "kept until the program ends".to_owned(),
    };
    let _ = writeln!(
        text,
        "{DIM}admittance {}; {}, {}; {} and {} in memory{DIM:#}",
        harmless(&status.version),
        human::count(status.history.revisions as u64, "revision", "revisions"),
        harmless(&kept),
        human::count(status.tables as u64, "table", "tables"),
        human::count(status.plugins as u64, "plugin", "plugins"),
    );
}

/// What made a table, as the rest of a sentence.
pub(super) fn made_by(origin: &Origin, by: Option<&str>) -> String {
    let made = match origin {
        Origin::Start => "the start of the program".to_owned(),
        Origin::Files => "a change of files".to_owned(),
        Origin::Refreshed => "a new module at its source".to_owned(),
        Origin::Applied => "apply".to_owned(),
        Origin::Deleted => "delete".to_owned(),
        Origin::Promoted { stage } => format!("promotion of {}", harmless(stage)),
        Origin::RolledBack { to } => format!("rollback to {to}"),
    };
    match by {
        Some(by) => format!("{made} ({})", harmless(by)),
        None => made,
    }
}

fn stage_id(chain: &ChainStatus, stage: &StageStatus) -> String {
    format!("{}:{}/{}", chain.phase.as_str(), chain.name, stage.name)
}

fn stages(chains: &[ChainStatus]) -> String {
    let mut table = Table::new([
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
            table.row(stage_row(chain, stage));
        }
    }
    table.text()
}

fn stage_row(chain: &ChainStatus, stage: &StageStatus) -> [Cell; 14] {
    let (hook, version, digest) = match &stage.hook {
        HookStatus::Plugin(PluginStatus {
            name,
            version,
            digest,
            ..
        }) => (name.as_str(), version.as_str(), human::short_digest(digest)),
        HookStatus::Webhook { url } => (url.as_str(), "", ""),
        HookStatus::Native => ("native", "", ""),
        HookStatus::Unavailable { source, .. } => (source.as_str(), "", "not fetched"),
    };
    let (state, style) = match stage.state {
        StageState::Idle => ("idle", DIM),
        StageState::Healthy => ("healthy", GOOD),
        StageState::Failing => ("failing", BAD),
    };
    let mode = match stage.mode {
        Mode::Enforce => Cell::text(stage.mode.as_str()),
        Mode::Audit => Cell::text(stage.mode.as_str()).styled(ODD),
    };
    let failed = Cell::number(stage.calls.failed);
    let calls = &stage.calls;
    [
        Cell::text(&chain.name),
        Cell::text(chain.phase.as_str()),
        Cell::text(&stage.name),
        Cell::text(hook),
        Cell::text(version),
        Cell::text(digest),
        mode,
        Cell::text(state).styled(style),
        Cell::number(calls.total),
        Cell::number(calls.denied),
        failed.styled(if calls.failed > 0 { BAD } else { Style::new() }),
        Cell::number(microseconds(calls.p50_microseconds)),
        Cell::number(microseconds(calls.p99_microseconds)),
        stage.last_failure.as_ref().map(last_failure).unwrap_or_default(),
    ]
}

fn microseconds(number: Option<u64>) -> String {
    number
        .map(|number| human::duration(Duration::from_micros(number)))
        .unwrap_or_default()
}

fn last_failure(failure: &FailureStatus) -> Cell {
    Cell::text(format!(
        "{} {}: {}",
        human::clock(failure.at),
        failure.kind,
        failure.message
    ))
}

#[cfg(test)]
mod tests;
