//! JSON values as YAML that every reader of YAML understands the same way.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value as Json;
use serde_saphyr::{DoubleQuoted, LitStr, ser_options, to_fmt_writer_with_options};

/// One document of YAML, with its `---` and a line break at its end.
pub fn to_yaml(value: &Json) -> String {
    let options = ser_options! { compact_list_indent: false, prefer_block_scalars: false };
    let mut text = "---\n".to_owned();
    if to_fmt_writer_with_options(&mut text, &Node(value), options).is_err() {
        // Only a `Write` that fails makes it fail. JSON is read as YAML too.
        text = format!("---\n{value:#}\n");
    }
    text
}

struct Node<'a>(&'a Json);

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Json::String(text) if is_block(text) => LitStr(text).serialize(serializer),
            Json::String(text) => Text(text).serialize(serializer),
            Json::Array(values) => serializer.collect_seq(values.iter().map(Node)),
            Json::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                for (key, value) in fields {
                    map.serialize_entry(&Text(key), &Node(value))?;
                }
                map.end()
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => self.0.serialize(serializer),
        }
    }
}

/// A text or a key on one line. What could be taken for something else is quoted; the serializer knows the words of YAML
/// 1.1, such as `on`.
struct Text<'a>(&'a str);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if is_word(self.0) {
            serializer.serialize_str(self.0)
        } else {
            DoubleQuoted(self.0).serialize(serializer)
        }
    }
}

/// Begins as no number and no mark does, and has no mark of YAML in it.
fn is_word(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && !text.ends_with(' ')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || " !$%&()*+-./;<=>?@^_|~".contains(c))
}

/// Lines that can stand as they are.
fn is_block(text: &str) -> bool {
    text.contains('\n')
        && !text.starts_with([' ', '\t', '\n'])
        && text.chars().all(|c| matches!(c, '\n' | '\t') || is_printable(c))
}

/// Printable in YAML 1.1, and no line break there.
fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => false,
        c => c >= '\u{a0}',
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, string::string_regex};
    use serde_json::json;

    use super::*;
    use crate::{
        Mistakes,
        document::{read_text, to_json},
    };

    fn read(text: &str) -> Json {
        to_json("test.yaml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn texts_that_yaml_could_take_for_something_else() {
        // (text, as it is written); YAML 1.1 resolves more than 1.2: bool, int, float, timestamp, merge.
        for (text, written) in [
            ("pods", "pods"),
            ("/mutate", "/mutate"),
            ("pods/status", "pods/status"),
            ("", "\"\""),
            ("*", "\"*\""),
            ("*/*", "\"*/*\""),
            ("on", "\"on\""),
            ("y", "\"y\""),
            ("N", "\"N\""),
            ("yes", "\"yes\""),
            ("true", "\"true\""),
            ("null", "\"null\""),
            ("~", "\"~\""),
            ("1", "\"1\""),
            ("1.0", "\"1.0\""),
            ("1_000", "\"1_000\""),
            ("0777", "\"0777\""),
            ("0x1f", "\"0x1f\""),
            ("1e3", "\"1e3\""),
            ("12:30", "\"12:30\""),
            ("2014-12-31", "\"2014-12-31\""),
            ("<<", "\"<<\""),
            (".inf", "\".inf\""),
            ("- a", "\"- a\""),
            ("a: b", "\"a: b\""),
            ("a #b", "\"a #b\""),
            ("a\\b\"c", "\"a\\\\b\\\"c\""),
            ("a\u{85}b\u{2028}\u{7f}", "\"a\\Nb\\L\\x7F\""),
            (" a\nb", "\" a\\nb\""),
            ("a\r\nb", "\"a\\r\\nb\""),
            ("a\nb\n", "|\n  a\n  b"),
            ("a\nb", "|-\n  a\n  b"),
            ("a\n\n  b\n\n", "|+\n  a\n  \n    b\n  "),
        ] {
            let value = json!({ "text": text });
            let document = to_yaml(&value);
            let body = document.strip_prefix("---\ntext: ").unwrap();
            assert!(body.starts_with(written), "{text:?}: {body}");
            assert_eq!(read(&document), value);
        }
    }

    #[test]
    fn documents_follow_one_another() {
        let values = [
            json!({"data": {"a.yaml": "a\n\n", "b": [{"c": 1, "d": []}, {}, "x\ny\n"]}}),
            json!({"last": "a\n\n\n"}),
            json!({"n": [1, -2, 0.5, null, true]}),
        ];
        let texts = values.each_ref().map(to_yaml);
        let mut mistakes = Mistakes::new();
        let documents = read_text("all.yaml", &texts.concat(), &mut mistakes);
        assert!(mistakes.is_empty(), "{mistakes}");
        let read: Vec<_> = documents.iter().map(|document| document.root().json()).collect();
        assert_eq!(read, values);
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof![
            any::<String>(),
            string_regex("[ \\t\\n:#\\-'\"|>a-c0-9.~]{0,24}").unwrap()
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            texts in prop::collection::vec(any_text(), 0..4), key in any_text(), nested in any_text()
        ) {
            let value = json!({"texts": texts, key: {"nested": [{"text": nested}]}, "end": 1});
            prop_assert_eq!(read(&to_yaml(&value)), value);
        }
    }
}
