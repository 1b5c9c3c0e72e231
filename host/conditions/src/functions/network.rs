//! Addresses and networks: Kubernetes' `ip` and `cidr`.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::Library;
use crate::{
    machine::{Fault, Machine, Outcome},
    types::{ADDRESS, NETWORK, Type},
    value::Value,
};

/// A range of addresses, as it was written: bits behind the prefix are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    address: IpAddr,
    prefix: u32,
}

impl Network {
    fn read(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let address = read_address(address)?;
        let digits = prefix.bytes().all(|byte| byte.is_ascii_digit());
        if !digits || prefix.len() > 1 && prefix.starts_with('0') {
            return None;
        }
        let prefix: u32 = prefix.parse().ok()?;
        (prefix <= width(address)).then_some(Self { address, prefix })
    }

    fn masked(self) -> Self {
        Self {
            address: masked(self.address, self.prefix),
            prefix: self.prefix,
        }
    }

    fn holds(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && masked(address, self.prefix) == masked(self.address, self.prefix)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn masked(address: IpAddr, prefix: u32) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - prefix.min(32)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - prefix.min(128)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

/// An address. Kubernetes refuses one of version 4 that is written as version 6.
fn read_address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    match address {
        IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => None,
        address => Some(address),
    }
}

pub(super) fn list(library: &mut Library) {
    use Type::{Bool, Int, String};
    library.global("isIP", is_ip, &[(&[String], Bool)]);
    library.global("ip", ip, &[(&[String], ADDRESS)]);
    library.global("ip.isCanonical", is_canonical, &[(&[String], Bool)]);
    library.global("isCIDR", is_cidr, &[(&[String], Bool)]);
    library.global("cidr", cidr, &[(&[String], NETWORK)]);
    library.member("family", family, &[(&[ADDRESS], Int)]);
    let tests: [(&[Type], Type); 1] = [(&[ADDRESS], Bool)];
    library.member("isUnspecified", is_unspecified, &tests);
    library.member("isLoopback", is_loopback, &tests);
    library.member("isLinkLocalMulticast", is_link_local_multicast, &tests);
    library.member("isLinkLocalUnicast", is_link_local_unicast, &tests);
    library.member("isGlobalUnicast", is_global_unicast, &tests);
    library.member(
        "containsIP",
        contains_ip,
        &[(&[NETWORK, String], Bool), (&[NETWORK, ADDRESS], Bool)],
    );
    library.member(
        "containsCIDR",
        contains_cidr,
        &[(&[NETWORK, String], Bool), (&[NETWORK, NETWORK], Bool)],
    );
    library.member("ip", ip, &[(&[NETWORK], ADDRESS)]);
    library.member("masked", mask, &[(&[NETWORK], NETWORK)]);
    library.member("prefixLength", prefix_length, &[(&[NETWORK], Int)]);
}

fn is_ip<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => {
            machine.pay_bytes(text.len())?;
            Ok(Value::Bool(read_address(text).is_some()))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn ip<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [value @ Value::String(_)] => address_of(machine, value).map(Value::Address),
        [Value::Network(network)] => Ok(Value::Address(network.address)),
        _ => Err(Fault::no_overload()),
    }
}

fn address_of<'a>(machine: &mut Machine<'a>, value: &Value<'a>) -> Result<IpAddr, Fault> {
    match value {
        Value::Address(address) => Ok(*address),
        Value::String(text) => {
            machine.pay_bytes(text.len())?;
            read_address(text).ok_or_else(|| {
                Fault::error(format!("IP Address {:?} parse error during conversion", &**text))
            })
        }
        _ => Err(Fault::no_overload()),
    }
}

fn network_of<'a>(machine: &mut Machine<'a>, value: &Value<'a>) -> Result<Network, Fault> {
    match value {
        Value::Network(network) => Ok(*network),
        Value::String(text) => {
            machine.pay_bytes(text.len())?;
            Network::read(text)
                .ok_or_else(|| Fault::error(format!("network address {:?} parse error", &**text)))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn is_canonical<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [value @ Value::String(text)] => {
            let address = address_of(machine, value)?;
            Ok(Value::Bool(address.to_string() == **text))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn is_cidr<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::String(text)] => {
            machine.pay_bytes(text.len())?;
            Ok(Value::Bool(Network::read(text).is_some()))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn cidr<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [value @ Value::String(_)] => network_of(machine, value).map(Value::Network),
        _ => Err(Fault::no_overload()),
    }
}

fn test<'a>(arguments: &[Value<'a>], holds: fn(IpAddr) -> bool) -> Outcome<'a> {
    match arguments {
        [Value::Address(address)] => Ok(Value::Bool(holds(*address))),
        _ => Err(Fault::no_overload()),
    }
}

fn family<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Address(address)] => Ok(Value::Int(if address.is_ipv4() { 4 } else { 6 })),
        _ => Err(Fault::no_overload()),
    }
}

fn is_unspecified<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    test(arguments, |address| address.is_unspecified())
}

fn is_loopback<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    test(arguments, |address| address.is_loopback())
}

fn link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
        IpAddr::V6(address) => matches!(address.octets(), [0xff, second, ..] if second & 0x0f == 2),
    }
}

fn link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

fn is_link_local_multicast<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    test(arguments, link_local_multicast)
}

fn is_link_local_unicast<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    test(arguments, link_local_unicast)
}

fn is_global_unicast<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    // As Go has it: addresses of private networks count.
    test(arguments, |address| {
        let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
        !(broadcast
            || address.is_unspecified()
            || address.is_loopback()
            || address.is_multicast()
            || link_local_unicast(address))
    })
}

fn contains_ip<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Network(network), value] => {
            let address = address_of(machine, value)?;
            Ok(Value::Bool(network.holds(address)))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn contains_cidr<'a>(machine: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Network(network), value] => {
            let other = network_of(machine, value)?;
            Ok(Value::Bool(
                network.prefix <= other.prefix && network.holds(other.address),
            ))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn mask<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Network(network)] => Ok(Value::Network(network.masked())),
        _ => Err(Fault::no_overload()),
    }
}

fn prefix_length<'a>(_: &mut Machine<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    match arguments {
        [Value::Network(network)] => Ok(Value::Int(network.prefix.into())),
        _ => Err(Fault::no_overload()),
    }
}
