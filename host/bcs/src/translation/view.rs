//! Gives access to a JSON value whose types were checked. As in Go, a missing value and `null` count as zero or empty.

use serde_json::{Map, Value};

use admittance_admission::same_key;

#[derive(Clone, Copy, Debug)]
pub(super) struct CheckedView<'a>(Option<&'a Value>);

impl<'a> CheckedView<'a> {
    pub(super) fn new(value: &'a Value) -> Self {
        Self(Some(value).filter(|value| !value.is_null()))
    }

    pub(super) fn at(self, key: &str) -> Self {
        self.0.and_then(|value| value.get(key)).map_or(Self(None), Self::new)
    }

    pub(super) fn exists(self) -> bool {
        self.0.is_some()
    }

    pub(super) fn text(self) -> &'a str {
        self.0.and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn integer(self) -> i64 {
        self.0.and_then(Value::as_i64).unwrap_or_default()
    }

    pub(super) fn flag(self) -> bool {
        self.0.and_then(Value::as_bool).unwrap_or_default()
    }

    pub(super) fn elements(self) -> impl Iterator<Item = CheckedView<'a>> {
        self.0.and_then(Value::as_array).into_iter().flatten().map(Self::new)
    }

    pub(super) fn members(self) -> impl Iterator<Item = (&'a str, CheckedView<'a>)> {
        self.0
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), Self::new(value)))
    }

    pub(super) fn value(self) -> Value {
        self.0.cloned().unwrap_or_default()
    }

    pub(super) fn object(self) -> Map<String, Value> {
        self.0.and_then(Value::as_object).cloned().unwrap_or_default()
    }
}

/// Copies those members of `from` into `into` that bcs-mesos-driver does not know and drops. A member that is named in
/// `read_keys` is not copied, because it is already translated. A member that has the name of a field of the scheduler
/// is not copied either: its value is unchecked, and the scheduler could refuse it or use it.
pub(super) fn copy_other_members(
    from: CheckedView<'_>,
    read_keys: &[&str],
    into: &mut Map<String, Value>,
    optional: &[&str],
) {
    let target_keys: Vec<String> = into.keys().cloned().collect();
    let scheduler_keys = || target_keys.iter().map(String::as_str).chain(optional.iter().copied());
    for (key, value) in from.members() {
        if !read_keys.contains(&key) && !scheduler_keys().any(|scheduler_key| same_key(key, scheduler_key)) {
            into.insert(key.to_owned(), value.value());
        }
    }
}

pub(super) fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
