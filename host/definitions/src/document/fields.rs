use super::{
    Mistakes, Node,
    tree::{Entry, Flaw, Position},
};

/// An object that is read field by field. Ask for every field that is known, then call
/// [`Fields::finish`], which reports the others.
///
/// A field whose value is `null` counts as absent, as in Kubernetes.
#[derive(Debug)]
pub struct Fields<'a> {
    node: Node<'a>,
    entries: &'a [Entry],
    any_case: bool,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(node: Node<'a>, entries: &'a [Entry], any_case: bool) -> Self {
        Self {
            node,
            entries,
            any_case,
            known: Vec::new(),
        }
    }

    /// The object itself.
    pub fn node(&self) -> &Node<'a> {
        &self.node
    }

    /// The field of this name, if it is there.
    pub fn optional(&mut self, name: &'static str) -> Option<Node<'a>> {
        self.known.push(name);
        let entry = self.entries.iter().find(|entry| self.is(entry, name))?;
        let node = self.node.field(&entry.key, &entry.value);
        (!node.is_null()).then_some(node)
    }

    /// The required field of this name. `fix` says what to write if it is missing, such as `name the chain`.
    pub fn required(&mut self, name: &'static str, fix: &str, mistakes: &mut Mistakes) -> Option<Node<'a>> {
        let node = self.optional(name);
        if node.is_none() {
            let path = self.node.path_of(name);
            mistakes.push(self.node.mistake_at(self.node.position(), path, "missing", fix));
        }
        node
    }

    /// The field of this name, read by `read`, or `default` if it is missing or invalid.
    pub fn get<T>(
        &mut self,
        name: &'static str,
        default: T,
        read: impl FnOnce(&Node<'a>, &mut Mistakes) -> Option<T>,
        mistakes: &mut Mistakes,
    ) -> T {
        self.get_optional(name, read, mistakes).unwrap_or(default)
    }

    /// The field of this name, read by `read`, or the default of its type if it is missing or invalid.
    pub fn get_or_default<T: Default>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&Node<'a>, &mut Mistakes) -> Option<T>,
        mistakes: &mut Mistakes,
    ) -> T {
        self.get_optional(name, read, mistakes).unwrap_or_default()
    }

    /// The field of this name, read by `read`, if it is present and valid.
    pub fn get_optional<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&Node<'a>, &mut Mistakes) -> Option<T>,
        mistakes: &mut Mistakes,
    ) -> Option<T> {
        read(&self.optional(name)?, mistakes)
    }

    /// The required field of this name, read by `read`. `fix` says what to write if it is missing.
    pub fn get_required<T>(
        &mut self,
        name: &'static str,
        fix: &str,
        read: impl FnOnce(&Node<'a>, &mut Mistakes) -> Option<T>,
        mistakes: &mut Mistakes,
    ) -> Option<T> {
        read(&self.required(name, fix, mistakes)?, mistakes)
    }

    /// Returns the fields that are present, for an object that must have exactly one of them.
    pub fn present(&mut self, names: &[&'static str]) -> Vec<(&'static str, Node<'a>)> {
        let fields = names
            .iter()
            .filter_map(|name| Some((*name, self.optional(name)?)));
        fields.collect()
    }

    /// Whether the field of this name is there.
    pub fn has(&self, name: &str) -> bool {
        self.entries
            .iter()
            .any(|entry| self.is(entry, name) && !matches!(entry.value.value, super::tree::Value::Null))
    }

    /// Accepts these fields and ignores their values.
    pub fn ignore(&mut self, names: &[&'static str]) {
        self.known.extend(names);
    }

    /// Accepts these fields too, and suggests none of them in place of an unknown one.
    pub fn ignore_present(&mut self, names: &[&'static str]) {
        let entries = self.entries;
        let is_there = |name: &&'static str| entries.iter().any(|entry| entry.key == *name);
        self.known.extend(names.iter().copied().filter(is_there));
    }

    /// This field is known and cannot be used; `why` is the sentence that says so.
    pub fn refuse(&mut self, name: &'static str, why: &str, fix: &str, mistakes: &mut Mistakes) {
        self.known.push(name);
        if let Some(entry) = self.entries.iter().find(|entry| self.is(entry, name)) {
            let path = self.node.path_of(&entry.key);
            mistakes.push(self.node.mistake_at(entry.key_position, path, why, fix));
        }
    }

    /// Report the fields that are not known, with the name that was perhaps meant.
    pub fn finish(self, mistakes: &mut Mistakes) {
        let mut first: Vec<(&'static str, Position)> = Vec::new();
        let free = self.free();
        for entry in self.entries {
            let path = || self.node.path_of(&entry.key);
            let Some(name) = self.known.iter().copied().find(|name| self.is(entry, name)) else {
                let fix = self.suggestion(&entry.key, &free);
                mistakes.push(
                    self.node
                        .mistake_at(entry.key_position, path(), "unknown field", fix),
                );
                continue;
            };
            // Only where case does not matter can there be two.
            match first.iter().find(|(seen, _)| *seen == name) {
                Some((_, position)) => {
                    let Flaw { message, fix, .. } = Flaw::duplicate(entry.key_position, name, *position);
                    mistakes.push(self.node.mistake_at(entry.key_position, path(), message, fix));
                }
                None => first.push((name, entry.key_position)),
            }
        }
    }

    fn is(&self, entry: &Entry, name: &str) -> bool {
        if self.any_case {
            entry.key.eq_ignore_ascii_case(name)
        } else {
            entry.key == name
        }
    }

    /// The fields that could be here and are not.
    fn free(&self) -> Vec<&'static str> {
        let is_there = |name: &&str| self.entries.iter().any(|entry| self.is(entry, name));
        self.known
            .iter()
            .copied()
            .filter(|name| !is_there(name))
            .collect()
    }

    fn suggestion(&self, key: &str, free: &[&'static str]) -> String {
        match closest(key, free.iter().copied()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => {
                let mut known = self.known.clone();
                known.sort_unstable();
                known.dedup();
                format!("known here: {}", known.join(", "))
            }
        }
    }
}

/// The candidate that a text was perhaps meant to be: case aside, up to two or three slips away.
pub(super) fn closest<'n>(text: &str, candidates: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let text = text.to_lowercase();
    let slips = match text.chars().count() {
        0..=2 => 0,
        3..=5 => 1,
        6..=9 => 2,
        _ => 3,
    };
    candidates
        .map(|name| (strsim::osa_distance(&text, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= slips)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}
