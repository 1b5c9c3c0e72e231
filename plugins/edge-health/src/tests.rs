//! Tests how the plugin changes Nodes, Endpoints and EndpointSlices. The expected results follow
//! `pkg/edge-health-admission` in `superedge/superedge`, without its bugs for objects with several addresses.

mod endpoints;
mod node;
mod slices;

use std::cell::RefCell;

use admittance_sdk::serde_json::{Value, from_value, json};
use admittance_sdk::testing::{self, Outcome, RequestBuilder};
use admittance_sdk::{Capability, Text, cluster};

use super::*;

fn configured_plugin(settings: &Value) -> EdgeHealth {
    testing::configure(settings).expect("the settings are right")
}

fn node_object(name: &str, ready: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "annotations": annotations},
        "status": {"conditions": [
            {"type": "DiskPressure", "status": "Unknown"},
            {"type": "Ready", "status": ready, "reason": "NodeStatusUnknown"},
        ]},
    })
}

/// The control plane has lost contact with the nodes `lost`, `far` and `dead`, and `dead` is also marked as unhealthy.
/// The node `ill` has contact, but is not ready.
fn cluster_nodes() -> [Value; 5] {
    [
        node_object("lost", "Unknown", Value::Null),
        node_object("far", "Unknown", json!({"other": "x"})),
        node_object("dead", "Unknown", json!({"nodeunhealth": "yes"})),
        node_object("near", "True", json!({})),
        node_object("ill", "False", json!({})),
    ]
}

/// Runs the plugin on the request. Also checks that a second run on the resulting object changes nothing.
fn judge_twice(settings: &Value, request: RequestBuilder) -> Outcome {
    let plugin = configured_plugin(settings);
    testing::with_cluster(cluster_nodes(), || {
        let outcome = request.admit(&plugin).expect("there is a verdict");
        assert!(outcome.is_allowed());
        if let Some(object) = outcome.object() {
            let again = testing::update(object, object)
                .admit(&plugin)
                .expect("there is a verdict");
            assert_eq!(again.patch(), None, "a second run changes nothing: {object}");
        }
        outcome
    })
}

#[test]
fn the_plugin_declares_node_lookups_and_its_resources() {
    let description = testing::describe::<EdgeHealth>();
    assert!(description.mutates);
    assert!(matches!(
        description.capabilities.as_slice(),
        [Capability::Cluster(kind)] if kind == "v1/Node"
    ));
    let resources: Vec<String> = description
        .resources
        .iter()
        .flat_map(|rule| {
            let at = format!("{}/{}", rule.api_groups.join(","), rule.api_versions.join(","));
            rule.resources.iter().map(move |resource| format!("{at}/{resource}"))
        })
        .collect();
    assert_eq!(
        resources,
        [
            "/v1/nodes",
            "/v1/endpoints",
            "discovery.k8s.io/v1/endpointslices",
            "discovery.k8s.io/v1beta1/endpointslices",
        ]
    );
    let schema: Value = description
        .settings_schema
        .and_then(|schema| schema.parse().ok())
        .expect("there is a schema");
    assert_eq!(
        schema.pointer("/properties/alwaysReachable/type"),
        Some(&json!("boolean"))
    );
}

#[test]
fn wrong_settings_are_reported() {
    let table = [
        (json!({"alwaysReachable": "yes"}), "/alwaysReachable"),
        (json!({"alwaysreachable": true}), "/alwaysreachable"),
    ];
    for (settings, pointer) in table {
        let errors = testing::configure::<EdgeHealth>(&settings).expect_err("they are wrong");
        let pointers: Vec<&str> = errors.iter().map(|error| error.pointer()).collect();
        assert_eq!(pointers, [pointer], "{settings}");
    }
}

/// If a request cannot be decided without reading a node, it fails here, because there is no control plane. All other
/// requests succeed.
#[test]
fn the_control_plane_is_queried_only_if_the_outcome_depends_on_it() {
    let endpoints = |subset: Value| json!({"apiVersion": "v1", "kind": "Endpoints", "subsets": [subset]});
    let slice = |endpoint: Value| json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "endpoints": [endpoint]});
    let waiting = endpoints(json!({"notReadyAddresses": [{"ip": "10.0.0.1", "nodeName": "lost"}]}));
    let not_ready = slice(json!({"nodeName": "lost", "conditions": {"ready": false}}));
    let table = [
        ("an address that waits", testing::create(&waiting), true),
        ("a slice's endpoint that waits", testing::create(&not_ready), true),
        (
            "ready addresses",
            testing::create(endpoints(
                json!({"addresses": [{"nodeName": "lost"}], "notReadyAddresses": []}),
            )),
            false,
        ),
        (
            "a ready endpoint",
            testing::create(slice(json!({"nodeName": "lost", "conditions": {"ready": true}}))),
            false,
        ),
        (
            "an address without a node",
            testing::create(endpoints(
                json!({"notReadyAddresses": [{"ip": "10.0.0.1"}, {"nodeName": ""}]}),
            )),
            false,
        ),
        (
            "a Node",
            testing::update(json!({}), node_object("lost", "Unknown", json!({}))),
            false,
        ),
        ("a DELETE", testing::delete(&waiting), false),
        ("a subresource", testing::create(&waiting).subresource("status"), false),
        (
            "another kind",
            testing::create(
                json!({"apiVersion": "example.com/v1", "kind": "Endpoints", "subsets": waiting["subsets"]}),
            ),
            false,
        ),
        (
            "another version",
            testing::create(json!({"apiVersion": "v2", "kind": "Endpoints", "subsets": waiting["subsets"]})),
            false,
        ),
    ];
    let plugin = configured_plugin(&json!({}));
    for (name, request, asks) in table {
        match request.admit(&plugin) {
            Ok(outcome) => assert!(!asks && outcome.patch().is_none(), "{name}: {outcome:?}"),
            Err(error) => assert!(
                asks && error.to_string().starts_with("the Node \"lost\" cannot be looked up: "),
                "{name}: {error}"
            ),
        }
    }
}

#[test]
fn a_node_that_cannot_be_read_is_a_failure() {
    let odd = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "lost"}, "status": "well"});
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints",
        "subsets": [{"notReadyAddresses": [{"nodeName": "lost"}]}]});
    let plugin = configured_plugin(&json!({}));
    let failure = testing::with_cluster([odd], || testing::create(endpoints).admit(&plugin).map(drop));
    let message = failure.expect_err("the Node has another shape").to_string();
    assert!(message.contains("\"lost\""), "{message}");
}

#[test]
fn each_node_is_looked_up_once() {
    let looked_up_names = RefCell::new(Vec::new());
    let reachability = Reachability {
        always_reachable: false,
    };
    let mut nodes = LookedUpNodes::new(reachability, |name: &str| {
        looked_up_names.borrow_mut().push(name.to_owned());
        let object = cluster_nodes()
            .into_iter()
            .find(|node| node["metadata"]["name"] == name);
        object
            .map(|object| from_value(object).map_err(|error| cluster::Error::Read(error.to_string())))
            .transpose()
    });
    let table = [
        ("lost", true),
        ("near", false),
        ("lost", true),
        ("nobody", false),
        ("near", false),
        ("nobody", false),
        ("", false),
    ];
    for (name, expected) in table {
        let is_presumed_reachable = nodes
            .is_presumed_reachable(Some(&Text::from(name)))
            .expect("the nodes can be read");
        assert_eq!(is_presumed_reachable, expected, "{name}");
    }
    drop(nodes);
    assert_eq!(looked_up_names.into_inner(), ["lost", "near", "nobody"]);
}
