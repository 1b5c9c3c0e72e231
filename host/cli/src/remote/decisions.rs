//! `admittance decisions`: lists and follows the decisions on requests.

use std::{io, num::NonZeroUsize};

use admittance::{DecisionList, DecisionRecord, DecisionVerdict, admission::Mode};
use admittance_admission::did_you_mean;
use admittance_definitions::document::to_yaml;
use admittance_driver::status::DriverStatus;
use anstyle::Style;
use clap::{Args, builder::PossibleValuesParser};
use http::Method;
use serde::Deserialize;
use tokio::signal::unix::{SignalKind, signal};

use super::{
    Query,
    client::{AdminClient, Message},
    completion,
    events::{EventReader, ServerEvent},
};
use crate::{
    human,
    output::{self, BAD, DIM, GOOD, Output, WARN, sanitize_line},
};

/// List the decisions on the latest requests that matched a chain, the newest last, or follow them.
///
/// A driver keeps decisions in memory, and on disk if its configuration says so. Each replica has its own decisions.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance decisions --verdict refused --since 10m
  admittance decisions -f --namespace shop --chain pods
  admittance decisions --user alice --output json")]
pub(crate) struct DecisionsArguments {
    /// Print each decision when it is made, until Ctrl-C. With --since or --limit, print earlier decisions first.
    #[arg(long, short)]
    follow: bool,
    /// List only decisions on requests that matched this chain.
    #[arg(long, value_name = "NAME", add = completion::chain_names())]
    chain: Option<String>,
    /// List only decisions on requests for which this stage was called.
    #[arg(long, value_name = "NAME", add = completion::stage_names())]
    stage: Option<String>,
    /// List only decisions on requests for this namespace.
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    /// List only decisions on requests of this user.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// List only decisions on requests with this text in their type, namespace, name, uid, user or message.
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// List only decisions with this verdict. May be given more than once.
    #[arg(long, value_name = "VERDICT", value_parser = verdicts())]
    verdict: Vec<String>,
    /// List only decisions since this moment (2026-01-02T03:04:05Z), or in the last minutes or hours (10m, 2h).
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<String>,
    /// The maximum number of decisions, up to 1000 [default: 100].
    #[arg(long, value_name = "NUMBER")]
    limit: Option<NonZeroUsize>,
    #[command(flatten)]
    query: Query,
}

fn verdicts() -> PossibleValuesParser {
    let words = DecisionVerdict::ALL.map(DecisionVerdict::as_str);
    PossibleValuesParser::new(words.into_iter().chain(["refused"]))
}

fn time(text: &str) -> Result<String, String> {
    if humantime::parse_rfc3339(text).is_ok() || humantime::parse_duration(text).is_ok() {
        return Ok(text.to_owned());
    }
    Err("write 2026-01-02T03:04:05Z or 10m".to_owned())
}

impl DecisionsArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        if self.follow {
            return crate::block_on(self.follow_decisions(&AdminClient::new(&self.query.connection)?))?;
        }
        let text = |list: &DecisionList| {
            if list.decisions.is_empty() {
                return "no decision matches\n".to_owned();
            }
            let more_note = match list.next {
                Some(_) => format!("{DIM}there are more; raise --limit, or give --since{DIM:#}\n"),
                None => String::new(),
            };
            more_note + &list.decisions.iter().map(decision_line).collect::<String>()
        };
        let message = Message {
            parameters: &self.list_parameters(),
            body: None,
        };
        let mut list: DecisionList = self.query.request(Method::GET, &["decisions"], message)?;
        // The newest decision is printed last, as in a log.
        list.decisions.reverse();
        self.query.output.print(&list, text)?;
        if list.decisions.is_empty() {
            crate::block_on(self.note_unknown_names(&AdminClient::new(&self.query.connection)?))??;
        }
        Ok(())
    }

    /// Prints a note if the filter names a chain or a stage that is not live, because the name is probably misspelt.
    async fn note_unknown_names(&self, client: &AdminClient) -> crate::Result<()> {
        if self.chain.is_none() && self.stage.is_none() {
            return Ok(());
        }
        let status: DriverStatus = client.send(Method::GET, &["status"], Message::default()).await?;
        let chains = status.table.chains.iter();
        let stages = chains.clone().flat_map(|chain| &chain.stages);
        let chains: Vec<&str> = chains.map(|chain| &*chain.name).collect();
        let stages: Vec<&str> = stages.map(|stage| &*stage.name).collect();
        for (noun, filter, live) in [("chain", &self.chain, chains), ("stage", &self.stage, stages)] {
            if let Some(name) = filter.as_deref().filter(|name| !live.contains(name)) {
                let suggestion = did_you_mean(name, live);
                anstream::eprintln!("{WARN}note:{WARN:#} no {noun} `{name}` is live{suggestion}");
            }
        }
        Ok(())
    }

    fn list_parameters(&self) -> Vec<(&'static str, String)> {
        let mut parameters = self.filter_parameters();
        parameters.extend(self.limit.map(|limit| ("limit", limit.to_string())));
        parameters
    }

    fn filter_parameters(&self) -> Vec<(&'static str, String)> {
        let filters = [
            ("chain", &self.chain),
            ("stage", &self.stage),
            ("namespace", &self.namespace),
            ("user", &self.user),
            ("text", &self.text),
            ("since", &self.since),
        ];
        let single = filters
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.clone()?)));
        let verdicts = self.verdict.iter().map(|verdict| ("verdict", verdict.clone()));
        single.chain(verdicts).collect()
    }

    async fn follow_decisions(&self, client: &AdminClient) -> crate::Result<()> {
        self.note_unknown_names(client).await?;
        let mut parameters = self.filter_parameters();
        if self.since.is_some() || self.limit.is_some() {
            let message = Message {
                parameters: &self.list_parameters(),
                body: None,
            };
            let list: DecisionList = client.send(Method::GET, &["decisions"], message).await?;
            for decision in list.decisions.iter().rev() {
                self.print_decision(decision)?;
            }
            let newest = list.decisions.first();
            parameters.extend(newest.map(|newest| ("after", newest.id.to_string())));
        }
        let message = Message {
            parameters: &parameters,
            body: None,
        };
        let mut response = client.open(Method::GET, &["decisions", "events"], message).await?;
        let mut terminated = signal(SignalKind::terminate())?;
        let mut events = EventReader::default();
        loop {
            let chunk = tokio::select! {
                chunk = response.chunk() => chunk.map_err(|error| client.transport_error(&error))?,
                _ = tokio::signal::ctrl_c() => return Ok(()),
                _ = terminated.recv() => return Ok(()),
            };
            let Some(chunk) = chunk else {
                return Err("the driver ended the connection".into());
            };
            for event in events.read_events(&chunk) {
                match self.handle_event(&event) {
                    Err(error) if is_broken_pipe(&*error) => return Ok(()),
                    handled => handled?,
                }
            }
        }
    }

    fn handle_event(&self, event: &ServerEvent) -> crate::Result<()> {
        #[derive(Deserialize)]
        struct MissedDecisions {
            missed: u64,
        }
        match event.name.as_str() {
            "decision" => self.print_decision(&serde_json::from_str(&event.data)?),
            "missed" => {
                let MissedDecisions { missed } = serde_json::from_str(&event.data)?;
                let missed = human::count(missed, "decision");
                anstream::eprintln!("{WARN}note:{WARN:#} {missed} left the driver's memory before they could be read");
                Ok(())
            }
            "end" => Err(format!("the driver ended it: {}", sanitize_line(&event.data)).into()),
            _ => Ok(()),
        }
    }

    fn print_decision(&self, decision: &DecisionRecord) -> crate::Result<()> {
        let text = match self.query.output {
            Output::Text => decision_line(decision),
            Output::Json => serde_json::to_string(decision)? + "\n",
            Output::Yaml => to_yaml(&serde_json::to_value(decision)?),
        };
        Ok(output::write_all(&text)?)
    }
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    let of_io = error.downcast_ref::<io::Error>();
    of_io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

pub(super) fn verdict_style(verdict: DecisionVerdict) -> Style {
    match verdict {
        DecisionVerdict::Allowed => Style::new(),
        DecisionVerdict::Changed => GOOD,
        _ => BAD,
    }
}

fn decision_line(decision: &DecisionRecord) -> String {
    let style = verdict_style(decision.verdict);
    let object = human::object_name(decision.namespace.as_deref(), &decision.name);
    let user = match decision.user.as_str() {
        "" => "-",
        user => user,
    };
    let reason = match &decision.message {
        Some(message) => sanitize_line(message),
        None => stage_effects(decision),
    };
    let dry_run = if decision.dry_run { " (dry run)" } else { "" };
    let request = format!("{} of {} {object}{dry_run}", decision.operation, decision.kind);
    format!(
        "{}  {style}{:<8}{style:#}  {:>7}  {}  {}  {reason}  {DIM}{}{DIM:#}\n",
        human::timestamp(decision.at),
        decision.verdict,
        human::duration(std::time::Duration::from_micros(decision.microseconds)),
        sanitize_line(&request),
        sanitize_line(user),
        sanitize_line(&decision.uid),
    )
}

fn stage_effects(decision: &DecisionRecord) -> String {
    let rows = decision.stages.iter().filter_map(|row| {
        let effect = match (row.result.as_str(), row.mode) {
            ("patch", Mode::Enforce) => "changed by",
            ("patch", Mode::Audit) => "would be changed by",
            ("deny", Mode::Audit) => "would be denied by",
            ("deny", Mode::Enforce) => "denied by",
            ("failed", _) => "in spite of a failure of",
            _ => return None,
        };
        Some(sanitize_line(&format!("{effect} {}/{}", row.chain, row.stage)))
    });
    let notable: Vec<_> = rows.collect();
    if notable.is_empty() {
        "-".to_owned()
    } else {
        notable.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::table::strip_styles;

    fn decision_record(verdict: &str, message: Option<&str>, result: &str, mode: &str) -> DecisionRecord {
        let mut decision = json!({
            "id": 1, "at": "2026-01-02T03:04:05Z", "uid": "u-1", "revision": 7, "user": "alice",
            "operation": "CREATE", "kind": "v1/Pod", "resource": "v1/pods", "namespace": "shop",
            "name": "web\u{1b}", "verdict": verdict, "microseconds": 1200,
            "stages": [{"chain": "pods", "phase": "Mutating", "stage": "images", "round": 1, "mode": mode,
                        "result": result, "startMicroseconds": 0, "microseconds": 1100}],
        });
        if let Some(message) = message {
            decision["message"] = message.into();
        }
        serde_json::from_value(decision).unwrap()
    }

    #[test]
    fn a_decision_is_printed_on_one_line() {
        let begin =
            |verdict: &str| format!("2026-01-02T03:04:05Z  {verdict:<8}   1.20ms  CREATE of v1/Pod shop/web   alice  ");
        for (decision, expected) in [
            (
                decision_record("allowed", None, "allow", "Enforce"),
                begin("allowed") + "-  u-1\n",
            ),
            (
                decision_record("denied", Some("no\nimage"), "deny", "Enforce"),
                begin("denied") + "no image  u-1\n",
            ),
            (
                decision_record("changed", None, "patch", "Enforce"),
                begin("changed") + "changed by pods/images  u-1\n",
            ),
            (
                decision_record("allowed", None, "deny", "Audit"),
                begin("allowed") + "would be denied by pods/images  u-1\n",
            ),
        ] {
            assert_eq!(strip_styles(&decision_line(&decision)), expected);
        }
    }

    #[test]
    fn invalid_arguments_of_decisions_are_refused() {
        crate::assert_acceptance(&[
            ("decisions", true),
            ("decisions -f --chain pods --stage images -n shop --user alice", true),
            (
                "decisions --verdict refused --verdict changed --since 10m --limit 5",
                true,
            ),
            ("decisions --since 2026-01-02T03:04:05Z", true),
            ("decisions --since yesterday", false),
            ("decisions --verdict no", false),
            ("decisions --limit 0", false),
        ]);
    }
}
