use super::*;

fn slice(version: &str, endpoints: Value) -> Value {
    json!({"apiVersion": format!("discovery.k8s.io/{version}"), "kind": "EndpointSlice",
           "metadata": {"name": "web-x1", "namespace": "shop"}, "addressType": "IPv4", "endpoints": endpoints})
}

#[test]
fn endpoints_of_disconnected_healthy_nodes_become_ready() {
    let endpoint = |conditions: Value| json!({"addresses": ["10.0.0.1"], "nodeName": "lost", "conditions": conditions});
    let table = [
        ("not ready", json!({"ready": false}), json!({"ready": true})),
        (
            "not serving either",
            json!({"ready": false, "serving": false, "terminating": false}),
            json!({"ready": true, "serving": true, "terminating": false}),
        ),
        (
            "serving",
            json!({"ready": false, "serving": true}),
            json!({"ready": true, "serving": true}),
        ),
        (
            "null for the others",
            json!({"ready": false, "serving": null, "terminating": null}),
            json!({"ready": true, "serving": null, "terminating": null}),
        ),
        (
            "a condition that is not known here",
            json!({"ready": false, "new": 1}),
            json!({"ready": true, "new": 1}),
        ),
        (
            "terminating",
            json!({"ready": false, "serving": false, "terminating": true}),
            json!({"ready": false, "serving": false, "terminating": true}),
        ),
        ("ready", json!({"ready": true}), json!({"ready": true})),
        ("unknown, which is ready", json!({}), json!({})),
        ("null, which is ready", json!({"ready": null}), json!({"ready": null})),
        ("no conditions", Value::Null, Value::Null),
    ];
    for version in ["v1", "v1beta1"] {
        for (name, before, after) in &table {
            let before = slice(version, json!([endpoint(before.clone())]));
            let after = slice(version, json!([endpoint(after.clone())]));
            for request in [testing::update(&before, &before), testing::create(&before)] {
                let outcome = judge_twice(&json!({}), request);
                assert_eq!(outcome.object(), Some(&after), "{version}: {name}");
            }
        }
    }
}

#[test]
fn the_node_of_an_endpoint_is_read_from_the_field_of_its_api_version() {
    let hostname = |node: Value| json!({"topology": {"kubernetes.io/hostname": node, "zone": "a"}});
    let both = json!({"nodeName": "near", "topology": {"kubernetes.io/hostname": "lost"}});
    let empty = json!({"nodeName": "", "topology": {"kubernetes.io/hostname": "lost"}});
    let always = json!({"alwaysReachable": true});
    let usual = json!({});
    // (case, settings, node of the endpoint, whether the endpoint becomes ready in v1, and in v1beta1)
    let table = [
        ("by name", &usual, json!({"nodeName": "lost"}), true, true),
        ("by topology", &usual, hostname(json!("far")), false, true),
        ("the name counts first", &usual, both, false, false),
        ("an empty name is none", &usual, empty, false, true),
        (
            "null",
            &usual,
            json!({"nodeName": null, "topology": null}),
            false,
            false,
        ),
        ("null in the topology", &usual, hostname(Value::Null), false, false),
        ("no node", &usual, json!({"targetRef": null}), false, false),
        (
            "a node that is marked",
            &usual,
            json!({"nodeName": "dead"}),
            false,
            false,
        ),
        (
            "a node that is marked, always reachable",
            &always,
            json!({"nodeName": "dead"}),
            true,
            true,
        ),
        (
            "a node that is ready",
            &always,
            json!({"nodeName": "near"}),
            false,
            false,
        ),
        (
            "a node that is not there",
            &always,
            json!({"nodeName": "nobody"}),
            false,
            false,
        ),
    ];
    for (name, settings, mut endpoint, in_v1, in_v1beta1) in table {
        endpoint["conditions"] = json!({"ready": false});
        for (version, expected) in [("v1", in_v1), ("v1beta1", in_v1beta1)] {
            let object = slice(version, json!([endpoint]));
            let outcome = judge_twice(settings, testing::update(&object, &object));
            let ready = outcome.at("/endpoints/0/conditions/ready");
            assert_eq!(ready, Some(&json!(expected)), "{version}: {name}");
        }
    }
}

#[test]
fn all_affected_endpoints_and_no_other_fields_are_changed() {
    let endpoint = |node: &str, ready: bool| {
        json!({"addresses": ["10.0.0.1"], "nodeName": node, "hints": {"forZones": []},
                                                    "conditions": {"ready": ready}})
    };
    let before = slice(
        "v1",
        json!([
            endpoint("lost", false),
            null,
            endpoint("dead", false),
            {},
            endpoint("far", false),
            endpoint("near", false)
        ]),
    );
    let after = slice(
        "v1",
        json!([
            endpoint("lost", true),
            null,
            endpoint("dead", false),
            {},
            endpoint("far", true),
            endpoint("near", false)
        ]),
    );
    let outcome = judge_twice(&json!({}), testing::update(&before, &before));
    assert_eq!(outcome.object(), Some(&after));
    assert_eq!(
        outcome.patch(),
        Some(&json!([
            {"op": "replace", "path": "/endpoints/0/conditions/ready", "value": true},
            {"op": "replace", "path": "/endpoints/4/conditions/ready", "value": true},
        ]))
    );
    for endpoints in [Value::Null, json!([])] {
        assert_eq!(
            judge_twice(&json!({}), testing::create(slice("v1", endpoints))).patch(),
            None
        );
    }
}
