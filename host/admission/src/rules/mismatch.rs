//! Explains to people why a chain or stage does not apply to a request.

use std::fmt::{self, Display};

use crate::{Chain, Matcher, Request, Rule, RulePart, Stage};

/// The reason why no rule of a chain or stage matches a request. It is about the rule that comes closest to matching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The first part of the rule that does not match; `None` if the chain or stage has no rules.
    pub part: Option<RulePart>,
    /// The word `chain` or `stage`. The message contains it, to say whether the rules belong to a chain or a stage.
    owner: &'static str,
    request: String,
    expected: String,
}

impl<S> Chain<S> {
    /// Returns the reason why the chain does not apply to this request; `None` if it applies.
    pub fn mismatch(&self, request: &Request) -> Option<Mismatch> {
        if let Some(namespace) = self.namespace.as_deref().filter(|_| !self.is_for_namespace_of(request)) {
            return Some(Mismatch {
                part: Some(RulePart::Scope),
                owner: "chain",
                request: describe_request(request),
                expected: format!("it is for resources in the namespace {namespace}"),
            });
        }
        Mismatch::find("chain", &self.rules, request)
    }
}

impl Stage {
    /// Returns the reason why no rule of the stage matches this request; `None` if one matches, or there are no rules.
    pub fn mismatch(&self, request: &Request) -> Option<Mismatch> {
        let rules = match &self.spec.expansion {
            Some(expansion) => expansion.generators(),
            None => &self.spec.rules,
        };
        let mismatch = Mismatch::find("stage", rules, request)?;
        mismatch.part.is_some().then_some(mismatch)
    }
}

impl Mismatch {
    fn find(owner: &'static str, rules: &[Rule], request: &Request) -> Option<Self> {
        let mut closest: Option<(RulePart, &Rule)> = None;
        for rule in rules {
            let part = rule.mismatch(request)?;
            if closest.is_none_or(|(furthest, _)| part >= furthest) {
                closest = Some((part, rule));
            }
        }
        Some(Self {
            part: closest.map(|(part, _)| part),
            owner,
            request: describe_request(request),
            expected: closest
                .map(|(part, rule)| describe_part(part, rule))
                .unwrap_or_default(),
        })
    }
}

impl Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            part,
            owner,
            request,
            expected,
        } = self;
        match part {
            Some(_) => write!(f, "no rule of the {owner} is for {request}: {expected}"),
            None => write!(f, "the {owner} has no rules"),
        }
    }
}

fn describe_request(request: &Request) -> String {
    let Request {
        operation,
        resource,
        subresource,
        kind,
        ..
    } = request;
    let suffix = subresource.as_ref().map(|name| format!("/{name}"));
    let suffix = suffix.unwrap_or_default();
    format!("{operation} of {resource}{suffix}, kind {}", kind.kind)
}

fn describe_part(part: RulePart, rule: &Rule) -> String {
    fn list<T: Display>(values: &Matcher<T>) -> String {
        match values {
            Matcher::Any => "*".to_owned(),
            Matcher::Only(values) => names(values),
        }
    }
    fn names<T: Display>(values: &[T]) -> String {
        let texts = values.iter().map(|value| match value.to_string() {
            text if text.is_empty() => "\"\"".to_owned(),
            text => text,
        });
        texts.collect::<Vec<_>>().join(", ")
    }
    match part {
        RulePart::Operations => format!("`operations` has {}", list(&rule.operations)),
        RulePart::GroupAndVersion => format!(
            "`apiGroups` has {}, `apiVersions` has {}",
            list(&rule.api_groups),
            list(&rule.api_versions)
        ),
        RulePart::Resources => format!("`resources` has {}", names(&rule.resources)),
        RulePart::Scope => format!("`scope` is {}", rule.scope),
        RulePart::Kinds => format!("`kinds` has {}", list(&rule.kinds)),
        RulePart::Names => format!("`resourceNames` has {}", names(&rule.names)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GroupVersionKind, Operation, ResourcePattern};

    #[test]
    fn an_explanation_of_a_mismatch_uses_the_closest_rule() {
        let kind = GroupVersionKind::from_api_version("v1", "Pod");
        let resource = kind.guess_resource();
        let request = Request::new(Operation::Create, kind, resource);
        let rule = |operation, resource: &str| Rule {
            resources: vec![ResourcePattern::parse(resource).unwrap()],
            ..Rule::for_operations([operation])
        };
        let mismatch_of =
            |rules: &[Rule]| Mismatch::find("chain", rules, &request).map(|mismatch| mismatch.to_string());
        assert_eq!(mismatch_of(&[]).as_deref(), Some("the chain has no rules"));
        assert_eq!(
            mismatch_of(&[
                rule(Operation::Update, "pods"),
                rule(Operation::Create, "nodes"),
                rule(Operation::Delete, "pods")
            ])
            .as_deref(),
            Some("no rule of the chain is for CREATE of v1/pods, kind Pod: `resources` has nodes")
        );
        assert_eq!(
            mismatch_of(&[rule(Operation::Update, "pods"), rule(Operation::Create, "pods")]),
            None
        );
    }
}
