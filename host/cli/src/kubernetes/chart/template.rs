//! Objects as templates of Helm: values of an object are replaced by expressions, the rest is printed as it is.
//!
//! The templates use little of the language, so that they can be read: values, conditions, and parts as YAML.

use admittance_definitions::document::to_yaml;
use serde_json::Value as Json;

/// A change of one place of an object that makes it a template.
#[derive(Debug)]
pub(super) enum Edit {
    /// This expression in place of the value.
    Value(String),
    /// The YAML of this expression in place of the value; without the field if it is empty.
    With(&'static str),
    /// The object or list has the entries of this expression too.
    Extend(&'static str),
    /// The field, or the whole object, is only there under this condition.
    If(&'static str),
    /// The files of this directory in place of the value, by their names.
    Files(&'static str),
}

/// An object, and its edits by JSON Pointer.
#[derive(Debug)]
pub(super) struct Template {
    pub(super) object: Json,
    edits: Vec<(String, Edit)>,
}

/// The width of a level.
const INDENT: usize = 2;

impl Template {
    pub(super) fn new(object: Json) -> Self {
        Self {
            object,
            edits: Vec::new(),
        }
    }

    pub(super) fn edit(&mut self, pointer: impl Into<String>, edit: Edit) {
        self.edits.push((pointer.into(), edit));
    }

    /// Returns the object as one document of a template, with all edits.
    pub(super) fn text(&self) -> String {
        let mut text = "---\n".to_owned();
        self.children(&self.object, "", 0, &mut text);
        match self.condition("") {
            Some(condition) => format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"),
            None => text,
        }
    }

    fn of<'a>(&'a self, pointer: &'a str) -> impl Iterator<Item = &'a Edit> {
        let edits = self.edits.iter().filter(move |(place, _)| place == pointer);
        edits.map(|(_, edit)| edit)
    }

    fn condition(&self, pointer: &str) -> Option<&'static str> {
        self.of(pointer).find_map(|edit| match edit {
            Edit::If(condition) => Some(*condition),
            _ => None,
        })
    }

    /// The lines of the fields or entries of a value.
    fn children(&self, value: &Json, pointer: &str, indent: usize, text: &mut String) {
        let space = " ".repeat(indent);
        match value {
            Json::Object(fields) => {
                for (key, value) in fields {
                    let pointer = format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"));
                    self.field(key, value, &pointer, indent, text);
                }
            }
            Json::Array(values) => {
                for (index, value) in values.iter().enumerate() {
                    let mut entry = String::new();
                    let pointer = format!("{pointer}/{index}");
                    match is_nested(value) {
                        true => self.children(value, &pointer, indent + INDENT, &mut entry),
                        false => entry = format!("{space}  {}\n", scalar(value)),
                    }
                    // Its first line follows the dash.
                    let first = entry.get(indent + INDENT..).unwrap_or_default();
                    text.push_str(&format!("{space}- {first}"));
                }
            }
            _ => {}
        }
        for edit in self.of(pointer) {
            if let Edit::Extend(expression) = edit {
                text.push_str(&format!(
                    "{space}{{{{- with {expression} }}}}\n{space}{{{{- toYaml . | nindent {indent} }}}}\n{space}{{{{- end }}}}\n"
                ));
            }
        }
    }

    fn field(&self, key: &str, value: &Json, pointer: &str, indent: usize, text: &mut String) {
        let space = " ".repeat(indent);
        let below = indent + INDENT;
        let condition = self.condition(pointer);
        if let Some(condition) = condition {
            text.push_str(&format!("{space}{{{{- if {condition} }}}}\n"));
        }
        let key = scalar(&key.into());
        let replaced = self.of(pointer).find_map(|edit| match edit {
            Edit::Value(expression) => Some(format!("{space}{key}: {{{{ {expression} }}}}\n")),
            Edit::With(expression) => Some(format!(
                "{space}{{{{- with {expression} }}}}\n{space}{key}:\n{space}  {{{{- toYaml . | nindent {below} }}}}\n{space}{{{{- end }}}}\n"
            )),
            Edit::Files(directory) => Some(format!(
                "{space}{key}:\n{space}  {{{{- (.Files.Glob \"{directory}/*\").AsConfig | nindent {below} }}}}\n"
            )),
            Edit::Extend(_) | Edit::If(_) => None,
        });
        match replaced {
            Some(lines) => text.push_str(&lines),
            None if is_nested(value) => {
                text.push_str(&format!("{space}{key}:\n"));
                self.children(value, pointer, below, text);
            }
            None => text.push_str(&format!("{space}{key}: {}\n", scalar(value))),
        }
        if condition.is_some() {
            text.push_str(&format!("{space}{{{{- end }}}}\n"));
        }
    }
}

/// Whether a value takes lines of its own.
fn is_nested(value: &Json) -> bool {
    match value {
        Json::Object(fields) => !fields.is_empty(),
        Json::Array(values) => !values.is_empty(),
        _ => false,
    }
}

/// A value of one line, quoted as in the manifests.
fn scalar(value: &Json) -> String {
    let text = to_yaml(value);
    text.trim_start_matches("---").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn edits_are_printed_where_they_belong() {
        let object = json!({
            "kind": "A",
            "metadata": {"labels": {"a/b": "true"}, "annotations": {}},
            "spec": {"list": [{"first": 1, "more": ["z"]}, "w"], "data": {"f": "g"}, "empty": {}},
        });
        let mut template = Template::new(object);
        template.edit("", Edit::If(".Values.a"));
        template.edit("/metadata/labels", Edit::Extend(".Values.labels"));
        template.edit("/metadata/annotations", Edit::With(".Values.annotations"));
        template.edit("/spec/list/0/first", Edit::Value(".Values.first".to_owned()));
        template.edit("/spec/list/0/more", Edit::If(".Values.more"));
        template.edit("/spec/list/0/more", Edit::Extend(".Values.others"));
        template.edit("/spec/data", Edit::Files("files"));
        let expected = r#"{{- if .Values.a }}
---
kind: A
metadata:
  labels:
    a/b: "true"
    {{- with .Values.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  list:
    - first: {{ .Values.first }}
      {{- if .Values.more }}
      more:
        - z
        {{- with .Values.others }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
    - w
  data:
    {{- (.Files.Glob "files/*").AsConfig | nindent 4 }}
  empty: {}
{{- end }}
"#;
        assert_eq!(template.text(), expected);
    }
}
