use std::path::Path;

use admittance_admission::enumerated;
use serde_json::{Map, Value as Json};

use super::{AppliedEffect, Change, PlanError, ensure_alone, pretty_json};
use crate::{
    ChainDefinition, DefinitionSet, Location, StageDefinition, StageId,
    document::{self, BYTE_ORDER_MARK, DocumentSyntax, Mistakes, Node},
};

/// A candidate never inherits these fields from the stage's plugin. When the candidate is promoted, all of them are
/// taken from the candidate. For example, if only the stage's plugin has a `digest`, the `digest` is removed.
const CANDIDATE_FIELDS: [&str; 3] = ["source", "digest", "refresh"];
/// The fields of a plugin that a candidate inherits. When a candidate is promoted, a field that the candidate omits
/// keeps the value that it has in the stage's plugin.
const INHERITED_FIELDS: [&str; 3] = ["settings", "allow", "memory"];

pub(crate) fn promote(set: &DefinitionSet, id: &StageId) -> Result<Change, PlanError> {
    let location = find_stage_with_candidate(&set.chains()?, id)?;
    let existing = set.read_files(&mut Mistakes::new());
    let existing_definitions = set.definitions_in(&existing);
    let mut definitions = existing_definitions.iter();
    let unknown = || PlanError::Unknown(format!("stage {id}"));
    let definition = definitions
        .find(|definition| definition.root.object_at(&location).is_some())
        .ok_or_else(unknown)?;
    ensure_alone(definition, &existing)?;
    let mut value = definition.root.json();
    object_at(&mut value, &definition.root, &location)
        .and_then(promote_candidate)
        .ok_or_else(unknown)?;

    let file = set.files().get(definition.file);
    let before = file.map(|file| file.text.as_str());
    let text = match existing.get(definition.file).and_then(|file| file.documents.first()) {
        Some(document) if document.syntax() == DocumentSyntax::Yaml => {
            let yaml = document::to_yaml(&value);
            let above = comment_above(before.unwrap_or_default(), &definition.root);
            format!("{above}{}", yaml.trim_start_matches("---\n"))
        }
        _ => pretty_json(&value),
    };
    let losses = file.and_then(|file| loss_of_comments(&file.path, &file.text, &text));
    let new = set.with_text(definition.file, Some(text));
    let effects = vec![(definition.id.clone(), AppliedEffect::Changed)];
    Ok(Change {
        losses: losses.into_iter().collect(),
        ..Change::between(set, new, effects)
    })
}

fn loss_of_comments(path: &Path, before: &str, after: &str) -> Option<String> {
    let comment = |line: &str| {
        let start = if line.trim_start().starts_with('#') {
            line.find('#')
        } else {
            line.find(" #").map(|space| space + 1)
        };
        line.get(start?..).map(|comment| comment.trim_end().to_owned())
    };
    let numbered_lines = (1..).zip(before.lines());
    let lost_lines = numbered_lines.filter(|(_, line)| comment(line).is_some_and(|comment| !after.contains(&comment)));
    let lines: Vec<_> = lost_lines.map(|(number, _): (u32, _)| number.to_string()).collect();
    (!lines.is_empty()).then(|| {
        format!(
            "{}: the definition is written anew, without the comments of the lines {}",
            path.display(),
            lines.join(", ")
        )
    })
}

fn find_stage_with_candidate(chains: &[ChainDefinition], id: &StageId) -> Result<Location, PlanError> {
    let stages = || {
        chains
            .iter()
            .flat_map(|chain| chain.stages.iter().map(move |stage| (chain, stage)))
    };
    let name = |chain: &ChainDefinition, stage: &str, phase| StageId {
        phase,
        chain: chain.name.clone(),
        stage: stage.to_owned(),
    };
    let is_match = |(chain, stage): &(&ChainDefinition, &StageDefinition)| {
        id.identifies(chain.phase, &chain.name, &stage.spec.name)
    };
    let matching_stages: Vec<_> = stages().filter(is_match).collect();
    match matching_stages.as_slice() {
        [(_, stage)] if stage.candidate.is_some() => Ok(stage.location.clone()),
        [(_, stage)] => Err(PlanError::Conflict(format!(
            "{}: the stage {id} has no `candidate`, so there is nothing to promote",
            stage.location
        ))),
        [] => {
            let full = |(chain, stage): (&ChainDefinition, &StageDefinition)| {
                name(chain, &stage.spec.name, id.phase.and(Some(chain.phase)))
            };
            Err(PlanError::unknown("stage ", &id.to_string(), stages().map(full)))
        }
        several => {
            let full = |(chain, stage): &(&ChainDefinition, &StageDefinition)| {
                name(chain, &stage.spec.name, Some(chain.phase))
            };
            Err(PlanError::AmbiguousStage(format!(
                "there are several stages of the name {id}; write {}",
                enumerated(several.iter().map(|entry| full(entry).to_string()), "or")
            )))
        }
    }
}

fn object_at<'j>(value: &'j mut Json, node: &Node<'_>, location: &Location) -> Option<&'j mut Map<String, Json>> {
    if value.is_object() && node.location() == *location {
        return value.as_object_mut();
    }
    let values: Vec<&mut Json> = match value {
        Json::Object(fields) => fields.values_mut().collect(),
        Json::Array(entries) => entries.iter_mut().collect(),
        _ => Vec::new(),
    };
    let mut pairs = node.children().into_iter().zip(values);
    pairs.find_map(|((_, child), value)| object_at(value, &child, location))
}

fn promote_candidate(stage: &mut Map<String, Json>) -> Option<()> {
    // The keys of BCS documents are matched without regard to case.
    let key = |stage: &Map<String, Json>, name: &str| {
        let is_key = |(key, value): &(&String, &Json)| key.eq_ignore_ascii_case(name) && !value.is_null();
        stage.iter().find(is_key).map(|(key, _)| key.clone())
    };
    let mut candidate = stage.shift_remove(&key(stage, "candidate")?)?;
    let plugin = stage.get_mut(&key(stage, "plugin")?)?.as_object_mut()?;
    for name in CANDIDATE_FIELDS.into_iter().chain(INHERITED_FIELDS) {
        match candidate.get_mut(name).map(Json::take) {
            Some(value) if !value.is_null() => drop(plugin.insert(name.to_owned(), value)),
            _ if CANDIDATE_FIELDS.contains(&name) => drop(plugin.shift_remove(name)),
            _ => {}
        }
    }
    Some(())
}

fn comment_above<'t>(text: &'t str, root: &Node<'_>) -> &'t str {
    let text = text.trim_start_matches(BYTE_ORDER_MARK);
    let above = text.get(..root.span().start).unwrap_or_default();
    // The document may begin on the same line as the `---` before it, as in `--- {}`. In this case, the text before the
    // document ends with `--- `, which is not a comment and is left out.
    above.rfind('\n').and_then(|end| above.get(..=end)).unwrap_or_default()
}
