use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use http::Method;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet, time::MissedTickBehavior};

use crate::{Client, Error, Versions, log::TEST_TIMEOUT};

/// Clients that create objects one after another, each client on its own connection. In every response, all stages must
/// report the same version. It must not be older than the version in the previous response on the connection.
#[derive(Debug)]
pub struct CreationLoad {
    shared: Arc<SharedLoad>,
    counts: watch::Receiver<LoadCounts>,
    connections: JoinSet<()>,
}

#[derive(Debug)]
struct SharedLoad {
    url: String,
    stages: usize,
    /// The oldest version of the module that may still handle requests. If a request is sent now and an older version
    /// handles it, this is a problem.
    oldest_version: AtomicU32,
    is_over: AtomicBool,
}

#[derive(Clone, Debug, Default)]
pub struct LoadCounts {
    pub requests: u64,
    pub failures: u64,
    /// Descriptions of the first responses that were wrong.
    pub problems: Vec<String>,
    /// For each connection, the newest version that it has seen in a response so far.
    newest_versions: Vec<u32>,
}

/// A connection waits for at least this time between the beginnings of two requests.
const REQUEST_INTERVAL: Duration = Duration::from_millis(2);

const MAX_PROBLEMS: usize = 10;

impl CreationLoad {
    /// Starts the clients. `url` is the URL at which they create BCS applications. `stages` is the number of stages
    /// that write their versions into each application.
    pub fn start(url: String, stages: usize, connections: usize) -> Result<Self, Error> {
        let shared = Arc::new(SharedLoad {
            url,
            stages,
            oldest_version: AtomicU32::new(0),
            is_over: AtomicBool::new(false),
        });
        let (sender, counts) = watch::channel(LoadCounts {
            newest_versions: vec![0; connections],
            ..LoadCounts::default()
        });
        let mut tasks = JoinSet::new();
        for number in 0..connections {
            tasks.spawn(send_requests(Client::new()?, number, shared.clone(), sender.clone()));
        }
        Ok(Self {
            shared,
            counts,
            connections: tasks,
        })
    }

    /// Declares that all versions before `version` are out of use. If one of them handles a request that is sent after
    /// this call, this is a problem.
    pub fn retire_versions_before(&self, version: u32) {
        self.shared.oldest_version.store(version, Ordering::SeqCst);
    }

    /// Waits until a connection has seen this version in a response.
    pub async fn wait_until_seen(&mut self, version: u32) -> Result<(), Error> {
        self.wait_for_versions(version, |newest| {
            newest.iter().any(|client_version| *client_version >= version)
        })
        .await
    }

    pub async fn wait_until_seen_by_all(&mut self, version: u32) -> Result<(), Error> {
        self.wait_for_versions(version, |newest| {
            newest.iter().all(|client_version| *client_version >= version)
        })
        .await
    }

    async fn wait_for_versions(&mut self, version: u32, condition: impl Fn(&[u32]) -> bool) -> Result<(), Error> {
        let wait = self.counts.wait_for(|counts| condition(&counts.newest_versions));
        let is_met = tokio::time::timeout(TEST_TIMEOUT, wait)
            .await
            .is_ok_and(|wait_result| wait_result.is_ok());
        if is_met {
            Ok(())
        } else {
            Err(Error::Never {
                event: format!("an answer of {}", Versions::name(version)),
                limit: TEST_TIMEOUT,
                log: format!("{:?}", *self.counts.borrow()),
            })
        }
    }

    pub fn counts(&self) -> LoadCounts {
        self.counts.borrow().clone()
    }

    /// Stops the clients, and waits for the responses to the requests that they have sent. Returns the counts.
    pub async fn end(mut self) -> LoadCounts {
        self.shared.is_over.store(true, Ordering::SeqCst);
        while self.connections.join_next().await.is_some() {}
        self.counts()
    }
}

async fn send_requests(client: Client, connection: usize, shared: Arc<SharedLoad>, counts: watch::Sender<LoadCounts>) {
    let mut last = 0;
    let body = json!({
        "apiVersion": "v4",
        "kind": "application",
        "metadata": {"name": format!("load-{connection}"), "namespace": "load", "labels": {"app": "load"}},
        "spec": {"instance": 1},
    })
    .to_string();
    let mut turns = tokio::time::interval(REQUEST_INTERVAL);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !shared.is_over.load(Ordering::SeqCst) {
        turns.tick().await;
        let oldest = shared.oldest_version.load(Ordering::SeqCst).max(last);
        let answer = client.send_bcs(Method::POST, &shared.url, body.clone()).await;
        let version = answer.map_err(|error| error.to_string()).and_then(|reply| {
            let version = match reply.status.as_u16() {
                200 => common_version(&reply.json().map_err(|error| error.to_string())?, shared.stages),
                status => Err(format!("the status {status}: {}", reply.text())),
            };
            match version? {
                version if version < oldest => {
                    Err(format!("{} after {}", Versions::name(version), Versions::name(oldest)))
                }
                version => Ok(version),
            }
        });
        counts.send_modify(|counts| {
            counts.requests += 1;
            match version {
                Ok(version) => {
                    last = version;
                    if let Some(newest) = counts.newest_versions.get_mut(connection) {
                        *newest = version;
                    }
                }
                Err(problem) => {
                    counts.failures += 1;
                    if counts.problems.len() < MAX_PROBLEMS {
                        counts.problems.push(problem);
                    }
                }
            }
        });
    }
}

fn common_version(answer: &Value, stages: usize) -> Result<u32, String> {
    let annotations = answer.pointer("/data/metadata/annotations");
    let mut versions = annotations
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.starts_with(crate::guest_names::VERSION_OF))
        .filter_map(|(_, version)| Versions::number(version.as_str()?));
    let first = versions.next().ok_or_else(|| format!("no version in {answer}"))?;
    match versions.try_fold(1, |count, version| (version == first).then_some(count + 1)) {
        Some(count) if count == stages => Ok(first),
        Some(count) => Err(format!("{count} of {stages} stages in {answer}")),
        None => Err(format!("a mix of versions in {answer}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_with_stages_of_different_versions_is_wrong() {
        let answer = |versions: &[u32]| {
            let annotation = |(stage, version): (usize, &u32)| {
                let name = format!("{}/{stage}", crate::guest_names::VERSION_OF);
                (name, Value::from(Versions::name(*version)))
            };
            let annotations: serde_json::Map<_, _> = versions.iter().enumerate().map(annotation).collect();
            json!({"data": {"metadata": {"annotations": annotations}}})
        };
        let table: [(&[u32], Result<u32, &str>); 4] = [
            (&[7, 7], Ok(7)),
            (&[7, 8], Err("a mix")),
            (&[7], Err("1 of 2")),
            (&[], Err("no version")),
        ];
        for (versions, expected) in table {
            match (common_version(&answer(versions), 2), expected) {
                (Ok(version), Ok(expected)) => assert_eq!(version, expected),
                (Err(problem), Err(words)) => assert!(problem.contains(words), "{problem}"),
                (found, _) => panic!("{versions:?}: {found:?}"),
            }
        }
    }
}
