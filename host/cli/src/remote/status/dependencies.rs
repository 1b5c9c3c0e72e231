//! Describes the driver's dependencies: each server, session and certificate on a line.

use std::fmt::Write as _;

use admittance::Moment;
use admittance_admin::{HealthLine, StatePart, Tone};
use admittance_driver::status::DriverStatus;

use crate::{
    human,
    output::{BAD, DIM, GOOD, WARN, sanitize_line},
};

pub(super) fn dependencies_text(status: &DriverStatus, now: Moment) -> String {
    let panels = status.dependency_panels(now);
    let lines = panels.iter().flat_map(|panel| &panel.lines);
    lines.map(|line| dependency_line(line, now)).collect()
}

fn dependency_line(line: &HealthLine, now: Moment) -> String {
    let style = match line.tone() {
        Tone::Bad => BAD,
        Tone::Warn => WARN,
        Tone::Plain | Tone::Good | Tone::Change => GOOD,
    };
    let mut state = String::new();
    for part in &line.state {
        let _ = match part {
            StatePart::Text(text) | StatePart::Badge(_, text) | StatePart::Code(text) => {
                write!(state, "{text}")
            }
            StatePart::At(at) => write!(state, "{}", human::timestamp(*at)),
            StatePart::Since(since) => write!(state, " for {}", human::age(*since, now)),
        };
    }
    let reason = line.problem.as_ref();
    let problem = reason.map(|reason| format!("; {}", sanitize_line(reason)));
    format!(
        "{DIM}{}:{DIM:#} {style}{}{style:#}{}\n",
        sanitize_line(&line.subject),
        sanitize_line(&state),
        problem.unwrap_or_default(),
    )
}
