//! Reads tests as Kyverno's command does: policies, objects, and the expected result of each policy for each object.

use std::{collections::BTreeSet, path::PathBuf, str::FromStr};

use admittance::admission::{HttpAnswer, HttpOrigin, Object, Operation, Request};
use admittance_admission::{enumerated, suggestion_or};
use admittance_cluster::ManifestFiles;
use admittance_definitions::document::{Fields, Node, readers};
use regex::Regex;
use serde_json::{Value, json};

use super::{
    case::{CaseExpectation, CaseHooks, ExpectedOutcome, TestCase},
    comparison,
};
use crate::{request_file, simulation::RequestSurroundings};

const KIND: &str = "Test";
pub(super) const GROUP: &str = "cli.kyverno.io/";
/// The kinds of Kubernetes without namespaces that policies commonly check.
const CLUSTER_WIDE: [&str; 12] = [
    "APIService",
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "IngressClass",
    "MutatingWebhookConfiguration",
    "Namespace",
    "Node",
    "PersistentVolume",
    "PriorityClass",
    "StorageClass",
    "ValidatingWebhookConfiguration",
];

const RESULTS: [&str; 5] = ["pass", "fail", "skip", "error", "warn"];
/// Fields of an expected result in a test of Kyverno. These fields are accepted and ignored. Some of them, such as
/// `isMutatingPolicy`, only say of which kind the policy is, and that is known from the policy. The others belong to
/// features of Kyverno that are not tested here.
const IGNORED_RESULT_FIELDS: [&str; 10] = [
    "rule",
    "generatedResource",
    "cloneSourceResource",
    "isValidatingPolicy",
    "isValidatingAdmissionPolicy",
    "isMutatingPolicy",
    "isMutatingAdmissionPolicy",
    "isGeneratingPolicy",
    "isDeletingPolicy",
    "isImageValidatingPolicy",
];
const DEPRECATED_FIELDS: [(&str, &str); 4] = [
    ("status", "write `result`"),
    ("resource", "write `resources: [...]`"),
    ("patchedResource", "write `patchedResources`"),
    (
        "namespace",
        "write the namespace before the names of objects, `shop/web`",
    ),
];

pub(super) fn is_test_file(root: &Node<'_>) -> bool {
    let value = root.json();
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    text("kind") == KIND && text("apiVersion").starts_with(GROUP)
}

/// Selects cases as Kyverno's `--test-case-selector` does. Kyverno knows a third key, `rule`, which is accepted and
/// selects everything, because the policies that are tested here have no rules.
#[derive(Clone, Debug)]
pub(super) struct CaseSelector {
    policy: Regex,
    resource: Regex,
}

impl CaseSelector {
    pub(super) fn selects(&self, case: &TestCase) -> bool {
        match &case.hooks {
            CaseHooks::Kyverno { policy, .. } => {
                let name = &case.request.name;
                let namespace = case.request.namespace.as_deref().unwrap_or_default();
                let is_selected = |name: &str| self.resource.is_match(name);
                self.policy.is_match(policy) && (is_selected(name) || is_selected(&format!("{namespace}/{name}")))
            }
            _ => false,
        }
    }
}

impl FromStr for CaseSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pattern = |text: &str| {
            let pattern = regex::escape(text.trim()).replace("\\*", ".*").replace("\\?", ".");
            Regex::new(&format!("^{pattern}$")).map_err(|error| error.to_string())
        };
        let (mut policy, mut resource) = (pattern("*")?, pattern("*")?);
        for part in text.split(',') {
            match part.split_once('=').map(|(key, value)| (key.trim(), value)) {
                Some(("policy", value)) => policy = pattern(value)?,
                Some(("resource", value)) => resource = pattern(value)?,
                Some(("rule", _)) => {}
                _ => {
                    return Err(format!("`{part}` is not `policy=NAME`, `rule=NAME` or `resource=NAME`"));
                }
            }
        }
        Ok(Self { policy, resource })
    }
}

struct KyvernoScene {
    policies: Vec<PathBuf>,
    objects: Vec<Value>,
    /// The content of the values file that the test names.
    values: Value,
    user: Value,
    cluster: ManifestFiles,
    answers: Vec<HttpAnswer>,
}

pub(super) fn read_cases(root: &Node<'_>) -> Option<Vec<TestCase>> {
    let mut fields = root.object()?;
    fields.ignore(&["apiVersion", "kind"]);
    let metadata = fields.optional("metadata").map(|node| node.json()).unwrap_or_default();
    let name = fields.get_optional("name", readers::text);
    let scene = read_scene(&mut fields);
    let fix = "list the results, each with `policy`, `kind`, `resources` and `result`";
    let results = fields.get_required("results", fix, |node: &Node<'_>| node.filled_list(fix));
    let unsupported_payload = "only objects of Kubernetes are tested here";
    for field in ["jsonPayload", "jsonPayloads", "httpPayloads", "envoyPayloads"] {
        fields.refuse(field, unsupported_payload, "remove it, with its results");
    }
    let unsupported_context = "policies have no global context here";
    fields.refuse(
        "globalContextEntries",
        unsupported_context,
        "remove it, with its results",
    );
    let scene = scene?;
    let metadata_name = metadata.get("name").and_then(Value::as_str);
    let test_name = name.as_deref().or(metadata_name).unwrap_or(KIND);
    let results = results?;
    let cases = results
        .iter()
        .filter_map(|result| read_result(result, test_name, &scene));
    Some(cases.flatten().collect())
}

fn read_scene(fields: &mut Fields<'_>) -> Option<KyvernoScene> {
    let fix = "list the files of the policies";
    let read_files = |node: &Node<'_>| node.list_of(Node::file_path);
    let mut policies = fields.get_required("policies", fix, read_files)?;
    policies.extend(fields.get_or_default("exceptions", read_files));
    let objects = fields.get_or_default("resources", read_objects);
    let mut cluster_objects = fields.get_or_default("clusterResources", read_objects);
    cluster_objects.extend(fields.get_or_default("targetResources", read_objects));
    let context: Value = fields.get_or_default("context", read_content);
    cluster_objects.extend(list_at(&context, "/spec/resources").cloned());
    let file_values: Value = fields.get_or_default("variables", read_content);
    let values = fields.optional("values").map_or(file_values, |node| node.json());
    let user: Value = fields.get_or_default("userinfo", read_content);
    cluster_objects.extend(list_at(&values, "/namespaces").map(|namespace| as_namespace(namespace.clone())));
    cluster_objects.extend(
        list_at(&values, "/namespaceSelector").map(|selected| {
            as_namespace(json!({"metadata": {"name": selected["name"], "labels": selected["labels"]}}))
        }),
    );
    cluster_objects.extend(objects.iter().filter(|object| object["kind"] == "Namespace").cloned());
    // Some objects may be in a namespace that the test does not define. Kyverno treats it as a namespace without
    // labels, so such a namespace is added here.
    let names = objects.iter().filter_map(|object| metadata_field(object, "namespace"));
    for name in names {
        let is_namespace = |existing_object: &Value| {
            existing_object["kind"] == "Namespace" && metadata_field(existing_object, "name") == Some(name)
        };
        if !cluster_objects.iter().any(is_namespace) {
            cluster_objects.push(as_namespace(json!({"metadata": {"name": name}})));
        }
    }
    let cluster = fields.node().accept(ManifestFiles::new(cluster_objects))?;
    let answers = fields.get_or_default("apiCallResponses", readers::list_of(read_answers));
    Some(KyvernoScene {
        policies,
        objects,
        values,
        user: user.get("userInfo").cloned().unwrap_or_default(),
        cluster,
        answers: answers.concat(),
    })
}

/// Reads the answer to requests to one URL. If the answer names no method, it is for both GET and POST.
fn read_answers(node: &Node<'_>) -> Option<Vec<HttpAnswer>> {
    let mut fields = node.object()?;
    let fix = "write the URL of the request, `https://policy.example.com/v1/rules`";
    let url = fields.get_required("url", fix, readers::text);
    let method = fields.get_or_default("method", readers::text);
    let response = fields.get_required("response", "write the `body`", Node::object);
    let (url, mut response) = (url?, response?);
    let status = response.get("statusCode", 200, readers::integer(100..=599));
    let body = response.optional("body").map(|body| body.json());
    let methods = match method.as_str() {
        "" => vec!["GET", "POST"],
        method => vec![method],
    };
    let answer = |method| json!({"url": url, "method": method, "status": status, "body": body});
    let answers: Vec<Value> = methods.into_iter().map(answer).collect();
    node.accept(serde_json::from_value(answers.into()))
}

fn as_namespace(mut namespace: Value) -> Value {
    if let Some(fields) = namespace.as_object_mut() {
        fields.insert("apiVersion".to_owned(), "v1".into());
        fields.insert("kind".to_owned(), "Namespace".into());
    }
    namespace
}

fn list_at<'v>(value: &'v Value, path: &str) -> impl Iterator<Item = &'v Value> {
    value.pointer(path).and_then(Value::as_array).into_iter().flatten()
}

fn read_objects(node: &Node<'_>) -> Option<Vec<Value>> {
    objects_of(&node.list_of(Node::file_path)?, node)
}

/// An object without a namespace is in the namespace `default`, as in Kyverno.
fn objects_of(files: &[PathBuf], node: &Node<'_>) -> Option<Vec<Value>> {
    let mut objects = Vec::new();
    for object in node.accept(request_file::read_manifests(files))? {
        match object.get("kind").and_then(Value::as_str) {
            Some("ClusterResource") => objects.extend(list_at(&object, "/spec/resources").cloned()),
            _ => objects.push(object),
        }
    }
    for object in &mut objects {
        let is_cluster_wide = object
            .get("kind")
            .and_then(Value::as_str)
            .is_some_and(|kind| CLUSTER_WIDE.contains(&kind));
        if let (false, Some(metadata)) = (
            is_cluster_wide,
            object.get_mut("metadata").and_then(Value::as_object_mut),
        ) {
            metadata.entry("namespace").or_insert_with(|| "default".into());
        }
    }
    Some(objects)
}

fn read_content(node: &Node<'_>) -> Option<Value> {
    node.read_in_file(&node.file_path()?, |root| Some(root.json()))
}

fn read_result(node: &Node<'_>, test: &str, scene: &KyvernoScene) -> Option<Vec<TestCase>> {
    // Kyverno's command, like Go's JSON parser, ignores the case of keys.
    let mut fields = node.object_of_any_case()?;
    fields.ignore(&IGNORED_RESULT_FIELDS);
    for (field, fix) in DEPRECATED_FIELDS {
        fields.refuse(field, "Kyverno has deprecated this field", fix);
    }
    let policy = fields.get_required("policy", "name the policy", readers::text);
    let kind = fields.get_required("kind", "name the kind of the objects", readers::text);
    let read_word = |node: &Node<'_>| node.one_of("result", &RESULTS.map(|word| (word, word)));
    let result = fields.get_required("result", &format!("write {}", enumerated(RESULTS, "or")), read_word);
    let names = fields.get_or_default("resources", Node::strings);
    let operation = fields.get_optional("operation", readers::text);
    let patched_path = fields.get_optional("patchedResources", Node::file_path);
    let (policy, kind, result) = (policy?, kind?, result?);
    let objects_after = match patched_path {
        Some(path) => Some(objects_of(&[path], node)?),
        None => None,
    };
    let is_of_kind = |object: &&Value| object["kind"] == kind.as_str();
    let kind_objects: Vec<&Value> = scene.objects.iter().filter(is_of_kind).collect();
    let mut selected_objects = Vec::new();
    for name in &names {
        match kind_objects.iter().find(|object| is_named(object, name)) {
            Some(object) => selected_objects.push(*object),
            None => {
                let message = format!("there is no {kind} {name} among the resources");
                let names = kind_objects.iter().filter_map(|object| metadata_field(object, "name"));
                let fix = suggestion_or(name, names, "correct the name, or add its file");
                node.add_mistake(message, fix);
            }
        }
    }
    if names.is_empty() {
        if kind_objects.is_empty() {
            node.add_mistake(
                format!("there is no {kind} among the resources"),
                "correct the kind, or add the file of an object of this kind",
            );
        }
        selected_objects = kind_objects;
    }
    let servers: BTreeSet<HttpOrigin> = scene
        .answers
        .iter()
        .filter_map(|answer| HttpOrigin::from_url(&answer.url))
        .collect();
    let cases = selected_objects.into_iter().filter_map(|object| {
        let full_name = full_name(object);
        let request = request_for(object, &policy, operation.as_deref(), scene, node)?;
        let is_same =
            |patched_object: &&Value| patched_object["kind"] == object["kind"] && is_named(patched_object, &full_name);
        let object_after = objects_after.as_ref().map(|patched_objects| {
            let matching = patched_objects.iter().find(is_same).cloned();
            matching.map(comparison::without_empty)
        });
        let (object_after, other_object) = match result {
            "fail" => (None, object_after.map(Option::unwrap_or_default)),
            _ => (object_after.flatten(), None),
        };
        let expected = ExpectedOutcome {
            allowed: matches!(result, "pass" | "skip") || other_object.is_some(),
            message: None,
            code: None,
            failure: None,
            warnings: None,
            stages: None,
            patch: None,
            object: object_after,
            unexpected_object: other_object,
            fields: None,
        };
        Some(TestCase {
            name: format!("{test}: {policy}: {kind} {full_name} is {result}"),
            location: node.location(),
            hooks: CaseHooks::Kyverno {
                policies: scene.policies.clone(),
                policy: policy.clone(),
                servers: servers.clone(),
            },
            surroundings: RequestSurroundings {
                cluster: Some(scene.cluster.clone()),
                http: Some(scene.answers.clone()),
            },
            request,
            expected: CaseExpectation::Outcome(Box::new(expected)),
        })
    });
    Some(cases.collect())
}

fn metadata_field<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object.get("metadata")?.get(field)?.as_str()
}

fn full_name(object: &Value) -> String {
    let name = metadata_field(object, "name").unwrap_or_default();
    match metadata_field(object, "namespace") {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

fn is_named(object: &Value, name: &str) -> bool {
    full_name(object) == name || metadata_field(object, "name") == Some(name)
}

fn request_for(
    object: &Value,
    policy: &str,
    operation: Option<&str>,
    scene: &KyvernoScene,
    node: &Node<'_>,
) -> Option<Request> {
    let policy_values = list_at(&scene.values, "/policies").filter(|values| values["name"] == policy);
    let mut object_values = policy_values
        .flat_map(|values| list_at(values, "/resources"))
        .filter(|values| values["name"].as_str() == metadata_field(object, "name"));
    let values = object_values.next().map(|values| &values["values"]);
    let value = |name: &str| {
        let global_value = scene
            .values
            .pointer("/globalValues")
            .and_then(|values| values.get(name));
        values.and_then(|values| values.get(name)).or(global_value)?.as_str()
    };
    let operation = operation.or_else(|| value("request.operation")).unwrap_or("CREATE");
    let operation: Operation = node.accept(operation.parse())?;
    let new_object = Object::from_value(object.clone());
    let old_object = new_object.clone().filter(|_| operation == Operation::Update);
    let mut request = Request::from_objects(new_object, old_object, Some(operation), None, None)?;
    if !scene.user.is_null() {
        request.user = node.accept(serde_json::from_value(scene.user.clone()))?;
    }
    Some(request)
}
