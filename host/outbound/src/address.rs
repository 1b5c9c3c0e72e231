//! Resolves host names, and refuses addresses that the grant does not allow.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use admittance_admission::{HttpGrant, IpNet};
use hyper_util::client::legacy::connect::dns::Name;

/// Resolves host names for one grant. Returns only public addresses, and addresses in networks that the grant lists.
#[derive(Clone, Debug)]
pub(crate) struct GrantResolver {
    pub(crate) fixed: Arc<BTreeMap<String, IpAddr>>,
    pub(crate) networks: Arc<[IpNet]>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{host}` resolves to {address}, which is not a public address; if that is intended, add `{address}` or its \
     network to `networks` of the origin in `allow.http` of the stage"
)]
pub(crate) struct NotPublic {
    host: String,
    address: IpAddr,
}

impl GrantResolver {
    pub(crate) async fn resolve(self, name: Name) -> io::Result<std::vec::IntoIter<SocketAddr>> {
        let host = name.as_str().to_ascii_lowercase();
        let addresses: Vec<SocketAddr> = match self.fixed.get(&host) {
            Some(address) => vec![SocketAddr::new(*address, 0)],
            None => tokio::net::lookup_host((host.as_str(), 0)).await?.collect(),
        };
        let (allowed, denied): (Vec<_>, Vec<_>) = addresses
            .into_iter()
            .partition(|address| may_be_dialled(address.ip(), &self.networks));
        match denied.first() {
            Some(first) if allowed.is_empty() => Err(io::Error::other(NotPublic {
                host,
                address: first.ip().to_canonical(),
            })),
            _ => Ok(allowed.into_iter()),
        }
    }
}

/// Returns the networks to which a request with this grant may be sent in addition to public addresses.
pub(crate) fn allowed_networks(grant: &HttpGrant) -> Vec<IpNet> {
    let mut networks = grant.networks.clone();
    if grant.origin.is_localhost() {
        networks.extend(IpNet::new(Ipv4Addr::LOCALHOST.into(), 8));
        networks.push(IpAddr::from(Ipv6Addr::LOCALHOST).into());
    }
    networks
}

fn may_be_dialled(address: IpAddr, networks: &[IpNet]) -> bool {
    let address = address.to_canonical();
    networks.iter().any(|network| network.contains(&address)) || is_public(address)
}

/// IPv4 networks that are not public (RFC 6890 and its registry), and the address of Azure's metadata service. The
/// metadata services of other clouds need no entry, because they have link-local or private addresses.
const NOT_PUBLIC_V4: [(Ipv4Addr, u8); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// Networks in IPv6's global unicast space that are not public: protocol assignments, 6to4, and documentation.
const NOT_PUBLIC_V6: [(Ipv6Addr, u8); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

fn is_public(address: IpAddr) -> bool {
    let is_in = |network: IpAddr, length| IpNet::new(network, length).is_ok_and(|network| network.contains(&address));
    match address {
        IpAddr::V4(_) => !NOT_PUBLIC_V4
            .iter()
            .any(|(network, length)| is_in((*network).into(), *length)),
        // An IPv6 address with this prefix stands for an IPv4 address, which is in its last four bytes (NAT64, RFC
        // 6052). The IPv6 address is public if this IPv4 address is public.
        IpAddr::V6(v6) if is_in(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0).into(), 96) => {
            let [.., a, b, c, d] = v6.octets();
            is_public(Ipv4Addr::new(a, b, c, d).into())
        }
        IpAddr::V6(_) => {
            is_in(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0).into(), 3)
                && !NOT_PUBLIC_V6
                    .iter()
                    .any(|(network, length)| is_in((*network).into(), *length))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_and_granted_addresses_are_allowed() {
        for (address, expected) in [
            ("93.184.215.14", true),
            ("1.1.1.1", true),
            ("2606:4700::1111", true),
            ("64:ff9b::1.1.1.1", true),
            ("0.0.0.0", false),
            ("10.1.2.3", false),
            ("100.100.100.200", false),
            ("127.0.0.1", false),
            ("168.63.129.16", false),
            ("169.254.169.254", false),
            ("172.31.255.255", false),
            ("172.32.0.0", true),
            ("192.168.1.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::ffff:10.0.0.1", false),
            ("::ffff:1.1.1.1", true),
            ("::10.0.0.1", false),
            ("64:ff9b::169.254.169.254", false),
            ("fd00:ec2::254", false),
            ("fe80::1", false),
            ("2002:a00:1::", false),
            ("ff02::1", false),
        ] {
            assert_eq!(may_be_dialled(address.parse().unwrap(), &[]), expected, "{address}");
        }
        let granted: [IpNet; 2] = ["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()];
        for (address, expected) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("fd00::1", true),
            ("192.168.0.1", false),
        ] {
            assert_eq!(
                may_be_dialled(address.parse().unwrap(), &granted),
                expected,
                "{address}"
            );
        }
    }
}
