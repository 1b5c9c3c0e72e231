//! JSON Patch (RFC 6902): examples, and comparisons with the crate `json-patch`.

use admittance_admission::{FailureKind, Object, Patch};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Each row has an object, a patch, and the expected object or error.
#[test]
fn patches_have_the_results_of_the_examples_in_the_rfc() {
    let table: &[(&str, Value, Value, Result<Value, &str>)] = &[
        // The first rows are the examples of RFC 6902, appendix A.
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
            Err("operation 0 does not apply (add /baz/bat): the parent of the path does not exist"),
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
        // The rest of the rows are not from the RFC.
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
            Err("operation 0 does not apply (replace /a): the path does not exist"),
        ),
        (
            "an index beyond the end",
            json!({"a": [1]}),
            json!([{"op": "add", "path": "/a/2", "value": 1}]),
            Err("operation 0 does not apply (add /a/2): the path is not an index of the array"),
        ),
        (
            "an index with a leading zero",
            json!({"a": [1, 2]}),
            json!([{"op": "remove", "path": "/a/01"}]),
            Err("operation 0 does not apply (remove /a/01): the path is not an index of the array"),
        ),
        (
            "an index from the end, which kube-apiserver takes",
            json!({"a": [1, 2]}),
            json!([{"op": "remove", "path": "/a/-1"}]),
            Err("operation 0 does not apply (remove /a/-1): the path is not an index of the array"),
        ),
        (
            "the end of an array is not there to be removed",
            json!({"a": [1]}),
            json!([{"op": "remove", "path": "/a/-"}]),
            Err("operation 0 does not apply (remove /a/-): the path is not an index of the array"),
        ),
        (
            "through a scalar",
            json!({"a": 1}),
            json!([{"op": "add", "path": "/a/b", "value": 1}]),
            Err(
                "operation 0 does not apply (add /a/b): the path leads through a value that is neither an \
                 object nor an array",
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
            Err("operation 0 does not apply (move /b): from /a: the path does not exist"),
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
            Err("its result is not a JSON object"),
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
        let result = Patch::parse(patch.to_string())
            .unwrap()
            .apply(&document)
            .map(|object| object.value().clone())
            .map_err(|error| error.to_string());
        assert_eq!(result, expected.clone().map_err(str::to_owned), "{case}");
    }
}

#[test]
fn an_invalid_patch_is_refused_with_the_reason() {
    for (text, message) in [
        ("{}", "invalid type: map"),
        ("[1]", "invalid type: integer"),
        (r#"[{"op": "add", "path": "/a"}]"#, "operation 0: `add` needs `value`"),
        (
            r#"[{"op": "add", "path": "a", "value": 1}]"#,
            "operation 0: `a` is not a JSON Pointer",
        ),
        (
            r#"[{"op": "remove", "path": "/a"}, {"op": "move", "path": "/a"}]"#,
            "operation 1: `move` needs `from`",
        ),
        (
            r#"[{"op": "merge", "path": "/a"}]"#,
            "operation 0: `merge` is not an operation",
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
fn untouched_parts_of_an_object_keep_their_text() {
    let text =
        r#"{ "big": 12345678901234567890123,  "f": 1.10, "u": "\u00e9", "spec": {"n": 1e3, "list": [ 0.10, 2 ]} }"#;
    let patch = Patch::parse(r#"[{"op": "add", "path": "/spec/list/-", "value": 3.0}]"#).unwrap();
    let patched_object = patch.apply(&Object::parse(text).unwrap()).unwrap();
    assert_eq!(
        patched_object.text(),
        r#"{"big":12345678901234567890123,"f":1.10,"u":"\u00e9","spec":{"n":1e3,"list":[0.10,2,3.0]}}"#
    );
}

#[test]
fn a_patch_whose_result_is_nested_too_deeply_to_parse_is_refused() {
    let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    let object = Object::parse(format!(r#"{{"a":{}}}"#, deep(100))).unwrap();
    let deeper = format!(
        r#"[{{"op":"add","path":"/a{}","value":{}}}]"#,
        "/0".repeat(99),
        deep(100)
    );
    let error = Patch::parse(deeper).unwrap().apply(&object).unwrap_err();
    assert_eq!(error.to_string(), "its result is not a JSON object");
}

#[test]
fn a_patch_uses_the_last_of_duplicate_keys_in_an_object() {
    let object = Object::parse(r#"{"spec":{"a":1,"b":2,"a":3}}"#).unwrap();
    let patch = Patch::parse(r#"[{"op":"test","path":"/spec/a","value":3},{"op":"add","path":"/spec/c","value":4}]"#);
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
    prop::collection::vec(token, 0..4).prop_map(|tokens| tokens.iter().map(|token| format!("/{token}")).collect())
}

fn operation() -> impl Strategy<Value = Value> {
    prop_oneof![
        (pointer(), value()).prop_map(|(path, value)| json!({"op": "add", "path": path, "value": value})),
        (pointer(), value()).prop_map(|(path, value)| json!({"op": "replace", "path": path, "value": value})),
        (pointer(), value()).prop_map(|(path, value)| json!({"op": "test", "path": path, "value": value})),
        // Removing the root is an error in this program, but turns the document into null in the crate `json-patch`.
        pointer()
            .prop_filter("not the root", |path| !path.is_empty())
            .prop_map(|path| json!({"op": "remove", "path": path})),
        // Moving a value to its own path is allowed in this program, but refused by the crate `json-patch`.
        (pointer(), pointer())
            .prop_filter("another place", |(from, path)| !from.is_empty() && from != path)
            .prop_map(|(from, path)| json!({"op": "move", "from": from, "path": path})),
        (pointer(), pointer()).prop_map(|(from, path)| json!({"op": "copy", "from": from, "path": path})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_patch_has_the_same_result_as_with_json_patch(
        document in value().prop_filter("an object", Value::is_object),
        operations in prop::collection::vec(operation(), 1..8),
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

    #[test]
    fn the_patch_between_two_objects_turns_one_into_the_other(
        before in value().prop_filter("an object", Value::is_object),
        after in value().prop_filter("an object", Value::is_object),
    ) {
        let (old, new) = (Object::parse(before.to_string()).unwrap(), Object::parse(after.to_string()).unwrap());
        let patch = Patch::between(&old, &new);
        prop_assert_eq!(patch.apply(&old).unwrap(), new);
        let other: json_patch::Patch = serde_json::from_str(&patch.to_string()).unwrap();
        let mut tree = before;
        json_patch::patch(&mut tree, &other).unwrap();
        prop_assert_eq!(tree, after);
    }
}

#[test]
fn a_patch_that_needs_too_much_work_is_refused() {
    let object = |value: Value| Object::parse(value.to_string()).unwrap();
    let large_text = "x".repeat(200 << 10);
    let small_object = object(json!({"kind": "A", "spec": {"a": []}}));
    let doubling_copies: Vec<Value> = (0..35)
        .map(|i| json!({"op": "copy", "from": "", "path": format!("/b{i}")}))
        .collect();
    let copies: Vec<Value> = (0..1000)
        .map(|i| json!({"op": "copy", "from": "/spec", "path": format!("/b{i}")}))
        .collect();
    let front_insertions = vec![json!({"op": "add", "path": "/spec/a/0", "value": 1}); 20_000];
    // The value at `/spec` has much white space, so each `test` of the patch has to read a long text.
    let spacious_object = Object::parse(format!(r#"{{"spec": {{"a":{}1}}}}"#, " ".repeat(1 << 20))).unwrap();
    let test_operations = vec![json!({"op": "test", "path": "/spec", "value": {"a": 1}}); 9_999];
    let replacements = vec![json!({"op": "replace", "path": "/spec", "value": {"a": 1}}); 9_999];
    let middle_insertions = vec![json!({"op": "add", "path": "/spec/100000", "value": 1}); 9_999];
    let numbers = object(json!({"spec": vec![1; 200_000]}));
    for (case, object, operations) in [
        ("doubling", &small_object, doubling_copies),
        ("copies", &object(json!({"spec": large_text})), copies),
        ("operations", &small_object, front_insertions),
        ("tests", &spacious_object, test_operations),
        ("middle", &numbers, middle_insertions),
    ] {
        let patch = Patch::parse(Value::from(operations).to_string());
        let error = patch.and_then(|patch| patch.apply(object)).unwrap_err();
        assert_eq!(error.kind(), FailureKind::OutputTooLarge, "{case}: {error}");
        assert!(error.to_string().len() < 300, "{case}: {error}");
    }
    let patch = Patch::parse(Value::from(replacements).to_string()).unwrap();
    patch.apply(&spacious_object).unwrap();
    let mut value = json!({"op": "add", "path": "/b", "value": "y".repeat(17 << 20)});
    let growing_patch = Patch::parse(json!([value]).to_string()).unwrap();
    let error = growing_patch.apply(&small_object).unwrap_err();
    assert_eq!(error.kind(), FailureKind::OutputTooLarge, "{error}");
    value["path"] = "/".repeat(1 << 20).into();
    let error = Patch::parse(json!([value]).to_string())
        .unwrap()
        .apply(&small_object)
        .unwrap_err();
    assert_eq!(error.kind(), FailureKind::PatchFailed);
    assert!(error.to_string().len() < 300, "a message has its limit");
}

#[test]
fn large_arrays_and_objects_are_changed_in_linear_time() {
    let members: serde_json::Map<String, Value> = (0..200_000).map(|i| (format!("k{i}"), 1.into())).collect();
    let document = Object::parse(json!({"list": vec![1; 500_000], "map": members}).to_string()).unwrap();
    let mut operations = Vec::new();
    for i in 0..2_500 {
        operations.push(json!({"op": "add", "path": "/list/0", "value": 2}));
        operations.push(json!({"op": "add", "path": "/list/-", "value": 3}));
        operations.push(json!({"op": "remove", "path": format!("/map/k{}", 199_999 - i)}));
        operations.push(json!({"op": "add", "path": format!("/map/n{i}"), "value": 4}));
    }
    let patched_object = Patch::parse(Value::from(operations).to_string())
        .unwrap()
        .apply(&document)
        .unwrap();
    let value = patched_object.value();
    assert_eq!(value["list"].as_array().unwrap().len(), 505_000);
    assert_eq!((&value["list"][0], &value["list"][504_999]), (&json!(2), &json!(3)));
    assert_eq!(value["map"].as_object().unwrap().len(), 200_000);
    assert_eq!(value["map"]["n2499"], 4);
}

#[test]
fn moves_that_nest_too_deeply_are_refused() {
    let mut operations = Vec::new();
    for _ in 0..5_000 {
        operations.push(json!({"op": "add", "path": "/b", "value": {}}));
        operations.push(json!({"op": "move", "from": "/a", "path": "/b/a"}));
        operations.push(json!({"op": "move", "from": "/b", "path": "/a"}));
    }
    operations.truncate(Patch::MAX_OPERATIONS);
    let patch = Patch::parse(Value::from(operations).to_string()).unwrap();
    let error = patch.apply(&Object::parse(r#"{"a":{}}"#).unwrap()).unwrap_err();
    assert_eq!(error.kind(), FailureKind::PatchFailed, "{error}");
    assert!(error.to_string().contains("nested too deeply"), "{error}");
}

#[test]
fn a_patch_that_adds_a_value_with_duplicate_keys_is_refused() {
    for (value, expected) in [
        (r#"{"a":1,"b":{"a":1}}"#, None),
        (r#"{"a":1,"a":2}"#, Some("duplicate key `a`")),
        (r#"[{"b":{"a":1,"\u0061":2}}]"#, Some("duplicate key `a`")),
    ] {
        let patch = Patch::parse(format!(r#"[{{"op":"add","path":"/x","value":{value}}}]"#));
        match (patch, expected) {
            (Ok(_), None) => {}
            (Err(error), Some(part)) => assert!(error.to_string().contains(part), "{error}"),
            other => panic!("{value}: {other:?}"),
        }
    }
    let members: Vec<String> = (0..40).map(|i| format!(r#""k{i}":1"#)).collect();
    let duplicate_key_patch = format!(
        r#"[{{"op":"add","path":"/x","value":{{{},"k30":2}}}}]"#,
        members.join(",")
    );
    assert!(Patch::parse(duplicate_key_patch).is_err());
}

#[test]
fn the_patch_between_very_different_objects_replaces_the_whole_object() {
    let large_object = |value: i64| Object::parse(json!({"list": vec![value; 20_000]}).to_string()).unwrap();
    let patch = Patch::between(&large_object(1), &large_object(2));
    assert_eq!(patch.len(), 1);
    assert_eq!(patch.apply(&large_object(1)).unwrap(), large_object(2));
    // The two objects have 5,000 differences below a key of 100 kB. A patch that lists all differences repeats the long
    // key in each path, so it is too large.
    let long_key = "k".repeat(100_000);
    let long_key_object = |value: i64| {
        let members: serde_json::Map<String, Value> = (0..5_000).map(|i| (i.to_string(), value.into())).collect();
        Object::parse(json!({long_key.as_str(): members}).to_string()).unwrap()
    };
    let patch = Patch::between(&long_key_object(1), &long_key_object(2));
    assert!(patch.to_string().len() < 1 << 20, "{}", patch.to_string().len());
    assert_eq!(patch.apply(&long_key_object(1)).unwrap(), long_key_object(2));
}
