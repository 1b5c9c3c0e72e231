//! Reads Gatekeeper's constraints. The kind of a constraint is defined by a ConstraintTemplate.

use admittance_admission::suggestion_or;
use admittance_conditions::Action;

use super::{
    TemplateDocument,
    expansion::ExpansionPath,
    matching::{self, Match, ObjectSource},
    schema::LocatedValue,
};
use crate::{
    Location, Mistake,
    document::{Fields, Mistakes, Node, quoted, readers},
    forms::kubernetes::read_name,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Enforcement {
    Deny,
    Warn,
    Dryrun,
    /// The actions are listed in `scopedEnforcementActions`, with the places where each applies.
    Scoped,
}

pub(super) const ACTIONS: [(&str, Enforcement); 4] = [
    ("deny", Enforcement::Deny),
    ("warn", Enforcement::Warn),
    ("dryrun", Enforcement::Dryrun),
    ("scoped", Enforcement::Scoped),
];

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
    /// The Kubernetes policy that Gatekeeper generates from a CEL template. Kubernetes enforces it at admission.
    KubernetesPolicy,
    Other,
}

#[derive(Debug)]
pub(super) struct ConstraintDocument {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) source: Location,
    enforcement: Enforcement,
    scoped: Vec<(Enforcement, Vec<Point>)>,
    pub(super) matching: Match,
    pub(super) parameters: Option<LocatedValue>,
}

pub(super) fn read(root: &Node<'_>) -> Option<ConstraintDocument> {
    let mut fields = root.object()?;
    fields.ignore(&["apiVersion", "status"]);
    let kind = fields
        .optional("kind")
        .and_then(|kind| kind.text())
        .map(str::to_owned);
    let name = fields.get_required("metadata", "write `metadata: { name: ... }`", read_name);
    let spec = fields.get_optional("spec", Node::object);
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
        constraint.read_spec(spec);
    }
    constraint.name = name?;
    Some(constraint)
}

impl ConstraintDocument {
    fn read_spec(&mut self, mut spec: Fields<'_>) {
        let read = readers::one_of("enforcement action", &ACTIONS);
        self.enforcement = spec.get("enforcementAction", Enforcement::Deny, read);
        if let Some(node) = spec.optional("scopedEnforcementActions") {
            let entries = node.list().unwrap_or_default();
            self.scoped = entries.iter().filter_map(|entry| read_scoped(entry)).collect();
            if self.enforcement != Enforcement::Scoped {
                let message = "it has an effect only with `enforcementAction: scoped`";
                node.wrong(message, "write `enforcementAction: scoped`, or remove it");
            }
        } else if self.enforcement == Enforcement::Scoped {
            let fix = "list what is done where: `scopedEnforcementActions: [ { action: deny, enforcementPoints: [ { name: \
                       \"*\" } ] } ]`";
            spec.node().wrong("`scopedEnforcementActions` is missing", fix);
        }
        self.matching = spec.get_or_default("match", matching::read);
        self.parameters = spec.optional("parameters").map(|node| LocatedValue::new(&node));
    }

    /// Returns the actions on a violation by an object in a request or, with a `path`, by a generated object. `None`
    /// means that the constraint is not enforced at admission.
    pub(super) fn actions(&self, is_cel: bool, path: Option<&ExpansionPath<'_>>) -> Option<Vec<Action>> {
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
        let source = match path {
            Some(_) => ObjectSource::Generated,
            None => ObjectSource::Original,
        };
        if found.is_empty() || !self.matching.source.includes(source) {
            return None;
        }
        let found = match path.and_then(ExpansionPath::enforcement) {
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

    /// Warns if the constraint applies only to generated objects. Called if there is no ExpansionTemplate.
    pub(super) fn unexpanded_warning(&self) -> Option<Mistake> {
        (self.matching.source == ObjectSource::Generated).then(|| {
            let message = "it is for generated objects, and there is no ExpansionTemplate";
            let fix = "add the document of the template, or write `source: All`";
            Mistake::new(&self.source, "spec.match.source", message, fix)
        })
    }

    pub(super) fn check(&self, templates: &[&TemplateDocument], mistakes: &mut Mistakes) {
        if templates.iter().any(|template| template.kind == self.kind) {
            return;
        }
        let message = format!(
            "there is no ConstraintTemplate for constraints of kind {}",
            quoted(&self.kind)
        );
        let kinds = templates.iter().map(|template| &template.kind);
        let fix = suggestion_or(&self.kind, kinds, "add its document, or correct the kind");
        mistakes.push(Mistake::new(&self.source, "kind", message, fix));
    }
}

fn read_scoped(node: &Node<'_>) -> Option<(Enforcement, Vec<Point>)> {
    let mut fields = node.object()?;
    let read = |node: &Node<'_>| {
        let actions: Vec<_> = ACTIONS
            .into_iter()
            .filter(|(name, _)| *name != "scoped")
            .collect();
        node.one_of("enforcement action", &actions)
    };
    let action = fields.get_required("action", "write deny, warn or dryrun", read);
    let mut points = Vec::new();
    let fix = "list where: `enforcementPoints: [ { name: validation.gatekeeper.sh } ]`";
    for point in fields
        .get_required("enforcementPoints", fix, Node::list)
        .unwrap_or_default()
    {
        let Some(mut fields) = point.object() else {
            continue;
        };
        let read = readers::one_of("enforcement point", &POINTS);
        points.extend(fields.get_required("name", "write validation.gatekeeper.sh or `*`", read));
    }
    Some((action?, points))
}
