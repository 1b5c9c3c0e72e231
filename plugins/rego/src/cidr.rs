//! OPA's functions for networks, which regorus lacks. If an argument is not a network, the call is undefined.

use std::{collections::BTreeSet, net::Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use regorus::Value;

/// Implements `net.cidr_intersects`: returns whether two networks have an address in common.
pub(crate) fn intersects(one: &str, other: &str) -> Option<bool> {
    let (one, other) = (parse_network(one)?, parse_network(other)?);
    Some(one.contains(&other.network()) || other.contains(&one.network()))
}

/// Implements `net.cidr_contains`: returns whether a network contains an address or another network.
pub(crate) fn contains(outer: &str, inner: &str) -> Option<bool> {
    let outer = parse_network(outer)?;
    match inner.parse::<std::net::IpAddr>() {
        Ok(address) => Some(outer.contains(&address)),
        Err(_) => Some(outer.contains(&parse_network(inner)?)),
    }
}

/// Implements `net.cidr_contains_matches`: compares each network with each of the others. If the first contains the
/// second, the result gets a pair of their keys, such as their indexes in two arrays.
pub(crate) fn contains_matches(networks: &Value, other_networks: &Value) -> Option<Value> {
    let (networks, inner_networks) = (networks_by_key(networks)?, networks_by_key(other_networks)?);
    let mut pairs = BTreeSet::new();
    for (key, outer) in &networks {
        for (other_key, inner) in &inner_networks {
            if contains(outer, inner)? {
                pairs.insert(Value::from(vec![key.clone(), other_key.clone()]));
            }
        }
    }
    Some(pairs.into())
}

/// Implements `net.cidr_merge`: returns the shortest list of networks that covers the same addresses.
///
/// An address without a prefix stands for the network of its class, as in OPA. If that network is merged with no other,
/// OPA returns the address unchanged.
pub(crate) fn merge(networks: &Value) -> Option<Value> {
    let parsed = match networks {
        Value::Array(networks) => networks.iter().map(parse_network_or_address).collect(),
        Value::Set(networks) => networks.iter().map(parse_network_or_address).collect(),
        _ => None,
    };
    let parsed_networks: Vec<IpNet> = parsed?;
    let truncated = parsed_networks.iter().map(IpNet::trunc).collect();
    let merged_texts = IpNet::aggregate(&truncated).into_iter().map(|merged| {
        let mut parts = parsed_networks.iter().filter(|part| merged.contains(*part));
        let single_part = parts.next().filter(|_| parts.next().is_none());
        Value::from(single_part.unwrap_or(&merged).to_string())
    });
    Some(merged_texts.collect::<BTreeSet<_>>().into())
}

fn parse_network(text: &str) -> Option<IpNet> {
    text.parse().ok().map(|network: IpNet| network.trunc())
}

fn parse_network_or_address(value: &Value) -> Option<IpNet> {
    let text = value.as_string().ok()?;
    match text.parse::<Ipv4Addr>() {
        Ok(address) => {
            let prefix = match address.octets() {
                [0..=127, ..] => 8,
                [128..=191, ..] => 16,
                _ => 24,
            };
            Ipv4Net::new(address, prefix).ok().map(IpNet::V4)
        }
        Err(_) => parse_network(text),
    }
}

/// Returns the networks in a value, each with its key: the index in an array, the key in an object, or the network
/// itself in a set.
fn networks_by_key(value: &Value) -> Option<Vec<(Value, &str)>> {
    let keyed = |key: Value, item| Some((key, network_text(item)?));
    match value {
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.map(|(index, item)| keyed(index.into(), item)).collect()
        }
        Value::Set(items) => items.iter().map(|item| keyed(item.clone(), item)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            fields.map(|(key, item)| keyed(key.clone(), item)).collect()
        }
        item => keyed(item.clone(), item).map(|item| vec![item]),
    }
}

fn network_text(item: &Value) -> Option<&str> {
    match item {
        Value::String(text) => Some(text),
        Value::Array(items) => match items.first() {
            Some(Value::String(text)) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(json: &str) -> Value {
        Value::from_json_str(json).unwrap()
    }

    /// The cases are from OPA's documentation, and from its `test/cases/testdata/netcidrmerge` and `netcidrintersects`.
    #[test]
    fn networks_are_merged_as_in_opa() {
        for (networks, expected) in [
            (r#"[]"#, Some(vec![])),
            (r#"["192.0.128.0/24"]"#, Some(vec!["192.0.128.0/24"])),
            (r#"["192.0.128.0/24", "192.0.128.0/24"]"#, Some(vec!["192.0.128.0/24"])),
            (r#"["192.0.128.0/24", "0.0.0.0/0"]"#, Some(vec!["0.0.0.0/0"])),
            (r#"["192.0.128.0/24", "192.0.129.0/24"]"#, Some(vec!["192.0.128.0/23"])),
            (
                r#"["192.0.129.0/24", "192.0.130.0/24"]"#,
                Some(vec!["192.0.129.0/24", "192.0.130.0/24"]),
            ),
            (
                r#"["192.0.2.112/30", "192.0.2.116/31", "192.0.2.118/31"]"#,
                Some(vec!["192.0.2.112/29"]),
            ),
            (
                r#"["192.0.2.112/30", "192.0.2.116/32", "192.0.2.118/31"]"#,
                Some(vec!["192.0.2.112/30", "192.0.2.116/32", "192.0.2.118/31"]),
            ),
            (
                r#"["192.0.2.112/31", "192.0.2.116/31", "192.0.2.118/31"]"#,
                Some(vec!["192.0.2.112/31", "192.0.2.116/30"]),
            ),
            (r#"["::/0", "fe80::1/128"]"#, Some(vec!["::/0"])),
            (
                r#"["fe80::/120", "192.0.2.0/24", "192.0.3.0/24", "192.0.4.0/25", "192.0.4.128/25"]"#,
                Some(vec!["192.0.2.0/23", "192.0.4.0/24", "fe80::/120"]),
            ),
            (
                r#"["2601:600:8a80:207e:a57d:7567:e2c9:e7b3/64", "2601:600:8a80:207e:a57d:7567:e2c9:e7b3/128"]"#,
                Some(vec!["2601:600:8a80:207e::/64"]),
            ),
            (
                r#"["192.0.2.112", "192.0.2.116/31", "192.0.2.118/31"]"#,
                Some(vec!["192.0.2.0/24"]),
            ),
            (r#"["192.0.128.0", "192.0.129.0"]"#, Some(vec!["192.0.128.0/23"])),
            (r#"["10.1.2.3"]"#, Some(vec!["10.1.2.3/8"])),
            (r#"["172.16.0.1"]"#, Some(vec!["172.16.0.1/16"])),
            (r#"["fe80::1"]"#, None),
            (r#"["foo"]"#, None),
            (r#"[1]"#, None),
            (r#""192.0.128.0/24""#, None),
        ] {
            let expected = expected.map(|networks| {
                let networks = networks.into_iter().map(Value::from);
                Value::from(networks.collect::<BTreeSet<_>>())
            });
            assert_eq!(merge(&value(networks)), expected, "{networks}");
        }
        for (one, other, expected) in [
            ("192.168.1.0/24", "192.168.1.64/25", Some(true)),
            ("192.168.1.0/25", "192.168.1.64/25", Some(true)),
            ("192.168.1.0/24", "192.168.0.0/16", Some(true)),
            ("192.168.1.0/24", "192.168.2.0/24", Some(false)),
            ("192.168.1.0/24", "fe80::/10", Some(false)),
            ("fe80::/10", "fe80:1::/32", Some(true)),
            ("192.168.1.0/24", "192.168.1.1", None),
            ("not a network", "192.168.1.0/24", None),
        ] {
            assert_eq!(intersects(one, other), expected, "{one} {other}");
        }
    }

    /// The cases are from `test/cases/testdata/netcidrcontainsmatches` of OPA, and from its documentation.
    #[test]
    fn a_cidr_match_has_the_keys_that_both_networks_have_in_their_collections() {
        for (networks, others, expected) in [
            (
                r#""1.1.1.0/24""#,
                r#""1.1.1.1""#,
                Some(r#"[["1.1.1.0/24", "1.1.1.1"]]"#),
            ),
            (
                r#"["1.1.2.0/24", "1.1.1.0/24"]"#,
                r#""1.1.1.1""#,
                Some(r#"[[1, "1.1.1.1"]]"#),
            ),
            (
                r#"[["1.1.0.0/16", "foo"], "1.1.2.0/24"]"#,
                r#"["1.1.1.1", ["1.1.2.1", "bar"]]"#,
                Some("[[0, 0], [0, 1], [1, 1]]"),
            ),
            (
                r#"{"x": "1.1.0.0/16", "y": ["2.0.0.0/8"]}"#,
                r#"{"a": "1.1.128.0/17", "b": "3.0.0.1"}"#,
                Some(r#"[["x", "a"]]"#),
            ),
            ("[]", r#"["1.1.1.1"]"#, Some("[]")),
            (r#"["1.1.1.0/24"]"#, "[[]]", None),
            (r#"["1.1.1.0/24"]"#, r#"["not an address"]"#, None),
            (r#"["not a network"]"#, r#"["1.1.1.1"]"#, None),
        ] {
            let expected = expected.map(|pairs| {
                let pairs = value(pairs).as_array().unwrap().iter().cloned().collect();
                Value::Set(std::sync::Arc::new(pairs))
            });
            assert_eq!(
                contains_matches(&value(networks), &value(others)),
                expected,
                "{networks} {others}"
            );
        }
    }
}
