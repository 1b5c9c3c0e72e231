//! Reads the program's own documents: `AdmissionChain`, `NamespacedAdmissionChain` and `AdmissionException`.

use std::{collections::HashMap, ops::RangeInclusive, path::PathBuf, sync::Arc, time::Duration};

use admittance_admission::{FailurePolicy, MatchPolicy, Mode, Phase, Reinvocation, SideEffects, StageSpec, enumerated};
use serde_json::{Map, Value as Json};

use super::{
    DocumentForm, DocumentForms, DocumentKind, FormContent, FormDocuments, TypedDocument,
    kubernetes::{read_labels, typing},
    parts,
};
use crate::{
    Definitions, ExceptionDefinition, HookDefinition, ImportResult, Location, conditions,
    document::{Fields, Mistake, Mistakes, Node, quoted, readers},
    hook::NATIVE_FIELDS,
    model::{ChainDefinition, StageDefinition},
    names, plugin, rules,
    selectors::{self, LabelSyntax},
    store::read_readable_files,
};

pub(crate) mod exception;
pub(crate) mod write;

/// The range of a stage's timeout. Its maximum of 30 s is that of kube-apiserver.
pub(crate) const TIMEOUT_RANGE: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(30);

/// A field that an API server adds to resources. It is ignored, so that the output of `kubectl get` can be read.
pub(crate) const STATUS: &str = "status";

/// The fields that an API server adds to `metadata`. They are ignored.
const SERVER_METADATA: [&str; 9] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "uid",
];

const VERSIONS: &[&str] = &["admittance.dev/v1alpha1"];

static KINDS: [DocumentKind; 3] = [
    DocumentKind::new("AdmissionChain", VERSIONS),
    DocumentKind::namespaced("NamespacedAdmissionChain", VERSIONS),
    DocumentKind::new("AdmissionException", VERSIONS),
];

#[derive(Debug)]
pub(super) struct NativeForm;

impl DocumentForm for NativeForm {
    fn kinds(&self) -> &'static [DocumentKind] {
        &KINDS
    }

    fn read(&self, document: &TypedDocument<'_>) -> Option<FormContent> {
        let TypedDocument { kind, root, .. } = document;
        if kind.name == "AdmissionException" {
            let definition = exception::read(root)?;
            return Some(FormContent::of_part(
                "exception",
                Phase::default(),
                definition.exception.name.to_string(),
                definition,
            ));
        }
        read(root, kind.is_namespaced).map(FormContent::of_chain)
    }

    fn define(&self, all: FormDocuments<'_>, defined: &mut Definitions, _mistakes: &mut Mistakes) {
        let mut chains: Vec<_> = all.chains().collect();
        typing::use_schemas(&mut chains, &parts(all.supporting));
        defined.chains.extend(chains);
        let exceptions = all.parts::<ExceptionDefinition>();
        defined.exceptions.extend(exceptions.into_iter().cloned());
    }

    /// Keeps the labels and annotations that the applied resource lacks, because other tools may have written them.
    fn merge(&self, mut applied: Json, replaced: &Json) -> Option<Json> {
        let mut differs = false;
        for field in ["labels", "annotations"] {
            let Some(Json::Object(pairs)) = replaced.pointer(&format!("/metadata/{field}")) else {
                continue;
            };
            let metadata = applied.get_mut("metadata").and_then(Json::as_object_mut)?;
            let entry = metadata.entry(field).or_insert_with(|| Map::new().into());
            let applied_pairs = entry.as_object_mut()?;
            for (key, value) in pairs {
                applied_pairs.entry(key).or_insert_with(|| {
                    differs = true;
                    value.clone()
                });
            }
        }
        differs.then_some(applied)
    }

    fn import(&self, _kind: &DocumentKind) -> Option<(ImportResult, &'static str)> {
        Some((ImportResult::LeftOut, "it is in the native form already"))
    }
}

/// Returns a warning for each scalar in native chains that differs between YAML 1.1 and 1.2. The chains may be invalid.
pub fn ambiguities(paths: &[PathBuf]) -> Vec<Mistake> {
    let ignored = &mut Mistakes::new();
    let files = read_readable_files(paths, ignored);
    let documents: Vec<_> = files.iter().flat_map(|file| file.documents(ignored)).collect();
    let forms = DocumentForms::default();
    let definitions = documents
        .iter()
        .flat_map(|document| forms.definitions(&document.root_ignoring_mistakes()));
    let [chain, namespaced, _] = &KINDS;
    let chains = definitions.filter(|definition| [chain.name, namespaced.name].contains(&definition.kind.name));
    chains.flat_map(|chain| chain.root.ambiguities()).collect()
}

fn read(root: &Node<'_>, is_namespaced: bool) -> Option<ChainDefinition> {
    let mut fields = root.object()?;
    fields.ignore(&["apiVersion", "kind"]);
    fields.ignore_present(&[STATUS]);
    let fix = "name the chain: `metadata: { name: ... }`";
    let read_name = |node: &Node<'_>| {
        if is_namespaced {
            read_namespaced_name(node)
        } else {
            read_name(node, "name the chain").map(|name| (name, None))
        }
    };
    let name = fields.get_required("metadata", fix, read_name);
    let mut spec = fields.get_required("spec", "write the chain's rules and stages", Node::object)?;
    let phase = spec.get("phase", Phase::default(), Node::word);
    let match_policy = spec.get("matchPolicy", MatchPolicy::default(), Node::word);
    let fix = "say which requests the chain is for";
    let read_rules = |node: &Node<'_>| Some(rules::read_native(node, fix, match_policy));
    let rules = spec.get_required("rules", fix, read_rules);
    let fix = "list the hooks that are called";
    let stages = spec.required("stages", fix).map(|node| {
        let mut name_locations = HashMap::new();
        let stages = node.filled_list(fix).unwrap_or_default();
        let read_entry = |stage| read_stage(stage, phase, match_policy, &mut name_locations);
        stages.iter().filter_map(read_entry).collect::<Vec<_>>()
    });
    let (name, namespace) = name?;
    let mut stages = stages?;
    if let Some(namespace) = &namespace {
        let plugins = stages.iter_mut().flat_map(StageDefinition::plugins_mut);
        plugins.for_each(|plugin| plugin.allow.namespace = Some(namespace.as_str().into()));
    }
    Some(ChainDefinition {
        name,
        namespace,
        phase,
        location: root.location(),
        rules: rules?,
        stages,
        warnings: root.ambiguities(),
        idle_stages: Vec::new(),
    })
}

pub(crate) fn read_name(metadata: &Node<'_>, fix: &str) -> Option<String> {
    let mut fields = metadata.object()?;
    let name = fields.get_required("name", fix, readers::parse_with(names::check_subdomain));
    read_labels(&mut fields);
    fields.ignore_present(&SERVER_METADATA);
    name
}

fn read_namespaced_name(metadata: &Node<'_>) -> Option<(String, Option<String>)> {
    let mut fields = metadata.object()?;
    let name = fields.get_required("name", "name the chain", readers::parse_with(names::check_subdomain));
    let read_namespace = readers::parse_with(names::check_label);
    let namespace = fields.get_required(
        "namespace",
        "name the namespace whose resources it is for",
        read_namespace,
    );
    read_labels(&mut fields);
    fields.ignore_present(&SERVER_METADATA);
    let namespace = namespace?;
    Some((format!("{namespace}/{}", name?), Some(namespace)))
}

fn read_stage(
    node: &Node<'_>,
    phase: Phase,
    match_policy: MatchPolicy,
    name_locations: &mut HashMap<String, Location>,
) -> Option<StageDefinition> {
    let mut fields = node.object()?;
    let name = read_stage_name(&mut fields, "name the stage", names::check_subdomain, name_locations);
    let hook = read_hook(&mut fields, phase);
    let fix = "say which of the chain's requests the stage is for, or remove `rules` for all";
    let read_rules = |node: &Node<'_>| Some(rules::read_native(node, fix, match_policy));
    let mut spec = StageSpec::new("");
    spec.rules = fields.get("rules", Vec::new(), read_rules);
    spec.namespace_selector = fields.get_optional("namespaceSelector", selectors::read_namespace_selector);
    spec.object_selector = selectors::read_labels_of_field(&mut fields, "objectSelector", LabelSyntax::Free);
    spec.match_conditions = conditions::read(&mut fields);
    spec.failure_policy = fields.get("failurePolicy", FailurePolicy::default(), Node::word);
    spec.timeout = fields.get("timeout", StageSpec::DEFAULT_TIMEOUT, read_timeout);
    spec.side_effects = fields.get("sideEffects", SideEffects::default(), Node::word);
    spec.reinvocation = fields.get("reinvocationPolicy", Reinvocation::default(), |node| {
        let policy = node.word()?;
        if phase == Phase::Validating && policy == Reinvocation::IfNeeded {
            let message = "a validating chain changes nothing, so no stage of it is called again";
            node.add_mistake(message, "remove it");
        }
        Some(policy)
    });
    finish_stage(fields, name, spec, hook)
}

/// Reads `candidate` and `mode`, which are the last fields of a stage in every policy system. All fields that are still
/// unread are then reported as unknown.
pub(crate) fn finish_stage(
    mut fields: Fields<'_>,
    name: Option<Arc<str>>,
    mut spec: StageSpec,
    hook: Option<HookDefinition>,
) -> Option<StageDefinition> {
    let location = fields.node().location();
    let candidate = plugin::read_candidate(&mut fields, hook.as_ref());
    spec.mode = fields.get("mode", Mode::default(), Node::word);
    spec.name = name?;
    Some(StageDefinition {
        spec,
        hook: hook?,
        candidate,
        location,
    })
}

pub(crate) fn read_timeout(node: &Node<'_>) -> Option<Duration> {
    node.duration(TIMEOUT_RANGE)
}

/// Reads the `name` of a stage, and validates it with `check`. `name_locations` contains the names of the earlier
/// stages. A name that one of them has is a mistake.
pub(crate) fn read_stage_name(
    fields: &mut Fields<'_>,
    fix: &str,
    check: impl FnOnce(&str) -> Result<String, String>,
    name_locations: &mut HashMap<String, Location>,
) -> Option<Arc<str>> {
    let node = fields.required("name", fix)?;
    let name = node.parse_with(check)?;
    match name_locations.get(&name) {
        Some(first) => {
            let message = format!("{} is also the name of the stage on line {}", quoted(&name), first.line);
            node.add_mistake(message, "give each stage its own name");
        }
        None => {
            name_locations.insert(name.clone(), node.location());
        }
    }
    Some(name.into())
}

fn read_hook(fields: &mut Fields<'_>, phase: Phase) -> Option<HookDefinition> {
    let mut hooks: Vec<_> = NATIVE_FIELDS
        .iter()
        .filter_map(|(name, read)| Some((*name, read, fields.optional(name)?)))
        .collect();
    match hooks.len() {
        0 => {
            let names = NATIVE_FIELDS.iter().map(|(name, _)| format!("`{name}`"));
            let fix = format!("write {}", enumerated(names, "or"));
            fields.node().reject("the stage calls nothing", fix)
        }
        1 => {
            let (_, read, node) = hooks.remove(0);
            read(&node, phase)
        }
        _ => {
            let names: Vec<&str> = hooks.iter().map(|(name, ..)| *name).collect();
            let message = format!("the stage has a {}", names.join(" and a "));
            // A stage must not have several hooks. All of them are read anyway, to report the mistakes in each hook.
            for (_, read, node) in hooks {
                read(&node, phase);
            }
            fields.node().reject(message, "keep one of them, or make two stages")
        }
    }
}

#[cfg(test)]
mod tests;
