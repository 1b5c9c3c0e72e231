use std::time::Duration;

use serde_json::json;

use super::*;
use crate::{FieldLocation, ImageParts};

fn location(text: &str) -> FieldLocation {
    FieldLocation::parse(text).unwrap()
}

fn apply_mutation(
    location_text: &str,
    tests: &[(&str, bool)],
    mutation: Mutation,
    object: &Value,
) -> Result<Option<Value>, String> {
    let mut mutator = Mutator::new("m", location(location_text), mutation);
    for (path, must_exist) in tests {
        mutator.add_path_test(&location(path), *must_exist).unwrap();
    }
    let metadata = AssignableMetadata {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
    };
    let mut after = object.clone();
    let deadline = Deadline::after(Duration::from_secs(60));
    let is_changed = mutator
        .apply(&mut after, &metadata, &mut Growth::for_size(0, deadline))
        .map_err(|failure| failure.message)?;
    assert_eq!(is_changed, after != *object, "{location_text}: {after}");
    Ok(is_changed.then_some(after))
}

fn assign(value: impl Into<Value>) -> Mutation {
    Mutation::Assign(value.into())
}

/// The expectations are from Gatekeeper 3.x, pkg/mutation/mutators/core/mutation_function_test.go and
/// assign_mutator_test.go. A row with another source names it in its first column.
#[test]
fn a_value_is_set_at_its_location() {
    let pod = json!({"spec": {"containers": [
        {"name": "a", "ports": [{"name": "x"}, {"name": "y"}]},
        {"name": "b", "ports": [{"name": "x"}]},
    ]}});
    let with = |pointer: &str, value: Value| {
        let mut pod = pod.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = pod.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        parent.insert(name.to_owned(), value);
        Some(pod)
    };
    let containers = |items: Value| Some(json!({"spec": {"containers": items}}));
    let same = json!({"name": "a", "image": "i"});
    for (case, at, tests, mutation, expected) in [
        (
            "a field that is missing, with all above it",
            "spec.element.should.be.added",
            &[][..],
            assign("v"),
            with("/spec/element", json!({"should": {"be": {"added": "v"}}})),
        ),
        (
            "a field of one item of one item",
            "spec.containers[name: a].ports[name: y].hostIP",
            &[],
            assign("v"),
            with("/spec/containers/0/ports/1/hostIP", json!("v")),
        ),
        (
            "a field of all items",
            "spec.containers[name: *].image",
            &[],
            assign("i"),
            containers(json!([
                {"name": "a", "ports": [{"name": "x"}, {"name": "y"}], "image": "i"},
                {"name": "b", "ports": [{"name": "x"}], "image": "i"},
            ])),
        ),
        (
            "no item, so nothing is created",
            "spec.initContainers[name: *].image",
            &[],
            assign("i"),
            None,
        ),
        (
            "a field of an item that is missing creates the item",
            "spec.element[name: value].element2.added",
            &[],
            assign("v"),
            with("/spec/element", json!([{"name": "value", "element2": {"added": "v"}}])),
        ),
        (
            "a whole item that is missing",
            "spec.volumes[name: v]",
            &[],
            assign(json!({"name": "v", "emptyDir": {}})),
            with("/spec/volumes", json!([{"name": "v", "emptyDir": {}}])),
        ),
        (
            "a whole item in place of another",
            "spec.containers[name: a]",
            &[],
            assign(same.clone()),
            containers(json!([same, {"name": "b", "ports": [{"name": "x"}]}])),
        ),
        (
            "the value that is there",
            "spec.containers[name: b].name",
            &[],
            assign("b"),
            None,
        ),
        (
            "something must exist",
            "spec.containers[name: c].image",
            &[("spec.containers[name: c]", true)],
            assign("i"),
            None,
        ),
        (
            "something exists",
            "spec.containers[name: b].image",
            &[("spec.containers[name: b]", true)],
            assign("i"),
            with("/spec/containers/1/image", json!("i")),
        ),
        (
            "a parent must exist",
            "spec.securityContext.runAsUser",
            &[("spec.securityContext", true)],
            assign(1),
            None,
        ),
        (
            "a field must not exist",
            "spec.containers[name: *].ports",
            &[("spec.containers[name: *].ports", false)],
            assign(json!([])),
            None,
        ),
        (
            "an item must not exist",
            "spec.containers[name: a]",
            &[("spec.containers[name: a]", false)],
            assign(json!({"name": "a"})),
            None,
        ),
        (
            "all items must not exist, which never is the case",
            "spec.containers[name: *].image",
            &[("spec.containers[name: *]", false)],
            assign("i"),
            None,
        ),
        (
            "a number as the key: pkg/mutation/path/token/scanner.go",
            "spec.ports[port: 80].name",
            &[("spec.ports[port: 80]", true)],
            assign("http"),
            None,
        ),
        (
            "the namespace",
            "spec.a",
            &[],
            Mutation::AssignNamespace,
            with("/spec/a", json!("shop")),
        ),
        (
            "the name",
            "spec.a",
            &[],
            Mutation::AssignName,
            with("/spec/a", json!("web")),
        ),
    ] {
        assert_eq!(apply_mutation(at, tests, mutation, &pod), Ok(expected), "{case}");
    }
    let services = json!({"spec": {"ports": [{"port": 80}, {"port": "80"}]}});
    let expected = json!({"spec": {"ports": [{"port": 80, "name": "http"}, {"port": "80"}]}});
    let changed_services = apply_mutation("spec.ports[port: 80].name", &[], assign("http"), &services);
    assert_eq!(changed_services, Ok(Some(expected)), "a number is not a string");
}

/// Sources: Gatekeeper 3.x, pkg/mutation/mutators/modifyset/modify_set_mutator_test.go for lists, and
/// pkg/mutation/mutators/assignimage/assignimage_mutator_test.go for images.
#[test]
fn lists_are_merged_or_pruned_and_parts_of_image_names_are_replaced() {
    let list = |items: &[&str]| json!({"spec": {"args": items}});
    let values = |items: &[&str]| items.iter().map(|item| Value::from(*item)).collect::<Vec<_>>();
    let image = |domain: &str| {
        Mutation::Image(ImageParts {
            domain: Some(domain.to_owned()),
            ..ImageParts::default()
        })
    };
    for (case, mutation, before, expected) in [
        (
            "what is missing is added at the end",
            Mutation::Merge(values(&["b", "c"])),
            list(&["a", "b"]),
            Some(list(&["a", "b", "c"])),
        ),
        (
            "a list that is missing",
            Mutation::Merge(values(&["b"])),
            json!({"spec": {}}),
            Some(list(&["b"])),
        ),
        (
            "all are there",
            Mutation::Merge(values(&["b", "a"])),
            list(&["a", "b"]),
            None,
        ),
        (
            "every one is removed, and the order stays",
            Mutation::Prune(values(&["a", "x"])),
            list(&["a", "b", "a", "c"]),
            Some(list(&["b", "c"])),
        ),
        (
            "all are removed",
            Mutation::Prune(values(&["a"])),
            list(&["a"]),
            Some(list(&[])),
        ),
        ("none is there", Mutation::Prune(values(&["a"])), list(&["b"]), None),
        (
            "nothing is created to be removed from, unlike in Gatekeeper",
            Mutation::Prune(values(&["a"])),
            json!({}),
            None,
        ),
        (
            "an image",
            image("d.io"),
            json!({"spec": {"args": "nginx:1"}}),
            Some(json!({"spec": {"args": "d.io/nginx:1"}})),
        ),
        (
            "an image that is missing",
            image("d.io"),
            json!({"spec": {}}),
            Some(json!({"spec": {"args": "d.io/"}})),
        ),
        (
            "an image that is right",
            image("d.io"),
            json!({"spec": {"args": "d.io/nginx"}}),
            None,
        ),
    ] {
        assert_eq!(
            apply_mutation("spec.args", &[], mutation, &before),
            Ok(expected),
            "{case}"
        );
    }
}

/// Gatekeeper's mutation_function.go and its setters return an error, too, if a value has an unexpected type.
#[test]
fn a_value_of_an_unexpected_type_fails_the_mutation() {
    for (at, mutation, object, expected) in [
        (
            "spec.containers.image",
            assign("i"),
            json!({"spec": {"containers": []}}),
            "spec.containers is a list, where its location expects an object",
        ),
        (
            "spec.containers[name: *].image",
            assign("i"),
            json!({"spec": {"containers": {}}}),
            "spec.containers is an object, where its location expects a list",
        ),
        (
            "spec.containers[name: *].image",
            assign("i"),
            json!({"spec": {"containers": [1]}}),
            "spec.containers[name: *] is a number, where its location expects an object",
        ),
        (
            "spec.a.b",
            assign("i"),
            json!({"spec": {"a": null}}),
            "spec.a is null, where its location expects an object",
        ),
        (
            "spec.a",
            Mutation::Merge(vec!["x".into()]),
            json!({"spec": {"a": "x"}}),
            "spec.a is a string, where its location expects a list",
        ),
        (
            "spec.a",
            Mutation::Prune(vec!["x".into()]),
            json!({"spec": {"a": true}}),
            "spec.a is a boolean, where its location expects a list",
        ),
        (
            "spec.a",
            Mutation::Image(ImageParts::default()),
            json!({"spec": {"a": 1}}),
            "spec.a is a number, where its location expects a string",
        ),
    ] {
        assert_eq!(apply_mutation(at, &[], mutation, &object), Err(expected.to_owned()));
    }
}

#[test]
fn a_mutation_stops_at_its_deadline() {
    let mutator = Mutator::new("m", location("spec.containers[name: *].image"), assign("i"));
    let metadata = AssignableMetadata {
        namespace: String::new(),
        name: String::new(),
    };
    let mut pod = json!({"spec": {"containers": vec![json!({}); 2 * Growth::CHECK_INTERVAL]}});
    let mut growth = Growth::for_size(0, Deadline::after(Duration::ZERO));
    let failure = mutator.apply(&mut pod, &metadata, &mut growth).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Timeout);
}
