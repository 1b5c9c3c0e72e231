//! `rules` of a webhook. What kube-apiserver accepts is accepted, its oddities too: documents that it
//! holds must load.

use admittance_admission::{MatchPolicy, Matcher, Operation, ResourcePattern, Rule, RuleError};

use crate::{
    document::{Mistakes, Node, quoted},
    model::any_rule,
    rules::{OPERATIONS, alone, entries, read_words},
};

/// The rules of a webhook, which are optional.
pub(crate) fn read(node: &Node<'_>, match_policy: MatchPolicy, mistakes: &mut Mistakes) -> Vec<Rule> {
    read_all(node, match_policy, false, mistakes)
}

/// The rules of a policy, which may name objects.
pub(super) fn read_named(node: &Node<'_>, match_policy: MatchPolicy, mistakes: &mut Mistakes) -> Vec<Rule> {
    read_all(node, match_policy, true, mistakes)
}

fn read_all(node: &Node<'_>, match_policy: MatchPolicy, named: bool, mistakes: &mut Mistakes) -> Vec<Rule> {
    node.list(mistakes)
        .unwrap_or_default()
        .iter()
        .filter_map(|rule| read_one(rule, match_policy, named, mistakes))
        .collect()
}

fn read_one(
    node: &Node<'_>,
    match_policy: MatchPolicy,
    named: bool,
    mistakes: &mut Mistakes,
) -> Option<Rule> {
    let mut fields = node.object(mistakes)?;
    let mut rule = Rule {
        match_policy,
        ..any_rule()
    };
    if let Some(operations) = fields.required("operations", "list CREATE, UPDATE or others", mistakes) {
        rule.operations = read_operations(&operations, mistakes);
    }
    let fix = "list the groups, `\"\"` for the core group, or `*` alone";
    if let Some(groups) = fields.required("apiGroups", fix, mistakes) {
        rule.api_groups = read_words(&groups, Node::string, mistakes);
    }
    if let Some(versions) = fields.required("apiVersions", "list v1 or others, or `*` alone", mistakes) {
        rule.api_versions = read_words(&versions, Node::text, mistakes);
    }
    if let Some(resources) = fields.required("resources", "list the resources, `pods`", mistakes) {
        rule.resources = read_resources(&resources, mistakes);
    }
    rule.scope = fields.get("scope", rule.scope, Node::word, mistakes);
    if named {
        rule.names = fields.get_or_default("resourceNames", read_names, mistakes);
    }
    fields.finish(mistakes);
    Some(rule)
}

/// The names of objects, as they are in a path.
fn read_names(node: &Node<'_>, mistakes: &mut Mistakes) -> Option<Vec<String>> {
    let names = node.strings(mistakes)?;
    for (index, name) in names.iter().enumerate() {
        if matches!(name.as_str(), "." | "..") || name.contains(['/', '%']) {
            let message = format!("{} is not the name of an object", quoted(name));
            node.wrong(message, "write a name without `/` and `%`", mistakes);
        }
        if names.iter().take(index).any(|before| before == name) {
            node.wrong(
                format!("{} is listed twice", quoted(name)),
                "remove one of the two",
                mistakes,
            );
        }
    }
    Some(names)
}

fn read_operations(node: &Node<'_>, mistakes: &mut Mistakes) -> Matcher<Operation> {
    let entries = entries(node, mistakes);
    let mut operations = Vec::new();
    let mut all = false;
    for entry in &entries {
        match entry.one_of("operation", &OPERATIONS, mistakes) {
            Some(Some(operation)) => operations.push(operation),
            Some(None) => {
                alone(entry, "*", entries.len(), mistakes);
                all = true;
            }
            None => {}
        }
    }
    if all {
        Matcher::Any
    } else {
        Matcher::Only(operations)
    }
}

fn read_resources(node: &Node<'_>, mistakes: &mut Mistakes) -> Vec<ResourcePattern> {
    let mut patterns = Vec::new();
    let mut written: Vec<(Node<'_>, &str)> = Vec::new();
    for entry in entries(node, mistakes) {
        let Some(text) = entry.text(mistakes) else {
            continue;
        };
        match pattern(text) {
            Ok(pattern) => patterns.extend(pattern),
            Err(error) => entry.wrong(error.to_string(), "", mistakes),
        }
        written.push((entry, text));
    }
    if let Some((entry, _)) = written.iter().find(|(_, text)| *text == "*/*") {
        alone(entry, "*/*", written.len(), mistakes);
        return patterns;
    }
    let covered = |(entry, text): &(Node<'_>, &str), by: &str, mistakes: &mut Mistakes| {
        let message = format!("`{by}` in the same list already covers `{text}`");
        entry.wrong(message, "keep one of the two", mistakes);
    };
    for (index, later) in written.iter().enumerate() {
        // kube-apiserver looks at the entries before this one alone.
        if let Some((resource, subresource)) = later.1.split_once('/') {
            let before = written.iter().take(index).map(|(_, text)| *text);
            for wildcard in [format!("{resource}/*"), format!("*/{subresource}")] {
                if before.clone().any(|text| text == wildcard) {
                    covered(later, &wildcard, mistakes);
                }
            }
        }
    }
    // And of the entries without a subresource, at the last one alone.
    if let Some(last) = written.iter().rfind(|(_, text)| !text.contains('/'))
        && last.1 != "*"
        && written.iter().any(|(_, text)| *text == "*")
    {
        covered(last, "*", mistakes);
    }
    patterns
}

/// Parses a pattern as kube-apiserver does: `pods/` is `pods`, and `/status` matches no resource.
fn pattern(text: &str) -> Result<Option<ResourcePattern>, RuleError> {
    match text.split_once('/') {
        Some(("", _)) => Ok(None),
        Some((resource, "")) => ResourcePattern::parse(resource).map(Some),
        _ => ResourcePattern::parse(text).map(Some),
    }
}
