//! A fake control plane with a few objects, for tests.

use std::cell::RefCell;
use std::rc::Rc;
use std::thread::LocalKey;

use serde_json::{Map, Value};

use crate::UserInfo;
use crate::bindings::admittance::plugin::cluster::{Access, Action, Error, Page, PageRequest};

/// Decides whether this user may use this verb on this target, which has the form that [`with_access`] describes.
type AccessRule = Rc<dyn Fn(&UserInfo, &str, &str) -> bool>;

thread_local! {
    static OBJECTS: RefCell<Option<Vec<Value>>> = const { RefCell::new(None) };
    static RULE: RefCell<Option<AccessRule>> = const { RefCell::new(None) };
    static USER: RefCell<Option<UserInfo>> = const { RefCell::new(None) };
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
    with_thread_local(&OBJECTS, Some(objects.into_iter().collect()), test)
}

/// Runs `test` on this thread with a control plane that knows what users may do.
///
/// `rule` gets the user, the verb, and the target. The target is a path such as `/healthz`, or a resource in the form
/// `group/resource/subresource in namespace: name` without the parts that the question leaves out: `pods`,
/// `apps/deployments/scale`, `pods in shop`, `pods in shop: web`.
///
/// ```
/// use admittance_sdk::testing;
/// use admittance_sdk::cluster::CanI;
/// # use admittance_sdk::UserInfo;
/// # let user = UserInfo { username: "jo".into(), uid: String::new(), groups: vec![], extra: vec![] };
///
/// let may = |user: &UserInfo, verb: &str, what: &str| user.username == "jo" && verb == "get" && what == "pods in shop";
/// testing::with_access(may, || {
///     let question = CanI::new("get", "", "pods").user(user);
///     assert!(question.clone().namespace("shop").ask().unwrap().allowed);
///     assert!(!question.ask().unwrap().allowed);
/// });
/// ```
pub fn with_access<R>(rule: impl Fn(&UserInfo, &str, &str) -> bool + 'static, test: impl FnOnce() -> R) -> R {
    with_thread_local(&RULE, Some(Rc::new(rule)), test)
}

pub(super) fn with_user<R>(user: &UserInfo, admit: impl FnOnce() -> R) -> R {
    with_thread_local(&USER, Some(user.clone()), admit)
}

/// Sets a thread-local value while `run` runs, and resets it even if `run` panics.
fn with_thread_local<T: 'static, R>(
    cell: &'static LocalKey<RefCell<Option<T>>>,
    value: Option<T>,
    run: impl FnOnce() -> R,
) -> R {
    struct Restore<T: 'static>(&'static LocalKey<RefCell<Option<T>>>, Option<T>);
    impl<T: 'static> Drop for Restore<T> {
        fn drop(&mut self) {
            self.0.set(self.1.take());
        }
    }
    let _restore = Restore(cell, cell.replace(value));
    run()
}

pub(crate) fn get(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Result<Option<String>, Error> {
    let objects = matching_objects(api_version, kind, namespace, |object| {
        text_at(object, "/metadata/name") == Some(name) && text_at(object, "/metadata/namespace") == namespace
    })?;
    Ok(objects.into_iter().next())
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
        .map(parse_term)
        .collect::<Result<Vec<_>, _>>()?;
    matching_objects(api_version, kind, namespace, |object| {
        terms.iter().all(|(key, equal, value)| {
            let label = object
                .pointer("/metadata/labels")
                .and_then(|labels| labels.get(key)?.as_str());
            (label == Some(value)) == *equal
        })
    })
}

pub(crate) fn list_page(request: &PageRequest) -> Result<Page, Error> {
    const MAX_PAGE: u32 = 500;
    let all = list(
        &request.api_version,
        &request.kind,
        request.namespace.as_deref(),
        &request.label_selector,
    )?;
    let parsed = request.continue_.as_deref().unwrap_or("0").parse::<usize>();
    let start = parsed.map_err(|_| Error::Refused("`continue` is not from a page".to_owned()))?;
    let limit = match request.limit {
        1..MAX_PAGE => request.limit,
        _ => MAX_PAGE,
    };
    let end = start.saturating_add(limit as usize);
    let masks: Vec<Vec<&str>> = match request.fields.as_slice() {
        [] => Vec::new(),
        fields => fields
            .iter()
            .map(String::as_str)
            .chain(["/metadata/name", "/metadata/namespace"])
            .map(|field| field.split('/').skip(1).collect())
            .collect(),
    };
    let masks: Vec<&[&str]> = masks.iter().map(Vec::as_slice).collect();
    let items = all.iter().skip(start).take(limit as usize).map(|text| {
        let object: Value = serde_json::from_str(text).unwrap_or_default();
        select(&object, &masks).unwrap_or_default().to_string()
    });
    Ok(Page {
        items: items.collect(),
        continue_: (end < all.len()).then(|| end.to_string()),
    })
}

/// Returns those parts of a value that are at these keys, or the whole value if there are no keys.
fn select(value: &Value, masks: &[&[&str]]) -> Option<Value> {
    if masks.is_empty() || masks.iter().any(|mask| mask.is_empty()) {
        return Some(value.clone());
    }
    let below = |key: &str| {
        let below = masks.iter().filter_map(|mask| match mask.split_first() {
            Some((first, rest)) if first.replace("~1", "/").replace("~0", "~") == key => Some(rest),
            _ => None,
        });
        Some(below.collect::<Vec<_>>()).filter(|below| !below.is_empty())
    };
    match value {
        Value::Object(fields) => {
            let parts = fields
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), select(value, &below(key)?)?)));
            Some(Value::Object(parts.collect::<Map<_, _>>()))
        }
        Value::Array(elements) => {
            let below = below("*")?;
            Some(elements.iter().filter_map(|element| select(element, &below)).collect())
        }
        _ => None,
    }
}

pub(crate) fn can_i(action: &Action, user: Option<&UserInfo>) -> Result<Access, Error> {
    let rule = RULE
        .with_borrow(Clone::clone)
        .ok_or_else(|| Error::Unavailable("there is no host in a native build; see testing::with_access".to_owned()))?;
    let asking_user = user.cloned().or_else(|| USER.with_borrow(Clone::clone));
    let user = asking_user.ok_or_else(|| Error::Refused("there is no request".to_owned()))?;
    let (verb, target) = match action {
        Action::Path(action) => (&action.verb, action.path.clone()),
        Action::Resource(action) => {
            let parts: Vec<_> = [&action.group, &action.resource]
                .into_iter()
                .chain(&action.subresource)
                .filter(|part| !part.is_empty())
                .map(String::as_str)
                .collect();
            let mut resource = parts.join("/");
            if let Some(namespace) = &action.namespace {
                resource += &format!(" in {namespace}");
            }
            if let Some(name) = &action.name {
                resource += &format!(": {name}");
            }
            (&action.verb, resource)
        }
    };
    Ok(Access {
        allowed: rule(&user, verb, &target),
        reason: String::new(),
    })
}

fn matching_objects(
    api_version: &str,
    kind: &str,
    namespace: Option<&str>,
    predicate: impl Fn(&Value) -> bool,
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
                text_at(object, "/apiVersion") == Some(api_version) && text_at(object, "/kind") == Some(kind)
            })
            .filter(|object| namespace.is_none() || text_at(object, "/metadata/namespace") == namespace)
            .filter(|object| predicate(object))
            .map(Value::to_string)
            .collect())
    })
}

fn text_at<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer)?.as_str()
}

fn parse_term(term: &str) -> Result<(&str, bool, &str), Error> {
    let split = term
        .split_once("!=")
        .map(|(key, value)| (key, false, value))
        .or_else(|| term.split_once("==").map(|(key, value)| (key, true, value)))
        .or_else(|| term.split_once('=').map(|(key, value)| (key, true, value)));
    let (key, equal, value) =
        split.ok_or_else(|| Error::Refused(format!("the selector \"{term}\" is not key=value or key!=value")))?;
    Ok((key.trim(), equal, value.trim()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::{CanI, Error, List};
    use crate::testing;

    #[test]
    fn large_lists_are_read_page_by_page() {
        let pod = |name: &str| {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": "u", "labels": {"a/b": "c"}},
                   "spec": {"containers": [{"name": "x", "image": "i"}, 7], "nodeName": "n"}})
        };
        with_cluster(["a", "b", "c"].map(pod), || {
            let list = List::of("v1", "Pod").page_size(2);
            let objects: Result<Vec<Value>, _> = list.clone().objects().collect();
            assert_eq!(objects, Ok(vec![pod("a"), pod("b"), pod("c")]));
            let fields = ["/metadata/labels/a~1b", "/spec/containers/*/image"];
            let parts = list.clone().fields(fields).objects::<Value>().nth(2);
            let expected = json!({"metadata": {"name": "c", "labels": {"a/b": "c"}},
                                  "spec": {"containers": [{"image": "i"}]}});
            assert_eq!(parts, Some(Ok(expected)));
            let wrong: Vec<_> = list.objects::<u8>().collect();
            assert!(matches!(wrong.as_slice(), [Err(Error::Read(_))]), "{wrong:?}");
        });
        let first = List::of("v1", "Pod").objects::<Value>().next();
        assert!(matches!(first, Some(Err(Error::Unavailable(_)))));
    }

    #[test]
    fn access_is_checked_for_the_user_of_the_request() {
        let asks = |_: &crate::Request| {
            let scale = CanI::new("update", "apps", "deployments/scale")
                .namespace("shop")
                .name("web")
                .ask()?;
            let health = CanI::path("get", "/healthz").ask()?;
            Ok(crate::Response::allow().warn(format!("{} {}", scale.allowed, health.allowed)))
        };
        let rule = |user: &UserInfo, verb: &str, target: &str| {
            user.username == "jo" && (verb, target) == ("update", "apps/deployments/scale in shop: web")
        };
        for (user, expected) in [("jo", "true false"), ("al", "false false")] {
            let outcome = with_access(rule, || testing::create("{}").user(user).run(asks));
            assert_eq!(outcome.expect("it answers").warnings(), [expected]);
        }
        assert!(testing::create("{}").run(asks).is_err(), "there are no rules any more");
    }
}
