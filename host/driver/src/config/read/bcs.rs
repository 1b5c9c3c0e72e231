use std::net::IpAddr;

use admittance_bcs::{
    ClusterId, ConsoleConfig, ExternalAddress, RegistrationConfig, SchedulersConfig, UpstreamKind,
    drivers_node, zookeeper::NodePath,
};
use admittance_definitions::{Mistakes, document::Node};
use ipnet::IpNet;

use super::{
    each, if_there, or, owned, section,
    zookeeper::{Ensembles, path},
};
use crate::config::ListenConfig;

/// The content of `dialect.bcs`.
pub(super) struct BcsDialect {
    pub(super) cluster: ClusterId,
    /// `None`: it depends on the upstream.
    pub(super) behind: Option<UpstreamKind>,
    pub(super) console: Option<ConsoleConfig>,
    pub(super) custom_resources: bool,
}

pub(super) fn dialect(node: &Node<'_>, has_cluster: bool, mistakes: &mut Mistakes) -> Option<BcsDialect> {
    let mut fields = node.object(mistakes)?;
    let cluster = fields.get_required(
        "cluster",
        "name the cluster, BCS-MESOS-10001",
        Node::parse::<ClusterId>,
        mistakes,
    );
    let behind = if_there(fields.optional("behind"), mistakes, Node::word);
    let console_node = fields.optional("console");
    if let (Some(node), Some(Some(UpstreamKind::Driver))) = (&console_node, behind) {
        node.wrong(
            "the driver behind this one calls the consoles",
            "remove it, or write `behind: scheduler`",
            mistakes,
        );
    }
    let console = if_there(console_node, mistakes, console);
    let custom_resources = section(fields.optional("customResources"), mistakes, |node, mistakes| {
        custom_resources(node, behind, has_cluster, mistakes)
    });
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
    behind: Option<Option<UpstreamKind>>,
    has_cluster: bool,
    mistakes: &mut Mistakes,
) -> Option<bool> {
    let is_on = node.boolean(mistakes)?;
    if is_on && behind == Some(Some(UpstreamKind::Driver)) {
        node.wrong(
            "the driver behind this one calls the kube-apiserver",
            "remove it, or write `behind: scheduler`",
            mistakes,
        );
    } else if is_on && !has_cluster {
        node.wrong(
            "no Kubernetes cluster is configured",
            "write `cluster: {}`, or `cluster: { kubeconfig: ... }`",
            mistakes,
        );
    }
    Some(is_on)
}

/// `dialect.bcs.console`.
fn console(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<ConsoleConfig> {
    let mut fields = node.object(mistakes)?;
    let port = or(
        fields.optional("port"),
        ConsoleConfig::DEFAULT_PORT,
        mistakes,
        port,
    );
    let scheme = section(fields.optional("scheme"), mistakes, Node::word);
    let hosts = if_there(fields.optional("hosts"), mistakes, |node, mistakes| {
        each(&node.list(mistakes)?, mistakes, |node, mistakes| {
            node.parse_with(network, mistakes)
        })
    });
    fields.finish(mistakes);
    Some(ConsoleConfig {
        port: port?,
        scheme: scheme?,
        hosts: hosts?,
    })
}

fn port(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<u16> {
    node.integer(1..=u16::MAX, mistakes)
}

fn network(text: &str) -> Result<IpNet, String> {
    match (text.parse::<IpNet>(), text.parse::<IpAddr>()) {
        (Ok(network), _) => Ok(network),
        (Err(_), Ok(address)) => Ok(IpNet::from(address)),
        (Err(_), Err(_)) => Err(format!(
            "{text:?} is not a valid network: write one such as 10.0.0.0/8, or an address"
        )),
    }
}

/// `upstream.discover`.
pub(super) fn discovery(node: &Node<'_>, ensembles: Ensembles, mistakes: &mut Mistakes) -> Option<NodePath> {
    let mut fields = node.object(mistakes)?;
    let path = path(&mut fields, SchedulersConfig::DEFAULT_PATH, mistakes);
    fields.finish(mistakes);
    ensembles.need_cluster(node, mistakes)?;
    path
}

pub(super) fn registration(
    node: &Node<'_>,
    cluster: Option<&ClusterId>,
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
                        "other machines cannot reach the driver at its listen address {}",
                        listen.address.ip()
                    ),
                    "write `ip`, the address of this machine",
                    mistakes,
                );
            }
            Some(None)
        }
    };
    let port = if_there(fields.optional("port"), mistakes, port);
    let hostname = if_there(fields.optional("hostname"), mistakes, owned);
    let external = if_there(fields.optional("external"), mistakes, external);
    fields.finish(mistakes);
    if let Some(Err(error)) = cluster.map(drivers_node) {
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
    let address = fields.get_required("ip", "write an IP address, 192.0.2.1", ip, mistakes);
    let port = fields.get_required("port", "write a port, 8090", port, mistakes);
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
            "no driver can be reached at {text}: write the address of a machine, 10.0.0.5"
        )),
        Err(_) => Err(format!(
            "{text:?} is not a valid IP address: write one such as 10.0.0.5"
        )),
    };
    node.parse_with(read, mistakes)
}
