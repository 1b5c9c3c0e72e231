use std::net::IpAddr;

use admittance::dialect::{Cluster, bcs::Behind};
use admittance_definitions::{Mistakes, document::Node};

use super::{console::console, if_there, zookeeper::Ensembles};
use crate::{
    config::{ConsoleConfig, DiscoveryConfig, ExternalAddress, ListenConfig, RegistrationConfig},
    registration,
};

/// What `dialect.bcs` says.
pub(super) struct BcsDialect {
    pub(super) cluster: Cluster,
    /// None: it depends on the upstream.
    pub(super) behind: Option<Behind>,
    pub(super) console: Option<ConsoleConfig>,
    pub(super) custom_resources: bool,
}

pub(super) fn dialect(node: &Node<'_>, has_cluster: bool, mistakes: &mut Mistakes) -> Option<BcsDialect> {
    let mut fields = node.object(mistakes)?;
    let cluster = fields
        .required("cluster", "name the cluster, BCS-MESOS-10001", mistakes)
        .and_then(|node| node.parse_with(Cluster::new, mistakes));
    let words = [("scheduler", Behind::Scheduler), ("driver", Behind::Driver)];
    let behind = match fields.optional("behind") {
        Some(node) => node.one_of("thing behind a driver", &words, mistakes).map(Some),
        None => Some(None),
    };
    let console_node = fields.optional("console");
    if let (Some(node), Some(Some(Behind::Driver))) = (&console_node, behind) {
        node.wrong(
            "the driver behind this one asks the consoles",
            "remove it, or write `behind: scheduler`",
            mistakes,
        );
    }
    let console = if_there(console_node, mistakes, console);
    let custom_resources = match fields.optional("customResources") {
        Some(node) => custom_resources(&node, behind, has_cluster, mistakes),
        None => Some(false),
    };
    fields.finish(mistakes);
    Some(BcsDialect {
        cluster: cluster?,
        behind: behind?,
        console: console?,
        custom_resources: custom_resources?,
    })
}

fn custom_resources(
    node: &Node<'_>,
    behind: Option<Option<Behind>>,
    has_cluster: bool,
    mistakes: &mut Mistakes,
) -> Option<bool> {
    let is_on = node.boolean(mistakes)?;
    if is_on && behind == Some(Some(Behind::Driver)) {
        node.wrong(
            "the driver behind this one asks the kube-apiserver",
            "remove it, or write `behind: scheduler`",
            mistakes,
        );
    } else if is_on && !has_cluster {
        node.wrong(
            "there is no Kubernetes cluster to ask",
            "write `cluster: {}`, or `cluster: { kubeconfig: ... }`",
            mistakes,
        );
    }
    Some(is_on)
}

/// `upstream.discover`.
pub(super) fn discovery(
    node: &Node<'_>,
    ensembles: Ensembles,
    mistakes: &mut Mistakes,
) -> Option<DiscoveryConfig> {
    let mut fields = node.object(mistakes)?;
    let path = match fields.optional("path") {
        Some(node) => node.parse(mistakes),
        None => DiscoveryConfig::DEFAULT_PATH.parse().ok(),
    };
    fields.finish(mistakes);
    ensembles.need_cluster(node, mistakes)?;
    Some(DiscoveryConfig { path: path? })
}

pub(super) fn registration(
    node: &Node<'_>,
    cluster: Option<&Cluster>,
    listen: Option<&ListenConfig>,
    ensembles: Ensembles,
    mistakes: &mut Mistakes,
) -> Option<RegistrationConfig> {
    let mut fields = node.object(mistakes)?;
    let ip = match fields.optional("ip") {
        Some(node) => ip(&node, mistakes).map(Some),
        None => {
            if let Some(listen) = listen.filter(|listen| listen.address.ip().is_unspecified()) {
                node.wrong(
                    format!(
                        "others cannot reach it at {}, on which it listens",
                        listen.address.ip()
                    ),
                    "write `ip`, the address of this machine",
                    mistakes,
                );
            }
            Some(None)
        }
    };
    let port = match fields.optional("port") {
        Some(node) => node.integer(1..=u16::MAX, mistakes).map(Some),
        None => Some(None),
    };
    let hostname = match fields.optional("hostname") {
        Some(node) => node.text(mistakes).map(|text| Some(text.to_owned())),
        None => Some(None),
    };
    let external = match fields.optional("external") {
        Some(node) => external(&node, mistakes).map(Some),
        None => Some(None),
    };
    fields.finish(mistakes);
    if let Some(Err(error)) = cluster.map(registration::parent) {
        let message = format!("there can be no node for the cluster: {error}");
        node.wrong(message, "remove `registration`", mistakes);
    }
    ensembles.need_any(node, mistakes)?;
    Some(RegistrationConfig {
        ip: ip?,
        port: port?,
        hostname: hostname?,
        external: external?,
    })
}

fn external(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ExternalAddress> {
    let mut fields = node.object(mistakes)?;
    let address = fields
        .required("ip", "write an IP address, 192.0.2.1", mistakes)
        .and_then(|node| ip(&node, mistakes));
    let port = fields
        .required("port", "write a port, 8090", mistakes)
        .and_then(|node| node.integer(1..=u16::MAX, mistakes));
    fields.finish(mistakes);
    Some(ExternalAddress {
        ip: address?,
        port: port?,
    })
}

fn ip(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<IpAddr> {
    let read = |text: &str| match text.parse::<IpAddr>() {
        Ok(ip) if !ip.is_unspecified() => Ok(ip),
        Ok(_) => Err(format!(
            "nobody is reached at {text}: write the address of a machine, 10.0.0.5"
        )),
        Err(_) => Err(format!("{text:?} is no IP address: write one such as 10.0.0.5")),
    };
    node.parse_with(read, mistakes)
}
