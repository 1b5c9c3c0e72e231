use super::*;

fn parse_object(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_operation_and_kind_that_a_change_adds_are_found() {
    let create = r#"{"resourcesRef":{"operation":"Create","kind":"Application"}}"#;
    let respelled = r#"{"ResourcesRef":{"Kind":"application","Operation":"CREATE"}}"#;
    let update = r#"{"resourcesRef":{"operation":"Update","kind":"Application"}}"#;
    // (text before the change, text after the change, expected operation and kind that are new)
    for (before, after, expected) in [
        (None, Some(create), Some(("create", "application"))),
        (None, Some(respelled), Some(("create", "application"))),
        (Some(create), Some(respelled), None),
        (Some(create), Some(update), Some(("update", "application"))),
        (Some("junk"), Some(update), Some(("update", "application"))),
        (Some(create), None, None),
        (None, Some("junk"), None),
        (None, Some(r#"{"resourcesRef":{"operation":"Create"}}"#), None),
        (None, Some(r#"{"resourcesRef":{"operation":1,"kind":"a"}}"#), None),
    ] {
        let change = FileChange::new("zookeeper:/a/b/c", before.map(str::to_owned), after.map(str::to_owned));
        let pair = OperationAndKind::added_by_change(&change);
        let gained = pair
            .as_ref()
            .map(|subject| (subject.operation.as_str(), subject.kind.as_str()));
        assert_eq!(gained, expected, "{before:?} {after:?}");
    }
}

#[test]
fn missing_names_of_definitions_are_taken_from_the_node() {
    let node_name = DefinitionName::new("outer", "name");
    // (document as stored, document as it is read)
    for (stored_text, expected) in [
        (
            r#"{"kind":"admissionwebhook","apiVersion":"v4","metadata":{"name":"a","namespace":"b"},"x":1}"#,
            r#"{"apiVersion":"v4","kind":"admissionwebhook","metadata":{"name":"a","namespace":"b"},"x":1}"#,
        ),
        (
            r#"{"x":1}"#,
            r#"{"apiVersion":"v4","kind":"admissionwebhook","metadata":{"name":"name","namespace":"outer"},"x":1}"#,
        ),
        (
            r#"{"metadata":{"creationTimestamp":null,"name":"","labels":{"a":"b"}}}"#,
            r#"{"apiVersion":"v4","kind":"admissionwebhook","metadata":{"creationTimestamp":null,"labels":{"a":"b"},"name":"name","namespace":"outer"}}"#,
        ),
        (
            r#"{"Kind":"","ApiVersion":"v9","Metadata":{"Name":"a"}}"#,
            r#"{"apiVersion":"v4","kind":"admissionwebhook","metadata":{"Name":"a","namespace":"outer"}}"#,
        ),
        (
            r#"{"metadata":[1],"x":2}"#,
            r#"{"apiVersion":"v4","kind":"admissionwebhook","metadata":[1],"x":2}"#,
        ),
    ] {
        let completed_text = Value::Object(complete_document(parse_object(stored_text), &node_name)).to_string();
        assert_eq!(completed_text, expected, "{stored_text}");
    }
}

#[test]
fn nodes_are_read_with_the_defaults_of_bcs() {
    let node_name = DefinitionName::new("n", "a");
    let metadata = r#""metadata":{"name":"b","namespace":"m"}"#;
    // (text as stored, text as it is read, or `None` if reading does not change it)
    for (stored_text, expected) in [
        (
            format!("{{ \"kind\": \"AdmissionWebhook\", {metadata}, \"ResourcesRef\": {{}} }}"),
            None,
        ),
        (
            format!(r#"{{"kind":"admissionwebhook","apiVersion":"",{metadata}}}"#),
            None,
        ),
        (
            format!(r#"{{"kind":"admissionwebhook","apiVersion":"v1",{metadata}}}"#),
            Some(format!(r#"{{"apiVersion":"v4","kind":"admissionwebhook",{metadata}}}"#)),
        ),
        (
            format!(r#"{{{metadata},"x":1.50}}"#),
            Some(format!(
                r#"{{"apiVersion":"v4","kind":"admissionwebhook",{metadata},"x":1.5}}"#
            )),
        ),
        (
            r#"{"kind":"admissionwebhook","apiVersion":"v4"}"#.to_owned(),
            Some(r#"{"apiVersion":"v4","kind":"admissionwebhook","metadata":{"name":"a","namespace":"n"}}"#.to_owned()),
        ),
        (r#"{"kind":"AdmissionChain"}"#.to_owned(), None),
        ("[]".to_owned(), None),
        ("{".to_owned(), None),
    ] {
        let defaulted_text = with_defaults(stored_text.clone(), &node_name);
        assert_eq!(defaulted_text, expected.unwrap_or(stored_text));
    }
}

#[test]
fn documents_that_differ_only_in_key_order_and_spacing_are_equal() {
    for (one, other, expected) in [
        (r#"{"a":1,"b":[2]}"#, "{ \"b\": [2],\n \"a\": 1 }", true),
        (r#"{"a":1}"#, r#"{"a":2}"#, false),
        (r#"{"a":[1,2]}"#, r#"{"a":[2,1]}"#, false),
        ("no JSON", "no JSON", true),
        ("no JSON", "no  JSON", false),
        ("", "", true),
    ] {
        assert_eq!(are_equal_documents(Some(one), Some(other)), expected, "{one} {other}");
    }
}

#[test]
fn only_definitions_in_json_can_be_written() {
    // (text, expected error)
    for (text, expected) in [
        (r#"{"kind":"AdmissionWebhook"}"#, None),
        ("kind: admissionwebhook", Some("this is not JSON")),
        ("", Some("this is not JSON")),
        ("[]", Some("not a definition document")),
        ("{}", Some("kind is missing")),
        (
            r#"{"kind":"AdmissionChain"}"#,
            Some("of kind \"AdmissionChain\" cannot be stored here"),
        ),
    ] {
        match (parse_for_write(Path::new("zookeeper:/a/b/c"), text), expected) {
            (Ok(_), None) => {}
            (Err(error), Some(words)) => {
                let error = error.to_string();
                assert!(error.starts_with("zookeeper:/a/b/c: "), "{error}");
                assert!(error.contains(words), "{text}: {error}");
            }
            (result, _) => panic!("{text}: {result:?}"),
        }
    }
}
