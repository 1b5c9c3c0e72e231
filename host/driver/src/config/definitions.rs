use std::path::{Path, PathBuf};

use super::NodePath;

/// A place of chain definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefinitionPlace {
    /// A file, or a directory of files.
    File(PathBuf),
    /// Nodes of the cluster's ensemble: `admissionwebhooks` of BCS, which every driver of the cluster shares.
    ZooKeeper {
        /// The node that namespaces are below. Default: `/blueking/admissionwebhook`.
        path: NodePath,
    },
    /// Resources of the Kubernetes cluster: `admissionwebhookconfigurations.bkbcs.tencent.com`.
    CustomResources {
        /// Where new ones are made. Default: `bkbcs`.
        namespace: String,
    },
}

impl DefinitionPlace {
    /// Where bcs-mesos-driver has them, below `path`.
    pub const DEFAULT_PATH: &str = "/blueking/admissionwebhook";
    /// Where bcs-mesos-driver has them, see `namespace`.
    pub const DEFAULT_NAMESPACE: &str = "bkbcs";

    /// The file or directory, when it is one.
    pub fn as_file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::ZooKeeper { .. } | Self::CustomResources { .. } => None,
        }
    }
}
