use super::*;

fn endpoints(subsets: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web", "namespace": "shop"},
           "subsets": subsets})
}

fn address(ip: &str, node: &str) -> Value {
    json!({"ip": ip, "nodeName": node})
}

/// The corresponding code of SuperEdge, in `pkg/edge-health-admission/admission/endpoint.go`, works correctly only if
/// it moves a single address. This plugin must move them all.
#[test]
fn addresses_of_disconnected_healthy_nodes_become_ready() {
    let (a, b) = (|| address("10.0.0.1", "lost"), || address("10.0.0.2", "far"));
    let (c, d) = (|| address("10.0.0.3", "near"), || address("10.0.0.4", "dead"));
    let e = || address("10.0.0.5", "ill");
    let orphan = || address("10.0.0.6", "nobody");
    let homeless = || json!({"ip": "10.0.0.7"});
    // (case, subsets before, expected subsets after)
    let table = [
        (
            "one, to none",
            json!([{"notReadyAddresses": [a()]}]),
            json!([{"addresses": [a()]}]),
        ),
        (
            "one, to null",
            json!([{"addresses": null, "notReadyAddresses": [a()]}]),
            json!([{"addresses": [a()]}]),
        ),
        (
            "one, to an empty list",
            json!([{"addresses": [], "notReadyAddresses": [a()]}]),
            json!([{"addresses": [a()]}]),
        ),
        (
            "one, behind those that are ready",
            json!([{"addresses": [c(), e()], "notReadyAddresses": [a()]}]),
            json!([{"addresses": [c(), e(), a()]}]),
        ),
        (
            "all, in their order",
            json!([{"addresses": [c()], "notReadyAddresses": [b(), a()]}]),
            json!([{"addresses": [c(), b(), a()]}]),
        ),
        (
            "some, between others",
            json!([{"addresses": [c()], "notReadyAddresses": [d(), a(), homeless(), b(), orphan(), a(), e()]}]),
            json!([{"addresses": [c(), a(), b(), a()], "notReadyAddresses": [d(), homeless(), orphan(), e()]}]),
        ),
        (
            "some, to none",
            json!([{"notReadyAddresses": [a(), d(), b()]}]),
            json!([{"addresses": [a(), b()], "notReadyAddresses": [d()]}]),
        ),
        (
            "some, to null",
            json!([{"addresses": null, "notReadyAddresses": [d(), a()]}]),
            json!([{"addresses": [a()], "notReadyAddresses": [d()]}]),
        ),
        (
            "from several subsets",
            json!([
                {"ports": [{"port": 80}], "notReadyAddresses": [a(), b()]},
                {"addresses": [c()], "notReadyAddresses": [e()]},
                {"addresses": [c()], "notReadyAddresses": [e(), b(), a()], "ports": null},
            ]),
            json!([
                {"ports": [{"port": 80}], "addresses": [a(), b()]},
                {"addresses": [c()], "notReadyAddresses": [e()]},
                {"addresses": [c(), b(), a()], "notReadyAddresses": [e()], "ports": null},
            ]),
        ),
        (
            "with all that is in them",
            json!([{"addresses": [c()], "notReadyAddresses": [
                {"ip": "10.0.0.1", "hostname": "web-0", "nodeName": "lost", "new": {"x": [1]},
                 "targetRef": {"kind": "Pod", "name": "web-0", "resourceVersion": "7"}},
            ]}]),
            json!([{"addresses": [c(),
                {"ip": "10.0.0.1", "hostname": "web-0", "nodeName": "lost", "new": {"x": [1]},
                 "targetRef": {"kind": "Pod", "name": "web-0", "resourceVersion": "7"}},
            ]}]),
        ),
    ];
    for (name, before, after) in table {
        for request in [
            testing::update(endpoints(before.clone()), endpoints(before.clone())),
            testing::create(endpoints(before.clone())),
        ] {
            let outcome = judge_twice(&json!({}), request);
            assert_eq!(outcome.object(), Some(&endpoints(after.clone())), "{name}");
        }
    }
}

#[test]
fn endpoints_without_addresses_or_nodes_are_unchanged() {
    let table = [
        ("null for subsets", Value::Null),
        ("no subsets", json!([])),
        ("nothing in a subset", json!([null, {}])),
        ("null for both", json!([{"addresses": null, "notReadyAddresses": null}])),
        (
            "none that waits",
            json!([{"addresses": [address("10.0.0.1", "lost")], "notReadyAddresses": []}]),
        ),
        (
            "no node",
            json!([{"notReadyAddresses": [null, {}, {"nodeName": null}, {"nodeName": ""}]}]),
        ),
        (
            "a node that is not there",
            json!([{"notReadyAddresses": [address("10.0.0.1", "nobody")]}]),
        ),
        (
            "a node that is ready",
            json!([{"notReadyAddresses": [address("10.0.0.1", "near")]}]),
        ),
        (
            "a node that is marked",
            json!([{"notReadyAddresses": [address("10.0.0.1", "dead")]}]),
        ),
    ];
    for (name, subsets) in table {
        let outcome = judge_twice(&json!({}), testing::create(endpoints(subsets)));
        assert_eq!(outcome.patch(), None, "{name}");
    }
    let bare = json!({"apiVersion": "v1", "kind": "Endpoints"});
    assert_eq!(judge_twice(&json!({}), testing::create(bare)).patch(), None);
}

#[test]
fn the_setting_always_reachable_applies_to_all_unknown_nodes() {
    let waiting: Vec<Value> = ["dead", "near", "lost", "ill", "nobody"]
        .iter()
        .map(|node| address("10.0.0.1", node))
        .collect();
    let object = endpoints(json!([{"notReadyAddresses": waiting}]));
    let outcome = judge_twice(&json!({"alwaysReachable": true}), testing::create(object));
    let names = |list: &str| -> Vec<&str> {
        let addresses = outcome.at(&format!("/subsets/0/{list}")).and_then(Value::as_array);
        addresses
            .into_iter()
            .flatten()
            .filter_map(|address| address["nodeName"].as_str())
            .collect()
    };
    assert_eq!(names("addresses"), ["dead", "lost"]);
    assert_eq!(names("notReadyAddresses"), ["near", "ill", "nobody"]);
}

#[test]
fn the_patch_moves_addresses_without_copying_them() {
    let (a, d) = (address("10.0.0.1", "lost"), address("10.0.0.4", "dead"));
    let table = [
        (
            "a whole list",
            json!([{"notReadyAddresses": [a, a, a]}]),
            json!([{"op": "move", "path": "/subsets/0/addresses", "from": "/subsets/0/notReadyAddresses"}]),
        ),
        (
            "some of them",
            json!([{"addresses": [d], "notReadyAddresses": [a, d, a]}]),
            json!([
                {"op": "move", "path": "/subsets/0/addresses/-", "from": "/subsets/0/notReadyAddresses/0"},
                {"op": "move", "path": "/subsets/0/addresses/-", "from": "/subsets/0/notReadyAddresses/1"},
            ]),
        ),
    ];
    for (name, subsets, expected) in table {
        let outcome = judge_twice(&json!({}), testing::create(endpoints(subsets)));
        assert_eq!(outcome.patch(), Some(&expected), "{name}");
    }
}
