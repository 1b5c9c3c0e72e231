//! What plugins learn from outside while a request is recorded.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::json;

use crate::{AccessAttributes, ClusterKind, HttpAnswer, UserInfo};

/// The API group and version of roles.
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// The most entries of a tape, and the most bytes of their texts.
const ENTRIES: usize = 256;
const BYTES: usize = 1 << 20;

/// Answers to requests and look-ups of plugins, for one request. What does not fit is counted. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tape(Arc<Mutex<Taped>>);

/// The content of a [`Tape`].
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Taped {
    /// Answers to HTTP requests, in order.
    pub http: Vec<HttpAnswer>,
    /// Whether a plugin looked something up, or asked what a user may do.
    pub looked_up: bool,
    /// Objects that look-ups found, as JSON, with their kind; and for each allowed action of a user, a role and its
    /// binding.
    pub objects: Vec<(ClusterKind, Arc<str>)>,
    /// How many answers and objects did not fit.
    pub missed: usize,
    bytes: usize,
}

impl Tape {
    /// Adds the answer to an HTTP request.
    pub fn http(&self, answer: HttpAnswer) {
        let size = answer.url.as_str().len() + answer.body.to_string().len();
        let mut taped = self.0.lock();
        if taped.make_room(size) {
            taped.http.push(answer);
        }
    }

    /// Adds the objects that a look-up found.
    pub fn objects<'a>(&self, kind: &ClusterKind, objects: impl IntoIterator<Item = &'a Arc<str>>) {
        let mut taped = self.0.lock();
        taped.looked_up = true;
        for object in objects {
            taped.keep(kind.clone(), object.clone());
        }
    }

    /// Adds the answer to the question whether a user may do something.
    pub fn access(&self, user: &UserInfo, action: &AccessAttributes, is_allowed: bool) {
        let mut taped = self.0.lock();
        taped.looked_up = true;
        if !is_allowed {
            return;
        }
        let (rule, namespace) = match action {
            AccessAttributes::Resource {
                verb,
                group,
                resource,
                subresource,
                namespace,
                name,
                ..
            } => {
                let resource = match subresource.as_str() {
                    "" => resource.clone(),
                    subresource => format!("{resource}/{subresource}"),
                };
                let names: Vec<_> = Some(name).into_iter().filter(|name| !name.is_empty()).collect();
                let rule = json!({"verbs": [verb], "apiGroups": [group], "resources": [resource],
                                  "resourceNames": names});
                (rule, namespace.as_str())
            }
            AccessAttributes::Path { verb, path } => {
                (json!({"verbs": [verb], "nonResourceURLs": [path]}), "")
            }
        };
        let subject = match (user.username.as_str(), user.groups.first()) {
            ("", Some(group)) => json!({"kind": "Group", "name": group}),
            (name, _) => json!({"kind": "User", "name": name}),
        };
        let name = format!("recorded-{}", taped.objects.len());
        let role =
            json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]});
        let (kind, metadata) = match namespace {
            "" => ("ClusterRoleBinding", json!({"name": name})),
            namespace => ("RoleBinding", json!({"name": name, "namespace": namespace})),
        };
        let binding = json!({"apiVersion": RBAC, "kind": kind, "metadata": metadata,
                             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                                         "name": name},
                             "subjects": [subject]});
        taped.keep(ClusterKind::new(RBAC, "ClusterRole"), role.to_string().into());
        taped.keep(ClusterKind::new(RBAC, kind), binding.to_string().into());
    }

    /// What was added so far.
    pub fn take(&self) -> Taped {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Taped {
    /// Adds an object. What several plugins look up is kept once.
    fn keep(&mut self, kind: ClusterKind, object: Arc<str>) {
        let size = object.len();
        let entry = (kind, object);
        if !self.objects.contains(&entry) && self.make_room(size) {
            self.objects.push(entry);
        }
    }

    /// Whether an entry of this size fits. One that does not is counted.
    fn make_room(&mut self, size: usize) -> bool {
        let entries = self.http.len() + self.objects.len();
        let fits = entries < ENTRIES && self.bytes.saturating_add(size) <= BYTES;
        if fits {
            self.bytes += size;
        } else {
            self.missed += 1;
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tape_is_bounded() {
        let kind = ClusterKind::new("v1", "Node");
        let tape = Tape::default();
        let half: Arc<str> = "a".repeat(BYTES / 2).into();
        let other: Arc<str> = "b".repeat(BYTES / 2).into();
        tape.objects(&kind, [&half, &other, &half, &"c".into()]);
        let taped = tape.take();
        assert_eq!((taped.objects.len(), taped.missed), (2, 1));
        for number in 0..=ENTRIES {
            tape.objects(&kind, [&number.to_string().into()]);
        }
        let taped = tape.take();
        assert_eq!((taped.objects.len(), taped.missed), (ENTRIES, 1));
        assert_eq!(tape.take(), Taped::default());
    }
}
