//! Exceptions: `AdmissionException`.

use std::{sync::Arc, time::SystemTime};

use admittance_admission::{Exception, Glob, MatchPolicy, Moment};
use time::{Duration, OffsetDateTime, UtcOffset, format_description::well_known::Rfc3339};

use crate::{
    ChainDefinition, Location, StageDefinition, StageId, conditions,
    document::{Fields, Mistake, Mistakes, Node, quoted, readers},
    forms::native,
    rules,
};

#[cfg(test)]
mod tests;

/// The name that stands for all stages of a chain.
const ALL: &str = "*";

/// An exception as a document defines it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExceptionDefinition {
    /// The requests, and until when they are excepted. The stages have the same one.
    pub exception: Arc<Exception>,
    /// The person or team that answers for the exception.
    pub owner: String,
    /// The reason for the exception.
    pub reason: String,
    /// The stages that are not called. `*` stands for all stages of a chain; a name without a phase stands for the
    /// chains of both phases.
    pub stages: Vec<StageId>,
    /// The places of these names in the document.
    stages_at: Vec<(Location, String)>,
    /// The beginning of the document.
    pub source: Location,
}

/// An exception, as far as it could be read; missing parts were reported.
pub(crate) fn read(root: &Node<'_>, mistakes: &mut Mistakes) -> Option<ExceptionDefinition> {
    let mut fields = root.object(mistakes)?;
    fields.ignore(&["apiVersion", "kind"]);
    fields.ignore_present(&[native::STATUS]);
    let fix = "name the exception: `metadata: { name: ... }`";
    let name =
        |node: &Node<'_>, mistakes: &mut Mistakes| native::read_name(node, "name the exception", mistakes);
    let name = fields.get_required("metadata", fix, name, mistakes);
    let fix = "write who needs the exception, why, until when, and for which stages and requests";
    let spec = fields.get_required("spec", fix, Node::object, mistakes);
    fields.finish(mistakes);
    let mut spec = spec?;
    let text = readers::parse_with(|text: &str| match text.trim() {
        "" => Err("empty"),
        text => Ok(text.to_owned()),
    });
    let owner = spec.get_required("owner", "name who answers for it", &text, mistakes);
    let reason = spec.get_required("reason", "write why it is needed", &text, mistakes);
    let fix = "write the day on which it ends, `2027-01-31`, or the moment, `2027-01-31T12:00:00Z`";
    let until = spec.get_required("expires", fix, read_end, mistakes);
    let fix = "list stages, `pods/images`, or all of a chain, `pods/*`";
    let stages = spec.required("stages", fix, mistakes);
    let stages = stages.and_then(|node| node.filled_list_of(fix, read_stage, mistakes));
    let mut exception = Exception::new(name.clone().unwrap_or_default(), Moment(SystemTime::UNIX_EPOCH));
    let before = mistakes.len();
    read_requests(&mut spec, &mut exception, mistakes);
    let is_for_all = exception == Exception::new(exception.name.clone(), exception.until);
    if is_for_all && mistakes.len() == before {
        let fix = "write `rules`, `namespaces`, `names`, `users`, `groups` or `matchConditions`; a stage that no request \
                   is to pass has `mode: Audit`, or is disabled with `admittance disable`";
        spec.node().wrong("it is for every request", fix, mistakes);
    }
    spec.finish(mistakes);
    exception.until = until?;
    name?;
    let (stages, stages_at) = stages?.into_iter().unzip();
    Some(ExceptionDefinition {
        exception: Arc::new(exception),
        owner: owner?,
        reason: reason?,
        stages,
        stages_at,
        source: root.location(),
    })
}

fn read_requests(spec: &mut Fields<'_>, exception: &mut Exception, mistakes: &mut Mistakes) {
    let fix = "say which requests are excepted, or remove `rules` for all of the stages";
    let read = |node: &Node<'_>, mistakes: &mut Mistakes| {
        Some(rules::read_native(node, fix, MatchPolicy::default(), mistakes))
    };
    exception.rules = spec.get_or_default("rules", read, mistakes);
    for (field, globs) in [
        ("namespaces", &mut exception.namespaces),
        ("names", &mut exception.names),
        ("users", &mut exception.users),
        ("groups", &mut exception.groups),
    ] {
        let read = |node: &Node<'_>, mistakes: &mut Mistakes| {
            let read = |node: &Node<'_>, mistakes: &mut Mistakes| node.text(mistakes).map(Glob::new);
            node.filled_list_of("list one, or remove the field for all", read, mistakes)
        };
        *globs = spec.get_or_default(field, read, mistakes);
    }
    exception.match_conditions = conditions::read(spec, mistakes);
}

fn read_stage(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<(StageId, (Location, String))> {
    let id = node.parse(mistakes)?;
    Some((id, (node.location(), node.path().to_owned())))
}

/// A moment, or a day, which is to its end in UTC.
fn read_end(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Moment> {
    let read = |text: &str| {
        let is_day = text.len() == "2027-01-31".len();
        let (text, more) = match is_day {
            true => (format!("{text}T00:00:00Z"), Duration::DAY),
            false => (text.to_owned(), Duration::ZERO),
        };
        let end = OffsetDateTime::parse(&text, &Rfc3339).ok()?;
        let end = end.checked_add(more)?.checked_to_offset(UtcOffset::UTC)?;
        // Years before have no form as a text.
        (end >= OffsetDateTime::UNIX_EPOCH).then(|| Moment(end.into()))
    };
    let text = node.text(mistakes)?;
    let end = read(text);
    if end.is_none() {
        let message = format!("{text} is not a day or a moment", text = quoted(text));
        node.wrong(message, "write `2027-01-31`, or `2027-01-31T12:00:00Z`", mistakes);
    }
    end
}

impl ExceptionDefinition {
    /// Gives the exception to the stages that it names.
    pub(crate) fn attach(&self, chains: &mut [ChainDefinition]) {
        for chain in chains {
            let is_meant: Vec<bool> = chain
                .stages
                .iter()
                .map(|stage| self.stages.iter().any(|id| names(id, chain, stage)))
                .collect();
            for (stage, is_meant) in chain.stages.iter_mut().zip(is_meant) {
                if is_meant {
                    stage.spec.exceptions.push(self.exception.clone());
                }
            }
        }
    }

    /// A mistake for each stage that it names and that is not among these.
    pub fn unknown(&self, chains: &[ChainDefinition]) -> Vec<Mistake> {
        let is_unknown = |id: &StageId| {
            let mut stages = chains
                .iter()
                .flat_map(|chain| chain.stages.iter().map(move |stage| (chain, stage)));
            !stages.any(|(chain, stage)| names(id, chain, stage))
        };
        let named = self.stages.iter().zip(&self.stages_at);
        named
            .filter(|(id, _)| is_unknown(id))
            .map(|(id, (location, path))| Mistake {
                location: location.clone(),
                path: path.clone(),
                message: match id.stage.as_str() {
                    ALL => format!("there is no chain {} with stages", id.chain),
                    _ => format!("there is no stage {id}"),
                },
                fix: "correct the name, or remove it".to_owned(),
            })
            .collect()
    }

    /// Warns about an exception that has expired: it is valid, and probably a mistake.
    pub fn warning(&self, now: Moment) -> Option<Mistake> {
        let Exception { name, until, .. } = &*self.exception;
        self.exception.has_expired(now).then(|| Mistake {
            location: self.source.clone(),
            path: "spec.expires".to_owned(),
            message: format!("exception {name} expired at {until}, and excepts nothing any more"),
            fix: "remove it, or agree on a new end".to_owned(),
        })
    }
}

/// Returns whether the name matches this stage.
fn names(id: &StageId, chain: &ChainDefinition, stage: &StageDefinition) -> bool {
    match id.stage.as_str() {
        ALL => id.phase.is_none_or(|phase| phase == chain.phase) && id.chain == chain.name,
        _ => id.is(chain.phase, &chain.name, &stage.spec.name),
    }
}
