use std::fmt;

use serde::Serialize;

/// A position in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Location {
    /// The name of the file, as the caller has spelled it.
    pub file: String,
    /// The line in the file, from 1; 0 if the location is the whole file.
    pub line: u32,
    /// The column in the line, counted in characters from 1; 0 if the location is the whole file.
    pub column: u32,
}

impl Location {
    /// Creates the location of a whole file.
    pub fn of_file(file: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            line: 0,
            column: 0,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            f.write_str(&self.file)
        } else {
            write!(f, "{}:{}:{}", self.file, self.line, self.column)
        }
    }
}

/// A mistake in a document: its location, what is wrong, and what to write instead.
///
/// `Display` writes one line: `chains/pods.yaml:14:24: spec.stages[0].failurePolicy: "fial" is not a valid failure
/// policy; write Fail or Ignore`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, thiserror::Error)]
pub struct Mistake {
    /// The position of the mistake.
    #[serde(flatten)]
    pub location: Location,
    /// The path of the wrong field, such as `spec.stages[0].name`; empty for the whole document.
    pub path: String,
    /// The description of the mistake.
    pub message: String,
    /// The advice on what to write instead; may be empty.
    pub fix: String,
}

impl Mistake {
    /// Creates a mistake. `path` is empty if the mistake is about the whole document; `fix` may be empty.
    pub fn new(
        location: &Location,
        path: impl Into<String>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            location: location.clone(),
            path: path.into(),
            message: message.into(),
            fix: fix.into(),
        }
    }

    pub(crate) fn of_file(file: impl Into<String>, message: impl Into<String>, fix: &str) -> Self {
        Self::new(&Location::of_file(file), "", message, fix)
    }
}

/// The location and path of a value. Mistakes about the value can be reported even after its document was dropped.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ValueLocation {
    pub(crate) location: Location,
    pub(crate) path: String,
}

impl ValueLocation {
    pub(crate) fn mistake(&self, message: impl Into<String>, fix: impl Into<String>) -> Mistake {
        Mistake::new(&self.location, &*self.path, message, fix)
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.location)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        if !self.fix.is_empty() {
            write!(f, "; {}", self.fix)?;
        }
        Ok(())
    }
}

/// Quotes a string for a message: on one line, and truncated after 60 characters.
pub fn quoted(text: &str) -> String {
    const MAX_QUOTED_LENGTH: usize = 60;
    match text.char_indices().nth(MAX_QUOTED_LENGTH) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", text.get(..end).unwrap_or_default()),
    }
}

const MAX_LISTED: usize = 100;

/// A list of mistakes, which is displayed with one mistake on each line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(transparent)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a mistake.
    pub fn push(&mut self, mistake: Mistake) {
        self.0.push(mistake);
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of mistakes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Iterates over the mistakes as found or, after [`Mistakes::into_result`], in the order of their locations.
    pub fn iter(&self) -> std::slice::Iter<'_, Mistake> {
        self.0.iter()
    }

    /// Returns `value` if the list is empty.
    ///
    /// # Errors
    ///
    /// Returns the mistakes without duplicates, sorted by location. If there are more than 100, the rest is replaced by
    /// one that states how many are left out.
    pub fn into_result<T>(mut self, value: T) -> Result<T, Self> {
        if self.is_empty() {
            return Ok(value);
        }
        self.0.sort();
        self.0.dedup();
        let all = self.0.len();
        if let Some(first_left_out) = self.0.get(MAX_LISTED) {
            let summary = Mistake {
                location: first_left_out.location.clone(),
                path: String::new(),
                message: format!("{} more mistakes from here on are not listed", all - MAX_LISTED),
                fix: "correct these first".to_owned(),
            };
            self.0.truncate(MAX_LISTED);
            self.0.push(summary);
        }
        Err(self)
    }
}

impl IntoIterator for Mistakes {
    type Item = Mistake;
    type IntoIter = std::vec::IntoIter<Mistake>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Mistakes {
    type Item = &'a Mistake;
    type IntoIter = std::slice::Iter<'a, Mistake>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Extend<Mistake> for Mistakes {
    fn extend<I: IntoIterator<Item = Mistake>>(&mut self, mistakes: I) {
        self.0.extend(mistakes);
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            mistake.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
