use super::*;

const TAINT: &str = "node.kubernetes.io/unreachable";

fn taint(key: &str, effect: &str) -> Value {
    json!({"key": key, "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"})
}

fn edge_node(ready: &str, annotations: Value, taints: Value) -> Value {
    let mut node = node_object("edge", ready, annotations);
    node["spec"] = json!({"podCIDR": "10.0.0.0/24", "taints": taints});
    node
}

/// The corresponding code of SuperEdge is in `pkg/edge-health-admission/admission/nodetaint.go`.
#[test]
fn the_taint_of_a_disconnected_healthy_node_is_removed() {
    let evict = || taint(TAINT, "NoExecute");
    let only = || json!([evict()]);
    let none = || Value::Null;
    let marked = || json!({"nodeunhealth": "yes"});
    let other = || taint("dedicated", "NoExecute");
    let schedule = || taint(TAINT, "NoSchedule");
    // (case, status of the condition `Ready`, annotations, taints, alwaysReachable, expected taints)
    let table = [
        ("cut off", "Unknown", none(), only(), false, None),
        ("other annotations", "Unknown", json!({"a": "b"}), only(), false, None),
        ("ready", "True", none(), only(), false, Some(only())),
        (
            "not ready, as it says itself",
            "False",
            none(),
            only(),
            false,
            Some(only()),
        ),
        ("marked", "Unknown", marked(), only(), false, Some(only())),
        (
            "marked with nothing",
            "Unknown",
            json!({"nodeunhealth": ""}),
            only(),
            false,
            Some(only()),
        ),
        (
            "marked with null",
            "Unknown",
            json!({"nodeunhealth": null}),
            only(),
            false,
            Some(only()),
        ),
        (
            "marked with \"false\"",
            "Unknown",
            json!({"nodeunhealth": "false"}),
            only(),
            false,
            Some(only()),
        ),
        (
            "marked in other letters",
            "Unknown",
            json!({"nodeUnhealth": "yes"}),
            only(),
            false,
            None,
        ),
        ("marked, and always reachable", "Unknown", marked(), only(), true, None),
        (
            "not marked, and always reachable",
            "Unknown",
            none(),
            only(),
            true,
            None,
        ),
        (
            "ready, and always reachable",
            "True",
            none(),
            only(),
            true,
            Some(only()),
        ),
        (
            "the others keep their order",
            "Unknown",
            none(),
            json!([other(), evict(), schedule(), evict(), taint("z", "NoSchedule")]),
            false,
            Some(json!([other(), schedule(), taint("z", "NoSchedule")])),
        ),
        (
            "another effect or key",
            "Unknown",
            none(),
            json!([schedule(), taint("node.kubernetes.io/not-ready", "NoExecute")]),
            false,
            Some(json!([schedule(), taint("node.kubernetes.io/not-ready", "NoExecute")])),
        ),
        (
            "all of several",
            "Unknown",
            none(),
            json!([evict(), evict()]),
            false,
            None,
        ),
        (
            "nothing in a taint",
            "Unknown",
            none(),
            json!([null, {}, {"key": null}, evict()]),
            false,
            Some(json!([null, {}, {"key": null}])),
        ),
        ("no taints", "Unknown", none(), json!([]), false, Some(json!([]))),
        ("null for taints", "Unknown", none(), none(), false, Some(none())),
    ];
    for (name, ready, annotations, taints, always_reachable, expected) in table {
        let before = edge_node(ready, annotations, taints.clone());
        let outcome = judge_twice(
            &json!({"alwaysReachable": always_reachable}),
            testing::update(&before, &before),
        );
        assert_eq!(outcome.at("/spec/taints"), expected.as_ref(), "{name}");
        assert_eq!(outcome.patch().is_some(), expected != Some(taints), "{name}");
        let mut rest = outcome.object().cloned().expect("an UPDATE has an object");
        rest["spec"]["taints"] = before["spec"]["taints"].clone();
        assert_eq!(rest, before, "{name}");
    }
}

#[test]
fn missing_fields_of_a_node_are_accepted() {
    let conditions = |conditions: Value| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge"},
               "spec": {"taints": [taint(TAINT, "NoExecute")]}, "status": {"conditions": conditions}})
    };
    let table = [
        json!({"apiVersion": "v1", "kind": "Node"}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": null, "spec": null, "status": null}),
        conditions(Value::Null),
        conditions(json!([])),
        conditions(json!([null, {}, {"type": null, "status": "Unknown"}, {"type": "Ready"}])),
        conditions(json!([{"type": "Ready", "status": null}])),
        conditions(json!([{"type": "MemoryPressure", "status": "Unknown"}])),
        // The first condition of the type `Ready` is `True`, and only the first one counts, as in Kubernetes.
        conditions(json!([{"type": "Ready", "status": "True"}, {"type": "Ready", "status": "Unknown"}])),
    ];
    for node in table {
        let outcome = judge_twice(&json!({"alwaysReachable": true}), testing::update(&node, &node));
        assert_eq!(outcome.patch(), None, "{node}");
    }
}

#[test]
fn only_an_update_of_a_node_itself_removes_taints() {
    let node = edge_node("Unknown", json!({}), json!([taint(TAINT, "NoExecute")]));
    let table = [
        ("an UPDATE", testing::update(&node, &node), true),
        ("a CREATE", testing::create(&node), false),
        ("a DELETE", testing::delete(&node), false),
        ("its status", testing::update(&node, &node).subresource("status"), false),
    ];
    let plugin = configured_plugin(&json!({}));
    for (name, request, expected) in table {
        let outcome = request.admit(&plugin).expect("there is a verdict");
        assert_eq!(outcome.patch().is_some(), expected, "{name}");
    }
}

#[test]
fn the_patch_changes_only_the_taints() {
    let evict = || taint(TAINT, "NoExecute");
    let table = [
        (json!([evict()]), json!([{"op": "remove", "path": "/spec/taints"}])),
        (
            json!([evict(), taint("a", "NoSchedule"), evict()]),
            json!([{"op": "remove", "path": "/spec/taints/2"}, {"op": "remove", "path": "/spec/taints/0"}]),
        ),
    ];
    for (taints, expected) in table {
        let node = edge_node("Unknown", json!({}), taints);
        let outcome = judge_twice(&json!({}), testing::update(&node, &node));
        assert_eq!(outcome.patch(), Some(&expected));
    }
}
