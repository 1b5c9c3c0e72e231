//! Replays requests that kube-apiserver got with policies, and compares the outcomes with the recorded responses.

use std::collections::BTreeMap;

use admittance_admission::{GroupVersionKind, GroupVersionResource, Object, Operation, Request};
use admittance_definitions::ChainDefinition;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    answers::{RecordedAnswer, with_defaults},
    assert_differences,
    cluster::{ConformanceCluster, alice, namespaces},
    data_path, differences, load_chains, read_lines,
};

#[derive(Deserialize)]
struct RequestCase {
    name: String,
    policies: Vec<Value>,
    accepted: bool,
    why: Option<String>,
    existing: Vec<Value>,
    requests: Vec<ConformanceRequest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConformanceRequest {
    method: String,
    path: String,
    content_type: String,
    body: Value,
    #[serde(flatten)]
    answer: RecordedAnswer,
}

/// The target of a request according to its path: the resource, the names, and the query.
#[derive(Default)]
struct PathTarget {
    resource: GroupVersionResource,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
    query: Vec<(String, String)>,
}

impl PathTarget {
    fn parse(path: &str) -> Self {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => panic!("{path}"),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !matches!(rest, [] | ["status"]) => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let (resource, rest) = rest.split_first().unwrap();
        let text = |index: usize| rest.get(index).map(|part| (*part).to_owned());
        let query = query.split('&').filter_map(|pair| pair.split_once('='));
        let mut target = Self {
            namespace: namespace.map(str::to_owned),
            name: text(0),
            subresource: text(1),
            query: query.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            ..Self::default()
        };
        target.resource.group = group.to_owned();
        target.resource.version = version.to_owned();
        target.resource.resource = (*resource).to_owned();
        if *resource == "namespaces" {
            target.namespace = target.name.clone();
        }
        target
    }

    fn query(&self, key: &str) -> impl Iterator<Item = &str> {
        let pairs = self.query.iter().filter(move |(query_key, _)| query_key == key);
        pairs.map(|(_, value)| value.as_str())
    }
}

fn stored_object(object: Value) -> Value {
    let mut object = with_defaults(object);
    object["metadata"]["resourceVersion"] = json!("3665");
    object
}

/// Applies a JSON merge patch (RFC 7396).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (key, value) in patch {
        match (value, target.as_object_mut().unwrap()) {
            (Value::Null, fields) => {
                fields.remove(key);
            }
            (value, fields) => merge(fields.entry(key).or_insert(Value::Null), value),
        }
    }
}

impl ConformanceRequest {
    /// Returns the admission requests that the API server creates for this request. If the request deletes a
    /// collection, there is one admission request for each object in it.
    fn admission_requests(&self, existing: &[Value]) -> Vec<Request> {
        let target = PathTarget::parse(&self.path);
        let is_of_target = |object: &&Value| {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            text("/metadata/namespace").or_else(|| text("/metadata/name")) == target.namespace
                && target
                    .name
                    .as_ref()
                    .is_none_or(|name| text("/metadata/name").as_ref() == Some(name))
        };
        let namespaces = namespaces();
        let is_namespace = target.resource.resource == "namespaces";
        let existing = if is_namespace { namespaces.as_slice() } else { existing };
        let matching = existing.iter().filter(is_of_target);
        let stored: Vec<Value> = matching.cloned().map(stored_object).collect();
        let first = stored.first().cloned();
        let (operation, pairs) = match (self.method.as_str(), self.content_type.as_str()) {
            _ if target.subresource.as_deref() == Some("exec") => {
                let mut options = json!({
                    "apiVersion": "v1", "kind": "PodExecOptions", "stdout": true, "stderr": false,
                    "command": target.query("command").collect::<Vec<_>>(),
                });
                options["container"] = json!(target.query("container").next());
                (Operation::Connect, vec![(Some(options), None)])
            }
            ("POST", _) => (Operation::Create, vec![(Some(with_defaults(self.body.clone())), None)]),
            ("PUT", _) => (Operation::Update, vec![(Some(with_defaults(self.body.clone())), first)]),
            ("PATCH", "application/apply-patch+yaml") => {
                (Operation::Create, vec![(Some(with_defaults(self.body.clone())), None)])
            }
            ("PATCH", _) => {
                let mut object = first.clone().unwrap_or_else(|| panic!("{}", self.path));
                merge(&mut object, &self.body);
                (Operation::Update, vec![(Some(with_defaults(object)), first)])
            }
            ("DELETE", _) => {
                let pairs = stored.into_iter().map(|stored| (None, Some(stored)));
                (Operation::Delete, pairs.collect())
            }
            (method, _) => panic!("{method}"),
        };
        let request = |(object, old_object): (Option<Value>, Option<Value>)| {
            let described = object.as_ref().or(old_object.as_ref()).unwrap();
            let text = |pointer: &str| described.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let kind = GroupVersionKind::from_api_version(text("/apiVersion"), text("/kind").to_owned());
            let mut request = Request::new(operation, kind, target.resource.clone());
            request.subresource.clone_from(&target.subresource);
            request.namespace.clone_from(&target.namespace);
            request.name = match (&target.name, self.method.as_str()) {
                (Some(name), _) => name.clone(),
                (None, "DELETE") => String::new(),
                (None, _) => text("/metadata/name").to_owned(),
            };
            request.user = alice();
            request.dry_run = true;
            let mut options = json!({"apiVersion": "meta.k8s.io/v1", "dryRun": ["All"]});
            options["kind"] = match operation {
                Operation::Create => json!("CreateOptions"),
                Operation::Delete => json!("DeleteOptions"),
                _ => json!("UpdateOptions"),
            };
            if let Some(manager) = target.query("fieldManager").next() {
                options["fieldManager"] = json!(manager);
            }
            request.options = Object::from_value(options);
            request.object = object.and_then(Object::from_value);
            request.old_object = old_object.and_then(Object::from_value);
            request
        };
        pairs.into_iter().map(request).collect()
    }

    async fn difference(&self, cluster: &ConformanceCluster, existing: &[Value]) -> Option<String> {
        for request in self.admission_requests(existing) {
            let outcome = cluster.admit(request).await;
            if !outcome.is_allowed() || self.method != "DELETE" {
                return self.answer.difference(&outcome);
            }
        }
        (self.answer.status >= 400).then(|| format!("{}; here: allowed", self.answer))
    }
}

/// kube-apiserver had the policies of all cases at the same time, so the chains of all cases are called here as well.
#[tokio::test]
async fn requests_get_the_same_responses_as_from_kube_apiserver() {
    let cases: Vec<RequestCase> = read_lines("cases.jsonl");
    let mut different_cases = BTreeMap::new();
    let (mut all, mut objects): (Vec<ChainDefinition>, _) = (Vec::new(), Vec::new());
    let crds = std::fs::read_to_string(data_path("crds.json")).unwrap();
    let crds: Vec<Value> = serde_json::from_str(&crds).unwrap();
    let mut requests = Vec::new();
    for case in &cases {
        // A policy may read the objects in `existing` as its parameters. In kube-apiserver, parameters have no
        // `managedFields`, so this field is removed.
        objects.extend(case.existing.iter().cloned().map(|object| {
            let mut object = stored_object(object);
            object["metadata"].as_object_mut().unwrap().remove("managedFields");
            object
        }));
        let documents: Vec<Value> = case.policies.iter().chain(&crds).cloned().collect();
        match (load_chains(&documents), case.accepted) {
            (Ok(chains), true) => {
                all.extend(chains);
                requests.extend(
                    case.requests
                        .iter()
                        .enumerate()
                        .map(|(index, request)| (case, index, request)),
                );
            }
            (Err(_), false) => {}
            (Ok(_), false) => {
                let reason = case.why.as_deref().unwrap_or_default();
                different_cases.insert(case.name.clone(), format!("kube-apiserver: {reason}; here: accepted"));
            }
            (Err(mistakes), true) => {
                different_cases.insert(case.name.clone(), format!("kube-apiserver: accepted; here: {mistakes}"));
            }
        }
    }
    let cluster = ConformanceCluster::new(all, objects);
    let refused = cases.iter().filter(|case| !case.accepted).count();
    let total = requests.len() + refused;
    for (case, index, request) in requests {
        if let Some(difference) = request.difference(&cluster, &case.existing).await {
            different_cases.insert(format!("{}#{index}", case.name), difference);
        }
    }
    assert_differences("requests", total, different_cases, differences::REQUESTS);
}
