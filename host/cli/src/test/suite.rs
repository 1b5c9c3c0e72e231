//! Finds suites of Gatekeeper and tests of Kyverno. Reads suites as `gator` does: their cases run objects through
//! templates and constraints.

mod assertion;

use std::{
    fs,
    path::{Path, PathBuf},
};

use admittance::admission::{ClusterKind, Object, Operation, Request, read_review};
use admittance_cluster::ManifestFiles;
use admittance_definitions::{
    Location,
    document::{Node, readers},
};
use serde_json::{Map, Value, json};

use self::assertion::read_assertions;
pub(super) use self::assertion::{Assertion, unmet_assertions};
use super::{
    case::{CaseExpectation, CaseHooks, TemplateConstraints, TestCase},
    kyverno,
};
use crate::{files, request_file, simulation::RequestSurroundings};

const KIND: &str = "Suite";
const GROUP: &str = "test.gatekeeper.sh/";

const KYVERNO_DIRECTORY: &str = ".kyverno-test";

/// Finds the suites and tests at a path: the file itself, or the files in a directory and its subdirectories.
pub(super) fn find_suites(path: &Path) -> Result<Vec<PathBuf>, String> {
    if !path.is_dir() {
        return Ok(if is_suite(path) {
            vec![path.to_owned()]
        } else {
            Vec::new()
        });
    }
    let listing = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let mut entries: Vec<PathBuf> = listing
        .map_err(files::error_at(path))?
        .iter()
        .map(fs::DirEntry::path)
        .collect();
    entries.sort();
    let mut suites = Vec::new();
    for entry in entries {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_link = entry.is_symlink();
        if !(name.starts_with('.') && name != KYVERNO_DIRECTORY || is_link && entry.is_dir()) {
            suites.extend(find_suites(&entry)?);
        }
    }
    Ok(suites)
}

fn is_suite(path: &Path) -> bool {
    let is_yaml = path
        .extension()
        .is_some_and(|extension| extension == "yaml" || extension == "yml");
    is_yaml
        && files::read(path).is_ok_and(|text| {
            let has_line = |line: &str| text.lines().any(|text_line| text_line.trim() == line);
            text.contains(GROUP) && has_line("kind: Suite") || text.contains(kyverno::GROUP) && has_line("kind: Test")
        })
}

pub(super) fn is_suite_file(root: &Node<'_>) -> bool {
    let value = root.json();
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    text("kind") == KIND && text("apiVersion").starts_with(GROUP)
}

struct SuiteTest {
    name: String,
    template: PathBuf,
    constraint: PathBuf,
    expansion: Option<PathBuf>,
    constraint_name: String,
    cases: Vec<SuiteCase>,
    /// Whether the test expects that the constraint does not fit its template. Such a test has no cases.
    is_invalid: bool,
    location: Location,
}

struct SuiteCase {
    name: String,
    location: Location,
    request: Request,
    inventory: Vec<Value>,
    assertions: Vec<Assertion>,
}

pub(super) fn read_cases(root: &Node<'_>) -> Option<Vec<TestCase>> {
    let mut fields = root.object()?;
    fields.ignore(&["apiVersion", "kind", "metadata"]);
    let skip = fields.get_or_default("skip", Node::boolean);
    let fix = "list the tests, each with `name`, `template`, `constraint` and `cases`";
    let test_list = fields.get_required("tests", fix, Node::list);
    let tests: Vec<SuiteTest> = test_list?.iter().filter_map(|test| read_test(test)).collect();
    if skip {
        return Some(Vec::new());
    }
    let (invalid, tests): (Vec<_>, Vec<_>) = tests.into_iter().partition(|test| test.is_invalid);
    let mut cases: Vec<TestCase> = invalid.iter().map(invalid_case).collect();
    let test_hooks = shared_hooks(&tests);
    for (test, hooks) in tests.into_iter().zip(test_hooks) {
        for case in test.cases {
            let cluster = match ManifestFiles::new(case.inventory) {
                Ok(cluster) => cluster,
                Err(error) => {
                    root.add_mistake(format!("{}: {error}", case.name), "correct its `inventory`");
                    continue;
                }
            };
            cases.push(TestCase {
                name: format!("{}: {}", test.name, case.name),
                location: case.location,
                hooks: hooks.clone(),
                surroundings: RequestSurroundings {
                    cluster: Some(cluster),
                    ..RequestSurroundings::default()
                },
                request: case.request,
                expected: CaseExpectation::Violations {
                    constraint: test.constraint_name.clone(),
                    assertions: case.assertions,
                },
            });
        }
    }
    Some(cases)
}

fn invalid_case(test: &SuiteTest) -> TestCase {
    TestCase {
        name: test.name.clone(),
        location: test.location.clone(),
        hooks: constraint_hooks(&[test]),
        surroundings: RequestSurroundings::default(),
        request: Request::new(Operation::Create, Default::default(), Default::default()),
        expected: CaseExpectation::Invalid,
    }
}

/// Tests with the same template share hooks, because preparing a template takes seconds.
fn shared_hooks(tests: &[SuiteTest]) -> Vec<CaseHooks> {
    let mut groups: Vec<Vec<&SuiteTest>> = Vec::new();
    let mut group_indices = Vec::new();
    for test in tests {
        let fits = |members: &Vec<&SuiteTest>| {
            let is_alike =
                |member: &&SuiteTest| (&member.template, &member.expansion) == (&test.template, &test.expansion);
            members.first().is_some_and(is_alike)
                && members.iter().all(|member| {
                    member.constraint_name != test.constraint_name || member.constraint == test.constraint
                })
        };
        let index = match groups.iter().position(fits) {
            Some(index) => index,
            None => {
                groups.push(Vec::new());
                groups.len() - 1
            }
        };
        if let Some(members) = groups.get_mut(index) {
            members.push(test);
        }
        group_indices.push(index);
    }
    let hooks: Vec<CaseHooks> = groups.iter().map(|members| constraint_hooks(members)).collect();
    group_indices
        .into_iter()
        .filter_map(|index| hooks.get(index).cloned())
        .collect()
}

fn constraint_hooks(members: &[&SuiteTest]) -> CaseHooks {
    let files = members
        .iter()
        .flat_map(|test| [Some(&test.template), test.expansion.as_ref()]);
    let mut templates: Vec<PathBuf> = files.flatten().cloned().collect();
    templates.sort();
    templates.dedup();
    let mut constraints: Vec<PathBuf> = members.iter().map(|test| test.constraint.clone()).collect();
    constraints.sort();
    constraints.dedup();
    let objects = members
        .iter()
        .flat_map(|test| &test.cases)
        .flat_map(|case| &case.inventory);
    let mut kinds: Vec<ClusterKind> = objects
        .filter_map(|object| {
            let text = |name: &str| object.get(name)?.as_str();
            Some(ClusterKind::new(text("apiVersion")?, text("kind")?))
        })
        .collect();
    kinds.sort();
    kinds.dedup();
    CaseHooks::Constraints(TemplateConstraints {
        templates,
        constraints,
        kinds,
    })
}

fn read_test(node: &Node<'_>) -> Option<SuiteTest> {
    let mut fields = node.object()?;
    let name = fields.get_required("name", "name the test", readers::text);
    let template = fields.get_required("template", "name the file of the template", Node::file_path);
    let constraint = fields.required("constraint", "name the file of the constraint");
    let path = constraint.as_ref().and_then(|node| node.file_path());
    let skip = fields.get_or_default("skip", Node::boolean);
    let expansion = fields.get_optional("expansion", Node::file_path);
    let is_invalid = fields.get_or_default("invalid", Node::boolean);
    let cases = fields.get("cases", Vec::new(), Node::list);
    if skip {
        return None;
    }
    let cases = if is_invalid {
        Vec::new()
    } else {
        cases.iter().filter_map(|case| read_case(case)).collect()
    };
    let path = path?;
    let object = node.read_in_file(&path, |root| Some(root.json()))?;
    let constraint_name = object.pointer("/metadata/name").and_then(Value::as_str);
    if constraint_name.is_none() {
        let message = format!("{} is no constraint: it has no name", path.display());
        constraint?.add_mistake(message, "write `metadata: { name: ... }` in it");
    }
    Some(SuiteTest {
        name: name?,
        template: template?,
        constraint: path,
        expansion,
        constraint_name: constraint_name?.to_owned(),
        cases,
        is_invalid,
        location: node.location(),
    })
}

fn read_case(node: &Node<'_>) -> Option<SuiteCase> {
    let mut fields = node.object()?;
    let name = fields.get_required("name", "name the case", readers::text);
    let skip = fields.get_or_default("skip", Node::boolean);
    let read_request = |node: &Node<'_>| {
        let object = node.read_in_file(&node.file_path()?, |root| Some(root.json()))?;
        node.accept(request_for_object(object))
    };
    let request = fields.get_required("object", "name the file of the object", read_request);
    let mut inventory = Vec::new();
    for file in fields.get("inventory", Vec::new(), Node::list) {
        if let Some(path) = file.file_path() {
            inventory.extend(file.accept(request_file::read_manifests(&[path])).unwrap_or_default());
        }
    }
    let assertions = read_assertions(&mut fields);
    if skip {
        return None;
    }
    Some(SuiteCase {
        name: name?,
        location: node.location(),
        request: request?,
        inventory,
        assertions,
    })
}

/// Returns the request of a test case. An AdmissionReview contains the request, and fields that are missing in it are
/// added. Any other object becomes the object of a new request.
fn request_for_object(object: Value) -> Result<Request, String> {
    if object.get("kind").and_then(Value::as_str) == Some("AdmissionReview") {
        let review = read_review(complete_review(object)?.to_string()).map_err(|error| error.to_string())?;
        return Ok(review.request);
    }
    let object = Object::from_value(object).ok_or("the file holds no object")?;
    Request::from_objects(Some(object), None, None, None, None).ok_or_else(|| "the file holds no object".to_owned())
}

/// Adds the fields to an AdmissionReview that API servers always send.
fn complete_review(mut review: Value) -> Result<Value, String> {
    let members = review.get_mut("request").and_then(Value::as_object_mut);
    let request = members.ok_or("the AdmissionReview has no request")?;
    let find_object = |request: &Map<String, Value>| {
        let object = ["object", "oldObject"]
            .iter()
            .find_map(|name| request.get(*name).filter(|o| o.is_object()));
        object.cloned().and_then(Object::from_value)
    };
    let defaults = find_object(request).and_then(|object| Request::from_objects(Some(object), None, None, None, None));
    if let Some(defaults) = defaults {
        let (kind, resource) = (&defaults.kind, &defaults.resource);
        let mut add_missing = |name: &str, value: Value| {
            request.entry(name).or_insert(value);
        };
        add_missing(
            "kind",
            json!({"group": kind.group, "version": kind.version, "kind": kind.kind}),
        );
        add_missing(
            "resource",
            json!({"group": resource.group, "version": resource.version, "resource": resource.resource}),
        );
        add_missing("name", defaults.name.clone().into());
        if let Some(namespace) = &defaults.namespace {
            add_missing("namespace", namespace.clone().into());
        }
    }
    let mut add_missing = |name: &str, value: Value| {
        request.entry(name).or_insert(value);
    };
    add_missing("uid", "suite".into());
    add_missing("operation", "CREATE".into());
    add_missing("userInfo", json!({}));
    if let Value::Object(review) = &mut review {
        review.insert("apiVersion".to_owned(), "admission.k8s.io/v1".into());
    }
    Ok(review)
}
