//! `ConstraintTemplate`.

use std::{sync::Arc, time::Duration};

use admittance_admission::{
    ClusterKind, FailurePolicy, Mode, ModuleReference, Operation, Phase, Reinvocation, StageSpec,
};
use admittance_conditions::{Action, Binding, ConstraintBinding, Policy};
use serde_json::{Map, Value as Json, json};

use super::{constraint::ConstraintDocument, inventory::kinds_read, schema::Checked, sync::Sync};
use crate::{
    Location, Mistake, cel,
    document::{Fields, Mistakes, Node, quoted, readers},
    kubernetes::read_name,
    model::{CelDefinition, ChainDefinition, HookDefinition, PluginDefinition, StageDefinition},
    rules::OPERATIONS,
    selectors,
};

/// The timeout with which Gatekeeper registers its webhook.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The only target that there is for admission.
const TARGET: &str = "admission.k8s.gatekeeper.sh";

/// The environment variable that names a stage's constraint to the plugin `rego`.
const CONSTRAINT: &str = "CONSTRAINT";

/// A template.
#[derive(Debug)]
pub(crate) struct TemplateDocument {
    pub(crate) name: String,
    /// The kind of its constraints.
    pub(crate) kind: String,
    pub(crate) source: Location,
    schema: Option<Json>,
    engine: Engine,
    operations: Vec<Operation>,
}

/// What evaluates a template.
#[derive(Debug)]
enum Engine {
    Rego(Rego),
    Cel(Arc<Policy>, FailurePolicy),
}

#[derive(Debug)]
struct Rego {
    text: String,
    libs: Vec<String>,
    version: &'static str,
}

/// A template, as far as it could be read.
pub(crate) fn read(root: &Node<'_>, mistakes: &mut Mistakes) -> Option<TemplateDocument> {
    let mut fields = root.object(mistakes)?;
    fields.ignore(&["apiVersion", "kind", "status"]);
    let name = fields.get_required("metadata", "write `metadata: { name: ... }`", read_name, mistakes);
    let fix = "write the kind of its constraints and its policy: `spec: { crd: ..., targets: ... }`";
    let spec = fields.get_required("spec", fix, Node::object, mistakes);
    fields.finish(mistakes);
    let mut spec = spec?;
    let fix = "name the kind of its constraints: `crd: { spec: { names: { kind: ... } } }`";
    let crd = spec.get_required("crd", fix, read_crd, mistakes);
    let fix = "write the policy: `targets: [ { target: admission.k8s.gatekeeper.sh, rego: ... } ]`";
    let target = spec.get_required("targets", fix, read_targets, mistakes);
    spec.finish(mistakes);
    let (name, (kind, schema), (engine, operations)) = (name?, crd?, target?);
    if kind.to_lowercase() != name {
        let message = format!(
            "the template {} is for constraints of kind {}",
            quoted(&name),
            quoted(&kind)
        );
        let fix = format!("call it `{}`", kind.to_lowercase());
        root.wrong(message, fix, mistakes);
    }
    Some(TemplateDocument {
        name,
        kind,
        source: root.location(),
        schema,
        engine,
        operations,
    })
}

/// The kind, and the schema of the parameters.
fn read_crd(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<(String, Option<Json>)> {
    let mut fields = node.object(mistakes)?;
    let spec = fields.get_required(
        "spec",
        "write `spec: { names: { kind: ... } }`",
        Node::object,
        mistakes,
    );
    fields.finish(mistakes);
    let mut spec = spec?;
    let names = spec.get_required("names", "write `names: { kind: ... }`", Node::object, mistakes);
    let mut schema = None;
    if let Some(mut validation) = spec.get_optional("validation", Node::object, mistakes) {
        schema = validation.optional("openAPIV3Schema").map(|schema| schema.json());
        validation.ignore(&["legacySchema"]);
        validation.finish(mistakes);
    }
    spec.finish(mistakes);
    let mut names = names?;
    let kind = names.get_required(
        "kind",
        "name the kind, `K8sRequiredLabels`",
        readers::text,
        mistakes,
    );
    names.ignore(&["shortNames"]);
    names.finish(mistakes);
    Some((kind?, schema))
}

fn read_targets(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<(Engine, Vec<Operation>)> {
    let targets = node.filled_list("write one target", mistakes)?;
    let [target] = targets.as_slice() else {
        node.wrong("a template has one target", "make several templates", mistakes);
        return None;
    };
    let mut fields = target.object(mistakes)?;
    let read = |node: &Node<'_>, mistakes: &mut Mistakes| node.one_of("target", &[(TARGET, ())], mistakes);
    fields.get_required(
        "target",
        "write `target: admission.k8s.gatekeeper.sh`",
        read,
        mistakes,
    );
    let operations = fields.get(
        "operations",
        vec![Operation::Create, Operation::Update],
        read_operations,
        mistakes,
    );
    let engine = match fields.optional("code") {
        Some(code) => read_code(&code, mistakes),
        None if fields.has("rego") => read_rego(&mut fields, mistakes),
        None => {
            target.wrong("the target has no policy", "write `rego` or `code`", mistakes);
            None
        }
    };
    // Beside `code`, Gatekeeper passes over the older fields.
    fields.ignore(&["rego", "libs"]);
    fields.finish(mistakes);
    Some((engine?, operations))
}

pub(super) fn read_operations(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Vec<Operation>> {
    let mut operations = Vec::new();
    for entry in node.list(mistakes)? {
        match entry.one_of("operation", &OPERATIONS, mistakes)? {
            Some(operation) => operations.push(operation),
            None => operations.extend(Operation::ALL),
        }
    }
    Some(operations)
}

/// The engine that Gatekeeper prefers of those that the template has: CEL.
fn read_code(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Engine> {
    const ENGINES: [(&str, bool); 2] = [("K8sNativeValidation", true), ("Rego", false)];
    let fix = "list the policy: `{ engine: Rego, source: { rego: ... } }`";
    let mut found: Vec<(bool, Option<Engine>)> = Vec::new();
    for entry in node.filled_list(fix, mistakes)? {
        let Some(mut fields) = entry.object(mistakes) else {
            continue;
        };
        let read = |node: &Node<'_>, mistakes: &mut Mistakes| node.one_of("engine", &ENGINES, mistakes);
        let engine = fields.get_required("engine", "write Rego or K8sNativeValidation", read, mistakes);
        let source = fields.get_required("source", "write the policy", Node::object, mistakes);
        fields.finish(mistakes);
        if let (Some(is_cel), Some(mut source)) = (engine, source) {
            let engine = match is_cel {
                true => read_cel(source, mistakes),
                false => {
                    let rego = read_rego(&mut source, mistakes);
                    source.finish(mistakes);
                    rego
                }
            };
            found.push((is_cel, engine));
        }
    }
    found.sort_by_key(|(is_cel, _)| !is_cel);
    found.into_iter().next().and_then(|(_, engine)| engine)
}

/// `rego`, `libs` and `version`.
fn read_rego(fields: &mut Fields<'_>, mistakes: &mut Mistakes) -> Option<Engine> {
    const VERSIONS: [(&str, &str); 2] = [("v0", "v0"), ("v1", "v1")];
    let text = fields.get_required("rego", "write the policy in Rego", readers::text, mistakes);
    let libs = fields.get_or_default("libs", Node::strings, mistakes);
    let read = |node: &Node<'_>, mistakes: &mut Mistakes| node.one_of("version", &VERSIONS, mistakes);
    let version = fields.get("version", "v0", read, mistakes);
    Some(Engine::Rego(Rego {
        text: text?,
        libs,
        version,
    }))
}

fn read_cel(mut source: Fields<'_>, mistakes: &mut Mistakes) -> Option<Engine> {
    let failure_policy = source.get("failurePolicy", FailurePolicy::Fail, Node::word, mistakes);
    // It is for Kubernetes' own policies, which Gatekeeper can generate.
    source.ignore(&["generateVAP"]);
    let policy = cel::read_template(&mut source, mistakes);
    source.finish(mistakes);
    Some(Engine::Cel(Arc::new(policy), failure_policy))
}

impl TemplateDocument {
    /// The chain of the template. Its constraints among these are its stages, by their names.
    pub(crate) fn chain(
        &self,
        constraints: &[ConstraintDocument],
        syncs: &[Sync],
        mistakes: &mut Mistakes,
    ) -> ChainDefinition {
        let mut constraints: Vec<_> = constraints
            .iter()
            .filter(|constraint| constraint.kind == self.kind)
            .collect();
        constraints.sort_by(|one, other| one.name.cmp(&other.name));
        let mut checked = Checked {
            mistakes,
            warnings: Vec::new(),
        };
        let parameters = constraints
            .iter()
            .map(|constraint| match (&constraint.parameters, &self.schema) {
                (Some(parameters), Some(schema)) => checked.check(parameters, schema),
                (Some(parameters), None) => parameters.json(),
                (None, _) => Json::Object(Map::new()),
            });
        let parameters: Vec<Json> = parameters.collect();
        let mut warnings = checked.warnings;
        let constrained: Vec<_> = constraints.into_iter().zip(parameters).collect();
        let excluded: Vec<String> = syncs
            .iter()
            .flat_map(|sync| sync.excluded_namespaces.iter().cloned())
            .collect();
        let plugin = match &self.engine {
            Engine::Rego(rego) => Some(rego.plugin(&constrained, syncs)),
            Engine::Cel(..) => None,
        };
        if let (Engine::Rego(rego), Some(plugin)) = (&self.engine, &plugin)
            && rego.mentions("inventory")
            && plugin.settings.get("inventory").is_none()
            && !constrained.is_empty()
        {
            warnings.push(Mistake {
                location: self.source.clone(),
                path: String::new(),
                message: format!(
                    "the template {} reads data.inventory, which is empty",
                    quoted(&self.name)
                ),
                fix: "name the kinds that it reads in a SyncSet or Config of Gatekeeper".to_owned(),
            });
        }
        for (constraint, _) in &constrained {
            warnings.extend(constraint.warning());
        }
        let stage = |(constraint, parameters): &(&ConstraintDocument, Json)| {
            let mut spec = self.spec(constraint, &excluded)?;
            let hook = match (&self.engine, &plugin) {
                (Engine::Cel(policy, failure_policy), _) => {
                    spec.failure_policy = *failure_policy;
                    cel(constraint, parameters, policy, *failure_policy)
                }
                (Engine::Rego(_), plugin) => {
                    HookDefinition::Plugin(of_constraint(plugin.as_ref()?, constraint))
                }
            };
            Some(StageDefinition {
                spec,
                hook,
                candidate: None,
                location: self.source.clone(),
            })
        };
        let stages: Vec<StageDefinition> = constrained.iter().filter_map(stage).collect();
        let idle = match plugin {
            Some(plugin) if stages.is_empty() => vec![self.idle(plugin)],
            _ => Vec::new(),
        };
        let mut rules = Vec::new();
        for rule in stages.iter().flat_map(|stage| &stage.spec.rules) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
        ChainDefinition {
            name: self.name.clone(),
            phase: Phase::Validating,
            source: self.source.clone(),
            rules,
            stages,
            warnings,
            idle,
        }
    }

    /// The stage that a constraint would have.
    fn idle(&self, mut plugin: PluginDefinition) -> StageDefinition {
        if let Json::Object(settings) = &mut plugin.settings {
            let constraint = json!({"parameters": {}, "actions": ["deny"]});
            settings.insert("constraints".to_owned(), json!({ &self.name: constraint }));
        }
        StageDefinition {
            location: self.source.clone(),
            ..StageDefinition::new(self.name.as_str(), HookDefinition::Plugin(plugin))
        }
    }

    /// `None` if the constraint is not enforced at admission.
    fn spec(&self, constraint: &ConstraintDocument, excluded: &[String]) -> Option<StageSpec> {
        let actions = constraint.actions(matches!(self.engine, Engine::Cel(..)))?;
        let mut spec = StageSpec::new(constraint.name.as_str());
        spec.rules = constraint.matching.rules(&self.operations);
        spec.namespace_selector = selectors::namespaces_with(constraint.matching.namespace_labels.clone());
        spec.object_selector = constraint.matching.labels.clone();
        spec.match_conditions = constraint.matching.conditions(excluded);
        spec.timeout = TIMEOUT;
        spec.reinvocation = Reinvocation::Never;
        spec.names_itself = true;
        spec.mode = match actions.is_empty() {
            true => Mode::Audit,
            false => Mode::Enforce,
        };
        Some(spec)
    }
}

impl Rego {
    fn mentions(&self, word: &str) -> bool {
        std::iter::once(&self.text)
            .chain(&self.libs)
            .any(|text| text.contains(word))
    }

    /// The plugin of all stages of a template. They have the same settings, so that it is configured once.
    fn plugin(&self, constraints: &[(&ConstraintDocument, Json)], syncs: &[Sync]) -> PluginDefinition {
        let of_constraint = |(constraint, parameters): &(&ConstraintDocument, Json)| {
            let actions = constraint.actions(false).unwrap_or_default();
            // What a dry run would deny is noted by a stage in mode `Audit`.
            let actions: Vec<&str> = match actions.as_slice() {
                [] => vec!["deny"],
                actions => actions
                    .iter()
                    .map(|action| if *action == Action::Warn { "warn" } else { "deny" })
                    .collect(),
            };
            let settings = json!({"parameters": parameters, "actions": actions});
            (constraint.name.clone(), settings)
        };
        let constraints: Map<String, Json> = constraints.iter().map(of_constraint).collect();
        let mut settings = json!({"rego": self.text, "version": self.version, "constraints": constraints});
        let mut plugin = PluginDefinition::new(ModuleReference::stock("rego"));
        let kinds = self.inventory(syncs);
        if let Json::Object(settings) = &mut settings {
            if !self.libs.is_empty() {
                settings.insert("libs".to_owned(), json!(self.libs));
            }
            if !kinds.is_empty() {
                let kinds = kinds.iter().map(ToString::to_string);
                settings.insert("inventory".to_owned(), kinds.collect());
            }
        }
        plugin.settings = settings;
        plugin.allow.cluster.extend(kinds);
        if self.mentions("namespaceObject") || self.mentions("_unstable") {
            plugin.allow.cluster.insert(ClusterKind::new("v1", "Namespace"));
        }
        plugin
    }

    /// The kinds of objects that the policy is given: of the ones that are kept, those that it reads.
    fn inventory(&self, syncs: &[Sync]) -> Vec<ClusterKind> {
        if !self.mentions("inventory") {
            return Vec::new();
        }
        let mut kinds: Vec<ClusterKind> = syncs.iter().flat_map(|sync| sync.kinds.iter().cloned()).collect();
        kinds.sort();
        kinds.dedup();
        let texts = std::iter::once(&self.text).chain(&self.libs);
        let read: Option<Vec<Vec<&str>>> = texts.map(|text| kinds_read(text)).collect();
        if let Some(read) = read {
            let read = read.concat();
            kinds.retain(|kind| read.contains(&kind.kind()));
        }
        kinds
    }
}

/// The plugin of the stage of one constraint.
fn of_constraint(plugin: &PluginDefinition, constraint: &ConstraintDocument) -> PluginDefinition {
    let mut plugin = plugin.clone();
    let environment = &mut plugin.allow.environment;
    environment.insert(CONSTRAINT.to_owned(), constraint.name.clone());
    plugin
}

fn cel(
    constraint: &ConstraintDocument,
    parameters: &Json,
    policy: &Arc<Policy>,
    failure_policy: FailurePolicy,
) -> HookDefinition {
    let actions = constraint.actions(true).unwrap_or_default();
    let object = json!({
        "kind": constraint.kind,
        "metadata": {"name": constraint.name},
        "spec": {"parameters": parameters},
    });
    HookDefinition::Cel(CelDefinition {
        policy: Arc::clone(policy),
        binding: Binding {
            actions: match actions.is_empty() {
                true => vec![Action::Deny],
                false => actions,
            },
            failure_policy,
            constraint: Some(ConstraintBinding {
                name: constraint.name.clone(),
                object: Arc::new(object),
            }),
            ..Binding::default()
        },
    })
}
