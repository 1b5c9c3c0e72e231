use super::*;

fn field(name: &str) -> Step {
    Step::Field(name.to_owned())
}

fn items(key: &str, value: Option<Value>) -> Step {
    Step::Items {
        key: key.to_owned(),
        value,
    }
}

/// Source: Gatekeeper 3.x, pkg/mutation/path/parser/parser_test.go, and the tests of its scanner.
#[test]
fn a_location_is_parsed_into_steps() {
    let containers = |item_step: Step, then: &str| vec![field("spec"), field("containers"), item_step, field(then)];
    for (text, expected) in [
        ("single_field", vec![field("single_field")]),
        (r#""sp\"ec""#, vec![field("sp\"ec")]),
        (
            "spec.containers[name: *].securityContext",
            containers(items("name", None), "securityContext"),
        ),
        (
            r#"spec.containers[name: "*"].securityContext"#,
            containers(items("name", Some("*".into())), "securityContext"),
        ),
        (
            "spec.containers[name:foo].securityContext",
            containers(items("name", Some("foo".into())), "securityContext"),
        ),
        (
            r#"spec.containers["my key": "foo bar"]"#,
            vec![
                field("spec"),
                field("containers"),
                items("my key", Some("foo bar".into())),
            ],
        ),
        (
            r#"spec.ports[containerPort: 8080].name"#,
            vec![
                field("spec"),
                field("ports"),
                items("containerPort", Some(8080.into())),
                field("name"),
            ],
        ),
        (
            r#"spec.ports[containerPort: "8080"].name"#,
            vec![
                field("spec"),
                field("ports"),
                items("containerPort", Some("8080".into())),
                field("name"),
            ],
        ),
        (
            r#"spec.containers["": ""].a"#,
            containers(items("", Some("".into())), "a"),
        ),
        (r#"foo."".bar"#, vec![field("foo"), field(""), field("bar")]),
        (
            "    spec   .    containers    ",
            vec![field("spec"), field("containers")],
        ),
        ("-123-_456_", vec![field("-123-_456_")]),
        ("spec.\"foo\nbar\"", vec![field("spec"), field("foo\nbar")]),
        (
            r#"spec."is very"["much full": 'of everyone\'s'].'favorite thing'"#,
            vec![
                field("spec"),
                field("is very"),
                items("much full", Some("of everyone's".into())),
                field("favorite thing"),
            ],
        ),
        (r#""trailing-backslash\\""#, vec![field("trailing-backslash\\")]),
        (r#""a\bc""#, vec![field("abc")]),
    ] {
        let location = FieldLocation::parse(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(location.steps(), expected, "{text}");
        assert_eq!(FieldLocation::parse(&location.to_string()), Ok(location), "{text}");
    }
}

/// Source: Gatekeeper 3.x, pkg/mutation/path/parser/parser_test.go, except for the empty text.
#[test]
fn invalid_locations_are_refused() {
    for (text, found) in [
        ("", "it ends, where the name of a field is expected"),
        (".spec", "there is `.`"),
        ("spec.", "it ends, where the name of a field is expected"),
        ("foo..bar", "there is `.`"),
        ("spec.foo bar", "there is `bar`, where `.` or the end is expected"),
        (
            "spec.containers[my key: \"foo bar\"]",
            "there is `key`, where `:` is expected",
        ),
        ("spec.containers[key: foo bar]", "there is `bar`, where `]` is expected"),
        ("spec.containers[name: ].a", "there is `]`, where `*`, a word"),
        ("spec.containers[].a", "there is `]`, where the field that tells"),
        ("spec.containers[:].a", "there is `:`"),
        ("spec.containers[:foo].a", "there is `:`"),
        ("spec.containers[foo].a", "there is `]`, where `:` is expected"),
        ("spec.containers[*].a", "there is `*`"),
        ("[foo: bar]", "there is `[`"),
        ("[foo: bar][bar: *]", "there is `[`"),
        (
            "spec.containers[foo: bar][bar: *]",
            "there is `[`, where `.` or the end",
        ),
        ("spec.[foo: bar]", "there is `[`"),
        ("*", "there is `*`"),
        ("][", "there is `]`"),
        ("foo[", "it ends, where the field that tells"),
        (":", "there is `:`"),
        ("spec.0", "there is the number 0"),
        ("spec.\"open", "there is a quote without its end"),
        ("spec.'open\\", "there is a quote without its end"),
        ("a[port: 99999999999999999999].b", "there is the number 9999"),
        ("spec.ä", "there is `ä`"),
    ] {
        let error = FieldLocation::parse(text)
            .map(|location| location.to_string())
            .expect_err(text)
            .to_string();
        assert!(error.contains(found), "{text}: {error}");
    }
}

/// Source: Gatekeeper 3.x, pkg/mutation/schema/schema_test.go and node_test.go.
#[test]
fn locations_that_expect_different_types_contradict_each_other() {
    for (one, end, other, other_end, expected) in [
        (
            "spec.containers.image",
            LocationType::Any,
            "spec.containers[name: foo].image",
            LocationType::Any,
            true,
        ),
        (
            "spec.containers[name: foo].image",
            LocationType::Any,
            "spec.containers[name: *].image",
            LocationType::Any,
            false,
        ),
        (
            "spec.containers[name: foo].image",
            LocationType::Any,
            "spec.containers[image: *].name",
            LocationType::Any,
            true,
        ),
        (
            "spec.name.image",
            LocationType::Any,
            "spec[name: foo].image",
            LocationType::Any,
            true,
        ),
        (
            "spec[name: rxc].image[tag: v1].id",
            LocationType::Any,
            "spec[name: rxc].image.tag.id",
            LocationType::Any,
            true,
        ),
        ("spec.a", LocationType::Any, "spec.a.b", LocationType::Any, false),
        (
            "spec.a",
            LocationType::Any,
            "spec.a[name: b].c",
            LocationType::Any,
            false,
        ),
        ("spec.a", LocationType::Set, "spec.a", LocationType::Text, true),
        (
            "spec.a",
            LocationType::Set,
            "spec.a[name: b].c",
            LocationType::Any,
            true,
        ),
        ("spec.a", LocationType::Set, "spec.a", LocationType::Set, false),
        ("spec.a", LocationType::Set, "spec.a", LocationType::Any, false),
        (
            "spec.a.c",
            LocationType::Set,
            "spec.b[name: c].d",
            LocationType::Text,
            false,
        ),
    ] {
        let [one, other] = [one, other].map(|text| FieldLocation::parse(text).unwrap());
        assert_eq!(one.contradicts(end, &other, other_end), expected, "{one} {other}");
        assert_eq!(other.contradicts(other_end, &one, end), expected, "{other} {one}");
    }
}
