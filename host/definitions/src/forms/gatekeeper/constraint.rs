//! Constraints: objects of the kinds that templates define.

use admittance_conditions::Action;

use super::{
    TemplateDocument,
    expansion::Row,
    matching::{self, Match, Source},
    schema::Located,
};
use crate::{
    Location, Mistake,
    document::{Fields, Mistakes, Node, quoted},
    forms::kubernetes::read_name,
};

/// The effect of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Enforcement {
    Deny,
    Warn,
    Dryrun,
    /// The effects in `scopedEnforcementActions`.
    Scoped,
}

/// The values of `enforcementAction`.
pub(super) const ACTIONS: [(&str, Enforcement); 4] = [
    ("deny", Enforcement::Deny),
    ("warn", Enforcement::Warn),
    ("dryrun", Enforcement::Dryrun),
    ("scoped", Enforcement::Scoped),
];

/// The points at which Gatekeeper enforces.
const POINTS: [(&str, Point); 5] = [
    ("*", Point::Admission),
    ("validation.gatekeeper.sh", Point::Admission),
    ("vap.k8s.io", Point::KubernetesPolicy),
    ("audit.gatekeeper.sh", Point::Other),
    ("gator.gatekeeper.sh", Point::Other),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Admission,
    /// A policy of Kubernetes that Gatekeeper generates of a template in CEL: admission too.
    KubernetesPolicy,
    Other,
}

/// The content of a constraint's document.
#[derive(Debug)]
pub(super) struct ConstraintDocument {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) source: Location,
    enforcement: Enforcement,
    /// The actions of `scoped`, with their points.
    scoped: Vec<(Enforcement, Vec<Point>)>,
    pub(super) matching: Match,
    pub(super) parameters: Option<Located>,
}

/// A constraint, as far as it could be read.
pub(super) fn read(root: &Node<'_>, mistakes: &mut Mistakes) -> Option<ConstraintDocument> {
    let mut fields = root.object(mistakes)?;
    fields.ignore(&["apiVersion", "status"]);
    let kind = fields
        .optional("kind")
        .and_then(|kind| kind.text(mistakes))
        .map(str::to_owned);
    let name = fields.get_required("metadata", "write `metadata: { name: ... }`", read_name, mistakes);
    let spec = fields.get_optional("spec", Node::object, mistakes);
    fields.finish(mistakes);
    let mut constraint = ConstraintDocument {
        name: String::new(),
        kind: kind?,
        source: root.location(),
        enforcement: Enforcement::Deny,
        scoped: Vec::new(),
        matching: Match::default(),
        parameters: None,
    };
    if let Some(spec) = spec {
        constraint.read_spec(spec, mistakes);
    }
    constraint.name = name?;
    Some(constraint)
}

impl ConstraintDocument {
    fn read_spec(&mut self, mut spec: Fields<'_>, mistakes: &mut Mistakes) {
        let read =
            |node: &Node<'_>, mistakes: &mut Mistakes| node.one_of("enforcement action", &ACTIONS, mistakes);
        self.enforcement = spec.get("enforcementAction", Enforcement::Deny, read, mistakes);
        if let Some(node) = spec.optional("scopedEnforcementActions") {
            let entries = node.list(mistakes).unwrap_or_default();
            self.scoped = entries
                .iter()
                .filter_map(|entry| read_scoped(entry, mistakes))
                .collect();
            if self.enforcement != Enforcement::Scoped {
                let fix = "write `enforcementAction: scoped`, or remove it";
                node.wrong(
                    "it has an effect only with `enforcementAction: scoped`",
                    fix,
                    mistakes,
                );
            }
        } else if self.enforcement == Enforcement::Scoped {
            let fix = "list what is done where: `scopedEnforcementActions: [ { action: deny, enforcementPoints: [ { name: \
                       \"*\" } ] } ]`";
            spec.node()
                .wrong("`scopedEnforcementActions` is missing", fix, mistakes);
        }
        self.matching = spec.get_or_default("match", matching::read, mistakes);
        self.parameters = spec.optional("parameters").map(|node| Located::new(&node));
        spec.finish(mistakes);
    }

    /// Returns the effects of a violation on a request: none in a dry run. `None` if the constraint does not apply at
    /// admission, or neither to the objects of requests nor to objects generated from them.
    pub(super) fn actions(&self, is_cel: bool, row: Option<&Row<'_>>) -> Option<Vec<Action>> {
        let is_here = |point: &Point| match point {
            Point::Admission => true,
            Point::KubernetesPolicy => is_cel,
            Point::Other => false,
        };
        let found: Vec<Enforcement> = match self.enforcement {
            Enforcement::Scoped => self
                .scoped
                .iter()
                .filter(|(_, points)| points.iter().any(is_here))
                .map(|(action, _)| *action)
                .collect(),
            action => vec![action],
        };
        let source = match row {
            Some(_) => Source::Generated,
            None => Source::Original,
        };
        if found.is_empty() || !self.matching.source.includes(source) {
            return None;
        }
        let found = match row.and_then(Row::enforcement) {
            Some(action) => vec![action],
            None => found,
        };
        let action = |action: &Enforcement| match action {
            Enforcement::Deny => Some(Action::Deny),
            Enforcement::Warn => Some(Action::Warn),
            Enforcement::Dryrun | Enforcement::Scoped => None,
        };
        Some(found.iter().filter_map(action).collect())
    }

    /// Warns about parts of the constraint that have no meaning where nothing is generated.
    pub(super) fn warning(&self) -> Option<Mistake> {
        (self.matching.source == Source::Generated).then(|| Mistake {
            location: self.source.clone(),
            path: "spec.match.source".to_owned(),
            message: "it is for generated objects, and there is no ExpansionTemplate".to_owned(),
            fix: "add the document of the template, or write `source: All`".to_owned(),
        })
    }

    /// Pushes a mistake if its template is not among these.
    pub(super) fn check(&self, templates: &[&TemplateDocument], mistakes: &mut Mistakes) {
        if templates.iter().any(|template| template.kind == self.kind) {
            return;
        }
        mistakes.push(Mistake {
            location: self.source.clone(),
            path: "kind".to_owned(),
            message: format!(
                "there is no ConstraintTemplate for constraints of kind {}",
                quoted(&self.kind)
            ),
            fix: "add its document, or correct the kind".to_owned(),
        });
    }
}

fn read_scoped(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<(Enforcement, Vec<Point>)> {
    let mut fields = node.object(mistakes)?;
    let read = |node: &Node<'_>, mistakes: &mut Mistakes| {
        let actions: Vec<_> = ACTIONS
            .into_iter()
            .filter(|(name, _)| *name != "scoped")
            .collect();
        node.one_of("enforcement action", &actions, mistakes)
    };
    let action = fields.get_required("action", "write deny, warn or dryrun", read, mistakes);
    let mut points = Vec::new();
    let fix = "list where: `enforcementPoints: [ { name: validation.gatekeeper.sh } ]`";
    for point in fields
        .get_required("enforcementPoints", fix, Node::list, mistakes)
        .unwrap_or_default()
    {
        let Some(mut fields) = point.object(mistakes) else {
            continue;
        };
        let read =
            |node: &Node<'_>, mistakes: &mut Mistakes| node.one_of("enforcement point", &POINTS, mistakes);
        points.extend(fields.get_required("name", "write validation.gatekeeper.sh or `*`", read, mistakes));
        fields.finish(mistakes);
    }
    fields.finish(mistakes);
    Some((action?, points))
}
