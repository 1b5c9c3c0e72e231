//! Reads `AdmissionException`, which excepts certain requests from stages until a date.

use std::{sync::Arc, time::SystemTime};

use admittance_admission::{Exception, MatchPolicy, Moment, NameGlob, Phase, suggestion_or};
use time::{Duration, OffsetDateTime, UtcOffset, format_description::well_known::Rfc3339};

use crate::{
    ChainDefinition, Location, StageDefinition, StageId, conditions,
    document::{Fields, Mistake, Node, ValueLocation, quoted, readers},
    forms::native,
    rules,
};

#[cfg(test)]
mod tests;

/// The name that stands for all stages of a chain.
const ALL_STAGES: &str = "*";

/// An `AdmissionException` as it is written in its document.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExceptionDefinition {
    /// The excepted requests, and when the exception ends. All stages that the exception names share this `Arc`.
    pub exception: Arc<Exception>,
    /// The person or team that answers for the exception.
    pub owner: String,
    /// The reason why the exception is needed.
    pub reason: String,
    /// The stages that are not called for the excepted requests. `*` stands for all stages of a chain. A name without a
    /// phase stands for the chains of this name in both phases.
    pub stages: Vec<StageId>,
    stage_locations: Vec<ValueLocation>,
    /// The location of the exception's document.
    pub location: Location,
}

pub(crate) fn read(root: &Node<'_>) -> Option<ExceptionDefinition> {
    let mut fields = root.object()?;
    fields.ignore(&["apiVersion", "kind"]);
    fields.ignore_present(&[native::STATUS]);
    let fix = "name the exception: `metadata: { name: ... }`";
    let name = |node: &Node<'_>| native::read_name(node, "name the exception");
    let name = fields.get_required("metadata", fix, name);
    let fix = "write who needs the exception, why, until when, and for which stages and requests";
    let mut spec = fields.get_required("spec", fix, Node::object)?;
    let text = readers::parse_with(|text: &str| match text.trim() {
        "" => Err("empty"),
        text => Ok(text.to_owned()),
    });
    let owner = spec.get_required("owner", "name who answers for it", &text);
    let reason = spec.get_required("reason", "write why it is needed", &text);
    let fix = "write the day on which it ends, `2027-01-31`, or the moment, `2027-01-31T12:00:00Z`";
    let until = spec.get_required("expires", fix, read_end);
    let fix = "list stages, `pods/images`, or all of a chain, `pods/*`";
    let stages = spec
        .required("stages", fix)
        .and_then(|node| node.filled_list_of(fix, read_stage));
    let mut exception = Exception::new(name.clone().unwrap_or_default(), Moment(SystemTime::UNIX_EPOCH));
    let before = spec.node().mistake_count();
    read_requests(&mut spec, &mut exception);
    let is_for_all = exception == Exception::new(exception.name.clone(), exception.until);
    if is_for_all && spec.node().mistake_count() == before {
        let fix = "write `rules`, `namespaces`, `names`, `users`, `groups` or `matchConditions`; a stage that no request \
                   is to pass has `mode: Audit`, or is disabled with `admittance disable`";
        spec.node().add_mistake("it is for every request", fix);
    }
    exception.until = until?;
    name?;
    let (stages, stage_locations) = stages?.into_iter().unzip();
    Some(ExceptionDefinition {
        exception: Arc::new(exception),
        owner: owner?,
        reason: reason?,
        stages,
        stage_locations,
        location: root.location(),
    })
}

fn read_requests(spec: &mut Fields<'_>, exception: &mut Exception) {
    let fix = "say which requests are excepted, or remove `rules` for all of the stages";
    let read_rules = |node: &Node<'_>| Some(rules::read_native(node, fix, MatchPolicy::default()));
    exception.rules = spec.get_or_default("rules", read_rules);
    for (field, globs) in [
        ("namespaces", &mut exception.namespaces),
        ("names", &mut exception.names),
        ("users", &mut exception.users),
        ("groups", &mut exception.groups),
    ] {
        let read_globs = |node: &Node<'_>| {
            let read_glob = |node: &Node<'_>| node.text().map(NameGlob::new);
            node.filled_list_of("list one, or remove the field for all", read_glob)
        };
        *globs = spec.get_or_default(field, read_globs);
    }
    exception.match_conditions = conditions::read(spec);
}

fn read_stage(node: &Node<'_>) -> Option<(StageId, ValueLocation)> {
    Some((node.parse()?, node.value_location()))
}

/// Reads when an exception ends: a time, or the last day (in UTC) on which it applies.
pub(crate) fn read_end(node: &Node<'_>) -> Option<Moment> {
    let parse_end = |text: &str| {
        let is_day = text.len() == "2027-01-31".len();
        let (text, extension) = if is_day {
            (format!("{text}T00:00:00Z"), Duration::DAY)
        } else {
            (text.to_owned(), Duration::ZERO)
        };
        let start = OffsetDateTime::parse(&text, &Rfc3339).ok()?;
        let end = start.checked_add(extension)?.checked_to_offset(UtcOffset::UTC)?;
        // An end before 1970 is refused, because such times cannot be formatted.
        (end >= OffsetDateTime::UNIX_EPOCH).then(|| Moment(end.into()))
    };
    let text = node.text()?;
    let end = parse_end(text);
    if end.is_none() {
        let message = format!("{text} is not a day or a moment", text = quoted(text));
        node.add_mistake(message, "write `2027-01-31`, or `2027-01-31T12:00:00Z`");
    }
    end
}

impl ExceptionDefinition {
    pub(crate) fn attach(&self, chains: &mut [ChainDefinition]) {
        for ChainDefinition {
            phase, name, stages, ..
        } in chains
        {
            for stage in stages {
                if self.stages.iter().any(|id| identifies(id, *phase, name, stage)) {
                    stage.spec.exceptions.push(self.exception.clone());
                }
            }
        }
    }

    /// Returns a mistake for each stage that the exception names but no chain in `chains` has.
    pub fn unknown_stage_mistakes(&self, chains: &[ChainDefinition]) -> Vec<Mistake> {
        let is_known = |id: &StageId| {
            let has_stage = |chain: &ChainDefinition| {
                let mut stages = chain.stages.iter();
                stages.any(|stage| identifies(id, chain.phase, &chain.name, stage))
            };
            chains.iter().any(has_stage)
        };
        let located_stages = self.stages.iter().zip(&self.stage_locations);
        located_stages
            .filter(|(id, _)| !is_known(id))
            .map(|(id, location)| {
                let message = match id.stage.as_str() {
                    ALL_STAGES => format!("there is no chain {} with stages", id.chain),
                    _ => format!("there is no stage {id}"),
                };
                let names = chains.iter().flat_map(|chain| addresses(chain, id));
                let fix = suggestion_or(&id.to_string(), names, "correct the name, or remove it");
                location.mistake(message, fix)
            })
            .collect()
    }

    /// Returns a warning if the exception has expired. Such an exception is valid, but was probably forgotten.
    pub fn expiry_warning(&self, now: Moment) -> Option<Mistake> {
        let Exception { name, until, .. } = &*self.exception;
        self.exception.has_expired(now).then(|| {
            let message = format!("exception {name} expired at {until}, and excepts nothing any more");
            let fix = "remove it, or agree on a new end";
            Mistake::new(&self.location, "spec.expires", message, fix)
        })
    }
}

fn addresses(chain: &ChainDefinition, id: &StageId) -> Vec<String> {
    let address = |stage: &str| {
        let id = StageId {
            phase: id.phase.and(Some(chain.phase)),
            chain: chain.name.clone(),
            stage: stage.to_owned(),
        };
        id.to_string()
    };
    match id.stage.as_str() {
        ALL_STAGES => vec![address(ALL_STAGES)],
        _ => chain.stages.iter().map(|stage| address(&stage.spec.name)).collect(),
    }
}

fn identifies(id: &StageId, phase: Phase, chain: &str, stage: &StageDefinition) -> bool {
    match id.stage.as_str() {
        ALL_STAGES => id.phase.is_none_or(|id_phase| id_phase == phase) && id.chain == chain,
        _ => id.identifies(phase, chain, &stage.spec.name),
    }
}
