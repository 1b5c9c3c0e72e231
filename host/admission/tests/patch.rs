//! JSON Patch, as RFC 6902 has it: a table, and the same patches through the crate `json-patch`.

use admittance_admission::{Object, Patch};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Document, patch, and the object that comes out or the reason why none does.
#[test]
fn operations() {
    let table: &[(&str, Value, Value, Result<Value, &str>)] = &[
        // RFC 6902, appendix A.
        (
            "A.1 add a member",
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/baz", "value": "qux"}]),
            Ok(json!({"foo": "bar", "baz": "qux"})),
        ),
        (
            "A.2 add an element",
            json!({"foo": ["bar", "baz"]}),
            json!([{"op": "add", "path": "/foo/1", "value": "qux"}]),
            Ok(json!({"foo": ["bar", "qux", "baz"]})),
        ),
        (
            "A.3 remove a member",
            json!({"baz": "qux", "foo": "bar"}),
            json!([{"op": "remove", "path": "/baz"}]),
            Ok(json!({"foo": "bar"})),
        ),
        (
            "A.4 remove an element",
            json!({"foo": ["bar", "qux", "baz"]}),
            json!([{"op": "remove", "path": "/foo/1"}]),
            Ok(json!({"foo": ["bar", "baz"]})),
        ),
        (
            "A.5 replace",
            json!({"baz": "qux", "foo": "bar"}),
            json!([{"op": "replace", "path": "/baz", "value": "boo"}]),
            Ok(json!({"baz": "boo", "foo": "bar"})),
        ),
        (
            "A.6 move a value",
            json!({"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}}),
            json!([{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}]),
            Ok(json!({"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}})),
        ),
        (
            "A.7 move an element",
            json!({"foo": ["all", "grass", "cows", "eat"]}),
            json!([{"op": "move", "from": "/foo/1", "path": "/foo/3"}]),
            Ok(json!({"foo": ["all", "cows", "eat", "grass"]})),
        ),
        (
            "A.8 test: success",
            json!({"baz": "qux", "foo": ["a", 2, "c"]}),
            json!([{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}]),
            Ok(json!({"baz": "qux", "foo": ["a", 2, "c"]})),
        ),
        (
            "A.9 test: error",
            json!({"baz": "qux"}),
            json!([{"op": "test", "path": "/baz", "value": "bar"}]),
            Err("operation 0 does not apply (test /baz): the value there is not \"bar\""),
        ),
        (
            "A.10 add a nested member",
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/child", "value": {"grandchild": {}}}]),
            Ok(json!({"foo": "bar", "child": {"grandchild": {}}})),
        ),
        (
            "A.11 unknown members do not count",
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}]),
            Ok(json!({"foo": "bar", "baz": "qux"})),
        ),
        (
            "A.12 add where there is no parent",
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/baz/bat", "value": "qux"}]),
            Err("operation 0 does not apply (add /baz/bat): the parent of the place is not there"),
        ),
        (
            "A.14 escapes",
            json!({"/": 9, "~1": 10}),
            json!([{"op": "test", "path": "/~01", "value": 10}]),
            Ok(json!({"/": 9, "~1": 10})),
        ),
        (
            "A.15 strings are not numbers",
            json!({"/": 9, "~1": 10}),
            json!([{"op": "test", "path": "/~01", "value": "10"}]),
            Err("operation 0 does not apply (test /~01): the value there is not \"10\""),
        ),
        (
            "A.16 add an array value at the end",
            json!({"foo": ["bar"]}),
            json!([{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}]),
            Ok(json!({"foo": ["bar", ["abc", "def"]]})),
        ),
        // Beyond the appendix.
        (
            "copy",
            json!({"a": {"b": 1}}),
            json!([{"op": "copy", "from": "/a", "path": "/c"}]),
            Ok(json!({"a": {"b": 1}, "c": {"b": 1}})),
        ),
        (
            "add null",
            json!({}),
            json!([{"op": "add", "path": "/a", "value": null}]),
            Ok(json!({"a": null})),
        ),
        (
            "add over a member",
            json!({"a": 1}),
            json!([{"op": "add", "path": "/a", "value": 2}]),
            Ok(json!({"a": 2})),
        ),
        (
            "replace what is not there",
            json!({}),
            json!([{"op": "replace", "path": "/a", "value": 1}]),
            Err("operation 0 does not apply (replace /a): nothing is at the place"),
        ),
        (
            "an index beyond the end",
            json!({"a": [1]}),
            json!([{"op": "add", "path": "/a/2", "value": 1}]),
            Err("operation 0 does not apply (add /a/2): that is no index of the array"),
        ),
        (
            "an index with a leading zero",
            json!({"a": [1, 2]}),
            json!([{"op": "remove", "path": "/a/01"}]),
            Err("operation 0 does not apply (remove /a/01): that is no index of the array"),
        ),
        (
            "the end of an array is not there to be removed",
            json!({"a": [1]}),
            json!([{"op": "remove", "path": "/a/-"}]),
            Err("operation 0 does not apply (remove /a/-): that is no index of the array"),
        ),
        (
            "through a scalar",
            json!({"a": 1}),
            json!([{"op": "add", "path": "/a/b", "value": 1}]),
            Err(
                "operation 0 does not apply (add /a/b): the way leads through something that is neither object nor array",
            ),
        ),
        (
            "move into itself",
            json!({"a": {"b": 1}}),
            json!([{"op": "move", "from": "/a", "path": "/a/b"}]),
            Err("operation 0 does not apply (move /a/b): a value cannot be moved into itself"),
        ),
        (
            "move from nowhere",
            json!({}),
            json!([{"op": "move", "from": "/a", "path": "/b"}]),
            Err("operation 0 does not apply (move /b): from /a: nothing is at the place"),
        ),
        (
            "replace the whole",
            json!({"a": 1}),
            json!([{"op": "replace", "path": "", "value": {"b": 2}}]),
            Ok(json!({"b": 2})),
        ),
        (
            "leave no object",
            json!({"a": 1}),
            json!([{"op": "add", "path": "", "value": [1]}]),
            Err("it leaves something that is not a JSON object"),
        ),
        (
            "the empty name is a name",
            json!({"": 1}),
            json!([{"op": "replace", "path": "/", "value": 2}]),
            Ok(json!({"": 2})),
        ),
    ];
    for (case, document, patch, expected) in table {
        let document = Object::parse(document.to_string()).unwrap();
        let result = Patch::parse(patch.to_string()).unwrap().apply(&document);
        let result = result
            .map(|object| object.value().clone())
            .map_err(|error| error.to_string());
        assert_eq!(result, expected.clone().map_err(str::to_owned), "{case}");
    }
}

#[test]
fn what_is_no_patch() {
    for (text, message) in [
        ("{}", "invalid type: map"),
        ("[1]", "invalid type: integer"),
        (
            r#"[{"op": "add", "path": "/a"}]"#,
            "operation 0: `add` needs `value`",
        ),
        (
            r#"[{"op": "add", "path": "a", "value": 1}]"#,
            "operation 0: `a` is no JSON Pointer",
        ),
        (
            r#"[{"op": "remove", "path": "/a"}, {"op": "move", "path": "/a"}]"#,
            "operation 1: `move` needs `from`",
        ),
        (
            r#"[{"op": "merge", "path": "/a"}]"#,
            "operation 0: `merge` is no operation",
        ),
        (
            r#"[{"op": "add", "path": "/a", "value": 1e999}]"#,
            "operation 0: `value` cannot be read",
        ),
        (r#"[{"op": "add", "path": "/a", "value": 1}"#, "EOF"),
        (r#"[{"path": "/a"}]"#, "missing field `op`"),
    ] {
        let error = Patch::parse(text).unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
    assert!(Patch::parse("null").unwrap().is_empty());
}

#[test]
fn what_a_patch_does_not_touch_stays_as_it_is_written() {
    let text = r#"{ "big": 12345678901234567890123,  "f": 1.10, "u": "\u00e9", "spec": {"n": 1e3, "list": [ 0.10, 2 ]} }"#;
    let patch = Patch::parse(r#"[{"op": "add", "path": "/spec/list/-", "value": 3.0}]"#).unwrap();
    let after = patch.apply(&Object::parse(text).unwrap()).unwrap();
    assert_eq!(
        after.text(),
        r#"{"big":12345678901234567890123,"f":1.10,"u":"\u00e9","spec":{"n":1e3,"list":[0.10,2,3.0]}}"#
    );
}

#[test]
fn nesting_stays_readable() {
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let object = Object::parse(format!(r#"{{"a":{}}}"#, deep(100))).unwrap();
    let deeper = format!(
        r#"[{{"op":"add","path":"/a{}","value":{}}}]"#,
        "/0".repeat(99),
        deep(100)
    );
    let error = Patch::parse(deeper).unwrap().apply(&object).unwrap_err();
    assert_eq!(error.to_string(), "it leaves something that is not a JSON object");
}

#[test]
fn of_a_name_that_stands_twice_the_last_counts() {
    let object = Object::parse(r#"{"spec":{"a":1,"b":2,"a":3}}"#).unwrap();
    let patch =
        Patch::parse(r#"[{"op":"test","path":"/spec/a","value":3},{"op":"add","path":"/spec/c","value":4}]"#);
    assert_eq!(
        patch.unwrap().apply(&object).unwrap().text(),
        r#"{"spec":{"a":3,"b":2,"c":4}}"#
    );
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..3).prop_map(Value::from),
        "[a-c~/\"\\\\é]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map("[a-c]{1}|~|/", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn pointer() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        "[a-c]{1}",
        Just("~0".to_owned()),
        Just("~1".to_owned()),
        "[0-3]",
        Just("-".to_owned())
    ];
    prop::collection::vec(token, 0..4)
        .prop_map(|tokens| tokens.iter().map(|token| format!("/{token}")).collect())
}

fn operation() -> impl Strategy<Value = Value> {
    prop_oneof![
        (pointer(), value()).prop_map(|(path, value)| json!({"op": "add", "path": path, "value": value})),
        (pointer(), value()).prop_map(|(path, value)| json!({"op": "replace", "path": path, "value": value})),
        (pointer(), value()).prop_map(|(path, value)| json!({"op": "test", "path": path, "value": value})),
        // Removing the root leaves null there; here there is nothing to leave.
        pointer()
            .prop_filter("not the root", |path| !path.is_empty())
            .prop_map(|path| json!({"op": "remove", "path": path})),
        // A move to its own place is refused there, and does nothing here.
        (pointer(), pointer())
            .prop_filter("another place", |(from, path)| !from.is_empty() && from != path)
            .prop_map(|(from, path)| json!({"op": "move", "from": from, "path": path})),
        (pointer(), pointer()).prop_map(|(from, path)| json!({"op": "copy", "from": from, "path": path})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    /// The same patches through another implementation, which works on whole trees.
    #[test]
    fn the_same_as_on_a_tree(
        document in value().prop_filter("an object", Value::is_object),
        operations in prop::collection::vec(operation(), 1..4),
    ) {
        let mut expected = document.clone();
        let operations = Value::from(operations);
        let other: json_patch::Patch = serde_json::from_value(operations.clone()).unwrap();
        let on_tree = json_patch::patch_unsafe(&mut expected, &other).is_ok() && expected.is_object();
        let result = Patch::parse(operations.to_string()).unwrap().apply(&Object::parse(document.to_string()).unwrap());
        match result {
            Ok(object) => {
                prop_assert!(on_tree, "{document} {operations}: only here, {object:?}");
                prop_assert_eq!(object.value(), &expected);
            }
            Err(error) => prop_assert!(!on_tree, "{document} {operations}: only there, here {error}"),
        }
    }
}
