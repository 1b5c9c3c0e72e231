//! Completes names on the command line. The shell calls this program, which requests the names from the running driver.

use std::{collections::BTreeSet, env, ffi::OsStr, time::Duration};

use admittance::ChainStatus;
use admittance_admin::api::{DefinitionList, RevisionList};
use admittance_definitions::StageId;
use admittance_driver::status::DriverStatus;
use clap::Parser;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use http::Method;
use serde::de::DeserializeOwned;

use super::{
    client::{AdminClient, Message},
    connection::DriverConnection,
};
use crate::human;

/// The maximum time for which a shell waits for names.
const REPLY_TIMEOUT: Duration = Duration::from_millis(800);

/// Completes the names of stages, such as `pods/images`.
pub(super) fn stages() -> ArgValueCompleter {
    completer(|| {
        let chains = fetch_chains();
        let is_unique = |name: &str| chains.iter().filter(|chain| chain.name == name).count() == 1;
        let ids = chains.iter().flat_map(|chain| {
            chain.stages.iter().map(|stage| StageId {
                phase: Some(chain.phase).filter(|_| !is_unique(&chain.name)),
                chain: chain.name.clone(),
                stage: stage.name.clone(),
            })
        });
        ids.map(|id| CompletionCandidate::new(id.to_string())).collect()
    })
}

pub(super) fn stage_names() -> ArgValueCompleter {
    completer(|| {
        let stages = fetch_chains().into_iter().flat_map(|chain| chain.stages);
        distinct_candidates(stages.map(|stage| stage.name))
    })
}

pub(super) fn chain_names() -> ArgValueCompleter {
    completer(|| distinct_candidates(fetch_chains().into_iter().map(|chain| chain.name)))
}

pub(super) fn definitions() -> ArgValueCompleter {
    completer(|| {
        let list: Option<DefinitionList> = fetch(&["definitions"]);
        let definitions = list.map_or_else(Vec::new, |list| list.definitions);
        distinct_candidates(definitions.iter().map(|definition| definition.id.to_string()))
    })
}

pub(super) fn revisions() -> ArgValueCompleter {
    completer(|| {
        let list: Option<RevisionList> = fetch(&["history"]);
        let revisions = list.map_or_else(Vec::new, |list| list.revisions);
        let candidates = revisions.iter().map(|entry| {
            CompletionCandidate::new(entry.revision.number.to_string())
                .help(Some(human::timestamp(entry.revision.at).into()))
        });
        candidates.collect()
    })
}

fn completer(candidates: fn() -> Vec<CompletionCandidate>) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let mut candidates = candidates();
        candidates.retain(|candidate| {
            let value = candidate.get_value().as_encoded_bytes();
            value.starts_with(current.as_encoded_bytes())
        });
        candidates
    })
}

fn distinct_candidates(names: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let names: BTreeSet<_> = names.collect();
    names.into_iter().map(CompletionCandidate::new).collect()
}

fn fetch_chains() -> Vec<ChainStatus> {
    let status: Option<DriverStatus> = fetch(&["status"]);
    status.map_or_else(Vec::new, |status| status.table.chains)
}

/// Errors are not reported, because the user is still typing.
fn fetch<T: DeserializeOwned>(path: &[&str]) -> Option<T> {
    let client = AdminClient::new(&parse_connection(env::args())?).ok()?;
    let reply = async {
        let reply = client.send(Method::GET, path, Message::default());
        tokio::time::timeout(REPLY_TIMEOUT, reply).await
    };
    crate::block_on(reply).ok()?.ok()?.ok()
}

fn parse_connection(words: impl Iterator<Item = String>) -> Option<DriverConnection> {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        connection: DriverConnection,
    }
    const OPTIONS: [&str; 5] = ["--server", "--token-file", "--ca", "--certificate", "--key"];
    let mut line = vec!["admittance".to_owned()];
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let (option, value) = word.split_once('=').unwrap_or((&word, ""));
        if OPTIONS.contains(&option) {
            let separate = if value.is_empty() { words.next() } else { None };
            line.push(word);
            line.extend(separate);
        }
    }
    Line::try_parse_from(line).ok().map(|line| line.connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_reads_the_connection_from_an_unfinished_command_line() {
        for (line, expected) in [
            ("admittance rollback", Some("http://127.0.0.1:9090")),
            ("admittance rollback --server http://a:1 4", Some("http://a:1")),
            ("admittance --wrong --server=http://a:1", Some("http://a:1")),
            ("admittance rollback --server", None),
            ("admittance rollback --server a", None),
        ] {
            let parsed_server =
                parse_connection(line.split(' ').map(str::to_owned)).map(|connection| connection.server.to_string());
            assert_eq!(parsed_server.as_deref(), expected, "{line}");
        }
    }
}
