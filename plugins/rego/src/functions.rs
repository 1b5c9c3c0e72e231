//! The built-in functions of OPA that regorus lacks or implements differently.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use regex::{Regex, RegexBuilder};
use regorus::unstable::BUILTINS;
use regorus::{Engine, Value};

use crate::{cidr, format, globs};

const EXTENSIONS: [(&str, u8); 17] = [
    ("all", 1),
    ("any", 1),
    ("cast_array", 1),
    ("cast_boolean", 1),
    ("cast_null", 1),
    ("cast_object", 1),
    ("cast_set", 1),
    ("cast_string", 1),
    ("net.cidr_contains_matches", 2),
    ("net.cidr_intersects", 2),
    ("net.cidr_merge", 1),
    ("net.cidr_overlap", 2),
    ("re_match", 2),
    ("regex.globs_match", 2),
    ("regex.match", 2),
    ("set_diff", 2),
    ("sprintf", 2),
];

/// The functions of OPA that policies cannot call: their names, or prefixes of their names.
const MISSING_PREFIXES: [&str; 13] = [
    "crypto.",
    "graphql.",
    "http.send",
    "io.jwt.",
    "json.match_schema",
    "json.verify_schema",
    "net.lookup_ip_addr",
    "opa.runtime",
    "providers.aws.",
    "rego.",
    "strings.render_template",
    "time.",
    "uuid.",
];

pub(crate) fn is_known(name: &str) -> bool {
    BUILTINS.contains_key(name) || name == "print" || arity(name).is_some()
}

pub(crate) fn arity(name: &str) -> Option<usize> {
    let function = EXTENSIONS.iter().find(|(added, _)| *added == name);
    function.map(|(_, arguments)| usize::from(*arguments))
}

pub(crate) fn missing_reason(name: &str) -> &'static str {
    if name == "external_data" {
        "asks a provider of Gatekeeper, and there is none here; read objects of the cluster from `data.inventory`, or \
         leave the template to Gatekeeper"
    } else if MISSING_PREFIXES.iter().any(|missing| name.starts_with(missing)) {
        "is a function of OPA that is not available here; write the rule without it"
    } else {
        "is not a function; import it, or correct its name"
    }
}

/// The maximum memory of a compiled pattern, in bytes. The default of regorus, 100 KiB, is too little for `^\w{1,63}$`.
const REGEX_SIZE: usize = 10 << 20;

type Patterns = Arc<Mutex<HashMap<String, Option<Regex>>>>;

pub(crate) fn add_extensions(engine: &mut Engine) -> Result<(), String> {
    let patterns = Patterns::default();
    for (name, arguments) in EXTENSIONS {
        let patterns = Arc::clone(&patterns);
        let call = move |values: Vec<Value>| Ok(call_function(name, &values, &patterns).unwrap_or(Value::Undefined));
        let added = engine.add_extension(name.to_owned(), arguments, Box::new(call));
        added.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Calls a built-in function. A wrong type of argument gives `None`, which makes the call undefined as in OPA.
fn call_function(name: &str, arguments: &[Value], patterns: &Patterns) -> Option<Value> {
    match (name, arguments) {
        ("all", [values]) => items(values).map(|mut items| items.all(is_true).into()),
        ("any", [values]) => items(values).map(|mut items| items.any(is_true).into()),
        ("cast_array", [values]) => Some(items(values)?.cloned().collect::<Vec<_>>().into()),
        ("cast_set", [values]) => Some(items(values)?.cloned().collect::<BTreeSet<_>>().into()),
        ("cast_boolean", [value @ Value::Bool(_)])
        | ("cast_null", [value @ Value::Null])
        | ("cast_object", [value @ Value::Object(_)])
        | ("cast_string", [value @ Value::String(_)]) => Some(value.clone()),
        ("net.cidr_contains_matches", [networks, others]) => cidr::contains_matches(networks, others),
        ("net.cidr_intersects", [Value::String(one), Value::String(other)]) => {
            cidr::intersects(one, other).map(Value::from)
        }
        ("net.cidr_merge", [networks]) => cidr::merge(networks),
        ("net.cidr_overlap", [Value::String(outer), Value::String(inner)]) => {
            cidr::contains(outer, inner).map(Value::from)
        }
        ("re_match" | "regex.match", [Value::String(pattern), Value::String(text)]) => {
            is_match(pattern, text, patterns).map(Value::from)
        }
        ("regex.globs_match", [Value::String(one), Value::String(other)]) => {
            globs::have_common_text(one, other).map(Value::from)
        }
        ("set_diff", [Value::Set(one), Value::Set(other)]) => {
            let rest = one.iter().filter(|item| !other.contains(item)).cloned();
            Some(rest.collect::<BTreeSet<_>>().into())
        }
        ("sprintf", [Value::String(text), Value::Array(arguments)]) => {
            let arguments: Vec<Value> = arguments.iter().cloned().collect();
            Some(format::sprintf(text, &arguments).into())
        }
        _ => None,
    }
}

fn is_true(value: &Value) -> bool {
    *value == Value::Bool(true)
}

fn items(values: &Value) -> Option<Box<dyn Iterator<Item = &Value> + '_>> {
    match values {
        Value::Array(items) => Some(Box::new(items.iter())),
        Value::Set(items) => Some(Box::new(items.iter())),
        _ => None,
    }
}

fn is_match(pattern: &str, text: &str, patterns: &Patterns) -> Option<bool> {
    let mut patterns = patterns.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = patterns.get(pattern) {
        return regex.as_ref().map(|regex| regex.is_match(text));
    }
    let regex = RegexBuilder::new(pattern).size_limit(REGEX_SIZE).build().ok();
    let matches = regex.as_ref().map(|regex| regex.is_match(text));
    patterns.insert(pattern.to_owned(), regex);
    matches
}
