//! Functions that several tests with ZooKeeper use.

use std::{future::Future, time::Duration};

use admittance_bcs::zookeeper::{
    ChildList, EnsembleConfig, NodeRegistration, RegisteredMember, SessionState, ZooKeeper,
};
use bytes::Bytes;
use tokio::sync::watch;
use zookeeper_client::{Acls, Client, CreateMode, CreateOptions, SessionId};

/// Only a failed test reaches this timeout.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

pub(crate) fn config(servers: &str) -> EnsembleConfig {
    EnsembleConfig::new(servers.parse().unwrap())
}

/// The session timeout is short, so that a silent server is noticed soon.
pub(crate) fn impatient_config(servers: &str) -> EnsembleConfig {
    EnsembleConfig {
        session_timeout: Duration::from_secs(2),
        ..config(servers)
    }
}

/// Opens a session that is not the tested one.
pub(crate) async fn other_client(servers: &str) -> Client {
    with_test_timeout(Client::connect(servers)).await.unwrap()
}

pub(crate) async fn with_test_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, future).await.unwrap()
}

pub(crate) async fn wait_until<T: Clone>(receiver: &mut watch::Receiver<T>, is_it: impl FnMut(&T) -> bool) -> T {
    with_test_timeout(receiver.wait_for(is_it)).await.unwrap().clone()
}

pub(crate) async fn wait_for_session(zookeeper: &ZooKeeper, before: Option<SessionId>) -> SessionId {
    let is_it =
        |state: &SessionState| matches!(state, SessionState::Connected { session, .. } if Some(*session) != before);
    match wait_until(&mut zookeeper.states(), is_it).await {
        SessionState::Connected { session, .. } => session,
        state => panic!("{state:?}"),
    }
}

pub(crate) fn data_of(list: &ChildList<RegisteredMember>) -> Vec<&str> {
    let text = |data| std::str::from_utf8(data).unwrap();
    list.children.iter().map(|member| text(&member.data)).collect()
}

pub(crate) fn registration(parent: &str, data: &str) -> NodeRegistration {
    NodeRegistration {
        parent: parent.to_owned(),
        name: "10.0.0.5:8090".to_owned(),
        data: Bytes::copy_from_slice(data.as_bytes()),
    }
}
