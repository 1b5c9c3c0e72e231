use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use admittance::dialect::{Cluster, bcs::InvalidCluster};

/// How the names of nodes begin that programs of BCS register. Where one ensemble is used for everything, drivers
/// register beside the ids of clusters.
const REGISTRATION: &str = "_c_";

/// The id of a cluster that a gateway knows, `BCS-MESOS-10001`: what `BCS-ClusterID` says, to the letter, and the
/// name of the node below which its drivers register. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(Arc<str>);

impl ClusterId {
    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ClusterId {
    type Err = InvalidCluster;

    fn from_str(text: &str) -> Result<Self, InvalidCluster> {
        Cluster::new(text)?;
        if text.starts_with(REGISTRATION) || text.contains('/') || matches!(text, "." | "..") {
            return Err(InvalidCluster(text.to_owned()));
        }
        Ok(Self(text.into()))
    }
}

impl Borrow<str> for ClusterId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        for (text, is_one) in [
            ("BCS-MESOS-10001", true),
            ("bcs-mesos-10001", true),
            ("x", true),
            ("", false),
            ("a b", false),
            ("a/b", false),
            ("..", false),
            ("é", false),
            ("_c_0123456789abcdef0123456789abcdef-10.0.0.50000000001", false),
        ] {
            assert_eq!(text.parse::<ClusterId>().is_ok(), is_one, "{text}");
        }
    }
}
