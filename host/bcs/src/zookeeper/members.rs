//! The children of a node: registered members, or children of any name.

use bytes::Bytes;
use zookeeper_client::{Client, Error};

use crate::zookeeper::{ZooKeeperError, error::At, follow::List};

/// The length of the sequence number at the end of a name, padded by ZooKeeper.
const SEQUENCE_LENGTH: usize = 10;

/// A registered member: a child whose name ends with a sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The node's name, without those above it.
    pub name: String,
    /// The sequence number, which orders members by the time of their registration.
    pub sequence: i64,
    /// Its data, as of the last change of the list of members.
    pub data: Bytes,
}

/// The members registered below a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberList {
    /// The members, oldest registration first.
    ///
    /// As in BCS, the last 10 characters of a name are its sequence number; children whose names are not longer
    /// than that, or do not end with a number, are not members.
    pub members: Vec<Member>,
    /// Whether the list was ever read; if not, it is unknown.
    pub is_read: bool,
    /// Why the list may be stale. The last known members are kept.
    pub lost: Option<String>,
}

/// The names of a node's children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildList {
    /// The names, sorted.
    pub names: Vec<String>,
    /// Whether the list was ever read; if not, it is unknown.
    pub is_read: bool,
    /// Why the list may be stale. The last known names are kept.
    pub lost: Option<String>,
}

impl List for MemberList {
    async fn read(client: &Client, path: &str, names: Vec<String>) -> Result<Self, ZooKeeperError> {
        // Send all requests before awaiting the first response.
        let requests: Vec<_> = in_order(names)
            .into_iter()
            .map(|(sequence, name)| {
                let path = join(path, &name);
                let data = client.get_data(&path);
                (sequence, name, path, data)
            })
            .collect();
        let mut members = Vec::with_capacity(requests.len());
        for (sequence, name, path, data) in requests {
            match data.await {
                Ok((data, _)) => members.push(Member {
                    name,
                    sequence,
                    data: data.into(),
                }),
                // The node is gone meanwhile; the watch fires for that.
                Err(Error::NoNode) => {}
                Err(error) => return Err(error).at("reading", &path),
            }
        }
        Ok(Self {
            members,
            is_read: true,
            lost: None,
        })
    }

    fn lose(&mut self, reason: String) {
        self.lost = Some(reason);
    }
}

impl List for ChildList {
    async fn read(_client: &Client, _path: &str, mut names: Vec<String>) -> Result<Self, ZooKeeperError> {
        names.sort_unstable();
        Ok(Self {
            names,
            is_read: true,
            lost: None,
        })
    }

    fn lose(&mut self, reason: String) {
        self.lost = Some(reason);
    }
}

/// The names that have a sequence, by it.
fn in_order(names: Vec<String>) -> Vec<(i64, String)> {
    let mut members: Vec<_> = names
        .into_iter()
        .filter_map(|name| Some((sequence(&name)?, name)))
        .collect();
    members.sort_unstable();
    members
}

fn sequence(name: &str) -> Option<i64> {
    let begin = name
        .len()
        .checked_sub(SEQUENCE_LENGTH)
        .filter(|begin| *begin > 0)?;
    name.get(begin..)?.parse().ok()
}

pub(crate) fn join(parent: &str, name: &str) -> String {
    let parent = parent.trim_end_matches('/');
    format!("{parent}/{name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_with_a_sequence_or_are_no_members() {
        for (name, expected) in [
            (
                "_c_0123456789abcdef0123456789abcdef-10.0.0.1:30100000000007",
                Some(7),
            ),
            ("x0000000000", Some(0)),
            ("x2147483647", Some(2_147_483_647)),
            ("x9999999999", Some(9_999_999_999)),
            ("x-000000001", Some(-1)),
            ("0000000001", None),
            ("BCS-MESOS-10001", None),
            ("x000000000a", None),
            ("0001", None),
            ("", None),
            ("路径路径路径路径", None),
        ] {
            assert_eq!(sequence(name), expected, "{name}");
        }
    }

    #[test]
    fn the_order_is_the_sequences_and_not_the_names() {
        let names = ["a0000000010", "z0000000002", "cluster", "m0000000009"];
        let ordered = in_order(names.map(str::to_owned).to_vec());
        assert_eq!(
            ordered,
            [(2, "z0000000002"), (9, "m0000000009"), (10, "a0000000010")]
                .map(|(sequence, name)| (sequence, name.to_owned()))
        );
    }
}
