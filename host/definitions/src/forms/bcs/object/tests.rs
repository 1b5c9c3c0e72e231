use serde_json::json;

use super::*;
use crate::{DefinitionFile, DefinitionSet, load_text};

fn parse(body: &str) -> Result<BcsObject, String> {
    BcsObject::parse(body.as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn a_body_that_is_not_an_admissionwebhook_is_refused() {
    for (body, expected) in [
        (r#"{"kind":"admissionwebhook"}"#, None),
        (r#"{"KIND":"admissionwebhook","apiVersion":null}"#, None),
        ("", Some("json decode failed!unexpected end of JSON input")),
        (" ", Some("json decode failed!unexpected end of JSON input")),
        (
            "kind: admissionwebhook",
            Some("json decode failed!line 1, column 1: this is not JSON: expected value"),
        ),
        (
            "{\n\"kind\":\"admissionwebhook\",}",
            Some("json decode failed!line 2, column 27: this is not JSON: key must be a string"),
        ),
        (
            "{\"kind\":\"admissionwebhook\",\n\"kind\":\"admissionwebhook\", \"metadata\": {\"a\": 1, \"a\": 2}}",
            Some(
                "json decode failed!line 2, column 1: the field `kind` is written a second time; the first is on line 1; \
                 line 2, column 49: the field `a` is written a second time; the first is on line 2",
            ),
        ),
        ("[]", Some("Unmarshal TypeMeta failed: the body is not an object")),
        ("\"a\"", Some("Unmarshal TypeMeta failed: the body is not an object")),
        (r#"{"kind":1}"#, Some("Unmarshal TypeMeta failed: kind is not a string")),
        (
            r#"{"apiVersion":4,"kind":"admissionwebhook"}"#,
            Some("Unmarshal TypeMeta failed: apiVersion is not a string"),
        ),
        ("null", Some("Kind  is invalid")),
        ("{}", Some("Kind  is invalid")),
        (r#"{"kind":"application"}"#, Some("Kind application is invalid")),
        (
            r#"{"kind":"AdmissionWebhook"}"#,
            Some("Kind AdmissionWebhook is invalid"),
        ),
    ] {
        assert_eq!(parse(body).err().as_deref(), expected, "{body}");
    }
    assert_eq!(
        BcsObject::parse(b"\"\xff\"").unwrap_err().to_string(),
        "json decode failed!invalid utf-8 sequence of 1 bytes from index 1"
    );
}

/// The body of a request, with keys in various spellings, as people and old drivers write them.
const REQUEST_BODY: &str = r#"{"KIND":"admissionwebhook","Metadata":{"namespace":"n","NAME":"w","labels":{"App":"a"},"annotations":{}},
 "AdmissionWebhooks":[
  {"ClientConfig":{"Url":"https://h","CaBundle":"eA=="},"Name":"a","namespaceSelector":{"Operator":"In","Values":["x"]}},
  {"name":"b","failurePolicy":"Fail","timeout":"2s","plugin":{"source":"file:/p.wasm","settings":{"Kind":"kept"}},"clientConfig":null}],
 "ResourcesRef":{"Kind":"Application","Operation":"Create"}}"#;

#[test]
fn a_body_is_stored_with_the_documented_spelling_of_keys() {
    let object = parse(REQUEST_BODY)
        .unwrap()
        .with_creation_time("2026-01-02T03:04:05.000Z");
    assert_eq!((object.namespace(), object.name()), ("n", "w"));
    let expected = r#"{
  "apiVersion": "v4",
  "kind": "admissionwebhook",
  "metadata": {
    "name": "w",
    "namespace": "n",
    "creationTimestamp": "2026-01-02T03:04:05.000Z",
    "labels": {
      "App": "a"
    },
    "annotations": {}
  },
  "resourcesRef": {
    "operation": "Create",
    "kind": "Application"
  },
  "admissionWebhooks": [
    {
      "name": "a",
      "clientConfig": {
        "url": "https://h",
        "caBundle": "eA=="
      },
      "namespaceSelector": {
        "operator": "In",
        "values": [
          "x"
        ]
      }
    },
    {
      "name": "b",
      "failurePolicy": "Fail",
      "plugin": {
        "source": "file:/p.wasm",
        "settings": {
          "Kind": "kept"
        }
      },
      "timeout": "2s"
    }
  ]
}
"#;
    assert_eq!(object.to_text(), expected);
    assert_eq!(parse(&object.to_text()).unwrap().to_text(), expected);
}

#[test]
fn a_bcs_object_is_returned_with_its_unset_fields() {
    let complete_object = json!({
        "apiVersion": "v4",
        "kind": "admissionwebhook",
        "metadata": {"name": "w", "namespace": "n", "creationTimestamp": "0001-01-01T00:00:00Z", "labels": {"App": "a"}},
        "resourcesRef": {"operation": "Create", "kind": "Application"},
        "admissionWebhooks": [
            {
                "name": "a",
                "failurePolicy": "",
                "clientConfig": {"url": "https://h", "caBundle": "eA==", "namespace": "", "name": "", "path": "", "port": 0},
                "namespaceSelector": {"operator": "In", "values": ["x"]},
            },
            {
                "name": "b",
                "failurePolicy": "Fail",
                "clientConfig": null,
                "namespaceSelector": null,
                "plugin": {"source": "file:/p.wasm", "settings": {"Kind": "kept"}},
                "timeout": "2s",
            },
        ],
    });
    // (body of a request, object in the BCS driver's response)
    for (object, expected) in [
        (REQUEST_BODY, &complete_object),
        (complete_object.to_string().as_str(), &complete_object),
        (
            r#"{"kind":"admissionwebhook"}"#,
            &json!({
                "apiVersion": "v4",
                "kind": "admissionwebhook",
                "metadata": {"name": "", "namespace": "", "creationTimestamp": "0001-01-01T00:00:00Z"},
                "resourcesRef": null,
                "admissionWebhooks": null,
            }),
        ),
        (
            r#"{"kind":"admissionwebhook","metadata":1,"admissionWebhooks":[2,null],"resourcesRef":[]}"#,
            &json!({
                "apiVersion": "v4",
                "kind": "admissionwebhook",
                "metadata": 1,
                "resourcesRef": [],
                "admissionWebhooks": [2, null],
            }),
        ),
    ] {
        let printed = parse(object).unwrap().with_unset_fields();
        // The objects are compared as text, because the order of their fields matters.
        assert_eq!(printed.to_string(), expected.to_string(), "{object}");
    }
}

#[test]
fn mistakes_in_a_stored_definition_are_reported_at_their_path() {
    // (wrong part of a definition, path of the expected mistake)
    for (part, path) in [
        (r#""other":null"#, "other"),
        (r#""Kind":"admissionwebhook""#, "Kind"),
        (r#""resourcesref":{"kind":"Service"}"#, "resourcesref"),
        (r#""metadata":{"name":"a","Name":"b","namespace":"n"}"#, "metadata.Name"),
        (r#""metadata":{"Name":"b","name":"a","namespace":"n"}"#, "metadata.Name"),
        (
            r#""metadata":{"name":"a","namespace":"n","lables":{}}"#,
            "metadata.lables",
        ),
        (
            r#""metadata":{"name":"a","namespace":"n","labels":{"a":1}}"#,
            "metadata.labels.a",
        ),
        (
            r#""metadata":{"name":"a","namespace":"n","creationTimestamp":1}"#,
            "metadata.creationTimestamp",
        ),
        (r#""metadata":{"name":"a/b","namespace":"n"}"#, "metadata.name"),
        (r#""metadata":{"name":"..","namespace":"n"}"#, "metadata.name"),
        (r#""metadata":{"name":"a","namespace":"."}"#, "metadata.namespace"),
        (r#""metadata":"a""#, "metadata"),
        (r#""admissionWebhooks":[null]"#, "admissionWebhooks[0]"),
    ] {
        let mut members = vec![r#""kind":"admissionwebhook""#];
        for other in [
            r#""metadata":{"name":"a","namespace":"n"}"#,
            r#""resourcesRef":{"operation":"Create","kind":"Application"}"#,
            r#""admissionWebhooks":[]"#,
        ] {
            let key = other.split(':').next().unwrap();
            if !part.starts_with(key) {
                members.push(other);
            }
        }
        members.push(part);
        let text = parse(&format!("{{{}}}", members.join(","))).unwrap().to_text();
        let mistakes = load_text("f.json", &text).unwrap_err();
        let paths: Vec<_> = mistakes.iter().map(|mistake| mistake.path.as_str()).collect();
        assert_eq!(paths, [path], "{part}");
    }
}

#[test]
fn the_namespace_comes_from_the_path_if_the_body_has_none() {
    // (`metadata` in the body, namespace in the request path, namespace of the resulting object)
    for (metadata, path, expected) in [
        (r#"{"name":"w","namespace":"n"}"#, "p", "n"),
        (r#"{"name":"w","namespace":""}"#, "p", "p"),
        (r#"{"name":"w"}"#, "p", "p"),
        ("null", "p", "p"),
        ("1", "p", ""),
        (r#"{"name":"w"}"#, "", ""),
    ] {
        let body = format!(r#"{{"kind":"admissionwebhook","metadata":{metadata}}}"#);
        let object = parse(&body).unwrap().with_default_namespace(path);
        assert_eq!(object.namespace(), expected, "{body}");
    }
}

#[test]
fn an_updated_bcs_object_keeps_its_metadata() {
    let stored = parse(REQUEST_BODY)
        .unwrap()
        .with_creation_time("2026-01-02T03:04:05.000Z");
    let update = r#"{"apiVersion":"v5","kind":"admissionwebhook","metadata":{"namespace":"n","name":"w","labels":{"other":"x"}},
        "resourcesRef":{"operation":"Update","kind":"Deployment"},"admissionWebhooks":[],"unknown":1}"#;
    let updated = stored.with_fields_of(parse(update).unwrap());
    let expected = json!({
        "apiVersion": "v4",
        "kind": "admissionwebhook",
        "metadata": {
            "name": "w",
            "namespace": "n",
            "creationTimestamp": "2026-01-02T03:04:05.000Z",
            "labels": {"App": "a"},
            "annotations": {},
        },
        "resourcesRef": {"operation": "Update", "kind": "Deployment"},
        "admissionWebhooks": [],
        "unknown": 1,
    });
    assert_eq!(updated.to_text(), format!("{expected:#}\n"));
}

#[test]
fn the_bcs_object_of_a_definition_can_be_returned_and_replaced() {
    let metadata = json!({"name": "w", "namespace": "n", "creationTimestamp": "0001-01-01T00:00:00Z"});
    let printed = |metadata: &Json| {
        json!({
            "apiVersion": "v4",
            "kind": "admissionwebhook",
            "metadata": metadata,
            "resourcesRef": {"operation": "Create", "kind": "Application"},
            "admissionWebhooks": [],
        })
    };
    let content = "resourcesRef: { operation: Create, kind: Application }\nadmissionWebhooks: []\n";
    let inside = content.replace("adm", "  adm");
    // (text of a definition, BCS object in it, result of replacing the object)
    for (text, expected, replacement) in [
        (
            format!("# Mine.\nkind: AdmissionWebhook\nmetadata: {{ namespace: 'n', name: w }}\n{content}"),
            Some(printed(&metadata)),
            Some(json!({
                "apiVersion": "v4",
                "kind": "admissionwebhook",
                "metadata": {"name": "w", "namespace": "n"},
                "resourcesRef": {"operation": "Update", "kind": "Application"},
            })),
        ),
        (
            format!(
                "apiVersion: bkbcs.tencent.com/v2\nkind: AdmissionWebhookConfiguration\nmetadata: {{ namespace: 'n', name: w, \
                 uid: u, creationTimestamp: '2020-01-01T00:00:00Z' }}\nspec:\n  {inside}"
            ),
            Some(printed(&json!({
                "name": "w",
                "namespace": "n",
                "creationTimestamp": "2020-01-01T00:00:00Z",
            }))),
            Some(json!({
                "apiVersion": "bkbcs.tencent.com/v2",
                "kind": "AdmissionWebhookConfiguration",
                "metadata": {"namespace": "n", "name": "w", "uid": "u", "creationTimestamp": "2020-01-01T00:00:00Z"},
                "spec": {
                    "apiVersion": "v4",
                    "kind": "admissionwebhook",
                    "resourcesRef": {"operation": "Update", "kind": "Application"},
                },
            })),
        ),
        (
            format!(
                "apiVersion: bkbcs.tencent.com/v2\nkind: AdmissionWebhookConfiguration\nmetadata: {{ namespace: b, name: other \
                 }}\nspec:\n  metadata: {{ namespace: 'n', name: w }}\n  {inside}"
            ),
            Some(printed(&metadata)),
            Some(json!({
                "apiVersion": "bkbcs.tencent.com/v2",
                "kind": "AdmissionWebhookConfiguration",
                "metadata": {"namespace": "b", "name": "other"},
                "spec": {
                    "apiVersion": "v4",
                    "kind": "admissionwebhook",
                    "metadata": {"name": "w", "namespace": "n"},
                    "resourcesRef": {"operation": "Update", "kind": "Application"},
                },
            })),
        ),
        (
            "apiVersion: admittance.dev/v1alpha1\nkind: AdmissionChain\nmetadata: { name: c }\n".to_owned(),
            None,
            None,
        ),
    ] {
        let set = DefinitionSet::of_files(vec![DefinitionFile::file("chains/f.yaml", text.clone())]);
        let [stored] = set.documents().try_into().unwrap();
        let object = stored.bcs_object();
        let object_json = object.as_ref().map(BcsObject::with_unset_fields);
        assert_eq!(object_json, expected, "{text}");
        let update = r#"{"kind":"admissionwebhook","resourcesRef":{"operation":"Update","kind":"Application"}}"#;
        let updated = match &object {
            Some(object) => object.with_fields_of(parse(update).unwrap()),
            None => parse(update).unwrap(),
        };
        assert_eq!(
            stored.with_bcs_object(&updated),
            replacement.map(|replacement| format!("{replacement:#}\n")),
            "{text}"
        );
    }
}
