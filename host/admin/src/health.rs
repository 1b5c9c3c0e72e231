//! Describes the state of each dependency of the driver as a line, which the console and `admittance status` show.

use std::time::Duration;

use admittance::{Moment, StoreStatus};
use admittance_definitions::StoreKind;

use crate::api::{CertificateStatus, ListenerStatus};

/// Certificates that expire within this time need attention.
pub const EXPIRY_WARNING_PERIOD: Duration = Duration::from_secs(14 * 24 * 3600);

/// The colour in which a state is shown. The variants are sorted from harmless to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tone {
    Plain,
    Good,
    Change,
    Warn,
    Bad,
}

/// A group of lines with a title. A group without lines is not shown.
#[derive(Clone, Debug)]
pub struct HealthPanel {
    pub title: &'static str,
    pub lines: Vec<HealthLine>,
}

/// One thing on which the driver depends, such as a listener or a server, with its state and its problem. `subject`
/// must be clear by itself, because it is also shown without the title of the panel.
#[derive(Clone, Debug)]
pub struct HealthLine {
    pub subject: String,
    /// The state of the dependency, as parts that form a sentence.
    pub state: Vec<StatePart>,
    pub problem: Option<String>,
    /// The operator's next step, shown if the line needs attention.
    pub advice: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub enum StatePart {
    Text(String),
    /// A word about the state, shown in the colour of its tone.
    Badge(Tone, String),
    At(Moment),
    Since(Moment),
    /// A hash or an address, shown as code.
    Code(String),
}

impl HealthLine {
    /// Creates a line whose state is empty. Functions such as [`text`](Self::text) append parts to the state.
    pub fn new(subject: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            state: Vec::new(),
            problem: None,
            advice: None,
        }
    }

    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.with_part(StatePart::Text(text.into()))
    }

    #[must_use]
    pub fn badge(self, tone: Tone, word: impl Into<String>) -> Self {
        self.with_part(StatePart::Badge(tone, word.into()))
    }

    #[must_use]
    pub fn moment(self, at: Moment) -> Self {
        self.with_part(StatePart::At(at))
    }

    #[must_use]
    pub fn lasting_since(self, since: Moment) -> Self {
        self.with_part(StatePart::Since(since))
    }

    #[must_use]
    pub fn code(self, text: impl Into<String>) -> Self {
        self.with_part(StatePart::Code(text.into()))
    }

    /// Appends a number with its noun to the state: `1 server`, `2 servers`.
    #[must_use]
    pub fn count(self, number: usize, one: &str) -> Self {
        self.text(count_text(number as u64, one))
    }

    /// Appends to the state whether a server is up, or since when it is down.
    #[must_use]
    pub fn up_or_down(self, is_up: bool, since: Option<Moment>) -> Self {
        if is_up {
            return self.badge(Tone::Good, "up");
        }
        let line = self.badge(Tone::Bad, "down");
        match since {
            Some(since) => line.lasting_since(since),
            None => line,
        }
    }

    #[must_use]
    pub fn problem(self, problem: Option<String>) -> Self {
        Self { problem, ..self }
    }

    /// Sets what an operator should do. This has no effect if the line needs no attention.
    #[must_use]
    pub fn advice(self, advice: &'static str) -> Self {
        let advice = self.needs_attention().then_some(advice);
        Self { advice, ..self }
    }

    fn with_part(mut self, part: StatePart) -> Self {
        self.state.push(part);
        self
    }

    /// Returns the worst tone of the parts of the state, but at least a warning if there is a problem.
    pub fn tone(&self) -> Tone {
        let tones = self.state.iter().map(|part| match part {
            StatePart::Badge(tone, _) => *tone,
            _ => Tone::Plain,
        });
        let problem = self.problem.as_ref().map(|_| Tone::Warn);
        tones.chain(problem).max().unwrap_or(Tone::Plain)
    }

    /// Returns whether an operator should look at the line.
    pub fn needs_attention(&self) -> bool {
        self.tone() >= Tone::Warn
    }
}

impl From<&ListenerStatus> for HealthLine {
    fn from(listener: &ListenerStatus) -> Self {
        let encryption = if listener.is_tls { "TLS" } else { "no TLS" };
        Self::new(&listener.listener)
            .code(listener.address.to_string())
            .text(" ")
            .badge(Tone::Plain, encryption)
    }
}

impl From<&StoreStatus> for HealthLine {
    fn from(store: &StoreStatus) -> Self {
        let line = Self::new(format!("definitions in {}", store.location));
        let line = match (store.lost, store.count) {
            (true, _) => line.badge(Tone::Bad, "cannot be read"),
            (false, None) => line.badge(Tone::Warn, "not read yet"),
            (false, Some(number)) => {
                let unit = match (store.kind, number) {
                    (StoreKind::Files, _) => count_text(number as u64, "file"),
                    (StoreKind::Entries, 1) => "1 entry".to_owned(),
                    (StoreKind::Entries, _) => format!("{number} entries"),
                };
                line.badge(Tone::Good, "read").text(format!(" {unit}"))
            }
        };
        line.advice("What is live stays live. Make the store reachable for the driver; it is read again by itself.")
    }
}

impl CertificateStatus {
    /// Returns the certificate's line. An expiry in less than 14 days is a warning.
    pub fn health(&self, now: Moment) -> HealthLine {
        let line = HealthLine::new(format!("certificate of {}", self.certificate)).problem(self.problem.clone());
        let Some(end) = self.not_after else {
            return line.badge(Tone::Plain, "none presented");
        };
        let line = match end {
            end if end <= now => line.badge(Tone::Bad, "expired").text(" at "),
            end if end.0 <= now.0 + EXPIRY_WARNING_PERIOD => line.badge(Tone::Warn, "expires soon").text(", at "),
            _ => line.badge(Tone::Good, "valid").text(" until "),
        };
        line.moment(end)
            .advice("Write a new certificate and its key to the same files; they are read again without a restart.")
    }
}

pub(crate) fn count_text(count: u64, one: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {one}{ending}")
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_certificate_needs_attention_two_weeks_before_it_expires() {
        let now = Moment(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000));
        let day = Duration::from_secs(24 * 3600);
        for (end, tone) in [
            (Some(Moment(now.0 + 15 * day)), Tone::Good),
            (Some(Moment(now.0 + 14 * day)), Tone::Warn),
            (Some(now), Tone::Bad),
            (None, Tone::Plain),
        ] {
            let status = CertificateStatus {
                certificate: "listen".to_owned(),
                not_after: end,
                problem: None,
            };
            assert_eq!(status.health(now).tone(), tone, "{end:?}");
        }
    }

    #[test]
    fn a_problem_turns_a_good_health_line_into_a_warning() {
        let line = HealthLine::new("tokens").count(2, "token");
        assert!(!line.needs_attention());
        assert_eq!(line.clone().problem(Some("away".to_owned())).tone(), Tone::Warn);
        assert_eq!(line.clone().advice("wait").advice, None);
        assert_eq!(line.clone().up_or_down(false, None).advice("wait").advice, Some("wait"));
        assert_eq!(
            line.up_or_down(false, None).problem(Some("away".to_owned())).tone(),
            Tone::Bad
        );
    }
}
