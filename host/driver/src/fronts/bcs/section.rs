use std::net::IpAddr;

use admittance_bcs::{ClusterId, ConsoleConfig, ExternalAddress, RegistrationConfig, UpstreamKind, drivers_node};
use admittance_definitions::document::{Node, readers};

use crate::config::SectionContext;

pub(super) struct BcsDialect {
    pub(super) cluster: ClusterId,
    /// The kind of servers to which this driver forwards requests: schedulers, or another driver. Default: schedulers
    /// if the servers are discovered, otherwise another driver.
    pub(super) upstream_kind: Option<UpstreamKind>,
    pub(super) console: ConsoleConfig,
    pub(super) custom_resources: bool,
}

pub(super) fn read_dialect(node: &Node<'_>, sections: SectionContext<'_>) -> Option<BcsDialect> {
    let mut fields = node.object()?;
    let cluster = fields.get_required("cluster", "name the cluster, BCS-MESOS-10001", Node::parse);
    let upstream_kind = fields.get_optional("behind", Node::word);
    let is_before_driver = upstream_kind == Some(UpstreamKind::Driver);
    if is_before_driver && let Some(node) = fields.optional("console") {
        let message = "the driver behind this one calls the consoles";
        node.add_mistake(message, "remove it, or write `behind: scheduler`");
    }
    let console = fields.get_or_default("console", read_console);
    let custom_resources = fields.get_or_default("customResources", Node::boolean);
    if custom_resources && let Some(node) = fields.optional("customResources") {
        if is_before_driver {
            let message = "the driver behind this one calls the kube-apiserver";
            node.add_mistake(message, "remove it, or write `behind: scheduler`");
        } else {
            sections.require_kubernetes(&node);
        }
    }
    Some(BcsDialect {
        cluster: cluster?,
        upstream_kind,
        console,
        custom_resources,
    })
}

fn read_console(node: &Node<'_>) -> Option<ConsoleConfig> {
    let mut fields = node.object()?;
    Some(ConsoleConfig {
        port: fields.get("port", ConsoleConfig::DEFAULT_PORT, read_port),
        scheme: fields.get_or_default("scheme", Node::word),
        hosts: fields.get_optional("hosts", readers::list_of(readers::network)),
    })
}

fn read_port(node: &Node<'_>) -> Option<u16> {
    node.integer(1..=u16::MAX)
}

pub(in crate::fronts) fn read_registration(
    node: &Node<'_>,
    cluster: Option<&ClusterId>,
    sections: SectionContext<'_>,
) -> Option<RegistrationConfig> {
    let mut fields = node.object()?;
    let registration = RegistrationConfig {
        ip: fields.get_optional("ip", readers::parse_with(parse_ip)),
        port: fields.get_optional("port", read_port),
        hostname: fields.get_optional("hostname", readers::text),
        external: fields.get_optional("external", read_external_address),
    };
    let listen_ip = sections.listen.address.ip();
    if !fields.has("ip") && listen_ip.is_unspecified() {
        let message = format!("other machines cannot reach the driver at its listen address {listen_ip}");
        node.add_mistake(message, "write `ip`, the address of this machine");
    }
    if let Some(Err(error)) = cluster.map(drivers_node) {
        let message = format!("there can be no node for the cluster: {error}");
        node.add_mistake(message, "remove `registration`");
    }
    sections.ensembles.need_any(node);
    Some(registration)
}

fn read_external_address(node: &Node<'_>) -> Option<ExternalAddress> {
    let mut fields = node.object()?;
    let ip = fields.get_required("ip", "write an IP address, 192.0.2.1", readers::parse_with(parse_ip));
    let port = fields.get_required("port", "write a port, 8090", read_port);
    Some(ExternalAddress { ip: ip?, port: port? })
}

fn parse_ip(text: &str) -> Result<IpAddr, String> {
    match text.parse::<IpAddr>() {
        Ok(ip) if !ip.is_unspecified() => Ok(ip),
        Ok(_) => Err(format!(
            "no driver can be reached at {text}: write the address of a machine, 10.0.0.5"
        )),
        Err(_) => Err(format!(
            "{text:?} is not a valid IP address: write one such as 10.0.0.5"
        )),
    }
}
