//! `admittance status --fleet`: shows a row for each replica of a driver.

use admittance::{
    Moment,
    agreement::{ReplicaStatus, ReplicasStatus},
};
use admittance_driver::status::DriverStatus;

use crate::{
    human,
    output::{BAD, DIM, GOOD, WARN, sanitize_line},
    table::{TableCell, TextTable},
};

pub(super) fn fleet_text(status: &DriverStatus, now: Moment) -> String {
    let Some(replicas) = &status.replicas else {
        return format!("{DIM}this driver goes live with a change by itself{DIM:#}\n");
    };
    let target = match replicas.target {
        Some(target) => format!("the replicas serve {}\n", target.to_short_hex()),
        None => format!("{WARN}no leader has said yet what the replicas serve{WARN:#}\n"),
    };
    let mut table = TextTable::new(["REPLICA", "LIVE", "PREPARED", "STATE", "LEADER", "SINCE", "PROBLEM"]);
    for replica in &replicas.replicas {
        table.push_row(replica_row(replica, now));
    }
    format!("{target}{}\n{}", waiting_text(replicas), table.text())
}

pub(super) fn waiting_text(replicas: &ReplicasStatus) -> String {
    let waiting = replicas.waiting.iter().map(|sentence| {
        let sentence = sanitize_line(sentence);
        format!("{WARN}a change waits:{WARN:#} {sentence}\n")
    });
    let problem = replicas.problem.iter().map(|problem| {
        let problem = sanitize_line(problem);
        format!("{BAD}the other replicas are not known:{BAD:#} {problem}\n")
    });
    waiting.chain(problem).collect()
}

fn replica_row(replica: &ReplicaStatus, now: Moment) -> [TableCell; 7] {
    let (state, style) = match (replica.alive, replica.ready) {
        (false, _) => ("gone", DIM),
        (true, true) => ("ready", GOOD),
        (true, false) => ("late", BAD),
    };
    let self_mark = if replica.is_self { " (this)" } else { "" };
    [
        TableCell::text(format!("{}{self_mark}", replica.name)),
        TableCell::text(replica.live.to_short_hex()),
        TableCell::text(if replica.prepared == replica.live {
            String::new()
        } else {
            replica.prepared.to_short_hex()
        }),
        TableCell::text(state).with_style(style),
        TableCell::text(if replica.leader { "leader" } else { "" }),
        TableCell::number(human::age(replica.since, now)),
        TableCell::text(replica.problem.clone().unwrap_or_default()),
    ]
}
