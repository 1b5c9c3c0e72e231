//! The part of the API server that handles writes.

use bytes::Bytes;
use http::{header::CONTENT_TYPE, request::Parts};
use serde_json::Value;

use super::{
    DefinedKind, Reply, ScriptedApiServer, ServedObjectKey, ServedTarget, ServerData, SharedServer, json_reply,
    status_reply, with_type_fields,
};

impl ScriptedApiServer {
    pub(crate) fn define_kind(&self, api_version: &str, plural: &str, kind: &str, is_namespaced: bool) {
        let kind = DefinedKind {
            api_version: api_version.to_owned(),
            plural: plural.to_owned(),
            kind: kind.to_owned(),
            is_namespaced,
        };
        self.change_data(|data| data.kinds.push(kind));
    }

    pub(crate) fn remove_kind(&self, plural: &str) {
        self.change_data(|data| data.absent_names.insert(plural.into()));
    }

    pub(crate) fn add_kind(&self, plural: &str) {
        self.change_data(|data| data.absent_names.remove(plural));
    }

    /// Drops this field of webhooks, like an API server of an older version.
    pub(crate) fn forget_field(&self, field: &'static str) {
        self.change_data(|data| data.unknown_field = Some(field));
    }

    /// Writes an object right before the next request of this verb, as another client would.
    pub(crate) fn put_before(&self, verb: &str, plural: &str, object: Value) {
        let plural = plural.to_owned();
        self.change_data(|data| {
            let events = data.actions_before_write.entry(verb.to_owned()).or_default();
            events.push(Box::new(move |data: &mut ServerData| data.put(&plural, object)));
        });
    }

    pub(crate) fn objects(&self, plural: &str) -> Vec<Value> {
        let data = self.shared.lock_data();
        let objects = data.objects.iter().filter(|(object_key, _)| object_key.0 == plural);
        objects.map(|(_, object)| object.clone()).collect()
    }

    /// Returns each change of the objects of a kind in order: `ADDED`, `MODIFIED` or `DELETED`, and the changed object.
    pub(crate) fn history(&self, plural: &str) -> Vec<(&'static str, Value)> {
        let data = self.shared.lock_data();
        let changes = data.changes.iter().filter(|change| change.object_key.0 == plural);
        changes.map(|change| (change.kind, change.object.clone())).collect()
    }

    pub(crate) fn object(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let object_key: ServedObjectKey = (plural.into(), namespace.into(), name.into());
        self.shared.lock_data().objects.get(&object_key).cloned()
    }
}

impl ServerData {
    fn run_planned_actions(&mut self, verb: &str) {
        for event in self.actions_before_write.remove(verb).unwrap_or_default() {
            event(self);
        }
    }

    fn version_of(&self, object_key: &ServedObjectKey) -> Option<String> {
        let object = self.objects.get(object_key)?;
        object["metadata"]["resourceVersion"].as_str().map(str::to_owned)
    }
}

impl SharedServer {
    fn write_object(&self, verb: &str, write: impl FnOnce(&mut ServerData) -> Reply) -> Reply {
        let mut data = self.lock_data();
        data.run_planned_actions(verb);
        let reply = write(&mut data);
        drop(data);
        self.change_signal.send_replace(());
        reply
    }

    pub(super) fn create(&self, target: &ServedTarget, body: &Bytes) -> Reply {
        let mut object: Value = serde_json::from_slice(body).unwrap();
        self.write_object("create", |data| {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let namespace = target.namespace.clone();
            if !namespace.is_empty() {
                object["metadata"]["namespace"] = namespace.clone().into();
            }
            let home = ("namespaces".to_owned(), String::new(), namespace.clone());
            let is_there = matches!(&*namespace, "" | "default") || data.objects.contains_key(&home);
            if !is_there {
                return status_reply(404, "NotFound", &format!("namespaces \"{namespace}\" not found"));
            }
            if target.kind == "Event"
                && let Some(mistake) = mistake_in_event(&object)
            {
                return status_reply(422, "Invalid", mistake);
            }
            if !is_subdomain(&name) {
                let words = format!("{name:?} is invalid: metadata.name: a lowercase RFC 1123 subdomain");
                return status_reply(422, "Invalid", &words);
            }
            let object_key = (target.plural.clone(), namespace, name.clone());
            if data.objects.contains_key(&object_key) {
                let words = format!("{} \"{name}\" already exists", target.plural);
                return status_reply(409, "AlreadyExists", &words);
            }
            object["metadata"]["uid"] = format!("uid-{}", data.version).into();
            data.put(&target.plural, object);
            json_reply(201, &with_type_fields(&data.objects[&object_key], target, false))
        })
    }

    pub(super) fn replace(&self, target: &ServedTarget, body: &Bytes) -> Reply {
        let mut object: Value = serde_json::from_slice(body).unwrap();
        self.write_object("replace", |data| {
            let object_key = target.object_key();
            let Some(version) = data.version_of(&object_key) else {
                return target.not_found_reply();
            };
            let sent_version = &object["metadata"]["resourceVersion"];
            match sent_version.as_str() {
                None => return status_reply(422, "Invalid", "metadata.resourceVersion: must be specified"),
                Some(sent_version) if sent_version != version => return target.conflict_reply(),
                Some(_) => {}
            }
            if has_status(&target.plural) {
                // A client changes the status of an object by a separate path that ends in `/status`. So a replacement
                // of the object keeps the stored status.
                set_or_remove(&mut object, "status", data.objects[&object_key].get("status"));
            }
            data.put(&target.plural, object);
            json_reply(200, &with_type_fields(&data.objects[&object_key], target, false))
        })
    }

    /// Handles the patches that this program sends.
    pub(super) fn patch(&self, target: &ServedTarget, head: &Parts, body: &Bytes) -> Reply {
        let query = head.uri.query().unwrap_or_default();
        let form = head.headers[CONTENT_TYPE].to_str().unwrap();
        let patch: Value = serde_json::from_slice(body).unwrap();
        if target.plural == "events" && form == "application/merge-patch+json" {
            return self.merge(target, &patch);
        }
        let is_report = target.plural.ends_with("reports");
        if !is_report && (!target.is_status || !has_status(&target.plural)) {
            return super::not_served();
        }
        if form != "application/apply-patch+yaml" || !query.contains("fieldManager=admittance") {
            return status_reply(415, "UnsupportedMediaType", "only server-side apply is supported");
        }
        if is_report {
            return self.apply(target, patch);
        }
        self.write_object("patch", |data| {
            let object_key = target.object_key();
            let Some(mut object) = data.objects.get(&object_key).cloned() else {
                return target.not_found_reply();
            };
            // The patch replaces the whole status. In server-side apply, a field is removed if the manager applied it
            // before and the new patch leaves it out.
            set_or_remove(&mut object, "status", patch.get("status"));
            if object != data.objects[&object_key] {
                data.put(&target.plural, object);
            }
            json_reply(200, &with_type_fields(&data.objects[&object_key], target, false))
        })
    }

    /// Replaces an object by server-side apply, as if no other manager had set fields of it.
    fn apply(&self, target: &ServedTarget, object: Value) -> Reply {
        self.write_object("patch", |data| {
            let object_key = target.object_key();
            let home = ("namespaces".to_owned(), String::new(), object_key.1.clone());
            if !object_key.1.is_empty() && !data.objects.contains_key(&home) {
                return status_reply(404, "NotFound", &format!("namespaces \"{}\" not found", object_key.1));
            }
            for (field, expected) in [("name", &object_key.2), ("namespace", &object_key.1)] {
                let value = object["metadata"][field].as_str().unwrap_or_default();
                if value != expected {
                    return status_reply(400, "BadRequest", &format!("metadata.{field}: not that of the path"));
                }
            }
            data.put(&target.plural, object);
            json_reply(200, &with_type_fields(&data.objects[&object_key], target, false))
        })
    }

    fn merge(&self, target: &ServedTarget, patch: &Value) -> Reply {
        self.write_object("patch", |data| {
            let object_key = target.object_key();
            let Some(mut object) = data.objects.get(&object_key).cloned() else {
                return target.not_found_reply();
            };
            merge_json(&mut object, patch);
            data.put(&target.plural, object);
            json_reply(200, &with_type_fields(&data.objects[&object_key], target, false))
        })
    }

    pub(super) fn delete(&self, target: &ServedTarget, body: &Bytes) -> Reply {
        let options: Value = serde_json::from_slice(body).unwrap_or_default();
        self.write_object("delete", |data| {
            let object_key = target.object_key();
            let Some(object) = data.objects.get(&object_key).cloned() else {
                return target.not_found_reply();
            };
            for field in ["uid", "resourceVersion"] {
                let expected = &options["preconditions"][field];
                if !expected.is_null() && *expected != object["metadata"][field] {
                    return target.conflict_reply();
                }
            }
            data.delete(object_key);
            json_reply(200, &with_type_fields(&object, target, false))
        })
    }
}

fn merge_json(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    let object = object.as_object_mut().unwrap();
    for (field, value) in fields {
        match value {
            Value::Null => drop(object.remove(field)),
            value => merge_json(object.entry(field.as_str()).or_insert(Value::Null), value),
        }
    }
}

pub(super) fn has_status(plural: &str) -> bool {
    matches!(
        plural,
        "admissionchains" | "namespacedadmissionchains" | "admissionexceptions"
    )
}

/// Returns the new generation of an object. It is one higher than before, unless only the metadata or the status
/// changed.
pub(super) fn next_generation(before: Option<&Value>, object: &Value) -> u64 {
    let without = |object: &Value| {
        let mut object = object.clone();
        set_or_remove(&mut object, "status", None);
        set_or_remove(&mut object, "metadata", None);
        object
    };
    let last = |before: &Value| before["metadata"]["generation"].as_u64().unwrap_or_default();
    match before {
        Some(before) if without(before) == without(object) => last(before),
        Some(before) => last(before) + 1,
        None => 1,
    }
}

fn set_or_remove(object: &mut Value, field: &str, value: Option<&Value>) {
    let fields = object.as_object_mut().unwrap();
    match value {
        Some(value) => fields.insert(field.to_owned(), value.clone()),
        None => fields.remove(field),
    };
}

impl ServedTarget {
    fn object_key(&self) -> ServedObjectKey {
        let name = self.name.clone().unwrap_or_default();
        (self.plural.clone(), self.namespace.clone(), name)
    }

    fn not_found_reply(&self) -> Reply {
        let words = format!("{} \"{}\" not found", self.plural, self.object_key().2);
        status_reply(404, "NotFound", &words)
    }

    fn conflict_reply(&self) -> Reply {
        let words = format!(
            "Operation cannot be fulfilled on {} \"{}\": the object has been modified",
            self.plural,
            self.object_key().2
        );
        status_reply(409, "Conflict", &words)
    }
}

/// Returns which rule of kube-apiserver for `events.k8s.io/v1` a new event breaks, if it breaks one.
fn mistake_in_event(event: &Value) -> Option<&'static str> {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let namespace = match text("/regarding/namespace") {
        "" => "default",
        namespace => namespace,
    };
    match () {
        () if text("/metadata/namespace") != namespace => {
            Some("involvedObject.namespace: does not match event.namespace")
        }
        () if text("/eventTime").is_empty() => Some("eventTime: must be specified"),
        () if !text("/reportingController").contains('/') => Some("reportingController: a qualified name"),
        () if !matches!(text("/reportingInstance").len(), 1..=128) => Some("reportingInstance: up to 128 characters"),
        () if !matches!(text("/action").len(), 1..=128) => Some("action: up to 128 characters"),
        () if !matches!(text("/reason").len(), 1..=128) => Some("reason: up to 128 characters"),
        () if text("/note").len() > 1024 => Some("note: up to 1024 bytes"),
        () if !matches!(text("/type"), "Normal" | "Warning") => Some("type: Normal or Warning"),
        () => None,
    }
}

fn is_subdomain(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        label.bytes().all(|byte| is_letter(byte) || byte == b'-')
            && label.bytes().next().is_some_and(is_letter)
            && label.bytes().last().is_some_and(is_letter)
    };
    name.len() <= 253 && name.split('.').all(is_label)
}
