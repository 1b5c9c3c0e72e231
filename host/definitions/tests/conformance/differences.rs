//! The cases in which this program intentionally differs from kube-apiserver, each with the reason.

const PANIC: &str = "A bug of kube-apiserver: it panics. Here the expression has the value that the language gives it.";
const AUTHORIZER: &str = "A bug of kube-apiserver: audit annotations have no `authorizer` there. Here they have.";
const IDENTITY: &str = "No stage may change the name or the namespace of an object.";
const CONVERSION: &str = "Only the API server can convert an object to the version that a policy names.";
const WORDS: &str = "The refusal is the same, and the error of the library of Go is worded differently.";
const KINDS: &str = "Which kinds a cluster has, and which are in namespaces, is not known: there are no such objects.";
const ORDER: &str = "Go goes through a map in a random order.";
const OTHER_PARTY: &str = "The API server does this itself, between policies; a webhook is sent the result.";

/// The requests in `cases.jsonl` whose outcome differs from that of kube-apiserver: (name of the case and number of the
/// request, reason of the difference).
pub(crate) const REQUESTS: &[(&str, &str)] = &[
    ("m-jp-obj#0", PANIC),
    ("m-jp-rename#0", IDENTITY),
    ("m-reinv-b#0", "The other policy of the pair is not among the cases."),
    ("m-setns#0", IDENTITY),
    ("m2-ac-secret-data#0", WORDS),
    (
        "m2-jp-optfield#0",
        "The API server reads a null among texts as an empty text, also in the answer of a webhook.",
    ),
    ("m4-hpa-equiv#0", CONVERSION),
    ("v-auth-badsel#0", AUTHORIZER),
    ("v-auth-reason#0", AUTHORIZER),
    ("v-genname#0", OTHER_PARTY),
    ("v-ip#2", WORDS),
    ("v-maporder#0", ORDER),
    ("v-mp-equiv#0", CONVERSION),
    ("v-nssel-nsitself#1", OTHER_PARTY),
    ("v-prm-cr-ns#0", KINDS),
    ("v-prm-nokind#0", KINDS),
    ("v-secret#0", OTHER_PARTY),
    ("v-semver#1", WORDS),
    ("v2-regex#14", WORDS),
    ("v2-regex#30", WORDS),
    (
        "v2-warn-ctrl#0",
        "The API server drops a warning with a control character; here the character is dropped.",
    ),
    ("v4-events-equiv#0", CONVERSION),
    ("v4-int64str#0", OTHER_PARTY),
];

/// The documents in `accepts.jsonl` that are accepted only here or only by kube-apiserver, by the name of the case.
pub(crate) const DOCUMENTS: &[(&str, &str)] = &[
    (
        "V-var-dup",
        "One of two variables of a name would be ignored without a word.",
    ),
    ("V-vars-200", "A policy has at most 64 variables."),
];

/// The expressions in `cel.jsonl` that compile only here or only in kube-apiserver, or have a different value.
pub(crate) const EXPRESSIONS: &[(&str, &str)] = &[
    ("[?object.x]", PANIC),
    ("[?object]", PANIC),
    ("dyn(object).transformList(k, e, e)", ORDER),
    ("{?'a': object.x}", PANIC),
    ("{?'a': object}", PANIC),
];
