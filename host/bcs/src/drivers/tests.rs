use admittance::Moment;
use serde_json::{Value, json};

use super::*;

const OWN_NAME: &str = "own:1-a";

fn driver_entry(name: &str) -> DriverEntry {
    DriverEntry {
        name: name.to_owned(),
        report: TableReport {
            live: Digest::of_bytes("A"),
            prepared: Digest::of_bytes("B"),
            earlier: None,
            since: Moment(std::time::SystemTime::UNIX_EPOCH),
            problem: Some("no route".to_owned()),
            rollouts: Vec::new(),
        },
    }
}

#[test]
fn a_driver_writes_its_status_to_its_zookeeper_node() {
    let data = json!({
        "name": OWN_NAME,
        "live": Digest::of_bytes("A").to_string(),
        "prepared": Digest::of_bytes("B").to_string(),
        "since": Moment(std::time::SystemTime::UNIX_EPOCH),
        "problem": "no route",
    });
    assert_eq!(serde_json::to_value(driver_entry(OWN_NAME)).unwrap(), data);
    assert_eq!(
        serde_json::from_value::<DriverEntry>(data).unwrap(),
        driver_entry(OWN_NAME)
    );
    for other in [
        json!({"ip": "10.0.0.5", "port": 8090}),
        json!({"name": OWN_NAME}),
        Value::Null,
    ] {
        assert!(serde_json::from_value::<DriverEntry>(other.clone()).is_err(), "{other}");
    }
}

/// Returns the names of the drivers, the leader's name, and whether this driver is the leader.
fn observed_membership(
    nodes: &[(u32, Option<&str>)],
    own_state: Option<&RegistrationState>,
) -> (Vec<String>, String, bool) {
    let drivers = nodes
        .iter()
        .map(|(number, name)| (format!("_c_0-x{number:010}"), name.map(driver_entry)));
    let driver_nodes = DriverNodes {
        parent: Some((3, Some(Digest::of_bytes("A")))),
        drivers: drivers.collect(),
        ..DriverNodes::default()
    };
    let membership = membership(&driver_nodes, own_state, OWN_NAME);
    assert_eq!(membership.target, Some(Digest::of_bytes("A")));
    let replicas = membership.replicas.iter();
    let leaders = replicas.clone().filter(|replica| replica.is_leader);
    (
        replicas.map(|replica| replica.name.clone()).collect(),
        leaders.map(|replica| replica.name.clone()).collect(),
        membership.leads,
    )
}

#[test]
fn the_driver_that_registered_first_leads() {
    let registered = &RegistrationState::Registered { path: "/x".to_owned() };
    let missing = &RegistrationState::Missing {
        reason: "the connection was lost".to_owned(),
        is_refused: false,
    };
    let names = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
    for (case, nodes, own_state, expected, leader, leads) in [
        ("no drivers", &[][..], registered, &[][..], "", false),
        ("alone", &[(7, Some(OWN_NAME))], registered, &[OWN_NAME], OWN_NAME, true),
        (
            "the first",
            &[(12, Some("b")), (7, Some(OWN_NAME))],
            registered,
            &[OWN_NAME, "b"],
            OWN_NAME,
            true,
        ),
        (
            "the second",
            &[(7, Some("b")), (12, Some(OWN_NAME))],
            registered,
            &["b", OWN_NAME],
            "b",
            false,
        ),
        (
            "not registered any more",
            &[(7, Some(OWN_NAME)), (8, Some("b"))],
            missing,
            &[OWN_NAME, "b"],
            OWN_NAME,
            false,
        ),
        (
            "a node of something else",
            &[(1, None), (7, Some(OWN_NAME))],
            registered,
            &[OWN_NAME],
            OWN_NAME,
            true,
        ),
        (
            "the node of a session that was lost",
            &[(1, Some(OWN_NAME)), (2, Some("b")), (3, Some(OWN_NAME))],
            registered,
            &["b", OWN_NAME],
            "b",
            false,
        ),
    ] {
        let (drivers, leads_all, is_leader) = observed_membership(nodes, Some(own_state));
        assert_eq!(drivers, names(expected), "{case}");
        assert_eq!((leads_all.as_str(), is_leader), (leader, leads), "{case}");
    }
}

#[test]
fn the_reason_for_a_stale_list_of_drivers_is_reported() {
    let missing = |is_refused| RegistrationState::Missing {
        reason: "no".to_owned(),
        is_refused,
    };
    let registered = RegistrationState::Registered { path: "/x".to_owned() };
    for (stale_reason, is_refused, own_state, problem, expects_refusal) in [
        (None, false, Some(registered.clone()), None, false),
        (Some("away"), false, Some(registered.clone()), Some("away"), false),
        (Some("away"), false, Some(missing(false)), Some("away"), false),
        (Some("forbidden"), true, None, Some("forbidden"), true),
        (
            None,
            false,
            Some(missing(false)),
            Some("they are not told what this driver has: no"),
            false,
        ),
        (
            None,
            false,
            Some(missing(true)),
            Some("they are not told what this driver has: no"),
            true,
        ),
    ] {
        let driver_nodes = DriverNodes {
            stale_reason: stale_reason.map(str::to_owned),
            is_refused,
            ..DriverNodes::default()
        };
        let membership = membership(&driver_nodes, own_state.as_ref(), OWN_NAME);
        assert_eq!(
            (membership.problem.as_deref(), membership.is_refused),
            (problem, expects_refusal),
            "{stale_reason:?} {own_state:?}"
        );
    }
}

#[test]
fn special_characters_in_names_of_nodes_are_escaped() {
    for (host, expected) in [
        ("driver-1.example", "driver-1.example:8090-01234567"),
        ("a/b c", "a-b-c:8090-01234567"),
    ] {
        assert_eq!(replica_name(host, 8090, "01234567"), expected);
    }
    let encoded = |id: &str| utf8_percent_encode(id, UNESCAPED_CHARACTERS).to_string();
    for (id, expected) in [
        ("BCS-MESOS-10001", "BCS-MESOS-10001"),
        ("..", "%2E%2E"),
        ("a/b", "a%2Fb"),
    ] {
        assert_eq!(encoded(id), expected);
    }
}
