//! What the reader of definitions requires and structural schemas cannot express: rules in CEL, which API servers check from
//! Kubernetes 1.25 on. They need bounds of what they go through, because API servers estimate their cost before they accept
//! them.

use serde_json::{Value as Json, json};

/// What is added to the schema at these places.
struct Addition {
    /// JSON Pointers into the schema of `spec`.
    places: &'static [&'static str],
    keywords: Keywords,
}

enum Keywords {
    /// Each rule, and what is wrong where it does not hold.
    Rules(&'static [(&'static str, &'static str)]),
    /// The most items, and the longest text of each; 0 for what is no text.
    Items(u64, u64),
    Length(u64),
    /// The field that items must differ in.
    Key(&'static str),
    /// Items must differ.
    Set,
}

use Keywords::{Items, Key, Length, Rules, Set};

const LIST_TYPE: &str = "x-kubernetes-list-type";

/// What a rule is matched by, as lists.
const MATCHERS: &[&str] = &[
    "/properties/rules/items/properties/operations",
    "/properties/rules/items/properties/apiGroups",
    "/properties/rules/items/properties/apiVersions",
    "/properties/rules/items/properties/resources",
    "/properties/rules/items/properties/kinds",
];

/// The plugins of a stage.
const PLUGINS: &[&str] = &[
    "/properties/stages/items/properties/plugin",
    "/properties/stages/items/properties/candidate",
    "/properties/stages/items/properties/group/properties/plugins/additionalProperties",
];
const SOURCES: &[&str] = &[
    "/properties/stages/items/properties/plugin/properties/source",
    "/properties/stages/items/properties/candidate/properties/source",
    "/properties/stages/items/properties/group/properties/plugins/additionalProperties/properties/source",
];
/// What labels are selected by.
const EXPRESSIONS: &[&str] = &[
    "/properties/stages/items/properties/namespaceSelector/properties/matchExpressions",
    "/properties/stages/items/properties/objectSelector/properties/matchExpressions",
];
const EACH_EXPRESSION: &[&str] = &[
    "/properties/stages/items/properties/namespaceSelector/properties/matchExpressions/items",
    "/properties/stages/items/properties/objectSelector/properties/matchExpressions/items",
];
/// The rules of chains and stages, or of exceptions.
const OWN_RULES: &[&str] = &["/properties/rules/items"];
const ALL_RULES: &[&str] = &[
    "/properties/rules/items",
    "/properties/stages/items/properties/rules/items",
];

const OF_RULES: Keywords = Rules(&[
    (
        "has(self.resources) || has(self.kinds)",
        "the rule names neither resources nor kinds",
    ),
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
    Addition {
        places: &["/properties/stages"],
        keywords: Items(64, 0),
    },
    Addition {
        places: &["/properties/stages"],
        keywords: Key("name"),
    },
    Addition {
        places: &["/properties/stages/items/properties/name"],
        keywords: Length(253),
    },
    Addition {
        places: &[""],
        keywords: Rules(&[
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
    },
    Addition {
        places: &["/properties/stages/items"],
        keywords: Rules(&[
            (
                "[has(self.plugin), has(self.webhook), has(self.cel), has(self.rego), has(self.group)]\
                 .exists_one(is, is)",
                "a stage has exactly one of `plugin`, `webhook`, `cel`, `rego` and `group`",
            ),
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
    },
    Addition {
        places: &["/properties/stages/items/properties/candidate/properties/rollout"],
        keywords: Rules(&[
            (
                "has(self.percent) || has(self.steps)",
                "a roll-out has a `percent` or `steps`",
            ),
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
    },
    Addition {
        places: &["/properties/stages/items/properties/candidate/properties/rollout/properties/steps"],
        keywords: Set,
    },
    Addition {
        places: &["/properties/stages/items/properties/candidate/properties/rollout/properties/steps"],
        keywords: Items(100, 0),
    },
    Addition {
        places: &["/properties/stages/items/properties/candidate/properties/rollout/properties/pause"],
        keywords: Length(64),
    },
    Addition {
        places: &[
            "/properties/stages/items/properties/timeout",
            "/properties/stages/items/properties/group/properties/plugins/additionalProperties/properties/timeout",
        ],
        keywords: Length(64),
    },
    Addition {
        places: &["/properties/stages/items/properties/group/properties/plugins/additionalProperties"],
        keywords: Rules(&[(TIMEOUT, "write a `timeout` of 1ms to 30s")]),
    },
    Addition {
        places: SOURCES,
        keywords: Length(2048),
    },
    Addition {
        places: PLUGINS,
        keywords: Rules(&[
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
    },
    Addition {
        places: &["/properties/stages/items/properties/rego"],
        keywords: Rules(&[
            (
                "has(self.text) != has(self.file)",
                "a policy in Rego has either a `text` or a `file`",
            ),
            (
                "(!has(self.file) || self.file.startsWith('/')) && \
                 (!has(self.libs) || self.libs.all(lib, lib.startsWith('/')))",
                "the path of a file is absolute in a resource",
            ),
        ]),
    },
    Addition {
        places: &["/properties/stages/items/properties/rego/properties/file"],
        keywords: Length(4096),
    },
    Addition {
        places: &["/properties/stages/items/properties/rego/properties/libs"],
        keywords: Items(64, 4096),
    },
    Addition {
        places: &["/properties/stages/items/properties/webhook"],
        keywords: Rules(&[
            (
                "has(self.url) != has(self.service)",
                "a webhook has either a `url` or a `service`",
            ),
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
    },
    Addition {
        places: &["/properties/stages/items/properties/webhook/properties/url"],
        keywords: Length(2048),
    },
    Addition {
        places: &["/properties/stages/items/properties/namespaceSelector"],
        keywords: Rules(&[
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
    },
    Addition {
        places: EXPRESSIONS,
        keywords: Items(64, 0),
    },
    Addition {
        places: EACH_EXPRESSION,
        keywords: Rules(&[(
            "(self.operator == 'In' || self.operator == 'NotIn') == (has(self.values) && self.values.size() > 0)",
            "In and NotIn have `values`, Exists and DoesNotExist have none",
        )]),
    },
    Addition {
        places: &["/properties/stages/items/properties/webhook/properties/versions"],
        keywords: Set,
    },
    Addition {
        places: &["/properties/stages/items/properties/webhook/properties/versions"],
        keywords: Items(2, 0),
    },
    Addition {
        places: &["/properties/stages/items/properties/cel"],
        keywords: Rules(&[
            (
                "!has(self.validations) || !has(self.mutations)",
                "expressions are either `validations` or `mutations`: make two stages",
            ),
            (
                "(has(self.validations) && self.validations.size() > 0) || \
                 (has(self.mutations) && self.mutations.size() > 0)",
                "`cel` has `validations` or `mutations`",
            ),
        ]),
    },
    Addition {
        places: &[
            "/properties/stages/items/properties/cel/properties/variables",
            "/properties/stages/items/properties/matchConditions",
        ],
        keywords: Key("name"),
    },
    Addition {
        places: &["/properties/stages/items/properties/cel/properties/auditAnnotations"],
        keywords: Key("key"),
    },
    Addition {
        places: &["/properties/stages/items/properties/cel/properties/mutations/items"],
        keywords: Rules(&[(
            "has(self.applyConfiguration) == (self.patchType == 'ApplyConfiguration') && \
             has(self.jsonPatch) == (self.patchType == 'JSONPatch')",
            "a mutation has the field of its `patchType`: `applyConfiguration` or `jsonPatch`",
        )]),
    },
    Addition {
        places: &["/properties/rules"],
        keywords: Items(32, 0),
    },
    Addition {
        places: &["/properties/stages/items/properties/rules"],
        keywords: Items(16, 0),
    },
    Addition {
        places: MATCHERS,
        keywords: Items(64, 253),
    },
    Addition {
        places: &[
            "/properties/stages/items/properties/rules/items/properties/operations",
            "/properties/stages/items/properties/rules/items/properties/apiGroups",
            "/properties/stages/items/properties/rules/items/properties/apiVersions",
            "/properties/stages/items/properties/rules/items/properties/resources",
            "/properties/stages/items/properties/rules/items/properties/kinds",
        ],
        keywords: Items(64, 253),
    },
    Addition {
        places: ALL_RULES,
        keywords: OF_RULES,
    },
];

const EXCEPTION: &[Addition] = &[
    Addition {
        places: &[""],
        keywords: Rules(&[
            (
                "has(self.rules) || has(self.namespaces) || has(self.names) || has(self.users) || has(self.groups) || \
                 has(self.matchConditions)",
                "it is for every request: write `rules`, `namespaces`, `names`, `users`, `groups` or \
                 `matchConditions`",
            ),
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
    },
    Addition {
        places: &["/properties/owner", "/properties/reason"],
        keywords: Length(1024),
    },
    Addition {
        places: &["/properties/expires"],
        keywords: Length(64),
    },
    Addition {
        places: &["/properties/matchConditions"],
        keywords: Key("name"),
    },
    Addition {
        places: &["/properties/rules"],
        keywords: Items(32, 0),
    },
    Addition {
        places: MATCHERS,
        keywords: Items(64, 253),
    },
    Addition {
        places: OWN_RULES,
        keywords: OF_RULES,
    },
];

/// Adds the rules of chains to the schema of their `spec`.
pub(super) fn of_chains(spec: &mut Json) {
    add(spec, CHAIN);
}

/// Adds the rules of exceptions.
pub(super) fn of_exceptions(spec: &mut Json) {
    add(spec, EXCEPTION);
}

fn add(spec: &mut Json, additions: &[Addition]) {
    for Addition { places, keywords } in additions {
        for place in *places {
            let schema = spec.pointer_mut(place).and_then(Json::as_object_mut);
            // A test finds places that do not exist.
            let Some(schema) = schema else { continue };
            match keywords {
                Rules(rules) => {
                    let rules = rules
                        .iter()
                        .map(|(rule, message)| json!({"rule": rule, "message": message}));
                    let all = schema
                        .entry("x-kubernetes-validations")
                        .or_insert_with(|| json!([]));
                    if let Some(all) = all.as_array_mut() {
                        all.extend(rules);
                    }
                }
                Items(most, length) => {
                    schema.insert("maxItems".to_owned(), (*most).into());
                    let items = schema.get_mut("items").and_then(Json::as_object_mut);
                    if let Some(items) = items.filter(|_| *length > 0) {
                        items.insert("maxLength".to_owned(), (*length).into());
                    }
                }
                Length(most) => {
                    schema.insert("maxLength".to_owned(), (*most).into());
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
