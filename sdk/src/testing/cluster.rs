//! A fake control plane with a few objects, for tests.

use std::cell::RefCell;

use serde_json::Value;

use crate::cluster::Error;

thread_local! {
    static OBJECTS: RefCell<Option<Vec<Value>>> = const { RefCell::new(None) };
}

/// Runs `test` on this thread with a control plane that contains these objects.
///
/// Supported selectors are lists of `key=value`, `key==value` and `key!=value`.
///
/// ```
/// use admittance_sdk::serde_json::{Value, json};
/// use admittance_sdk::{cluster, testing};
///
/// let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"zone": "a"}}});
/// testing::with_cluster([node], || {
///     assert!(cluster::get::<Value>("v1", "Node", None, "n1").unwrap().is_some());
///     assert!(cluster::list::<Value>("v1", "Node", None, "zone!=a").unwrap().is_empty());
/// });
/// assert!(cluster::get::<Value>("v1", "Node", None, "n1").is_err());
/// ```
pub fn with_cluster<R>(objects: impl IntoIterator<Item = Value>, test: impl FnOnce() -> R) -> R {
    /// Restores the previous objects, also if the test panics.
    struct Restore(Option<Vec<Value>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            OBJECTS.set(self.0.take());
        }
    }
    let _restore = Restore(OBJECTS.replace(Some(objects.into_iter().collect())));
    test()
}

pub(crate) fn get(
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<String>, Error> {
    let found = matching(api_version, kind, namespace, |object| {
        text(object, "/metadata/name") == Some(name) && text(object, "/metadata/namespace") == namespace
    })?;
    Ok(found.into_iter().next())
}

pub(crate) fn list(
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
    label_selector: &str,
) -> Result<Vec<String>, Error> {
    let terms = label_selector
        .split(',')
        .filter(|term| !term.is_empty())
        .map(term)
        .collect::<Result<Vec<_>, _>>()?;
    matching(api_version, kind, namespace, |object| {
        terms.iter().all(|(key, equal, value)| {
            let label = object
                .pointer("/metadata/labels")
                .and_then(|labels| labels.get(key)?.as_str());
            (label == Some(value)) == *equal
        })
    })
}

fn matching(
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
    and: impl Fn(&Value) -> bool,
) -> Result<Vec<String>, Error> {
    OBJECTS.with_borrow(|objects| {
        let objects = objects.as_ref().ok_or_else(|| {
            Error::Unavailable(format!(
                "{api_version}/{kind}: there is no host in a native build; see testing::with_cluster"
            ))
        })?;
        Ok(objects
            .iter()
            .filter(|object| {
                text(object, "/apiVersion") == Some(api_version) && text(object, "/kind") == Some(kind)
            })
            .filter(|object| namespace.is_none() || text(object, "/metadata/namespace") == namespace)
            .filter(|object| and(object))
            .map(Value::to_string)
            .collect())
    })
}

fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer)?.as_str()
}

fn term(term: &str) -> Result<(&str, bool, &str), Error> {
    let split = term
        .split_once("!=")
        .map(|(key, value)| (key, false, value))
        .or_else(|| term.split_once("==").map(|(key, value)| (key, true, value)))
        .or_else(|| term.split_once('=').map(|(key, value)| (key, true, value)));
    let (key, equal, value) = split
        .ok_or_else(|| Error::Refused(format!("the selector \"{term}\" is not key=value or key!=value")))?;
    Ok((key.trim(), equal, value.trim()))
}
