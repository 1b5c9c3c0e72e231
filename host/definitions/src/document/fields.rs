use admittance_admission::find_similar;

use super::{
    Node,
    tree::{Position, SyntaxMistake, TreeEntry},
};

/// Reads an object field by field. When the reader is dropped, it reports every field that was not read as unknown. It
/// reports nothing if no field at all was read.
///
/// A field with the value `null` counts as absent, as in Kubernetes.
#[derive(Debug)]
pub struct Fields<'a> {
    node: Node<'a>,
    entries: &'a [TreeEntry],
    ignores_case: bool,
    known_names: Vec<&'static str>,
    ignores_others: bool,
}

impl Drop for Fields<'_> {
    fn drop(&mut self) {
        if !self.known_names.is_empty() && !self.ignores_others {
            self.report_others();
        }
    }
}

impl<'a> Fields<'a> {
    pub(super) fn new(node: Node<'a>, entries: &'a [TreeEntry], any_case: bool) -> Self {
        Self {
            node,
            entries,
            ignores_case: any_case,
            known_names: Vec::new(),
            ignores_others: false,
        }
    }

    /// Accepts unknown fields instead of reporting them.
    pub fn ignoring_others(mut self) -> Self {
        self.ignores_others = true;
        self
    }

    /// Reports every field of an object that must have no fields.
    pub fn refuse_all(self) {
        self.report_others();
    }

    /// Returns the object whose fields are read.
    pub fn node(&self) -> &Node<'a> {
        &self.node
    }

    /// Returns the field `name` if it is present.
    pub fn optional(&mut self, name: &'static str) -> Option<Node<'a>> {
        self.known_names.push(name);
        let entry = self.entries.iter().find(|entry| self.is_named(entry, name))?;
        let node = self.node.field(&entry.key, &entry.value);
        (!node.is_null()).then_some(node)
    }

    /// Returns the field `name`, or reports it as missing with a `fix` such as `name the chain`.
    pub fn required(&mut self, name: &'static str, fix: &str) -> Option<Node<'a>> {
        let node = self.optional(name);
        if node.is_none() {
            let path = self.node.path_of(name);
            self.node
                .report(self.node.mistake_at(self.node.position(), path, "missing", fix));
        }
        node
    }

    /// Reads the field `name` with `read`; returns `default` if it is missing or invalid.
    pub fn get<T>(&mut self, name: &'static str, default: T, read: impl FnOnce(&Node<'a>) -> Option<T>) -> T {
        self.get_optional(name, read).unwrap_or(default)
    }

    /// Reads the field `name` with `read`; returns the type's default if it is missing or invalid.
    pub fn get_or_default<T: Default>(&mut self, name: &'static str, read: impl FnOnce(&Node<'a>) -> Option<T>) -> T {
        self.get_optional(name, read).unwrap_or_default()
    }

    /// Reads the field `name` with `read`. Returns `None` if the field is missing or invalid.
    pub fn get_optional<T>(&mut self, name: &'static str, read: impl FnOnce(&Node<'a>) -> Option<T>) -> Option<T> {
        read(&self.optional(name)?)
    }

    /// Reads the field `name` with `read`, or reports it as missing with this `fix`.
    pub fn get_required<T>(
        &mut self,
        name: &'static str,
        fix: &str,
        read: impl FnOnce(&Node<'a>) -> Option<T>,
    ) -> Option<T> {
        read(&self.required(name, fix)?)
    }

    /// Returns those of the fields `names` that are present.
    pub fn present_fields(&mut self, names: &[&'static str]) -> Vec<(&'static str, Node<'a>)> {
        let present = names.iter().filter_map(|name| Some((*name, self.optional(name)?)));
        present.collect()
    }

    /// Returns whether the field `name` is present.
    pub fn has(&self, name: &str) -> bool {
        self.entries
            .iter()
            .any(|entry| self.is_named(entry, name) && !matches!(entry.value.value, super::tree::DocumentValue::Null))
    }

    /// Returns whether the field `name` is present with the value `null`.
    pub fn is_null(&self, name: &str) -> bool {
        self.entries
            .iter()
            .any(|entry| self.is_named(entry, name) && matches!(entry.value.value, super::tree::DocumentValue::Null))
    }

    /// Accepts the fields `names` without reading their values.
    pub fn ignore(&mut self, names: &[&'static str]) {
        self.known_names.extend(names);
    }

    /// Accepts those of the fields `names` that are present, without reading their values. The missing ones stay
    /// unknown: a message about a misspelt field does not suggest them, as it would after [`ignore`](Self::ignore).
    pub fn ignore_present(&mut self, names: &[&'static str]) {
        let entries = self.entries;
        let is_there = |name: &&'static str| entries.iter().any(|entry| entry.key == *name);
        self.known_names.extend(names.iter().copied().filter(is_there));
    }

    /// Reports the field `name` as known but unsupported if it is present, with this message and fix.
    pub fn refuse(&mut self, name: &'static str, message: &str, fix: &str) {
        self.known_names.push(name);
        if let Some(entry) = self.entries.iter().find(|entry| self.is_named(entry, name)) {
            let path = self.node.path_of(&entry.key);
            self.node
                .report(self.node.mistake_at(entry.key_position, path, message, fix));
        }
    }

    fn report_others(&self) {
        let mut first_positions: Vec<(&'static str, Position)> = Vec::new();
        let absent = self.absent_names();
        for entry in self.entries {
            let path = || self.node.path_of(&entry.key);
            let Some(name) = self.known_names.iter().copied().find(|name| self.is_named(entry, name)) else {
                let fix = self.suggestion(&entry.key, &absent);
                self.node
                    .report(self.node.mistake_at(entry.key_position, path(), "unknown field", fix));
                continue;
            };
            // If case is ignored, the same field can be written twice, for example as `name` and as `Name`. The second
            // one is reported as a mistake.
            match first_positions.iter().find(|(first_name, _)| *first_name == name) {
                Some((_, position)) => {
                    let SyntaxMistake { message, fix, .. } =
                        SyntaxMistake::duplicate(entry.key_position, name, *position);
                    self.node
                        .report(self.node.mistake_at(entry.key_position, path(), message, fix));
                }
                None => first_positions.push((name, entry.key_position)),
            }
        }
    }

    fn is_named(&self, entry: &TreeEntry, name: &str) -> bool {
        if self.ignores_case {
            entry.key.eq_ignore_ascii_case(name)
        } else {
            entry.key == name
        }
    }

    fn absent_names(&self) -> Vec<&'static str> {
        let is_absent = |name: &&str| !self.entries.iter().any(|entry| self.is_named(entry, name));
        self.known_names.iter().copied().filter(is_absent).collect()
    }

    fn suggestion(&self, key: &str, absent: &[&'static str]) -> String {
        match find_similar(key, absent.iter().copied()).first() {
            Some(name) => format!("did you mean `{name}`?"),
            None => {
                let mut names = self.known_names.clone();
                names.sort_unstable();
                names.dedup();
                format!("known here: {}", names.join(", "))
            }
        }
    }
}
