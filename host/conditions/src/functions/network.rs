//! Kubernetes' libraries `ip` and `cidr`.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Library, typed::Str};
use crate::machine::{Fault, Machine};

pub(super) fn register(library: &mut Library) {
    library.add_global::<(Str,), bool>("isIP", |machine, (text,)| {
        machine.charge_bytes(text.len())?;
        Ok(parse_ip(&text).is_some())
    });
    library.add_global::<(Str,), IpAddr>("ip", |machine, (text,)| ip(machine, &text));
    library.add_global::<(Str,), bool>("ip.isCanonical", |machine, (text,)| {
        Ok(ip(machine, &text)?.to_string() == *text)
    });
    library.add_global::<(Str,), bool>("isCIDR", |machine, (text,)| {
        machine.charge_bytes(text.len())?;
        Ok(parse_cidr(&text).is_some())
    });
    library.add_global::<(Str,), IpNet>("cidr", |machine, (text,)| cidr(machine, &text));
    library.add_global::<(IpAddr,), Str>("string", |_, (address,)| Ok(address.to_string().into()));
    library.add_global::<(IpNet,), Str>("string", |_, (network,)| Ok(network.to_string().into()));
    library.add_member::<(IpAddr,), i64>("family", |_, (address,)| Ok(if address.is_ipv4() { 4 } else { 6 }));
    let tests: [(&str, fn(IpAddr) -> bool); 5] = [
        ("isUnspecified", |address| address.is_unspecified()),
        ("isLoopback", |address| address.is_loopback()),
        ("isLinkLocalMulticast", is_link_local_multicast),
        ("isLinkLocalUnicast", is_link_local_unicast),
        ("isGlobalUnicast", is_global_unicast),
    ];
    for (name, test) in tests {
        library.add_member::<(IpAddr,), bool>(name, move |_, (address,)| Ok(test(address)));
    }
    library.add_member::<(IpNet, IpAddr), bool>("containsIP", |_, (network, address)| Ok(network.contains(&address)));
    library.add_member::<(IpNet, Str), bool>("containsIP", |machine, (network, address)| {
        Ok(network.contains(&ip(machine, &address)?))
    });
    library.add_member::<(IpNet, IpNet), bool>("containsCIDR", |_, (network, other)| Ok(network.contains(&other)));
    library.add_member::<(IpNet, Str), bool>("containsCIDR", |machine, (network, other)| {
        Ok(network.contains(&cidr(machine, &other)?))
    });
    library.add_member::<(IpNet,), IpAddr>("ip", |_, (network,)| Ok(network.addr()));
    library.add_member::<(IpNet,), IpNet>("masked", |_, (network,)| Ok(network.trunc()));
    library.add_member::<(IpNet,), i64>("prefixLength", |_, (network,)| Ok(network.prefix_len().into()));
}

/// Parses an IP address. As in Kubernetes, an IPv4 address in IPv6 notation is invalid.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    match address {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => None,
        address => Some(address),
    }
}

/// Parses a network in CIDR notation. Leading zeros in the prefix length are refused, although `ipnet` accepts them.
fn parse_cidr(text: &str) -> Option<IpNet> {
    let (address, prefix) = text.split_once('/')?;
    let is_decimal = prefix.bytes().all(|byte| byte.is_ascii_digit());
    if !is_decimal || prefix.len() > 1 && prefix.starts_with('0') {
        return None;
    }
    IpNet::new(parse_ip(address)?, prefix.parse().ok()?).ok()
}

fn ip(machine: &mut Machine<'_>, text: &str) -> Result<IpAddr, Fault> {
    machine.charge_bytes(text.len())?;
    parse_ip(text).ok_or_else(|| Fault::error(format!("IP Address {text:?} parse error during conversion")))
}

fn cidr(machine: &mut Machine<'_>, text: &str) -> Result<IpNet, Fault> {
    machine.charge_bytes(text.len())?;
    parse_cidr(text).ok_or_else(|| Fault::error(format!("network address {text:?} parse error")))
}

fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
        IpAddr::V6(address) => matches!(address.octets(), [0xff, second, ..] if second & 0x0f == 2),
    }
}

fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Returns whether an address is a global unicast address. As in Go, private addresses are global unicast addresses.
fn is_global_unicast(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(is_broadcast
        || address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || is_link_local_unicast(address))
}
