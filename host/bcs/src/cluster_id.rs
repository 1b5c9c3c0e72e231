use std::{borrow::Borrow, str::FromStr, sync::Arc};

/// The prefix of the names of nodes that BCS programs register.
const REGISTRATION_PREFIX: &str = "_c_";

/// The ID of a BCS cluster, such as `BCS-MESOS-10001`, which the header `BCS-ClusterID` contains. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
pub struct ClusterId(Arc<str>);

/// The error for a string that is not a valid value of `BCS-ClusterID`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a valid cluster ID: write visible ASCII characters without spaces, such as BCS-MESOS-10001")]
pub struct InvalidClusterId(pub String);

impl ClusterId {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the ID of a cluster from the name of the node below which the cluster's drivers register.
    pub fn from_node_name(name: &str) -> Result<Self, InvalidClusterId> {
        if name.starts_with(REGISTRATION_PREFIX) || name.contains('/') || matches!(name, "." | "..") {
            return Err(InvalidClusterId(name.to_owned()));
        }
        name.parse()
    }
}

impl FromStr for ClusterId {
    type Err = InvalidClusterId;

    fn from_str(text: &str) -> Result<Self, InvalidClusterId> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidClusterId(text.to_owned()));
        }
        Ok(Self(text.into()))
    }
}

impl Borrow<str> for ClusterId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn only_cluster_ids_that_can_be_header_values_are_accepted() {
        for (text, is_id, is_node) in [
            ("BCS-MESOS-10001", true, true),
            ("bcs-mesos-10001", true, true),
            ("x", true, true),
            ("", false, false),
            ("a b", false, false),
            ("a/b", true, false),
            ("..", true, false),
            ("a\n", false, false),
            ("größe", false, false),
            ("_c_0123456789abcdef0123456789abcdef-10.0.0.50000000001", true, false),
        ] {
            assert_eq!(text.parse::<ClusterId>().is_ok(), is_id, "{text}");
            assert_eq!(ClusterId::from_node_name(text).is_ok(), is_node, "{text}");
        }
    }
}
