mod kubectl;

use std::{num::NonZeroU8, time::Duration};

use serde_json::json;

use super::*;

fn mistakes_in(name: &str, text: &str) -> String {
    let mut mistakes = Mistakes::new();
    read_text(name, text, &mut mistakes);
    mistakes.to_string()
}

/// Parses `text`, reads the first document with `look`, and returns the reported mistakes, one line each.
fn mistakes_while_reading(text: &str, look: impl FnOnce(&Node<'_>)) -> String {
    let mut mistakes = Mistakes::new();
    let documents = read_text("f", text, &mut mistakes);
    look(&documents[0].root(&mut mistakes));
    mistakes
        .into_result(())
        .map_or_else(|mistakes| mistakes.to_string(), |()| String::new())
}

#[test]
fn json_and_yaml_yield_the_same_values() {
    let table = [
        ("a byte order mark", "f.yaml", "\u{feff}a: 1", json!({"a": 1})),
        (
            "windows line ends",
            "f.yaml",
            "a: 1\r\nb: x\r\n",
            json!({"a": 1, "b": "x"}),
        ),
        (
            "json with tabs",
            "f.json",
            "{\n\t\"a\": [\n\t\t1\n\t]\n}",
            json!({"a": [1]}),
        ),
        (
            "json with tabs in a yaml file",
            "f.yaml",
            "{\n\t\"a\": \"\\ud83d\\ude00\\/\"\n}",
            json!({"a": "😀/"}),
        ),
        ("yaml that begins like json", "f.yaml", "{a: 1}", json!({"a": 1})),
        ("order is kept", "f.json", r#"{"b":1,"a":2}"#, json!({"b": 1, "a": 2})),
    ];
    for (case, name, text, expected) in table {
        assert_eq!(to_json(name, text).unwrap().to_string(), expected.to_string(), "{case}");
    }
}

#[test]
fn a_file_is_split_into_documents() {
    // (text, its documents as JSON)
    let table = [
        ("", ""),
        ("# nothing\n", ""),
        ("---\n---\n", ""),
        ("a: 1\n---\nb: 2\n---\n---\nc: 3\n...\n", r#"{"a":1} {"b":2} {"c":3}"#),
    ];
    for (text, expected) in table {
        let mut mistakes = Mistakes::new();
        let documents = read_text("f.yaml", text, &mut mistakes);
        assert_eq!(mistakes.to_string(), "");
        let json_texts: Vec<_> = documents
            .iter()
            .map(|document| document.root_ignoring_mistakes().json().to_string())
            .collect();
        assert_eq!(json_texts.join(" "), expected, "{text:?}");
    }
    let lines = |text| to_json("f.yaml", text).unwrap_err().to_string();
    assert_eq!(lines(" "), "f.yaml: there is no document in it");
    assert_eq!(
        lines("a: 1\n---\nb: 2"),
        "f.yaml:3:1: a second document begins here, and only one is read; keep one of them"
    );
}

#[test]
fn a_text_with_a_syntax_error_is_reported_with_its_position() {
    let deep_json = format!("{}1{}", "[".repeat(70), "]".repeat(70));
    let deep_yaml = "- ".repeat(70);
    let table = [
        (
            "f.yaml",
            "a: 1\nb: 2\na: 3\n",
            "f.yaml:3:1: the field `a` is written a second time; the first is on line 1; keep one of the two",
        ),
        (
            "f.json",
            "{\"a\": 1,\n \"\\u0061\": 2}",
            "f.json:2:2: the field `a` is written a second time; the first is on line 1; keep one of the two",
        ),
        (
            "f.yaml",
            &deep_yaml,
            "f.yaml:1:129: the document is nested deeper than 64 levels; write it flatter",
        ),
        (
            "f.json",
            &deep_json,
            "f.json:1:66: the document is nested deeper than 64 levels; write it flatter",
        ),
        (
            "f.yaml",
            "a: [1\n",
            "f.yaml:1:4: this is not YAML: unclosed bracket '['; close the bracket",
        ),
        (
            "f.yaml",
            "a:\n\t- b\n",
            "f.yaml:2:2: this is not YAML: tabs disallowed within this context (block indentation); write spaces in place of the tab",
        ),
        (
            "f.yaml",
            "a: [1, *one]",
            "f.yaml:1:8: the alias `*one` has no anchor before it; write `&name` before the value that it repeats, or correct the name",
        ),
        (
            "f.yaml",
            "a: \"\\d\"",
            "f.yaml:1:4: this is not YAML: while parsing a quoted scalar, found unknown escape character; write a backslash in double quotes as `\\\\`, or put the text in single quotes",
        ),
        (
            "f.yaml",
            "a: 'b\n",
            "f.yaml:1:4: this is not YAML: unclosed quote; close the text with the quote that opens it",
        ),
        (
            "f.json",
            "{\n\t\"a\": 1,\n}",
            "f.json:3:1: this is not JSON: key must be a string",
        ),
        ("f.json", "{} {}", "f.json:1:4: this is not JSON: trailing characters"),
        (
            "f.yaml",
            "? [a]\n: b",
            "f.yaml:1:3: the name of a field must be a text; write `name: value`",
        ),
        (
            "f.yaml",
            "~: b",
            "f.yaml:1:1: the name of a field must be a text; write `name: value`",
        ),
        (
            "f.yaml",
            "a: !!int x",
            "f.yaml:1:10: `x` does not fit its tag `!!int`; remove the tag",
        ),
        (
            "f.yaml",
            "a: .nan",
            "f.yaml:1:4: `.nan` is a number that JSON cannot hold; put it in quotes if it is a text",
        ),
    ];
    for (name, text, expected) in table {
        assert_eq!(mistakes_in(name, text), expected, "{text:?}");
    }
}

#[test]
fn documents_before_a_syntax_error_are_read() {
    let mut mistakes = Mistakes::new();
    let documents = read_text("f.yaml", "a: 1\n---\nb: [\n", &mut mistakes);
    assert_eq!(documents.len(), 1);
    assert_eq!(mistakes.len(), 1);
}

#[test]
fn files_that_cannot_be_read_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("latin1.yaml"), b"a: 1\nb: \xe9\n").unwrap();
    std::fs::write(path("large.yaml"), vec![b'#'; LARGEST_FILE + 1]).unwrap();
    std::fs::write(path("relative.yaml"), "key: server.key").unwrap();
    for (name, expected) in [
        (
            "latin1.yaml",
            ":2:4: the file is not UTF-8 from here on; save it as UTF-8",
        ),
        ("large.yaml", ": the file has more than 4194304 bytes; split it"),
        (
            "absent.yaml",
            ": the file cannot be read: No such file or directory (os error 2)",
        ),
        (".", ": the file cannot be read: it is a directory, not a regular file"),
    ] {
        let mut mistakes = Mistakes::new();
        assert!(read_one(&path(name), &mut mistakes).is_none());
        let expected = format!("{}{expected}", path(name).display());
        assert_eq!(mistakes.to_string(), expected);
    }
    let mut mistakes = Mistakes::new();
    let document = read_one(&path("relative.yaml"), &mut mistakes).unwrap();
    let mut fields = document.root_ignoring_mistakes().object().unwrap();
    let key = fields.optional("key").unwrap().file_path();
    assert_eq!(key, Some(path("server.key")));
}

#[test]
fn unknown_missing_and_refused_fields_are_reported() {
    let look = |node: &Node<'_>| {
        let mut fields = node.object().unwrap();
        fields.required("name", "name the chain");
        fields.optional("failurePolicy");
        fields.ignore(&["labels"]);
        fields.refuse("matchConditions", "not supported yet", "remove it");
        drop(fields);
    };
    let table = [
        ("name: a\nlabels: [1]\n", ""),
        ("failurePolicy: x\n", "f:1:1: name: missing; name the chain"),
        ("name: ~\n", "f:1:1: name: missing; name the chain"),
        (
            "name: a\nfailurepolicy: x\n",
            "f:2:1: failurepolicy: unknown field; did you mean `failurePolicy`?",
        ),
        (
            "name: a\nfailurPolcy: x\n",
            "f:2:1: failurPolcy: unknown field; did you mean `failurePolicy`?",
        ),
        (
            "name: a\n\"some thing\": x\n",
            "f:2:1: [\"some thing\"]: unknown field; known here: failurePolicy, labels, matchConditions, name",
        ),
        (
            "name: a\nmatchConditions: []\n",
            "f:2:1: matchConditions: not supported yet; remove it",
        ),
        (
            "name: a\nx: 1\n---\n",
            "f:2:1: x: unknown field; known here: failurePolicy, labels, matchConditions, name",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(mistakes_while_reading(text, look), expected, "{text:?}");
    }
    let any_case = mistakes_while_reading("NAME: a\nname: b\nother: c", |node| {
        let mut fields = node.object_of_any_case().unwrap();
        assert_eq!(fields.optional("name").unwrap().string(), Some("a"));
        drop(fields);
    });
    assert_eq!(
        any_case,
        "f:2:1: name: the field `name` is written a second time; the first is on line 1; keep one of the two\n\
         f:3:1: other: unknown field; known here: name"
    );
}

#[test]
fn each_reader_returns_a_value_or_one_mistake() {
    type Look = fn(&Node<'_>) -> String;
    let string: Look = |node| format!("{:?}", node.text());
    let boolean: Look = |node| format!("{:?}", node.boolean());
    let port: Look = |node| format!("{:?}", node.integer(1..=65535_u16));
    let duration: Look = |node| {
        let range = Duration::from_millis(1)..=Duration::from_secs(30);
        format!("{:?}", node.duration(range))
    };
    let size: Look = |node| format!("{:?}", node.size(1 << 20..=1 << 30));
    let policy: Look = |node| format!("{:?}", node.one_of("failure policy", &[("Fail", 1), ("Ignore", 2)]));
    let operation: Look = |node| {
        format!(
            "{:?}",
            node.one_of_any_case("operation", &[("CREATE", 1), ("UPDATE", 2)])
        )
    };
    let parsed: Look = |node| format!("{:?}", node.parse::<NonZeroU8>());
    let strings: Look = |node| format!("{:?}", node.strings());
    let map: Look = |node| format!("{:?}", node.string_map());
    let object: Look = |node| format!("{}", node.object().is_some());

    // (function that reads the value, text of the value, result of the function or mistake)
    let table: [(Look, &str, &str); 51] = [
        (string, "a", "Some(\"a\")"),
        (
            string,
            "yes",
            "true or false where a string is expected; put it in quotes: \"yes\"",
        ),
        (string, "''", "empty; write a value or remove the field"),
        (
            string,
            "1.10",
            "a number where a string is expected; put it in quotes: \"1.10\"",
        ),
        (
            string,
            "1_0",
            "a number where a string is expected; put it in quotes: \"1_0\"",
        ),
        (
            string,
            "True",
            "true or false where a string is expected; put it in quotes: \"True\"",
        ),
        (string, "[a]", "a list where a string is expected"),
        (boolean, "true", "Some(true)"),
        (boolean, "yes", "Some(true)"),
        (boolean, "'yes'", "a string where true or false is expected"),
        (port, "443", "Some(443)"),
        (port, "0443", "Some(291)"),
        (port, "0", "0 is out of range; write 1 to 65535"),
        (port, "65536", "65536 is out of range; write 1 to 65535"),
        (port, "-1", "-1 is out of range; write 1 to 65535"),
        (
            port,
            "99999999999999999999",
            "99999999999999999999 is not a whole number; write 1 to 65535",
        ),
        (port, "1.5", "1.5 is not a whole number; write 1 to 65535"),
        (
            port,
            "'443'",
            "a string where a whole number is expected; write 1 to 65535",
        ),
        (duration, "250ms", "Some(250ms)"),
        (duration, "30s", "Some(30s)"),
        (duration, "1s 500ms", "Some(1.5s)"),
        (duration, "31s", "31s is out of range; write 1ms to 30s"),
        (duration, "0s", "0s is out of range; write 1ms to 30s"),
        (duration, "5", "5 has no unit; write 5ms or 5s"),
        (
            duration,
            "'5'",
            "\"5\" is not a valid duration; write a number and its unit, `250ms` or `1s`",
        ),
        (
            duration,
            "fast",
            "\"fast\" is not a valid duration; write a number and its unit, `250ms` or `1s`",
        ),
        (
            duration,
            "true",
            "true or false where a duration is expected; write one with its unit, `250ms` or `1s`",
        ),
        (size, "64MiB", "Some(67108864)"),
        (size, "64 MB", "Some(64000000)"),
        (size, "1048576", "Some(1048576)"),
        (size, "0x100000", "Some(1048576)"),
        (size, "1GiB", "Some(1073741824)"),
        (size, "1KiB", "1KiB is out of range; write 1MiB to 1GiB"),
        (
            size,
            "much",
            "\"much\" is not a valid size; write a number and its unit, `64MiB`",
        ),
        (
            size,
            "-1",
            "\"-1\" is not a valid size; write a number and its unit, `64MiB`",
        ),
        (policy, "Fail", "Some(1)"),
        (
            policy,
            "fail",
            "\"fail\" is not a valid failure policy; case matters: write Fail",
        ),
        (
            policy,
            "fial",
            "\"fial\" is not a valid failure policy; write Fail or Ignore",
        ),
        (
            policy,
            "3",
            "a number where a failure policy is expected; write Fail or Ignore",
        ),
        (operation, "Create", "Some(1)"),
        (
            operation,
            "UPSERT",
            "\"UPSERT\" is not a valid operation; write CREATE or UPDATE",
        ),
        (parsed, "'7'", "Some(7)"),
        (parsed, "'0'", "number would be zero for non-zero type"),
        (strings, "[a, b]", "Some([\"a\", \"b\"])"),
        (strings, "a", "a string where a list is expected; write [a]"),
        (
            strings,
            "[a, 1]",
            "[1]: a number where a string is expected; put it in quotes: \"1\"",
        ),
        (map, "{a: b}", "Some({\"a\": \"b\"})"),
        (
            map,
            "{a.b/c: true}",
            "[\"a.b/c\"]: true or false where a string is expected; put it in quotes: \"true\"",
        ),
        (map, "[]", "a list where an object is expected; write `key: value`"),
        (object, "{}", "true"),
        (
            object,
            "x",
            "a string where an object is expected; write `field: value`",
        ),
    ];
    for (look, value, expected) in table {
        let mut mistakes = Mistakes::new();
        let documents = read_text("f", &format!("v: {value}"), &mut mistakes);
        let root = documents[0].root(&mut mistakes);
        let value_text = look(&root.object().unwrap().optional("v").unwrap());
        let actual = match mistakes.iter().next() {
            None => value_text,
            Some(mistake) => {
                let line = mistake.to_string();
                let (_, rest) = line.split_once(": v").unwrap();
                rest.strip_prefix(": ").unwrap_or(rest).to_owned()
            }
        };
        assert_eq!(actual, expected, "{value}");
        assert!(mistakes.len() < 2, "{mistakes}");
    }
}

#[test]
fn mistakes_are_sorted_deduplicated_and_serializable() {
    let mut mistakes = Mistakes::new();
    for (file, line, path) in [("b", 1, ""), ("a", 12, "x"), ("a", 2, "y"), ("a", 12, "x")] {
        mistakes.push(Mistake {
            location: Location {
                file: file.into(),
                line,
                column: 1,
            },
            path: path.into(),
            message: "m".into(),
            fix: "f".into(),
        });
    }
    let mistakes = mistakes.into_result(()).unwrap_err();
    assert_eq!(mistakes.to_string(), "a:2:1: y: m; f\na:12:1: x: m; f\nb:1:1: m; f");
    assert_eq!(
        serde_json::to_value(mistakes.iter().next()).unwrap(),
        json!({"file": "a", "line": 2, "column": 1, "path": "y", "message": "m", "fix": "f"})
    );
}

#[test]
fn long_texts_are_truncated_in_messages() {
    assert_eq!(quoted("a\n\"é"), r#""a\n\"é""#);
    assert_eq!(quoted(&"é".repeat(60)), format!("\"{}\"", "é".repeat(60)));
    assert_eq!(quoted(&"é".repeat(61)), format!("\"{}\"...", "é".repeat(60)));
}

/// The document is so large that the test would take minutes if the time grew with the square of its length.
#[test]
fn a_large_document_on_one_line_is_read_in_linear_time() {
    let fields: Vec<_> = (0..100_000)
        .map(|index| format!("\"field{index}\": [{index}, \"é\"]"))
        .collect();
    let text = format!("{{{}}}", fields.join(", "));
    for (name, before, line) in [("f.json", "", 1), ("f.yaml", "# YAML\n", 2)] {
        let mut mistakes = Mistakes::new();
        let documents = read_text(name, &format!("{before}{text}"), &mut mistakes);
        let mut root = documents[0].root(&mut mistakes).object().unwrap();
        root.optional("name");
        drop(root);
        assert_eq!(mistakes.len(), 100_000);
        let last = mistakes.iter().last().unwrap();
        let column = text.chars().count() - fields[99_999].chars().count();
        assert_eq!((last.location.line, last.location.column as usize), (line, column));
    }
}

#[test]
fn too_many_documents_in_a_file_are_a_mistake() {
    let text = "---\n".repeat(MAX_DOCUMENT_COUNT);
    assert_eq!(mistakes_in("f.yaml", &text), "");
    let line = MAX_DOCUMENT_COUNT + 1;
    assert_eq!(
        mistakes_in("f.yaml", &"---\n".repeat(MAX_DOCUMENT_COUNT * 12)),
        format!("f.yaml:{line}:1: the file has more than 16384 documents; split it")
    );
}
