//! Connects a command to a cluster.

use std::path::PathBuf;

use admittance_cluster::{Cluster, ClusterConfig, ClusterSource};
use clap::Args;

use crate::arguments::parse_existing_path;

#[derive(Debug, Args)]
pub(crate) struct ClusterArguments {
    /// The kubeconfig of the cluster [default: the one that kubectl would use].
    #[arg(long, value_name = "FILE", value_parser = parse_existing_path)]
    kubeconfig: Option<PathBuf>,
    /// The name of the context in the kubeconfig [default: its current context].
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ClusterArguments {
    pub(crate) fn are_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    pub(crate) async fn connect(&self) -> crate::Result<Cluster> {
        let source = if self.are_given() {
            ClusterSource::Kubeconfig {
                path: self.kubeconfig.clone(),
                context: self.context.clone(),
            }
        } else {
            ClusterSource::Infer
        };
        Ok(Cluster::connect(&ClusterConfig { source }).await?)
    }
}
