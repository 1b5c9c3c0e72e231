//! Creates the chain of a `ConstraintTemplate`, in which each constraint is a stage.

mod read;

use std::{sync::Arc, time::Duration};

use admittance_admission::{
    ClusterKind, FailurePolicy, Mode, ModuleReference, ObjectGenerator, Operation, Phase, Reinvocation, StageSpec,
};
use admittance_conditions::{Action, Binding, CompiledPolicy, MessageWording};
use admittance_mutation::Mutator;
use serde_json::{Map, Value as Json, json};

pub(super) use self::read::{read, read_operations};
use super::{
    constraint::ConstraintDocument,
    expansion::{ExpansionDocument, ExpansionPath, expansion_paths},
    inventory::mentioned_kinds,
    matching::ObjectSource,
    mutator::{MutatorDocument, select_mutators},
    schema::SchemaCheck,
    sync::SyncDocument,
};
use crate::{
    CelDefinition, Location, Mistake, PluginDefinition,
    document::{Mistakes, quoted},
    model::{ChainDefinition, StageDefinition},
    selectors,
};

/// The timeout of a stage. It equals the timeout of Gatekeeper's webhook.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The environment variable with which a stage tells the plugin `rego` which constraint to enforce.
const CONSTRAINT: &str = "CONSTRAINT";

#[derive(Debug)]
pub(super) struct TemplateDocument {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) location: Location,
    schema: Option<Json>,
    engine: Engine,
    operations: Vec<Operation>,
}

#[derive(Debug)]
enum Engine {
    Rego(RegoCode),
    Cel(Arc<CompiledPolicy>, FailurePolicy),
}

#[derive(Debug)]
struct RegoCode {
    text: String,
    libs: Vec<String>,
    version: &'static str,
}

/// The other Gatekeeper documents on which the chain of a template depends.
pub(super) struct GatekeeperDocuments<'a> {
    pub(super) constraints: Vec<&'a ConstraintDocument>,
    pub(super) syncs: Vec<&'a SyncDocument>,
    pub(super) expansions: Vec<&'a ExpansionDocument>,
    pub(super) mutators: Vec<&'a MutatorDocument>,
}

/// A stage of a template's chain: a constraint, for the objects in requests or for generated objects.
struct ConstraintStage<'a> {
    constraint: &'a ConstraintDocument,
    parameters: Json,
    /// The expansion templates that generate the objects which this stage checks. `None` if the stage checks the
    /// objects in requests.
    expansion_path: Option<ExpansionPath<'a>>,
    expansion: Option<Arc<dyn ObjectGenerator>>,
}

impl ConstraintStage<'_> {
    fn name(&self) -> String {
        match &self.expansion_path {
            Some(path) => format!("{}/{}", self.constraint.name, path.name()),
            None => self.constraint.name.clone(),
        }
    }

    fn message_prefix(&self) -> String {
        match &self.expansion_path {
            Some(path) => path.message_prefix(&self.constraint.name),
            None => format!("[{}]", self.constraint.name),
        }
    }

    fn actions(&self, is_cel: bool) -> Option<Vec<Action>> {
        self.constraint.actions(is_cel, self.expansion_path.as_ref())
    }
}

impl TemplateDocument {
    pub(super) fn chain(&self, documents: &GatekeeperDocuments<'_>, mistakes: &mut Mistakes) -> ChainDefinition {
        let (constraint_stages, mut warnings) = self.constraint_stages(documents, mistakes);
        let syncs = &documents.syncs;
        let plugin = match &self.engine {
            Engine::Rego(rego) => {
                let plugin = rego.build_plugin(&constraint_stages, syncs);
                let is_empty = plugin.settings.get("inventory").is_none() && !constraint_stages.is_empty();
                warnings.extend(self.policy_warnings(rego, is_empty));
                Some(plugin)
            }
            Engine::Cel(..) => None,
        };
        let stage = |constraint_stage: &ConstraintStage<'_>| {
            let mut spec = self.stage_spec(constraint_stage, syncs)?;
            spec.expansion = constraint_stage.expansion.clone();
            let hook = match (&self.engine, &plugin) {
                (Engine::Cel(policy, failure_policy), _) => {
                    spec.failure_policy = *failure_policy;
                    cel_definition(constraint_stage, policy, *failure_policy).into()
                }
                (Engine::Rego(_), plugin) => plugin_for_constraint(plugin.as_ref()?, constraint_stage).into(),
            };
            Some(StageDefinition {
                spec,
                hook,
                candidate: None,
                location: self.location.clone(),
            })
        };
        let stages: Vec<StageDefinition> = constraint_stages.iter().filter_map(stage).collect();
        let idle = match plugin {
            Some(plugin) if stages.is_empty() => vec![self.idle_stage(plugin)],
            _ => Vec::new(),
        };
        let mut rules = Vec::new();
        let stage_rules = |stage: &StageDefinition| match &stage.spec.expansion {
            Some(expansion) => expansion.generators().to_vec(),
            None => stage.spec.rules.clone(),
        };
        for rule in stages.iter().flat_map(stage_rules) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        ChainDefinition {
            phase: Phase::Validating,
            location: self.location.clone(),
            warnings,
            idle_stages: idle,
            ..ChainDefinition::new(&*self.name, rules, stages)
        }
    }

    fn constraint_stages<'a>(
        &self,
        documents: &GatekeeperDocuments<'a>,
        mistakes: &mut Mistakes,
    ) -> (Vec<ConstraintStage<'a>>, Vec<Mistake>) {
        let all_constraints = documents.constraints.iter().copied();
        let mut constraints: Vec<_> = all_constraints
            .filter(|constraint| constraint.kind == self.kind)
            .collect();
        constraints.sort_by(|one, other| one.name.cmp(&other.name));
        let generation_paths = expansion_paths(&documents.expansions);
        let mutators: Arc<[Mutator]> = if generation_paths.is_empty() {
            Arc::default()
        } else {
            select_mutators(&documents.mutators, ObjectSource::Generated, &documents.syncs).into()
        };
        // A path is a sequence of expansion templates, which generates an object. Stages with the same path share one
        // generator, so that the object is generated only once, not once for each stage.
        let with_generator = |path: ExpansionPath<'a>| {
            let expansion: Arc<dyn ObjectGenerator> = Arc::new(path.expansion(&mutators));
            (expansion, path)
        };
        let paths: Vec<_> = generation_paths.into_iter().map(with_generator).collect();
        let mut schema_check = SchemaCheck {
            mistakes,
            warnings: Vec::new(),
        };
        let mut constraint_stages = Vec::new();
        for &constraint in &constraints {
            let parameters = match (&constraint.parameters, &self.schema) {
                (Some(parameters), Some(schema)) => schema_check.check(parameters, schema),
                (Some(parameters), None) => parameters.json(),
                (None, _) => Json::Object(Map::new()),
            };
            let path_sources = paths
                .iter()
                .filter(|(_, path)| constraint.matching.is_for(path.kind()))
                .map(|(expansion, path)| (Some(expansion.clone()), Some(path.clone())));
            let direct_source = std::iter::once((None, None));
            constraint_stages.extend(
                direct_source
                    .chain(path_sources)
                    .map(|(expansion, path)| ConstraintStage {
                        constraint,
                        parameters: parameters.clone(),
                        expansion_path: path,
                        expansion,
                    }),
            );
        }
        let mut warnings = schema_check.warnings;
        if documents.expansions.is_empty() {
            let warn = |constraint: &&ConstraintDocument| constraint.unexpanded_warning();
            warnings.extend(constraints.iter().filter_map(warn));
        }
        (constraint_stages, warnings)
    }

    /// Warns if the Rego policy reads `data.inventory` although it is empty, or input that Gatekeeper does not provide.
    fn policy_warnings(&self, rego: &RegoCode, is_empty: bool) -> Vec<Mistake> {
        let reads = [
            (
                is_empty && rego.mentions("inventory"),
                "data.inventory, which is empty",
                "name the kinds that it reads in a SyncSet or Config of Gatekeeper",
            ),
            (
                rego.mentions("input.request"),
                "input.request, which no template has: a rule with it never applies",
                "write `input.review`",
            ),
        ];
        let warning = |(_, reads, fix): (bool, &str, &str)| {
            let message = format!("the template {} reads {reads}", quoted(&self.name));
            Mistake::new(&self.location, "", message, fix)
        };
        reads
            .into_iter()
            .filter(|(is_read, ..)| *is_read)
            .map(warning)
            .collect()
    }

    /// Creates a stage for a template without constraints. It is never called; loading its plugin finds mistakes.
    fn idle_stage(&self, mut plugin: PluginDefinition) -> StageDefinition {
        if let Json::Object(settings) = &mut plugin.settings {
            let constraint = json!({"parameters": {}, "actions": ["deny"]});
            settings.insert("constraints".to_owned(), json!({ &self.name: constraint }));
        }
        StageDefinition {
            location: self.location.clone(),
            ..StageDefinition::new(self.name.as_str(), plugin)
        }
    }

    fn stage_spec(&self, constraint_stage: &ConstraintStage<'_>, syncs: &[&SyncDocument]) -> Option<StageSpec> {
        let actions = constraint_stage.actions(matches!(self.engine, Engine::Cel(..)))?;
        let constraint = constraint_stage.constraint;
        let excluded: Vec<String> = syncs
            .iter()
            .flat_map(|sync| sync.excluded_namespaces.iter().cloned())
            .collect();
        let mut spec = StageSpec::new(constraint_stage.name());
        spec.rules = constraint.matching.rules(&self.operations);
        spec.namespace_selector = selectors::namespaces_with_labels(constraint.matching.namespace_labels.clone());
        spec.object_selector = constraint.matching.labels.clone();
        spec.match_conditions = constraint.matching.conditions(&excluded);
        spec.timeout = TIMEOUT;
        spec.reinvocation = Reinvocation::Never;
        spec.denials_name_policy = true;
        spec.mode = if actions.is_empty() { Mode::Audit } else { Mode::Enforce };
        Some(spec)
    }
}

impl RegoCode {
    fn mentions(&self, word: &str) -> bool {
        std::iter::once(&self.text)
            .chain(&self.libs)
            .any(|text| text.contains(word))
    }

    /// Creates the plugin of all stages. Its settings contain all constraints, so that it is configured only once.
    fn build_plugin(&self, constraint_stages: &[ConstraintStage<'_>], syncs: &[&SyncDocument]) -> PluginDefinition {
        let constraint_settings = |constraint_stage: &ConstraintStage<'_>| {
            let actions = constraint_stage.actions(false)?;
            // A constraint with the action `dryrun` must not refuse requests, but its plugin gets the action `deny`.
            // This is harmless, because its stage has the mode `Audit`, in which a denial is only recorded.
            let actions: Vec<&str> = match actions.as_slice() {
                [] => vec!["deny"],
                actions => actions
                    .iter()
                    .map(|action| if *action == Action::Warn { "warn" } else { "deny" })
                    .collect(),
            };
            let mut settings = json!({"parameters": constraint_stage.parameters, "actions": actions});
            if let (Some(_), Json::Object(settings)) = (&constraint_stage.expansion_path, &mut settings) {
                settings.insert("prefix".to_owned(), constraint_stage.message_prefix().into());
            }
            Some((constraint_stage.name(), settings))
        };
        let constraints: Map<String, Json> = constraint_stages.iter().filter_map(constraint_settings).collect();
        let mut settings = json!({"rego": self.text, "version": self.version, "constraints": constraints});
        let mut plugin = PluginDefinition::new(ModuleReference::stock("rego"));
        let kinds = self.inventory_kinds(syncs);
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

    fn inventory_kinds(&self, syncs: &[&SyncDocument]) -> Vec<ClusterKind> {
        if !self.mentions("inventory") {
            return Vec::new();
        }
        let mut kinds: Vec<ClusterKind> = syncs.iter().flat_map(|sync| sync.kinds.iter().cloned()).collect();
        kinds.sort();
        kinds.dedup();
        let texts = std::iter::once(&self.text).chain(&self.libs);
        let text_kinds: Option<Vec<Vec<&str>>> = texts.map(|text| mentioned_kinds(text)).collect();
        if let Some(kind_lists) = text_kinds {
            let mentioned_kinds = kind_lists.concat();
            kinds.retain(|kind| mentioned_kinds.contains(&kind.kind()));
        }
        kinds
    }
}

fn plugin_for_constraint(plugin: &PluginDefinition, constraint_stage: &ConstraintStage<'_>) -> PluginDefinition {
    let mut plugin = plugin.clone();
    let environment = &mut plugin.allow.environment;
    environment.insert(CONSTRAINT.to_owned(), constraint_stage.name());
    plugin
}

fn cel_definition(
    constraint_stage: &ConstraintStage<'_>,
    policy: &Arc<CompiledPolicy>,
    failure_policy: FailurePolicy,
) -> CelDefinition {
    let actions = constraint_stage.actions(true).unwrap_or_default();
    let constraint = constraint_stage.constraint;
    let object = json!({
        "kind": constraint.kind,
        "metadata": {"name": constraint.name},
        "spec": {"parameters": constraint_stage.parameters},
    });
    CelDefinition {
        policy: Arc::clone(policy),
        binding: Binding {
            actions: if actions.is_empty() {
                vec![Action::Deny]
            } else {
                actions
            },
            failure_policy,
            wording: MessageWording::Gatekeeper {
                prefix: constraint_stage.message_prefix(),
                constraint: Arc::new(object),
            },
            ..Binding::default()
        },
        expressions: Arc::default(),
    }
}
