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
fn strings_that_yaml_reads_as_other_types_are_quoted() {
    // (string, the YAML that is written for it)
    // Quotes are necessary if YAML 1.1 reads the bare text as another type. For example, `on` is a boolean.
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
fn written_yaml_documents_are_separated_by_markers() {
    let values = [
        json!({"data": {"a.yaml": "a\n\n", "b": [{"c": 1, "d": []}, {}, "x\ny\n"]}}),
        json!({"last": "a\n\n\n"}),
        json!({"n": [1, -2, 0.5, null, true]}),
    ];
    let texts = values.each_ref().map(to_yaml);
    let mut mistakes = Mistakes::new();
    let documents = read_text("all.yaml", &texts.concat(), &mut mistakes);
    assert!(mistakes.is_empty(), "{mistakes}");
    let parsed_values: Vec<_> = documents
        .iter()
        .map(|document| document.root_ignoring_mistakes().json())
        .collect();
    assert_eq!(parsed_values, values);
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        string_regex("[ \\t\\n:#\\-'\"|>a-c0-9.~]{0,24}").unwrap()
    ]
}

proptest! {
    #[test]
    fn written_values_are_read_back_unchanged(
        texts in prop::collection::vec(any_text(), 0..4), key in any_text(), nested in any_text()
    ) {
        let value = json!({"texts": texts, key: {"nested": [{"text": nested}]}, "end": 1});
        prop_assert_eq!(read(&to_yaml(&value)), value);
    }
}
