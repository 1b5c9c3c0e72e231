//! `rules` of a native chain and its stages. They mean the same as in Kubernetes, with `kinds` added.

use admittance_admission::{MatchPolicy, Matcher, Operation, ResourcePattern, Rule};

use crate::{
    document::{Mistakes, Node},
    model::any_rule,
};

pub(crate) const OPERATIONS: [(&str, Option<Operation>); 5] = [
    ("CREATE", Some(Operation::Create)),
    ("UPDATE", Some(Operation::Update)),
    ("DELETE", Some(Operation::Delete)),
    ("CONNECT", Some(Operation::Connect)),
    ("*", None),
];

/// The rules of a chain or stage; `fix` says what to list if there are none.
pub(crate) fn read(
    node: &Node<'_>,
    fix: &str,
    match_policy: MatchPolicy,
    mistakes: &mut Mistakes,
) -> Vec<Rule> {
    node.filled_list(fix, mistakes)
        .unwrap_or_default()
        .iter()
        .filter_map(|rule| read_one(rule, match_policy, mistakes))
        .collect()
}

fn read_one(node: &Node<'_>, match_policy: MatchPolicy, mistakes: &mut Mistakes) -> Option<Rule> {
    let mut fields = node.object(mistakes)?;
    let mut rule = Rule {
        match_policy,
        ..any_rule()
    };
    if let Some(operations) = fields.required("operations", "list CREATE, UPDATE or others", mistakes) {
        rule.operations = read_operations(&operations, mistakes);
    }
    if let Some(groups) = fields.optional("apiGroups") {
        rule.api_groups = read_words(&groups, Node::string, mistakes);
    }
    if let Some(versions) = fields.optional("apiVersions") {
        rule.api_versions = read_words(&versions, Node::text, mistakes);
    }
    if !fields.has("resources") && !fields.has("kinds") {
        let fix = "list resources (`resources: [pods]`) or kinds (`kinds: [application]`)";
        node.wrong("the rule names neither resources nor kinds", fix, mistakes);
    }
    if let Some(resources) = fields.optional("resources") {
        rule.resources = read_resources(&resources, mistakes);
    }
    if let Some(kinds) = fields.optional("kinds") {
        rule.kinds = read_words(&kinds, Node::text, mistakes);
    }
    rule.scope = fields.get("scope", rule.scope, Node::word, mistakes);
    fields.finish(mistakes);
    Some(rule)
}

fn read_operations(node: &Node<'_>, mistakes: &mut Mistakes) -> Matcher<Operation> {
    let entries = entries(node, mistakes);
    let mut operations = Vec::new();
    for entry in &entries {
        match entry.one_of_any_case("operation", &OPERATIONS, mistakes) {
            Some(Some(operation)) => operations.push(operation),
            Some(None) => {
                alone(entry, "*", entries.len(), mistakes);
                return Matcher::Any;
            }
            None => {}
        }
    }
    Matcher::Only(operations)
}

/// A list of words, or `*` alone for all of them.
pub(crate) fn read_words<'a>(
    node: &Node<'a>,
    read: fn(&Node<'a>, &mut Mistakes) -> Option<&'a str>,
    mistakes: &mut Mistakes,
) -> Matcher<String> {
    let entries = entries(node, mistakes);
    let mut words = Vec::new();
    for entry in &entries {
        match read(entry, mistakes) {
            Some("*") => {
                alone(entry, "*", entries.len(), mistakes);
                return Matcher::Any;
            }
            Some(word) => words.push(word.to_owned()),
            None => {}
        }
    }
    Matcher::Only(words)
}

/// kube-apiserver refuses entries that another entry already covers, in some orders. Here they are
/// refused in every order.
fn read_resources(node: &Node<'_>, mistakes: &mut Mistakes) -> Vec<ResourcePattern> {
    let mut patterns = Vec::new();
    let mut written: Vec<(Node<'_>, &str)> = Vec::new();
    for entry in entries(node, mistakes) {
        let Some(text) = entry.string(mistakes) else {
            continue;
        };
        match ResourcePattern::parse(text) {
            Ok(pattern) => {
                patterns.push(pattern);
                written.push((entry, text));
            }
            Err(error) => entry.wrong(error.to_string(), "", mistakes),
        }
    }
    if let Some((entry, _)) = written.iter().find(|(_, text)| *text == "*/*") {
        alone(entry, "*/*", written.len(), mistakes);
        return patterns;
    }
    for (entry, text) in &written {
        let covers = |other: &str| match text.split_once('/') {
            None => *text != "*" && other == "*",
            Some((resource, subresource)) => {
                other != *text && (other == format!("{resource}/*") || other == format!("*/{subresource}"))
            }
        };
        if let Some((_, other)) = written.iter().find(|(_, other)| covers(other)) {
            let message = format!("`{other}` in the same list already covers `{text}`");
            entry.wrong(message, "keep one of the two", mistakes);
        }
    }
    patterns
}

/// A list with at least one entry.
pub(crate) fn entries<'a>(node: &Node<'a>, mistakes: &mut Mistakes) -> Vec<Node<'a>> {
    let fix = "list at least one, or `*` for all";
    node.filled_list(fix, mistakes).unwrap_or_default()
}

/// Push a mistake if a wildcard is not the only one of `count` entries.
pub(crate) fn alone(entry: &Node<'_>, wildcard: &str, count: usize, mistakes: &mut Mistakes) {
    if count > 1 {
        let message = format!("`{wildcard}` stands for everything and must be alone");
        entry.wrong(message, "remove it or the others", mistakes);
    }
}
