//! Adds rules in CEL for requirements that structural schemas cannot express. API servers evaluate such rules since
//! Kubernetes 1.25. Before an API server accepts a rule, it estimates the rule's cost, so every list and string that a
//! rule reads needs a maximum length.

use admittance_admission::enumerated;
use serde_json::{Map, Value as Json, json};

type Addition = (&'static [&'static str], Keywords);

enum Keywords {
    Rules(&'static [(&'static str, &'static str)]),
    /// The maximum number of items in a list, and the maximum length of each item (0 if the items are not strings).
    Items(u64, u64),
    Length(u64),
    /// The name of a field that identifies the items of a list: no two items may have the same value in this field.
    Key(&'static str),
    /// All items of the list must be different.
    Set,
}

use Keywords::{Items, Key, Length, Rules, Set};

pub(super) const VALIDATIONS: &str = "x-kubernetes-validations";
const LIST_TYPE: &str = "x-kubernetes-list-type";

/// The lists in a chain's `spec` that select its requests.
const MATCHERS: &[&str] = &[
    "rules[].operations",
    "rules[].apiGroups",
    "rules[].apiVersions",
    "rules[].resources",
    "rules[].kinds",
];

const PLUGINS: &[&str] = &["stages[].plugin", "stages[].candidate", "stages[].group.plugins.<name>"];
const SOURCES: &[&str] = &[
    "stages[].plugin.source",
    "stages[].candidate.source",
    "stages[].group.plugins.<name>.source",
];
/// The fields of `spec` that contain label selector expressions.
const EXPRESSIONS: &[&str] = &[
    "stages[].namespaceSelector.matchExpressions",
    "stages[].objectSelector.matchExpressions",
];
const EACH_EXPRESSION: &[&str] = &[
    "stages[].namespaceSelector.matchExpressions[]",
    "stages[].objectSelector.matchExpressions[]",
];
const OWN_RULES: &[&str] = &["rules[]"];
const ALL_RULES: &[&str] = &["rules[]", "stages[].rules[]"];

const RULE_KEYWORDS: Keywords = Rules(&[
    (
        "!('*' in self.operations) || self.operations.size() == 1",
        "`*` in `operations` stands for everything and must be alone",
    ),
    (
        "!has(self.apiGroups) || !('*' in self.apiGroups) || self.apiGroups.size() == 1",
        "`*` in `apiGroups` stands for everything and must be alone",
    ),
    (
        "!has(self.apiVersions) || !('*' in self.apiVersions) || self.apiVersions.size() == 1",
        "`*` in `apiVersions` stands for everything and must be alone",
    ),
    (
        "!has(self.kinds) || !('*' in self.kinds) || self.kinds.size() == 1",
        "`*` in `kinds` stands for everything and must be alone",
    ),
    (
        "!has(self.resources) || !('*/*' in self.resources) || self.resources.size() == 1",
        "`*/*` in `resources` stands for everything and must be alone",
    ),
    (
        "!has(self.resources) || !('*' in self.resources) || self.resources.all(r, r == '*' || r.contains('/'))",
        "`*` in `resources` already covers the resources beside it",
    ),
]);

const TIMEOUT: &str = "!has(self.timeout) || !self.timeout.matches('^([0-9]+(ms|s|m|h))+$') || \
                       (duration(self.timeout) >= duration('1ms') && duration(self.timeout) <= duration('30s'))";

const CHAIN: &[Addition] = &[
    (&["stages"], Items(64, 0)),
    (&["stages"], Key("name")),
    (&["stages[].name"], Length(253)),
    (
        &[""],
        Rules(&[
            (
                "!has(self.phase) || self.phase != 'Validating' || self.stages.all(s, !has(s.reinvocationPolicy) || \
                 s.reinvocationPolicy != 'IfNeeded')",
                "a validating chain changes nothing, so no stage of it is called again: remove `reinvocationPolicy`",
            ),
            (
                "!has(self.phase) || self.phase != 'Validating' || self.stages.all(s, !has(s.cel) || \
                 !has(s.cel.mutations))",
                "a stage of a validating chain may only allow or deny: move its `mutations` to a mutating chain",
            ),
        ]),
    ),
    (
        &["stages[]"],
        Rules(&[
            (
                "!has(self.candidate) || has(self.plugin)",
                "a candidate is compared with a plugin, and the stage has none",
            ),
            (
                "!has(self.mode) || self.mode != 'Audit' || !has(self.candidate) || !has(self.candidate.rollout)",
                "a stage in mode Audit decides nothing, so there is nothing to roll out",
            ),
            (TIMEOUT, "write a `timeout` of 1ms to 30s"),
        ]),
    ),
    (
        &["stages[].candidate.rollout"],
        Rules(&[
            (
                "!has(self.steps) || (self.steps.isSorted() && (!has(self.percent) || \
                 self.steps.all(s, s > self.percent)))",
                "write steps that grow, the first one larger than `percent`",
            ),
            (
                "!has(self.pause) || !self.pause.matches('^([0-9]+(ms|s|m|h))+$') || \
                 (duration(self.pause) >= duration('10s') && duration(self.pause) <= duration('168h'))",
                "write a `pause` of 10s to 7days",
            ),
        ]),
    ),
    (&["stages[].candidate.rollout.steps"], Set),
    (&["stages[].candidate.rollout.steps"], Items(100, 0)),
    (&["stages[].candidate.rollout.pause"], Length(64)),
    (
        &["stages[].timeout", "stages[].group.plugins.<name>.timeout"],
        Length(64),
    ),
    (
        &["stages[].group.plugins.<name>"],
        Rules(&[(TIMEOUT, "write a `timeout` of 1ms to 30s")]),
    ),
    (SOURCES, Length(2048)),
    (
        PLUGINS,
        Rules(&[
            (
                "!self.source.startsWith('file:') || self.source.startsWith('file:/')",
                "the path of a module is absolute in a resource",
            ),
            (
                "!has(self.refresh) || !has(self.digest)",
                "`digest` pins the module, so there is nothing to refresh: remove one of the two",
            ),
            (
                "!has(self.refresh) || self.source.startsWith('https:') || \
                 (!self.source.startsWith('file:') && !self.source.startsWith('stock:') && \
                 !self.source.contains('@sha256:'))",
                "only a URL and a tag in a registry can be refreshed: remove `refresh`",
            ),
        ]),
    ),
    (
        &["stages[].rego"],
        Rules(&[(
            "(!has(self.file) || self.file.startsWith('/')) && \
             (!has(self.libs) || self.libs.all(lib, lib.startsWith('/')))",
            "the path of a file is absolute in a resource",
        )]),
    ),
    (&["stages[].rego.file"], Length(4096)),
    (&["stages[].rego.libs"], Items(64, 4096)),
    (
        &["stages[].webhook"],
        Rules(&[
            (
                "!has(self.versions) || self.protocol == 'AdmissionReview'",
                "only the protocol AdmissionReview has `versions`",
            ),
            (
                "!has(self.service) || (has(self.caBundle) && self.caBundle != '')",
                "a webhook with a `service` needs a `caBundle`",
            ),
            (
                "!has(self.url) || self.protocol != 'AdmissionReview' || \
                 self.url.matches('^[Hh][Tt][Tt][Pp][Ss]:')",
                "an AdmissionReview webhook must be called over https",
            ),
        ]),
    ),
    (&["stages[].webhook.url"], Length(2048)),
    (
        &["stages[].namespaceSelector"],
        Rules(&[
            (
                "has(self.operator) == has(self.values)",
                "a selector by name has `operator` and `values`",
            ),
            (
                "!has(self.operator) || (!has(self.matchLabels) && !has(self.matchExpressions))",
                "it selects by name (`operator`, `values`) and by label (`matchLabels`, `matchExpressions`): use one of \
                 the two forms",
            ),
        ]),
    ),
    (EXPRESSIONS, Items(64, 0)),
    (
        EACH_EXPRESSION,
        Rules(&[(
            "(self.operator == 'In' || self.operator == 'NotIn') == (has(self.values) && self.values.size() > 0)",
            "In and NotIn have `values`, Exists and DoesNotExist have none",
        )]),
    ),
    (&["stages[].webhook.versions"], Set),
    (&["stages[].webhook.versions"], Items(2, 0)),
    (
        &["stages[].cel"],
        Rules(&[(
            "(!has(self.validations) || self.validations.size() > 0) && \
             (!has(self.mutations) || self.mutations.size() > 0)",
            "a list of expressions has at least one",
        )]),
    ),
    (&["stages[].cel.variables", "stages[].matchConditions"], Key("name")),
    (&["stages[].cel.auditAnnotations"], Key("key")),
    (
        &["stages[].cel.mutations[]"],
        Rules(&[(
            "has(self.applyConfiguration) != (self.patchType == 'JSONPatch')",
            "a mutation has the field of its `patchType`: `applyConfiguration` or `jsonPatch`",
        )]),
    ),
    (&["rules"], Items(32, 0)),
    (&["stages[].rules"], Items(16, 0)),
    (MATCHERS, Items(64, 253)),
    (
        &[
            "stages[].rules[].operations",
            "stages[].rules[].apiGroups",
            "stages[].rules[].apiVersions",
            "stages[].rules[].resources",
            "stages[].rules[].kinds",
        ],
        Items(64, 253),
    ),
    (ALL_RULES, RULE_KEYWORDS),
];

const EXCEPTION: &[Addition] = &[
    (
        &[""],
        Rules(&[
            (
                "self.owner.trim() != '' && self.reason.trim() != ''",
                "`owner` says who answers for it, and `reason` why it is needed",
            ),
            (
                "timestamp(self.expires.size() == 10 ? self.expires + 'T00:00:00Z' : self.expires.upperAscii()) > \
                 timestamp(0)",
                "`expires` is a day, 2027-01-31, or a moment, 2027-01-31T12:00:00Z",
            ),
        ]),
    ),
    (&["owner", "reason"], Length(1024)),
    (&["expires"], Length(64)),
    (&["matchConditions"], Key("name")),
    (&["rules"], Items(32, 0)),
    (MATCHERS, Items(64, 253)),
    (OWN_RULES, RULE_KEYWORDS),
];

pub(super) fn add_chain_rules(spec: &mut Json) {
    add_keywords(spec, CHAIN);
}

pub(super) fn add_exception_rules(spec: &mut Json) {
    add_keywords(spec, EXCEPTION);
}

/// Returns the rule that an object has exactly one of these fields. If `is_exclusive` is false, the object may have
/// more than one of them, but at least one.
pub(super) fn one_field_rule(fields: &[&str], is_exclusive: bool) -> Json {
    let presence_checks: Vec<_> = fields.iter().map(|field| format!("has(self.{field})")).collect();
    let names = fields.iter().map(|field| format!("`{field}`"));
    if is_exclusive {
        let rule = format!("[{}].exists_one(is, is)", presence_checks.join(", "));
        json!({"rule": rule, "message": format!("write exactly one of {}", enumerated(names, "and"))})
    } else {
        json!({"rule": presence_checks.join(" || "), "message": format!("write {}", enumerated(names, "or"))})
    }
}

/// Finds the schema at a path such as `a.b`, `list[].c` or `map.<name>`. The empty path is the root.
fn schema_at<'s>(spec: &'s mut Json, path: &str) -> Option<&'s mut Map<String, Json>> {
    let mut schema = spec;
    for part in path.split('.').filter(|part| !part.is_empty()) {
        let name = part.trim_end_matches("[]");
        schema = if name.starts_with('<') {
            schema.get_mut("additionalProperties")?
        } else {
            schema.get_mut("properties")?.get_mut(name)?
        };
        if part.ends_with("[]") {
            schema = schema.get_mut("items")?;
        }
    }
    schema.as_object_mut()
}

fn add_keywords(spec: &mut Json, additions: &[Addition]) {
    for (paths, keywords) in additions {
        for path in *paths {
            // A test asserts that the schema contains every one of these paths. So the `continue` is never reached.
            let Some(schema) = schema_at(spec, path) else {
                continue;
            };
            match keywords {
                Rules(rules) => {
                    let rules = rules
                        .iter()
                        .map(|(rule, message)| json!({"rule": rule, "message": message}));
                    let validations = schema.entry(VALIDATIONS).or_insert_with(|| json!([]));
                    if let Some(validations) = validations.as_array_mut() {
                        validations.extend(rules);
                    }
                }
                Items(max_item_count, length) => {
                    schema.insert("maxItems".to_owned(), (*max_item_count).into());
                    let items = schema.get_mut("items").and_then(Json::as_object_mut);
                    if let Some(items) = items.filter(|_| *length > 0) {
                        items.insert("maxLength".to_owned(), (*length).into());
                    }
                }
                Length(max_length) => {
                    schema.insert("maxLength".to_owned(), (*max_length).into());
                }
                Key(field) => {
                    schema.insert(LIST_TYPE.to_owned(), "map".into());
                    schema.insert("x-kubernetes-list-map-keys".to_owned(), json!([field]));
                }
                Set => {
                    schema.insert(LIST_TYPE.to_owned(), "set".into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
