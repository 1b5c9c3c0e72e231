//! Reads the `rules` of chains, stages, webhooks and policies. In documents of Kubernetes, exactly the rules that
//! kube-apiserver accepts are valid, even odd ones, so that every document that it has stored can be loaded. Native
//! rules have the same meaning, and an additional field `kinds`.

use admittance_admission::{MatchPolicy, Matcher, Operation, ResourcePattern, Rule, RuleError};

use crate::{
    document::{Fields, Node, quoted},
    model::any_rule,
};

pub(crate) const OPERATIONS: [(&str, Option<Operation>); 5] = [
    ("CREATE", Some(Operation::Create)),
    ("UPDATE", Some(Operation::Update)),
    ("DELETE", Some(Operation::Delete)),
    ("CONNECT", Some(Operation::Connect)),
    ("*", None),
];

/// A reader of an operation in a rule, such as `CREATE`. The reader for native rules ignores case, so that `create` is
/// valid too. The reader for all other rules does not ignore case, as in Kubernetes.
type ReadOperation<'a> = fn(&Node<'a>, &str, &[(&str, Option<Operation>)]) -> Option<Option<Operation>>;

/// Reads the rules of a native chain, stage or exception. An empty list is a mistake, which is reported with the advice
/// `fix`.
pub(crate) fn read_native(node: &Node<'_>, fix: &str, match_policy: MatchPolicy) -> Vec<Rule> {
    let rules = node.filled_list(fix);
    read_all(rules, match_policy, Node::one_of_any_case, |fields, rule| {
        if let Some(groups) = fields.optional("apiGroups") {
            rule.api_groups = read_words(&groups, Node::string);
        }
        if let Some(versions) = fields.optional("apiVersions") {
            rule.api_versions = read_words(&versions, Node::text);
        }
        if !fields.has("resources") && !fields.has("kinds") {
            let fix = "list resources (`resources: [pods]`) or kinds (`kinds: [application]`)";
            fields
                .node()
                .add_mistake("the rule names neither resources nor kinds", fix);
        }
        if let Some(resources) = fields.optional("resources") {
            let parse = |text: &str| ResourcePattern::parse(text).map(Some);
            rule.resources = read_resources(&resources, Node::string, parse, find_covered_in_any_order);
        }
        if let Some(kinds) = fields.optional("kinds") {
            rule.kinds = read_words(&kinds, Node::text);
        }
    })
}

/// Reads the rules of a webhook or policy of Kubernetes. If `may_name_objects`, they may have `resourceNames`.
pub(crate) fn read_kubernetes(node: &Node<'_>, match_policy: MatchPolicy, may_name_objects: bool) -> Vec<Rule> {
    read_all(node.list(), match_policy, Node::one_of, |fields, rule| {
        let fix = "list the groups, `\"\"` for the core group, or `*` alone";
        if let Some(groups) = fields.required("apiGroups", fix) {
            rule.api_groups = read_words(&groups, Node::string);
        }
        if let Some(versions) = fields.required("apiVersions", "list v1 or others, or `*` alone") {
            rule.api_versions = read_words(&versions, Node::text);
        }
        if let Some(resources) = fields.required("resources", "list the resources, `pods`") {
            rule.resources = read_resources(
                &resources,
                Node::text,
                parse_kubernetes_resource,
                find_covered_for_kubernetes,
            );
        }
        if may_name_objects {
            rule.names = fields.get_or_default("resourceNames", read_names);
        }
    })
}

/// Reads a list of rules. `read_matchers` reads the fields that differ between native and Kubernetes rules.
fn read_all<'a>(
    nodes: Option<Vec<Node<'a>>>,
    match_policy: MatchPolicy,
    read_word: ReadOperation<'a>,
    read_matchers: impl Fn(&mut Fields<'a>, &mut Rule),
) -> Vec<Rule> {
    let mut rules = Vec::new();
    for node in nodes.unwrap_or_default() {
        let Some(mut fields) = node.object() else {
            continue;
        };
        let mut rule = Rule {
            match_policy,
            ..any_rule()
        };
        if let Some(operations) = fields.required("operations", "list CREATE, UPDATE or others") {
            rule.operations = read_operations(&operations, read_word);
        }
        read_matchers(&mut fields, &mut rule);
        rule.scope = fields.get("scope", rule.scope, Node::word);
        rules.push(rule);
    }
    rules
}

/// Reads names of objects. Each must be valid as a segment of a URL's path.
fn read_names(node: &Node<'_>) -> Option<Vec<String>> {
    let names = node.strings()?;
    for (index, name) in names.iter().enumerate() {
        if matches!(name.as_str(), "." | "..") || name.contains(['/', '%']) {
            let message = format!("{} is not the name of an object", quoted(name));
            node.add_mistake(message, "write a name without `/` and `%`");
        }
        if names.iter().take(index).any(|before| before == name) {
            let message = format!("{} is listed twice", quoted(name));
            node.add_mistake(message, "remove one of the two");
        }
    }
    Some(names)
}

fn read_operations<'a>(node: &Node<'a>, read_word: ReadOperation<'a>) -> Matcher<Operation> {
    let entries = read_entries(node);
    let mut operations = Vec::new();
    let mut all = false;
    for entry in &entries {
        match read_word(entry, "operation", &OPERATIONS) {
            Some(Some(operation)) => operations.push(operation),
            Some(None) => {
                check_wildcard(entry, "*", entries.len());
                all = true;
            }
            None => {}
        }
    }
    if all { Matcher::Any } else { Matcher::Only(operations) }
}

/// Reads a list of words. The word `*` matches all words, and must be the only one.
fn read_words<'a>(node: &Node<'a>, read: fn(&Node<'a>) -> Option<&'a str>) -> Matcher<String> {
    let entries = read_entries(node);
    let mut words = Vec::new();
    for entry in &entries {
        match read(entry) {
            Some("*") => {
                check_wildcard(entry, "*", entries.len());
                return Matcher::Any;
            }
            Some(word) => words.push(word.to_owned()),
            None => {}
        }
    }
    Matcher::Only(words)
}

/// Reads a list of resource patterns. A pattern is a mistake if `find_covered` finds that another pattern covers it.
fn read_resources<'a>(
    node: &Node<'a>,
    read: fn(&Node<'a>) -> Option<&'a str>,
    parse: impl Fn(&str) -> Result<Option<ResourcePattern>, RuleError>,
    find_covered: impl Fn(&[&str]) -> Vec<(usize, String)>,
) -> Vec<ResourcePattern> {
    let mut patterns = Vec::new();
    let (mut nodes, mut texts) = (Vec::new(), Vec::new());
    for entry in read_entries(node) {
        let Some(text) = read(&entry) else {
            continue;
        };
        match parse(text) {
            Ok(pattern) => patterns.extend(pattern),
            Err(error) => entry.add_mistake(error.to_string(), ""),
        }
        nodes.push(entry);
        texts.push(text);
    }
    let wildcard = texts.iter().position(|text| *text == "*/*");
    if let Some(entry) = wildcard.and_then(|index| nodes.get(index)) {
        check_wildcard(entry, "*/*", nodes.len());
        return patterns;
    }
    for (index, covering) in find_covered(&texts) {
        if let (Some(entry), Some(text)) = (nodes.get(index), texts.get(index)) {
            let message = format!("`{covering}` in the same list already covers `{text}`");
            entry.add_mistake(message, "keep one of the two");
        }
    }
    patterns
}

/// Returns the index of each pattern that another pattern in the list covers, and the covering pattern.
fn find_covered_in_any_order(texts: &[&str]) -> Vec<(usize, String)> {
    let covering = |text: &str| {
        let covers = |other: &str| match text.split_once('/') {
            None => text != "*" && other == "*",
            Some((resource, subresource)) => {
                other != text && (other == format!("{resource}/*") || other == format!("*/{subresource}"))
            }
        };
        texts.iter().find(|other| covers(other)).map(ToString::to_string)
    };
    let texts = texts.iter().enumerate();
    texts
        .filter_map(|(index, text)| Some((index, covering(text)?)))
        .collect()
}

/// Returns the index of each pattern that kube-apiserver rejects as covered, and the covering pattern.
fn find_covered_for_kubernetes(texts: &[&str]) -> Vec<(usize, String)> {
    let mut covered_patterns = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        if let Some((resource, subresource)) = text.split_once('/') {
            let earlier = texts.get(..index).unwrap_or_default();
            let wildcards = [format!("{resource}/*"), format!("*/{subresource}")];
            let covering = wildcards
                .into_iter()
                .filter(|pattern| earlier.contains(&pattern.as_str()));
            covered_patterns.extend(covering.map(|pattern| (index, pattern)));
        }
    }
    if let Some(last) = texts.iter().rposition(|text| !text.contains('/'))
        && texts.get(last) != Some(&"*")
        && texts.contains(&"*")
    {
        covered_patterns.push((last, "*".to_owned()));
    }
    covered_patterns
}

/// Parses a resource pattern like kube-apiserver: `pods/` means `pods`, and `/status` matches no resource (`None`).
fn parse_kubernetes_resource(text: &str) -> Result<Option<ResourcePattern>, RuleError> {
    match text.split_once('/') {
        Some(("", _)) => Ok(None),
        Some((resource, "")) => ResourcePattern::parse(resource).map(Some),
        _ => ResourcePattern::parse(text).map(Some),
    }
}

fn read_entries<'a>(node: &Node<'a>) -> Vec<Node<'a>> {
    node.filled_list("list at least one, or `*` for all")
        .unwrap_or_default()
}

fn check_wildcard(entry: &Node<'_>, wildcard: &str, count: usize) {
    if count > 1 {
        let message = format!("`{wildcard}` stands for everything and must be alone");
        entry.add_mistake(message, "remove it or the others");
    }
}
