//! Reads and writes ZooKeeper independently of the program, and runs schedulers that take part in the election like the
//! BCS scheduler.

use std::{sync::Arc, time::Duration};

use admittance_tests::{POLL_INTERVAL, Scheduler, TEST_TIMEOUT};
use serde_json::{Value, json};
use tokio::task::AbortHandle;
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, CreateOptions, Error, Permission, Stat};

use super::scene::CLUSTER;

pub(super) const SCHEDULERS: &str = "/bcs/services/endpoints/scheduler";
pub(super) const DRIVERS: &str = "/bcs/services/endpoints/mesosdriver";

const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());
const SEQUENTIAL: CreateOptions<'static> = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());

#[derive(Clone)]
pub(super) struct Nodes(Client);

#[derive(Clone, Debug)]
pub(super) struct MesosNode {
    pub(super) name: String,
    pub(super) data: Value,
    pub(super) session: i64,
}

impl Nodes {
    /// Connects to the ZooKeeper servers in `servers`. A path at the end (`127.0.0.1:2181/test`) becomes the root.
    pub(super) async fn connect(servers: &str) -> Self {
        let connector = Client::connector().with_session_timeout(Duration::from_secs(10));
        let connecting = connector.connect(servers);
        Self(tokio::time::timeout(TEST_TIMEOUT, connecting).await.unwrap().unwrap())
    }

    pub(super) async fn connect_as(servers: &str, user: &str, password: &str) -> Self {
        let auth = format!("{user}:{password}");
        let connector = Client::connector().with_auth("digest", auth.as_bytes());
        let connecting = connector.connect(servers);
        Self(tokio::time::timeout(TEST_TIMEOUT, connecting).await.unwrap().unwrap())
    }

    /// Denies access to a node to everyone except the user of this client.
    pub(super) async fn restrict_to_user(&self, path: &str) {
        let acl = [Acl::new(Permission::ALL, AuthId::authed())];
        self.0.set_acl(path, &acl, None).await.unwrap();
    }

    /// Returns whether the user of this client is denied to read a node.
    pub(super) async fn is_access_denied(&self, path: &str) -> bool {
        matches!(self.0.get_data(path).await, Err(Error::NoAuth))
    }

    /// Returns the children of a node by their sequence numbers, like bcs-mesos-driver. A missing node has none.
    pub(super) async fn children(&self, path: &str) -> Vec<MesosNode> {
        let names = match self.0.list_children(path).await {
            Ok(names) => names,
            Err(Error::NoNode) => Vec::new(),
            Err(error) => panic!("{path}: {error}"),
        };
        self.read_nodes(path, names).await
    }

    async fn read_nodes(&self, path: &str, mut names: Vec<String>) -> Vec<MesosNode> {
        names.sort_by_key(|name| sequence_number(name));
        let mut nodes = Vec::new();
        for name in names {
            match self.0.get_data(&format!("{path}/{name}")).await {
                Ok((data, stat)) => nodes.push(MesosNode {
                    name,
                    data: serde_json::from_slice(&data).unwrap_or_default(),
                    session: stat.ephemeral_owner,
                }),
                // The child was deleted after the list was read.
                Err(Error::NoNode) => {}
                Err(error) => panic!("{path}/{name}: {error}"),
            }
        }
        nodes
    }

    pub(super) async fn until_children(
        &self,
        path: &str,
        event: &str,
        is_expected: impl Fn(&[MesosNode]) -> bool,
    ) -> Vec<MesosNode> {
        let waiting = async {
            loop {
                let (names, watcher) = match self.0.list_and_watch_children(path).await {
                    Ok(listing) => listing,
                    Err(error) => panic!("{path}: {error}"),
                };
                let nodes = self.read_nodes(path, names).await;
                if is_expected(&nodes) {
                    return nodes;
                }
                watcher.changed().await;
            }
        };
        match tokio::time::timeout(TEST_TIMEOUT, waiting).await {
            Ok(nodes) => nodes,
            Err(_) => panic!("{event}: never in {:#?}", self.children(path).await),
        }
    }

    /// Returns the JSON that a node contains, and the node's metadata. Returns `None` if the node does not exist.
    pub(super) async fn get(&self, path: &str) -> Option<(Value, Stat)> {
        match self.0.get_data(path).await {
            Ok((data, stat)) => Some((serde_json::from_slice(&data).unwrap(), stat)),
            Err(Error::NoNode) => None,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    pub(super) async fn put(&self, path: &str, data: &Value) {
        let (above, _) = path.rsplit_once('/').unwrap();
        if !above.is_empty() {
            self.0.mkdir(above, &PERSISTENT).await.unwrap();
        }
        let data = match data {
            Value::Null => Vec::new(),
            data => data.to_string().into_bytes(),
        };
        match self.0.create(path, &data, &PERSISTENT).await {
            Ok(_) => {}
            Err(Error::NodeExists) => {
                self.0.set_data(path, &data, None).await.unwrap();
            }
            Err(error) => panic!("{path}: {error}"),
        }
    }

    pub(super) async fn delete(&self, path: &str) {
        self.0.delete(path, None).await.unwrap();
    }
}

/// Returns the sequence number of a node, which is in the last ten characters of its name.
fn sequence_number(name: &str) -> Option<u64> {
    name.get(name.len().checked_sub(10)?..)?.parse().ok()
}

/// A scheduler that takes part in the election of the master, with a ZooKeeper session of its own. It is the master
/// while its node is the first. Dropping the candidate deletes the node.
pub(super) struct SchedulerCandidate {
    nodes: Nodes,
    path: String,
    lead: Arc<dyn Fn(bool) + Send + Sync>,
    election: AbortHandle,
}

impl SchedulerCandidate {
    /// Lets a scheduler join the election, behind the candidates that joined earlier.
    pub(super) async fn join_election(servers: &str, scheduler: &Scheduler) -> Self {
        let nodes = Nodes::connect(servers).await;
        nodes.0.mkdir(SCHEDULERS, &PERSISTENT).await.unwrap();
        let address = scheduler.address();
        let lead: Arc<dyn Fn(bool) + Send + Sync> = Arc::new(scheduler.master_setter());
        lead(false);
        let info = json!({
            "ip": address.ip().to_string(), "ipv6": "", "port": address.port(), "grpc_port": 0,
            "metric_port": 8091, "hostname": "scheduler", "scheme": scheduler.scheme(), "version": "1.18.12",
            "cluster": CLUSTER, "pid": std::process::id(), "external_ip": "", "external_ipv6": "",
            "external_port": 0,
        });
        let prefix = format!("{SCHEDULERS}/_c_{:032x}-{address}", fastrand::u128(..));
        let created = nodes.0.create(&prefix, info.to_string().as_bytes(), &SEQUENTIAL).await;
        let (_, sequence) = created.unwrap();
        let name = format!("{}{sequence}", prefix.rsplit('/').next().unwrap());
        let (watch, own_name, elected) = (nodes.clone(), name.clone(), lead.clone());
        let election = tokio::spawn(async move {
            loop {
                match watch.0.list_and_watch_children(SCHEDULERS).await {
                    Ok((mut names, watcher)) => {
                        names.sort_by_key(|name| self::sequence_number(name));
                        elected(names.first() == Some(&own_name));
                        watcher.changed().await;
                    }
                    // While ZooKeeper is unreachable and the session has not expired, keep trying to watch the nodes.
                    Err(_) if !watch.0.state().is_terminated() => tokio::time::sleep(POLL_INTERVAL).await,
                    Err(_) => return elected(false),
                }
            }
        })
        .abort_handle();
        Self {
            path: format!("{SCHEDULERS}/{name}"),
            nodes,
            lead,
            election,
        }
    }

    /// Deletes the candidate's node in ZooKeeper. From then on, the candidate's scheduler answers requests like any
    /// scheduler that is not the master.
    pub(super) async fn resign(self) {
        self.election.abort();
        (self.lead)(false);
        self.nodes.delete(&self.path).await;
    }
}

impl Drop for SchedulerCandidate {
    fn drop(&mut self) {
        self.election.abort();
    }
}
