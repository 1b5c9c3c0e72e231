//! The defaults that OpenKruise's webhook writes into the containers and volumes of a SidecarSet.
//!
//! The defaults are from `SetDefaultsSidecarSet` in OpenKruise 1.9, which uses the functions of Kubernetes 1.32 for
//! fields of Pods. Startup probes and resources stay unchanged, except quantities below a thousandth.

use admittance_sdk::serde_json::{Map, Value, json};

type Object = Map<String, Value>;

const FILE_MODE: u16 = 0o644;

pub(super) fn set_container_defaults(container: &mut Object) {
    let policy = pull_policy(container.get("image").and_then(Value::as_str).unwrap_or_default());
    set_default(container, "imagePullPolicy", policy);
    set_default(container, "terminationMessagePath", "/dev/termination-log");
    set_default(container, "terminationMessagePolicy", "File");
    for port in objects(container, "ports") {
        set_default(port, "protocol", "TCP");
    }
    for variable in objects(container, "env") {
        change_within(variable, &["valueFrom", "fieldRef"], set_field_ref_defaults);
    }
    for probe in ["livenessProbe", "readinessProbe"] {
        change_within(container, &[probe], set_probe_defaults);
        change_within(container, &[probe, "httpGet"], set_request_defaults);
    }
    for hook in ["postStart", "preStop"] {
        change_within(container, &["lifecycle", hook, "httpGet"], set_request_defaults);
    }
}

pub(super) fn set_volume_defaults(volume: &mut Object) {
    if volume.iter().all(|(key, value)| key == "name" || value.is_null()) {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for source in ["configMap", "downwardAPI", "projected", "secret"] {
        change_within(volume, &[source], |source| {
            set_default(source, "defaultMode", FILE_MODE)
        });
    }
    change_within(volume, &["downwardAPI"], set_item_defaults);
    change_within(volume, &["hostPath"], |path| set_default(path, "type", ""));
    change_within(volume, &["projected"], |projected| {
        for source in objects(projected, "sources") {
            change_within(source, &["downwardAPI"], set_item_defaults);
            change_within(source, &["serviceAccountToken"], |token| {
                set_default(token, "expirationSeconds", 3600);
            });
        }
    });
}

/// Returns the default `imagePullPolicy` of an image: `Always` if it has the tag `latest`, or neither tag nor digest.
fn pull_policy(image: &str) -> &'static str {
    let (name, has_digest) = match image.split_once('@') {
        Some((name, _)) => (name, true),
        None => (image, false),
    };
    let tag = name.rsplit('/').next().and_then(|last| last.split_once(':'));
    match tag {
        Some((_, "latest")) => "Always",
        None if !has_digest && !image.is_empty() => "Always",
        _ => "IfNotPresent",
    }
}

fn set_item_defaults(downward: &mut Object) {
    for item in objects(downward, "items") {
        change_within(item, &["fieldRef"], set_field_ref_defaults);
    }
}

fn set_field_ref_defaults(field: &mut Object) {
    set_default(field, "apiVersion", "v1");
}

fn set_request_defaults(request: &mut Object) {
    set_default(request, "path", "/");
    set_default(request, "scheme", "HTTP");
}

fn set_probe_defaults(probe: &mut Object) {
    for (field, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        set_default(probe, field, value);
    }
}

/// Sets a field if it has no value yet. Empty text counts as no value, and so does zero in most fields, as in the types
/// of Kubernetes.
fn set_default(object: &mut Object, field: &str, value: impl Into<Value>) {
    let is_unset = match object.get(field) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(number) => *number == 0 && !["defaultMode", "expirationSeconds"].contains(&field),
    };
    if is_unset {
        object.insert(field.to_owned(), value.into());
    }
}

fn change_within(object: &mut Object, path: &[&str], change: impl FnOnce(&mut Object)) {
    let mut target = Some(object);
    for field in path {
        target = target.and_then(|object| object.get_mut(*field)?.as_object_mut());
    }
    if let Some(target_object) = target {
        change(target_object);
    }
}

fn objects<'a>(object: &'a mut Object, list: &str) -> impl Iterator<Item = &'a mut Object> {
    let items = object.get_mut(list).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_fixed_tag_or_digest_is_always_pulled() {
        let digest = format!("@sha256:{}", "0".repeat(64));
        for (image, policy) in [
            ("web", "Always"),
            ("web:latest", "Always"),
            ("web:1", "IfNotPresent"),
            ("registry.example.com:5000/web", "Always"),
            ("registry.example.com:5000/a/web:1", "IfNotPresent"),
            (&format!("web{digest}"), "IfNotPresent"),
            (&format!("web:latest{digest}"), "Always"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn containers_and_volumes_get_the_defaults_of_openkruise() {
        let with_defaults = |mut value: Value, add_defaults: fn(&mut Object)| {
            add_defaults(value.as_object_mut().expect("it is an object"));
            value
        };
        let container = json!({
            "name": "a", "image": "a:1", "terminationMessagePolicy": "FallbackToLogsOnError",
            "ports": [{"containerPort": 1}, {"containerPort": 2, "protocol": "UDP"}],
            "env": [{"name": "A", "value": "b"},
                    {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "livenessProbe": {"httpGet": {"port": 1}, "timeoutSeconds": 0, "periodSeconds": 5},
            "readinessProbe": {"tcpSocket": {"port": 1}},
            "startupProbe": {"tcpSocket": {"port": 1}},
            "lifecycle": {"preStop": {"httpGet": {"port": 1, "path": "/stop", "scheme": "HTTPS"}}},
        });
        let expected = json!({
            "name": "a", "image": "a:1", "imagePullPolicy": "IfNotPresent",
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "FallbackToLogsOnError",
            "ports": [{"containerPort": 1, "protocol": "TCP"}, {"containerPort": 2, "protocol": "UDP"}],
            "env": [{"name": "A", "value": "b"},
                    {"name": "B", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
            "livenessProbe": {"httpGet": {"port": 1, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1,
                              "periodSeconds": 5, "successThreshold": 1, "failureThreshold": 3},
            "readinessProbe": {"tcpSocket": {"port": 1}, "timeoutSeconds": 1,
                               "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
            "startupProbe": {"tcpSocket": {"port": 1}},
            "lifecycle": {"preStop": {"httpGet": {"port": 1, "path": "/stop", "scheme": "HTTPS"}}},
        });
        assert_eq!(with_defaults(container, set_container_defaults), expected);
        let item = json!({"path": "a", "fieldRef": {"fieldPath": "metadata.name"}});
        let whole_item = json!({"path": "a", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}});
        for (volume, expected) in [
            (json!({"name": "a"}), json!({"name": "a", "emptyDir": {}})),
            (
                json!({"name": "a", "configMap": null}),
                json!({"name": "a", "configMap": null, "emptyDir": {}}),
            ),
            (
                json!({"name": "a", "nfs": {"server": "b"}}),
                json!({"name": "a", "nfs": {"server": "b"}}),
            ),
            (
                json!({"name": "a", "hostPath": {"path": "/b"}}),
                json!({"name": "a", "hostPath": {"path": "/b", "type": ""}}),
            ),
            (
                json!({"name": "a", "secret": {"secretName": "b"}}),
                json!({"name": "a", "secret": {"secretName": "b", "defaultMode": 420}}),
            ),
            (
                json!({"name": "a", "configMap": {"name": "b", "defaultMode": 0}}),
                json!({"name": "a", "configMap": {"name": "b", "defaultMode": 0}}),
            ),
            (
                json!({"name": "a", "downwardAPI": {"items": [item]}}),
                json!({"name": "a", "downwardAPI": {"items": [whole_item], "defaultMode": 420}}),
            ),
            (
                json!({"name": "a", "projected": {"sources": [
                    {"downwardAPI": {"items": [item]}}, {"serviceAccountToken": {"path": "b"}},
                ]}}),
                json!({"name": "a", "projected": {"defaultMode": 420, "sources": [
                    {"downwardAPI": {"items": [whole_item]}},
                    {"serviceAccountToken": {"path": "b", "expirationSeconds": 3600}},
                ]}}),
            ),
        ] {
            assert_eq!(with_defaults(volume.clone(), set_volume_defaults), expected, "{volume}");
        }
    }
}
