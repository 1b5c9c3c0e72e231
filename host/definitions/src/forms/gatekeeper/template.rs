//! `ConstraintTemplate`.

mod read;

use std::{sync::Arc, time::Duration};

use admittance_admission::{
    ClusterKind, FailurePolicy, Mode, ModuleReference, ObjectGenerator, Operation, Phase, Reinvocation,
    StageSpec,
};
use admittance_conditions::{Action, Binding, ConstraintBinding, Policy};
use admittance_mutation::Mutator;
use serde_json::{Map, Value as Json, json};

pub(super) use self::read::{read, read_operations};
use super::{
    constraint::ConstraintDocument,
    expansion::{ExpansionDocument, Row, rows},
    inventory::kinds_read,
    matching::Source,
    mutator::{MutatorDocument, mutators},
    schema::Checked,
    sync::SyncDocument,
};
use crate::{
    CelDefinition, Location, Mistake, PluginDefinition,
    document::{Mistakes, quoted},
    model::{ChainDefinition, StageDefinition},
    selectors,
};

/// The timeout with which Gatekeeper registers its webhook.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The environment variable that names a stage's constraint to the plugin `rego`.
const CONSTRAINT: &str = "CONSTRAINT";

/// The content of a template's document.
#[derive(Debug)]
pub(super) struct TemplateDocument {
    pub(super) name: String,
    /// The kind of its constraints.
    pub(super) kind: String,
    pub(super) source: Location,
    schema: Option<Json>,
    engine: Engine,
    operations: Vec<Operation>,
}

/// The engine that evaluates a template.
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

/// The other documents of Gatekeeper, on which the chain of a template depends.
pub(super) struct Surroundings<'a> {
    pub(super) constraints: Vec<&'a ConstraintDocument>,
    pub(super) syncs: Vec<&'a SyncDocument>,
    pub(super) expansions: Vec<&'a ExpansionDocument>,
    pub(super) mutators: Vec<&'a MutatorDocument>,
}

/// A stage of a template: a constraint with its parameters, for the objects of requests or for what is generated of them.
struct Constrained<'a> {
    constraint: &'a ConstraintDocument,
    parameters: Json,
    row: Option<Row<'a>>,
    /// The generator of the objects that the stage sees, by the templates of the row.
    expansion: Option<Arc<dyn ObjectGenerator>>,
}

impl Constrained<'_> {
    /// Returns the name of the stage: the constraint's name, and the names of the templates that generate objects.
    fn name(&self) -> String {
        match &self.row {
            Some(row) => format!("{}/{}", self.constraint.name, row.name()),
            None => self.constraint.name.clone(),
        }
    }

    /// The beginning of its messages.
    fn prefix(&self) -> String {
        match &self.row {
            Some(row) => row.prefix(&self.constraint.name),
            None => format!("[{}]", self.constraint.name),
        }
    }

    /// Returns the effects of a violation; none in a dry run. `None` if there is no such stage.
    fn actions(&self, is_cel: bool) -> Option<Vec<Action>> {
        self.constraint.actions(is_cel, self.row.as_ref())
    }
}

impl TemplateDocument {
    /// The chain of the template. Its constraints are its stages, by their names.
    pub(super) fn chain(&self, others: &Surroundings<'_>, mistakes: &mut Mistakes) -> ChainDefinition {
        let (constrained, mut warnings) = self.constrained(others, mistakes);
        let syncs = &others.syncs;
        let plugin = match &self.engine {
            Engine::Rego(rego) => {
                let plugin = rego.plugin(&constrained, syncs);
                let is_empty = plugin.settings.get("inventory").is_none() && !constrained.is_empty();
                warnings.extend(self.reading_warnings(rego, is_empty));
                Some(plugin)
            }
            Engine::Cel(..) => None,
        };
        let stage = |constrained: &Constrained<'_>| {
            let mut spec = self.spec(constrained, syncs)?;
            spec.expansion = constrained.expansion.clone();
            let hook = match (&self.engine, &plugin) {
                (Engine::Cel(policy, failure_policy), _) => {
                    spec.failure_policy = *failure_policy;
                    cel(constrained, policy, *failure_policy).into()
                }
                (Engine::Rego(_), plugin) => of_constraint(plugin.as_ref()?, constrained).into(),
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
        let of_stage = |stage: &StageDefinition| match &stage.spec.expansion {
            Some(expansion) => expansion.generators().to_vec(),
            None => stage.spec.rules.clone(),
        };
        for rule in stages.iter().flat_map(of_stage) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        ChainDefinition {
            phase: Phase::Validating,
            source: self.source.clone(),
            warnings,
            idle,
            ..ChainDefinition::new(&*self.name, rules, stages)
        }
    }

    /// The stages of its constraints with their parameters, and warnings about those.
    fn constrained<'a>(
        &self,
        others: &Surroundings<'a>,
        mistakes: &mut Mistakes,
    ) -> (Vec<Constrained<'a>>, Vec<Mistake>) {
        let all = others.constraints.iter().copied();
        let mut constraints: Vec<_> = all.filter(|constraint| constraint.kind == self.kind).collect();
        constraints.sort_by(|one, other| one.name.cmp(&other.name));
        let rows = rows(&others.expansions);
        let mutators: Arc<[Mutator]> = match rows.is_empty() {
            true => Arc::default(),
            false => mutators(&others.mutators, Source::Generated, &others.syncs).into(),
        };
        // Stages that see the same objects share how they are generated, and so what is generated.
        let rows = rows.into_iter().map(|row| {
            let expansion: Arc<dyn ObjectGenerator> = Arc::new(row.expansion(&mutators));
            (expansion, row)
        });
        let rows: Vec<_> = rows.collect();
        let mut checked = Checked {
            mistakes,
            warnings: Vec::new(),
        };
        let mut constrained = Vec::new();
        for &constraint in &constraints {
            let parameters = match (&constraint.parameters, &self.schema) {
                (Some(parameters), Some(schema)) => checked.check(parameters, schema),
                (Some(parameters), None) => parameters.json(),
                (None, _) => Json::Object(Map::new()),
            };
            let of_rows = rows
                .iter()
                .filter(|(_, row)| constraint.matching.is_for(row.kind()))
                .map(|(expansion, row)| (Some(expansion.clone()), Some(row.clone())));
            let own = std::iter::once((None, None));
            constrained.extend(own.chain(of_rows).map(|(expansion, row)| Constrained {
                constraint,
                parameters: parameters.clone(),
                row,
                expansion,
            }));
        }
        let mut warnings = checked.warnings;
        if others.expansions.is_empty() {
            warnings.extend(constraints.iter().filter_map(|constraint| constraint.warning()));
        }
        (constrained, warnings)
    }

    /// Warnings if its policy reads an inventory that is empty, or what no template has.
    fn reading_warnings(&self, rego: &Rego, is_empty: bool) -> Vec<Mistake> {
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
        let warning = |(_, reads, fix): (bool, &str, &str)| Mistake {
            location: self.source.clone(),
            path: String::new(),
            message: format!("the template {} reads {reads}", quoted(&self.name)),
            fix: fix.to_owned(),
        };
        reads
            .into_iter()
            .filter(|(is_read, ..)| *is_read)
            .map(warning)
            .collect()
    }

    /// The stage that a constraint would have.
    fn idle(&self, mut plugin: PluginDefinition) -> StageDefinition {
        if let Json::Object(settings) = &mut plugin.settings {
            let constraint = json!({"parameters": {}, "actions": ["deny"]});
            settings.insert("constraints".to_owned(), json!({ &self.name: constraint }));
        }
        StageDefinition {
            location: self.source.clone(),
            ..StageDefinition::new(self.name.as_str(), plugin)
        }
    }

    /// `None` if the constraint is not enforced at admission.
    fn spec(&self, constrained: &Constrained<'_>, syncs: &[&SyncDocument]) -> Option<StageSpec> {
        let actions = constrained.actions(matches!(self.engine, Engine::Cel(..)))?;
        let constraint = constrained.constraint;
        let excluded: Vec<String> = syncs
            .iter()
            .flat_map(|sync| sync.excluded_namespaces.iter().cloned())
            .collect();
        let mut spec = StageSpec::new(constrained.name());
        spec.rules = constraint.matching.rules(&self.operations);
        spec.namespace_selector = selectors::namespaces_with(constraint.matching.namespace_labels.clone());
        spec.object_selector = constraint.matching.labels.clone();
        spec.match_conditions = constraint.matching.conditions(&excluded);
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
    fn plugin(&self, constraints: &[Constrained<'_>], syncs: &[&SyncDocument]) -> PluginDefinition {
        let of_constraint = |constrained: &Constrained<'_>| {
            let actions = constrained.actions(false)?;
            // What a dry run would deny is noted by a stage in mode `Audit`.
            let actions: Vec<&str> = match actions.as_slice() {
                [] => vec!["deny"],
                actions => actions
                    .iter()
                    .map(|action| if *action == Action::Warn { "warn" } else { "deny" })
                    .collect(),
            };
            let mut settings = json!({"parameters": constrained.parameters, "actions": actions});
            if let (Some(_), Json::Object(settings)) = (&constrained.row, &mut settings) {
                settings.insert("prefix".to_owned(), constrained.prefix().into());
            }
            Some((constrained.name(), settings))
        };
        let constraints: Map<String, Json> = constraints.iter().filter_map(of_constraint).collect();
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
    fn inventory(&self, syncs: &[&SyncDocument]) -> Vec<ClusterKind> {
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
fn of_constraint(plugin: &PluginDefinition, constrained: &Constrained<'_>) -> PluginDefinition {
    let mut plugin = plugin.clone();
    let environment = &mut plugin.allow.environment;
    environment.insert(CONSTRAINT.to_owned(), constrained.name());
    plugin
}

fn cel(constrained: &Constrained<'_>, policy: &Arc<Policy>, failure_policy: FailurePolicy) -> CelDefinition {
    let actions = constrained.actions(true).unwrap_or_default();
    let constraint = constrained.constraint;
    let object = json!({
        "kind": constraint.kind,
        "metadata": {"name": constraint.name},
        "spec": {"parameters": constrained.parameters},
    });
    CelDefinition {
        policy: Arc::clone(policy),
        binding: Binding {
            actions: match actions.is_empty() {
                true => vec![Action::Deny],
                false => actions,
            },
            failure_policy,
            constraint: Some(ConstraintBinding {
                prefix: constrained.prefix(),
                object: Arc::new(object),
            }),
            ..Binding::default()
        },
        written: Arc::default(),
    }
}
