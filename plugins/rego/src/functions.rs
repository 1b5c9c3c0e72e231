//! The built-in functions that regorus lacks, or has otherwise than OPA.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use regex::{Regex, RegexBuilder};
use regorus::{Engine, Value};

use crate::format;

/// Names and numbers of arguments. A policy may call these, its own functions, and those of regorus.
pub(crate) const ADDED: [(&str, u8); 6] = [
    ("all", 1),
    ("any", 1),
    ("cast_array", 1),
    ("re_match", 2),
    ("regex.match", 2),
    ("sprintf", 2),
];

/// The most memory of a compiled pattern. Regorus allows 100 KiB, which is less than `^\w{1,63}$` takes.
const REGEX_SIZE: usize = 10 << 20;

/// Compiled patterns. They are part of the snapshot if the policy used them while it was warmed up.
type Patterns = Arc<Mutex<HashMap<String, Option<Regex>>>>;

/// Adds the functions to an engine.
pub(crate) fn add_to(engine: &mut Engine) -> Result<(), String> {
    let patterns = Patterns::default();
    for (name, arguments) in ADDED {
        let patterns = Arc::clone(&patterns);
        let call = move |values: Vec<Value>| Ok(call(name, &values, &patterns).unwrap_or(Value::Undefined));
        let added = engine.add_extension(name.to_owned(), arguments, Box::new(call));
        added.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// As in OPA, a call with arguments of a wrong type is undefined.
fn call(name: &str, arguments: &[Value], patterns: &Patterns) -> Option<Value> {
    match (name, arguments) {
        ("all", [values]) => items(values).map(|mut items| items.all(is_true).into()),
        ("any", [values]) => items(values).map(|mut items| items.any(is_true).into()),
        ("cast_array", [Value::Array(items)]) => Some(Value::Array(items.clone())),
        ("cast_array", [Value::Set(items)]) => Some(items.iter().cloned().collect::<Vec<_>>().into()),
        ("re_match" | "regex.match", [Value::String(pattern), Value::String(text)]) => {
            is_match(pattern, text, patterns).map(Value::from)
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

/// `None` if the pattern is not valid.
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
