//! Queries an API server as the host does: `lookups --kubeconfig FILE default v1/ConfigMap`.
//!
//! An argument with a slash is a kind whose objects are listed; any other is a namespace whose labels are shown.
//! Without `--kubeconfig`, the cluster is found the way kubectl finds it.

#![expect(clippy::print_stdout, reason = "this program prints")]

use std::{error::Error, time::Duration};

use admittance_admission::{ClusterKind, ClusterQuery, ClusterReader, Deadline, NamespaceSource};
use admittance_cluster::{Cluster, ClusterConfig, ClusterSource, ClusterWatch, WatchState};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let mut words: Vec<_> = std::env::args().skip(1).collect();
    let mut source = ClusterSource::Infer;
    if words.first().is_some_and(|word| word == "--kubeconfig") {
        words.remove(0);
        source = ClusterSource::Kubeconfig {
            path: (!words.is_empty()).then(|| words.remove(0).into()),
            context: None,
        };
    }
    let cluster = Cluster::connect(&ClusterConfig { source }).await?;
    // The first lookups are sent to the server; the second ones use the cache, if the account may watch.
    for round in ["from the server", "from the watch, if it is up"] {
        println!("{round}:");
        for word in &words {
            look_up(&cluster, word).await?;
        }
        while cluster.status().kinds.iter().any(begins) || begins(&cluster.status().namespaces) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    println!("{:#?}", cluster.status());
    Ok(())
}

fn begins(status: &ClusterWatch) -> bool {
    status.state == WatchState::Starting
}

async fn look_up(cluster: &Cluster, word: &str) -> Result<(), Box<dyn Error>> {
    if word.contains('/') {
        let kind: ClusterKind = word.parse()?;
        let deadline = Deadline::after(Duration::from_secs(10));
        match cluster.list(&kind, &ClusterQuery::default(), deadline).await {
            Ok(page) => page.objects.iter().for_each(|object| println!("{object}")),
            Err(error) => println!("{kind}: {error}"),
        }
    } else {
        match cluster.labels(word).await {
            Ok(labels) => println!("{word}: {labels:?}"),
            Err(error) => println!("{error}"),
        }
    }
    Ok(())
}
