use super::*;

fn convert(text: &str) -> Result<String, String> {
    match to_json(text.as_bytes(), 1 << 20) {
        Ok(json) => Ok(String::from_utf8(json).unwrap()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
#[rustfmt::skip]
fn yaml_with_a_single_document_becomes_json() {
    for (case, yaml, json) in [
        ("nothing", "", ""),
        ("only a comment", "# x\n", ""),
        ("only the start of a document", "---\n", ""),
        ("a map in its order", "b: 1\na: {d: x, c: []}\n", r#"{"b":1,"a":{"d":"x","c":[]}}"#),
        ("JSON", r#"{"a": ["x\n", null, true], "b": {}}"#, r#"{"a":["x\n",null,true],"b":{}}"#),
        ("a byte order mark", "\u{feff}a: 1", r#"{"a":1}"#),
        ("an empty document after it", "a: 1\n---\n", r#"{"a":1}"#),
        ("scalars as go-yaml has them", "[yes, 0644, 1_000, 1.50, ~, '1']", r#"[true,420,1000,1.5,null,"1"]"#),
        ("keys as go-yaml has them", "1: a\non: b\n0x10: c", r#"{"1":"a","true":"b","16":"c"}"#),
        ("aliases", "a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}", r#"{"a":{"b":1},"c":{"b":1},"d":{"b":1,"e":2}}"#),
    ] {
        assert_eq!(convert(yaml).as_deref(), Ok(json), "{case}");
    }
}

#[test]
#[rustfmt::skip]
fn yaml_without_a_json_equivalent_is_refused() {
    let deep = "[".repeat(70) + &"]".repeat(70);
    let mut aliases = "a0: &a0 {x: 1}\n".to_owned();
    for line in 1..10 {
        let entries = vec![format!("*a{}", line - 1); 9].join(",");
        aliases += &format!("a{line}: &a{line} [{entries}]\n");
    }
    let merged = aliases.replace('[', "{<<: [").replace(']', "]}");
    let large_text = format!("a: &a {}\nb: [{}]", "x".repeat(1 << 17), ["*a"; 9].join(","));
    for (case, yaml, part) in [
        ("no YAML", "a: [", "line 1, column 4: this is not YAML"),
        ("a key twice", "a: 1\nb: 2\na: 3\n", "line 3, column 1: the field `a` is written a second time"),
        ("two documents", "a: 1\n---\nb: 2\n", "a second document"),
        ("no number", "a: .nan", "a number that JSON cannot hold"),
        ("too deep", &deep, "deeper than 64 levels"),
        ("nested aliases", &aliases, "repeat over 99 times as much as is written"),
        ("nested aliases that are merged", &merged, "repeat over 99 times as much as is written"),
        ("more than a body may have", &large_text, "larger than the 1048576 bytes"),
    ] {
        let error = convert(yaml).unwrap_err();
        assert!(error.contains(part), "{case}: {error}");
    }
    assert!(
        to_json(b"a: \xff", 100)
            .unwrap_err()
            .to_string()
            .contains("not UTF-8 from byte 3 on")
    );
}

#[test]
fn only_yaml_with_aliases_may_become_much_larger_json() {
    for (body, expected) in [
        ("a: &x 1\nb: *x", true),
        ("a: &x 1", false),
        ("a: '*'", false),
        ("", false),
    ] {
        assert_eq!(may_expand(body.as_bytes()), expected, "{body}");
    }
}

#[test]
fn json_of_exactly_the_size_limit_is_allowed() {
    assert_eq!(to_json(b"a: 1", 7).unwrap(), br#"{"a":1}"#);
    assert!(to_json(b"a: 1", 6).is_err());
}
