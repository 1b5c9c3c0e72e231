use super::*;

fn converted(text: &str) -> Result<String, String> {
    match to_json(text.as_bytes(), 4096) {
        Ok(json) => Ok(String::from_utf8(json).unwrap()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
#[rustfmt::skip]
fn documents() {
    for (case, yaml, json) in [
        ("nothing", "", ""),
        ("only a comment", "# x\n", ""),
        ("only the start of a document", "---\n", ""),
        ("a map in its order", "b: 1\na: {d: x, c: []}\n", r#"{"b":1,"a":{"d":"x","c":[]}}"#),
        ("a list", "- 1\n- {}\n", r#"[1,{}]"#),
        ("JSON", r#"{"a": ["x\n", null, true], "b": {}}"#, r#"{"a":["x\n",null,true],"b":{}}"#),
        ("a byte order mark", "\u{feff}a: 1", r#"{"a":1}"#),
        ("windows line ends", "a: 1\r\nb: x\r\n", r#"{"a":1,"b":"x"}"#),
        ("an empty document after it", "a: 1\n---\n", r#"{"a":1}"#),
        ("the end of a document after it", "---\na: 1\n...\n", r#"{"a":1}"#),
        ("texts", "a: |\n  x\n  y\nb: >-\n  x\n  y\nc: 'it''s'\nd: \"\\u00e9\"", "{\"a\":\"x\\ny\\n\",\"b\":\"x y\",\"c\":\"it's\",\"d\":\"é\"}"),
        ("text in quotes is text", "[\"1\", 'true', \"\", '~']", r#"["1","true","","~"]"#),
        ("nothing is written", "a:\nb: ~\nc: null", r#"{"a":null,"b":null,"c":null}"#),
        ("true and false as YAML 1.1 has them", "[y, Yes, on, TRUE, n, No, OFF, false, yEs]", r#"[true,true,true,true,false,false,false,false,"yEs"]"#),
        ("whole numbers", "[0, -0, 12, +3, -4, 1_000, 007, 0777, 0o17, 0x1F, 0b101, -0x10, 08]", "[0,-0,12,3,-4,1000,7,511,15,31,5,-16,8]"),
        ("numbers of any size", "[18446744073709551616, -123456789012345678901234567890]", "[18446744073709551616,-123456789012345678901234567890]"),
        ("fractions", "[1.50, .5, 5., -0.1e+3, 1E400x, 1e-7, 01.5]", r#"[1.50,0.5,5,-0.1e+3,"1E400x",1e-7,1.5]"#),
        ("what only looks like a number", "[1.2.3, 1e, ., --, +, 0x, 12a, 1:30, 2001-01-01, 10.0.0.1, v1]", r#"["1.2.3","1e",".","--","+","0x","12a","1:30","2001-01-01","10.0.0.1","v1"]"#),
        ("an unknown word is text", "[yesterday, nullable, infinity, nan]", r#"["yesterday","nullable","infinity","nan"]"#),
        ("keys are what is written", "1: a\ntrue: b\n1.50: c\nyes: d\non: e\n0x10: f", r#"{"1":"a","true":"b","1.50":"c","yes":"d","on":"e","0x10":"f"}"#),
        ("tags", "[!!str 1, !!int 0x10, !!float 1, !!bool on, !!null ~, !!map {a: !!seq [1]}]", r#"["1",16,1,true,null,{"a":[1]}]"#),
        ("an alias", "a: &x {b: 1}\nc: *x\nd: [*x]", r#"{"a":{"b":1},"c":{"b":1},"d":[{"b":1}]}"#),
        ("an anchor of a scalar and of a key", "&k a: &v 1\nb: *v\nc: *k\n*v : d", r#"{"a":1,"b":1,"c":"a","1":"d"}"#),
        ("an anchor is taken again", "a: &x 1\nb: *x\nc: &x 2\nd: *x", r#"{"a":1,"b":1,"c":2,"d":2}"#),
        ("maps are merged in, what is written counts", "x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}", r#"{"x":{"a":1,"b":2},"y":{"b":3,"a":1}}"#),
        ("the first of several maps counts", "y: {<<: [{a: 1}, {a: 2, b: 2}], c: 3}", r#"{"y":{"c":3,"a":1,"b":2}}"#),
        ("a key in quotes merges nothing", "y: {'<<': 1}", r#"{"y":{"<<":1}}"#),
    ] {
        assert_eq!(converted(yaml).as_deref(), Ok(json), "{case}");
        if !json.is_empty() {
            serde_json::from_str::<serde_json::Value>(json).unwrap();
        }
    }
}

#[test]
#[rustfmt::skip]
fn refused() {
    let deep = "[".repeat(70) + &"]".repeat(70);
    for (case, yaml, part) in [
        ("no YAML", "a: [", "this is not YAML"),
        ("a tab", "a:\n\t- b", "this is not YAML"),
        ("a key twice", "a: 1\nb: 2\na: 3\n", "line 3, column 1: the field `a` is written a second time"),
        ("the same key in two spellings", "{1: a, '1': b}", "written a second time"),
        ("two documents", "a: 1\n---\nb: 2\n", "a second document"),
        ("a list as a key", "? [a]\n: b", "the name of a field must be a text"),
        ("nothing as a key", "~: b", "the name of a field must be a text"),
        ("an alias of a map as a key", "a: &x {}\n*x : b", "the name of a field must be a text"),
        ("infinite", "a: -.inf", "a number that JSON cannot hold"),
        ("no number", "a: .nan", "a number that JSON cannot hold"),
        ("a float that is too large", "a: 1e999", "a number that JSON cannot hold"),
        ("a hexadecimal number that is too large", "a: 0x1ffffffffffffffff", "a number that JSON cannot hold"),
        ("another tag", "a: !!binary aGk=", "does not fit its tag"),
        ("a tag of its own", "a: !mine 1", "the tag `!mine` is not supported"),
        ("a tag that does not fit", "a: !!int x", "does not fit its tag"),
        ("a list with the tag of a map", "a: !!map [1]", "is not supported"),
        ("an anchor within itself", "a: &x [*x]", "contains the alias"),
        ("an alias of nothing", "a: *x", "this is not YAML"),
        ("nothing to merge", "a: {<<: 1}", "`<<` must be a map"),
        ("lists of lists are not merged", "a: {<<: [[{b: 1}]]}", "`<<` must be a map"),
        ("too deep", &deep, "deeper than 64 levels"),
    ] {
        let error = converted(yaml).unwrap_err();
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
fn aliases_do_not_grow_without_bound() {
    // Each line is ten of the one before.
    let doubling = |open: &str, close: &str, entry: fn(usize, usize) -> String| {
        let mut text = "a0: &a0 {x: 1}\n".to_owned();
        for line in 1..20 {
            let entries: Vec<String> = (0..10).map(|index| entry(line - 1, index)).collect();
            text += &format!("a{line}: &a{line} {open}{}{close}\n", entries.join(", "));
        }
        text
    };
    let lists = doubling("[", "]", |before, _| format!("*a{before}"));
    assert!(
        converted(&lists)
            .unwrap_err()
            .contains("larger than the 4096 bytes")
    );
    let maps = doubling("{", "}", |before, index| format!("k{index}: *a{before}"));
    assert!(
        converted(&maps)
            .unwrap_err()
            .contains("larger than the 4096 bytes")
    );
    let mut merged =
        "a: &a {".to_owned() + &(0..200).map(|key| format!("k{key}: 1, ")).collect::<String>() + "}\n";
    for line in 0..200 {
        merged += &format!("b{line}: {{<<: *a}}\n");
    }
    assert!(
        converted(&merged)
            .unwrap_err()
            .contains("larger than the 4096 bytes")
    );
    // A chain of aliases is as deep as its links.
    let mut chain = "a0: &a0 [1]\n".to_owned();
    for line in 1..200 {
        chain += &format!("a{line}: &a{line} [*a{}]\n", line - 1);
    }
    let error = to_json(chain.as_bytes(), 1 << 20).unwrap_err().to_string();
    assert!(error.contains("deeper than 64 levels"), "{error}");
}

#[test]
fn the_limit_is_exact() {
    assert_eq!(to_json(b"a: 1", 7).unwrap(), br#"{"a":1}"#);
    assert!(to_json(b"a: 1", 6).is_err());
}

#[test]
fn whatever_is_sent_is_json_or_refused() {
    // Pieces of YAML in every order of three.
    let pieces = [
        "a: ", "- ", "\n", "  ", "&x ", "*x", "{", "}", "[", "]", "<<: ", "? ", "1", "'", "\"", "#",
        "!!str ", "---\n", ", ", "|\n", "é", "%",
    ];
    for first in pieces {
        for second in pieces {
            for third in pieces {
                let text = format!("{first}{second}{third}");
                if let Ok(json) = to_json(text.as_bytes(), 4096)
                    && !json.is_empty()
                {
                    serde_json::from_slice::<serde_json::Value>(&json)
                        .unwrap_or_else(|error| panic!("{text:?}: {error}"));
                }
            }
        }
    }
}
