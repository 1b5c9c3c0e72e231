//! Reads test cases from files.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use admittance::admission::{ClusterKind, FailureKind, Grants, HttpOrigin, Request};
use admittance_cluster::ManifestFiles;
use admittance_definitions::{
    Location, Mistakes,
    document::{self, Fields, Node, readers},
    read_allow,
};
use admittance_dialect::Dialect;
use serde_json::{Map, Value};

use super::{
    kyverno,
    pattern::TextPattern,
    request,
    suite::{self, Assertion},
};
use crate::{
    request_file,
    simulation::{RequestSurroundings, read_http_answers},
};

#[derive(Debug)]
pub(super) struct TestCase {
    pub(super) name: String,
    pub(super) location: Location,
    pub(super) hooks: CaseHooks,
    pub(super) surroundings: RequestSurroundings,
    pub(super) request: Request,
    pub(super) expected: CaseExpectation,
}

#[derive(Debug)]
pub(super) enum CaseExpectation {
    Outcome(Box<ExpectedOutcome>),
    Violations {
        constraint: String,
        assertions: Vec<Assertion>,
    },
    /// A Gatekeeper suite expects that the constraint does not fit its template.
    Invalid,
}

#[derive(Debug)]
pub(super) enum TestSubject {
    Plugin(PathBuf),
    Chains(PathBuf),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum CaseHooks {
    Plugin {
        module: PathBuf,
        settings: Value,
        allow: Grants,
    },
    Chains(Vec<PathBuf>),
    Constraints(TemplateConstraints),
    /// A policy of Kyverno, named by a test of Kyverno.
    Kyverno {
        policies: Vec<PathBuf>,
        /// The name of the policy: `NAME`, or `NAMESPACE/NAME` if it belongs to a namespace.
        policy: String,
        /// The servers whose answers the test lists, and which the policy may call.
        servers: BTreeSet<HttpOrigin>,
    },
}

impl TestCase {
    /// Returns whether the case may pass although no stage is called. In this program's own case format, only a case
    /// that expects `stages: []` may.
    pub(super) fn may_call_no_stage(&self) -> bool {
        match &self.expected {
            // A test of Kyverno may expect that no policy applies: the policy does not match the object, or an
            // exception skips the policy.
            CaseExpectation::Outcome(_) if matches!(self.hooks, CaseHooks::Kyverno { .. }) => true,
            CaseExpectation::Outcome(expected) => expected.stages.as_ref().is_some_and(Vec::is_empty),
            CaseExpectation::Violations { .. } | CaseExpectation::Invalid => true,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct TemplateConstraints {
    /// The files of the template and of Gatekeeper's expansion templates.
    pub(super) templates: Vec<PathBuf>,
    pub(super) constraints: Vec<PathBuf>,
    pub(super) kinds: Vec<ClusterKind>,
}

/// The outcome that a case expects. A property that is `None` is not checked.
#[derive(Debug)]
pub(super) struct ExpectedOutcome {
    pub(super) allowed: bool,
    pub(super) message: Option<TextPattern>,
    pub(super) code: Option<u16>,
    pub(super) failure: Option<FailureKind>,
    pub(super) warnings: Option<Vec<TextPattern>>,
    /// The stages that must be called, in this order, as `stage` or `chain/stage`.
    pub(super) stages: Option<Vec<String>>,
    pub(super) patch: Option<Vec<Value>>,
    pub(super) object: Option<Value>,
    /// An object that the resulting object must not equal.
    pub(super) unexpected_object: Option<Value>,
    /// Fields that the resulting object must have. A field that is `null` must be absent.
    pub(super) fields: Option<Value>,
}

pub(super) fn read_cases(
    path: &Path,
    subject: &TestSubject,
    dialect: Option<&dyn Dialect>,
    mistakes: &mut Mistakes,
) -> Vec<TestCase> {
    let mut reader = CaseReader {
        subject,
        dialect,
        names: BTreeMap::new(),
    };
    let documents = document::read_file(path, mistakes);
    let cases = documents
        .iter()
        .filter_map(|document| reader.read_file(&document.root(mistakes)));
    cases.flatten().collect()
}

#[derive(Clone, Default)]
struct CaseDefaults {
    plugin: Option<PathBuf>,
    settings: Option<Value>,
    allow: Option<Grants>,
    chains: Option<Vec<PathBuf>>,
    surroundings: RequestSurroundings,
}

struct CaseReader<'a> {
    subject: &'a TestSubject,
    dialect: Option<&'a dyn Dialect>,
    names: BTreeMap<String, Location>,
}

impl CaseReader<'_> {
    fn read_file(&mut self, root: &Node<'_>) -> Option<Vec<TestCase>> {
        if suite::is_suite_file(root) {
            return suite::read_cases(root);
        }
        if kyverno::is_test_file(root) {
            return kyverno::read_cases(root);
        }
        let mut fields = root.object()?;
        let scene = self.read_defaults(&mut fields, &CaseDefaults::default());
        let fix = "list the cases, each with `name`, `request` and `expect`";
        let cases = fields.required("cases", fix)?.filled_list(fix)?;
        Some(cases.iter().filter_map(|case| self.read_case(case, &scene)).collect())
    }

    fn read_case(&mut self, node: &Node<'_>, outer: &CaseDefaults) -> Option<TestCase> {
        let mut fields = node.object()?;
        let name_node = fields.required("name", "say what the case shows");
        let name = name_node.and_then(|node| self.read_name(&node));
        let scene = self.read_defaults(&mut fields, outer);
        let hooks = self.select_hooks(&scene, node);
        let fix = "write the object that is sent: `request: { object: ... }`";
        let request_node = fields.required("request", fix);
        let request = request_node.and_then(|node| request::read_request(&node, self.dialect));
        let (request, recorded) = request.unzip();
        let recorded = recorded.unwrap_or_default();
        let fix = "say what is expected: `expect: { allowed: true }`";
        let expected = fields.get_required("expect", fix, read_expected_outcome);
        Some(TestCase {
            name: name?,
            location: node.location(),
            hooks: hooks?,
            surroundings: scene.surroundings.with_defaults_from(recorded),
            request: request?,
            expected: CaseExpectation::Outcome(Box::new(expected?)),
        })
    }

    fn read_name(&mut self, node: &Node<'_>) -> Option<String> {
        let name = node.text()?.to_owned();
        if let Some(first) = self.names.get(&name) {
            let message = format!("the case on line {} has the same name", first.line);
            return node.reject(message, "give each case its own name");
        }
        self.names.insert(name.clone(), node.location());
        Some(name)
    }

    fn read_defaults(&mut self, fields: &mut Fields<'_>, outer: &CaseDefaults) -> CaseDefaults {
        let plugin = fields.get_optional("plugin", Node::file_path);
        let settings = fields.get_optional("settings", read_object_value);
        let allow = fields.optional("allow").map(|allow| read_allow(&allow));
        let chain = fields.optional("chain");
        let chains = chain.as_ref().and_then(|chain| read_files(chain));
        let surroundings = RequestSurroundings {
            cluster: fields.get_optional("cluster", read_cluster),
            http: fields.get_optional("http", read_http_answers),
        };
        let is_plugin = plugin.is_some() || settings.is_some() || allow.is_some();
        if let (Some(chain), true) = (chain, is_plugin) {
            let message = "a chain has its own plugins, settings and grants";
            chain.add_mistake(message, "remove `chain`, or `plugin`, `settings` and `allow`");
        }
        let mut scene = CaseDefaults {
            surroundings: surroundings.with_defaults_from(outer.surroundings.clone()),
            ..outer.clone()
        };
        if chains.is_some() {
            scene.chains = chains;
        } else if is_plugin {
            scene.chains = None;
        }
        scene.plugin = plugin.or(scene.plugin);
        scene.settings = settings.or(scene.settings);
        scene.allow = allow.or(scene.allow);
        scene
    }

    fn select_hooks(&mut self, scene: &CaseDefaults, case: &Node<'_>) -> Option<CaseHooks> {
        if let Some(chains) = &scene.chains {
            return Some(CaseHooks::Chains(chains.clone()));
        }
        let module = match (&scene.plugin, self.subject) {
            (Some(plugin), _) | (None, TestSubject::Plugin(plugin)) => plugin.clone(),
            (None, TestSubject::Chains(path)) if scene.settings.is_none() && scene.allow.is_none() => {
                return Some(CaseHooks::Chains(vec![path.clone()]));
            }
            (None, TestSubject::Chains(path)) => {
                let message = format!(
                    "`settings` and `allow` are for a plugin, and {} is tested",
                    path.display()
                );
                return case.reject(message, "remove them, or name the plugin: `plugin: FILE`");
            }
        };
        Some(CaseHooks::Plugin {
            module,
            settings: scene.settings.clone().unwrap_or_else(|| Map::new().into()),
            allow: scene.allow.clone().unwrap_or_default(),
        })
    }
}

fn read_object_value(node: &Node<'_>) -> Option<Value> {
    node.object().map(|_| node.json())
}

pub(super) fn read_value(node: &Node<'_>) -> Option<Value> {
    if !node.json().is_string() {
        return Some(node.json());
    }
    node.read_in_file(&node.file_path()?, |root| Some(root.json()))
}

fn read_files(node: &Node<'_>) -> Option<Vec<PathBuf>> {
    match node.json() {
        Value::Array(_) => node.filled_list_of("name chain files", Node::file_path),
        _ => Some(vec![node.file_path()?]),
    }
}

fn read_cluster(node: &Node<'_>) -> Option<ManifestFiles> {
    let mut objects = Vec::new();
    for entry in node.list()? {
        if entry.json().is_string() {
            let path = entry.file_path()?;
            objects.extend(entry.accept(request_file::read_manifests(&[path]))?);
        } else {
            objects.push(entry.json());
        }
    }
    node.accept(ManifestFiles::new(objects))
}

fn read_expected_outcome(node: &Node<'_>) -> Option<ExpectedOutcome> {
    let mut fields = node.object()?;
    let allowed = fields.get_required("allowed", "write true or false", Node::boolean);
    let (of_refusal, of_result) = (["message", "code"], ["patch", "object", "fields"]);
    let unusable: &[&str] = if allowed == Some(true) { &of_refusal } else { &of_result };
    if let (Some(allowed), Some(name)) = (allowed, unusable.iter().find(|name| fields.has(name))) {
        let (request_kind, fix) = if allowed {
            ("an allowed request", "expect `allowed: false`")
        } else {
            ("a refused request", "expect `allowed: true`")
        };
        fields.node().add_mistake(
            format!("{request_kind} has no `{name}`"),
            format!("remove it, or {fix}"),
        );
    }
    Some(ExpectedOutcome {
        allowed: allowed.unwrap_or_default(),
        message: fields.get_optional("message", Node::parse),
        code: fields.get_optional("code", readers::integer(400..=599)),
        failure: fields.get_optional("failure", Node::word),
        warnings: fields.get_optional("warnings", readers::list_of(Node::parse)),
        stages: fields.get_optional("stages", Node::strings),
        patch: fields.get_optional("patch", readers::list_of(read_object_value)),
        object: fields.get_optional("object", read_value),
        unexpected_object: None,
        fields: fields.get_optional("fields", read_object_value),
    })
}
