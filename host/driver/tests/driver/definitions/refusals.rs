use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{BUNDLE, ROUTE, SUCCESS_REPLY, definition_json, parse_refusal};
use crate::harness::{RunningDriver, Setup, echo_upstream};

pub(super) async fn start_driver(directory: &TempDir) -> RunningDriver {
    let driver = Setup::new(&[echo_upstream().await])
        .with_definition_files(directory.path())
        .limits(|limits| limits.body = 64 * 1024)
        .start()
        .await;
    let existing_definition = definition_json("there", "https://h.example").to_string();
    assert_eq!(
        driver.send_definition("POST", ROUTE, existing_definition).await.1,
        SUCCESS_REPLY
    );
    driver
}

/// Returns a definition with these fields. It conflicts with no other definition.
fn definition_with(fields: &Value) -> String {
    let mut body = definition_json("new", "https://h.example");
    body["resourcesRef"] = json!({"operation": "Update", "kind": "Deployment"});
    for (key, value) in fields.as_object().unwrap() {
        body[key] = value.clone();
    }
    body.to_string()
}

fn definition_with_hook(hook: &Value) -> String {
    definition_with(&json!({"admissionWebhooks": [hook]}))
}

fn definition_with_client_config(client: &Value) -> String {
    definition_with_hook(&json!({"name": "a", "clientConfig": client}))
}

#[tokio::test]
async fn invalid_definitions_are_refused() {
    let directory = TempDir::new().unwrap();
    let driver = start_driver(&directory).await;
    let list_files = || {
        let files = fs::read_dir(directory.path().join("chains")).unwrap();
        files.map(|file| file.unwrap().path()).collect::<Vec<_>>()
    };
    let files_before = list_files();
    let existing_path = format!("{ROUTE}/there");
    let absent_path = format!("{ROUTE}/absent");
    const MISTAKES_PREFIX: &str = "there is some error in the parameters: ";
    let no_base64_message =
        "this is not base64: Invalid symbol 37, offset 0.; write the base64 of a PEM file, `base64 -w0 ca.pem`";
    // (method, path, body, expected code, expected message without the program's name at its start)
    for (method, path, body, code, message) in [
        // bcs-mesos-driver replies to the next requests with exactly these messages.
        (
            "POST",
            ROUTE,
            String::new(),
            1_405_010,
            "json decode failed!unexpected end of JSON input".to_owned(),
        ),
        (
            "POST",
            ROUTE,
            "{".to_owned(),
            1_405_010,
            "json decode failed!line 1, column 1: this is not JSON: EOF while parsing an object".to_owned(),
        ),
        (
            "PUT",
            ROUTE,
            "kind: admissionwebhook".to_owned(),
            1_405_010,
            "json decode failed!line 1, column 1: this is not JSON: expected value".to_owned(),
        ),
        (
            "POST",
            ROUTE,
            "[]".to_owned(),
            1_405_008,
            "Unmarshal TypeMeta failed: the body is not an object".to_owned(),
        ),
        ("POST", ROUTE, "{}".to_owned(), 1_405_008, "Kind  is invalid".to_owned()),
        (
            "PUT",
            ROUTE,
            r#"{"kind":"application"}"#.to_owned(),
            1_405_008,
            "Kind application is invalid".to_owned(),
        ),
        (
            "PUT",
            ROUTE,
            definition_json("absent", "https://h.example").to_string(),
            1_405_202,
            "admission not exist: there is no defaultGroup/absent".to_owned(),
        ),
        (
            "DELETE",
            &absent_path,
            String::new(),
            1_405_202,
            "admission not exist: there is no defaultGroup/absent".to_owned(),
        ),
        (
            "GET",
            &absent_path,
            String::new(),
            1_405_200,
            "admission not exist: there is no defaultGroup/absent".to_owned(),
        ),
        (
            "DELETE",
            "/namespaces/other/admissionwebhook/there",
            String::new(),
            1_405_202,
            "admission not exist: there is no other/there".to_owned(),
        ),
        (
            "POST",
            ROUTE,
            definition_json("there", "https://h.example").to_string(),
            1_405_201,
            format!(
                "admission already exist: defaultGroup/there is in {}:1:1",
                files_before[0].display()
            ),
        ),
        (
            "POST",
            "/namespaces/other/admissionwebhook",
            definition_json("there", "x").to_string(),
            1_405_201,
            format!(
                "admission already exist: defaultGroup/there is in {}:1:1",
                files_before[0].display()
            ),
        ),
        // The next definitions are refused because of mistakes with which they could never work, such as an unknown
        // `apiVersion`.
        (
            "POST",
            ROUTE,
            definition_with(&json!({"apiVersion": "v5"})),
            1_405_231,
            format!(
                "{MISTAKES_PREFIX}apiVersion: \"v5\" is not a supported version of admissionwebhook; write `apiVersion: v4`"
            ),
        ),
        (
            "POST",
            ROUTE,
            definition_with(&json!({"resourcesRef": null})),
            1_405_231,
            format!(
                "{MISTAKES_PREFIX}resourcesRef: missing; write operation and kind: `{{ operation: Create, kind: Application }}`"
            ),
        ),
        (
            "POST",
            ROUTE,
            definition_with(&json!({"resourcesRef": {"operation": "Delete", "kind": "Deployment"}})),
            1_405_231,
            format!(
                "{MISTAKES_PREFIX}resourcesRef.operation: \"Delete\" is not a valid operation; write Create or Update"
            ),
        ),
        (
            "POST",
            ROUTE,
            definition_with(&json!({"resourcesRef": {"operation": "Create", "kind": "Aplication"}})),
            1_405_231,
            format!(
                "{MISTAKES_PREFIX}resourcesRef.kind: \"Aplication\" is not a valid kind of BCS; did you mean Application?"
            ),
        ),
        (
            "POST",
            ROUTE,
            definition_with(&json!({"admissionWebhooks": null})),
            1_405_231,
            format!("{MISTAKES_PREFIX}admissionWebhooks: missing; list the hooks that are called"),
        ),
        (
            "POST",
            ROUTE,
            definition_with(&json!({"metadata": {"name": "a/b", "namespace": "n"}})),
            1_405_231,
            format!(
                "{MISTAKES_PREFIX}metadata.name: \"a/b\" is not a valid name: remove the `/`, which stands between namespace and name"
            ),
        ),
        (
            "POST",
            ROUTE,
            definition_with(&json!({"metadata": {"namespace": "n"}})),
            1_405_231,
            format!("{MISTAKES_PREFIX}metadata.name: missing; name the definition"),
        ),
        (
            "POST",
            ROUTE,
            definition_with(&json!({"metadata": {"name": "a", "namespace": "n", "labels": {"a": 1}}})),
            1_405_231,
            format!("{MISTAKES_PREFIX}metadata.labels.a: a number where a string is expected; put it in quotes: \"1\""),
        ),
        (
            "POST",
            ROUTE,
            definition_with(&json!({"resourceRef": {}})),
            1_405_231,
            format!(
                "{MISTAKES_PREFIX}resourceRef: unknown field; known here: admissionWebhooks, apiVersion, kind, metadata, resourcesRef"
            ),
        ),
        (
            "POST",
            ROUTE,
            definition_with_hook(&json!({"name": "a", "failurePolicy": "fail", "clientConfig": {"url": "https://h"}})),
            1_405_231,
            format!(
                "{MISTAKES_PREFIX}admissionWebhooks[0].failurePolicy: \"fail\" is not a valid failure policy; case matters: write Fail"
            ),
        ),
        (
            "POST",
            ROUTE,
            definition_with_hook(
                &json!({"name": "a", "namespaceSelector": {"operator": "Is", "values": []}, "clientConfig": {"url": "https://h"}}),
            ),
            1_405_231,
            format!(
                "{MISTAKES_PREFIX}admissionWebhooks[0].namespaceSelector.operator: \"Is\" is not a valid operator; write In or NotIn"
            ),
        ),
        (
            "POST",
            ROUTE,
            definition_with_hook(&json!({"name": "a"})),
            1_405_231,
            format!(
                "{MISTAKES_PREFIX}admissionWebhooks[0].clientConfig: missing; write where the hook is, or `plugin` in its place"
            ),
        ),
        (
            "POST",
            ROUTE,
            definition_with_client_config(&json!({"caBundle": "%%%", "namespace": "n", "name": "s"})),
            1_405_231,
            format!("{MISTAKES_PREFIX}admissionWebhooks[0].clientConfig.caBundle: {no_base64_message}"),
        ),
        (
            "POST",
            ROUTE,
            definition_with_client_config(&json!({"caBundle": "aGVsbG8=", "namespace": "n", "name": "s"})),
            1_405_231,
            format!(
                "{MISTAKES_PREFIX}admissionWebhooks[0].clientConfig.caBundle: there is no certificate in it; write the base64 of a PEM file, `base64 -w0 ca.pem`"
            ),
        ),
        (
            "POST",
            ROUTE,
            definition_with_client_config(&json!({"namespace": "n", "name": "s"})),
            1_405_231,
            format!(
                "{MISTAKES_PREFIX}admissionWebhooks[0].clientConfig.caBundle: missing; a service is trusted by its CA: write the base64 of a PEM file, `base64 -w0 ca.pem`"
            ),
        ),
        (
            "POST",
            ROUTE,
            definition_with_client_config(&json!({"caBundle": *BUNDLE, "namespace": "n", "name": "s", "path": "p"})),
            1_405_231,
            format!("{MISTAKES_PREFIX}admissionWebhooks[0].clientConfig.path: the path \"p\" does not begin with `/`"),
        ),
        (
            "POST",
            ROUTE,
            definition_with(
                &json!({"resourcesRef": {"operation": "Delete", "kind": "Deployment"}, "admissionWebhooks": [{"name": "a", "clientConfig": {"url": "x"}}, {"name": "a", "failurePolicy": "Open", "clientConfig": {"url": "https://h"}}]}),
            ),
            1_405_231,
            format!(
                "{MISTAKES_PREFIX}resourcesRef.operation: \"Delete\" is not a valid operation; write Create or Update\n\
                admissionWebhooks[0].clientConfig.url: this is not a valid URL: relative URL without a base; write https://host/path\n\
                admissionWebhooks[1].name: \"a\" is also the name of the stage on line 15; give each stage its own name\n\
                admissionWebhooks[1].failurePolicy: \"Open\" is not a valid failure policy; write Fail or Ignore"
            ),
        ),
        (
            "POST",
            ROUTE,
            definition_with(&json!({"resourcesRef": {"operation": "create", "kind": "application"}})),
            1_405_231,
            format!(
                "{MISTAKES_PREFIX}resourcesRef: {}:9:19 already defines hooks for Create of application; BCS has one definition for each operation and kind: put the hooks into one",
                files_before[0].display()
            ),
        ),
        (
            "PUT",
            ROUTE,
            definition_json("there", "x").to_string(),
            1_405_231,
            format!(
                "{MISTAKES_PREFIX}admissionWebhooks[0].clientConfig.url: this is not a valid URL: relative URL without a base; write https://host/path"
            ),
        ),
        // The plugins of the next definitions cannot be loaded.
        (
            "POST",
            ROUTE,
            definition_with_hook(&json!({"name": "a", "plugin": {"source": "file:/missing.wasm"}})),
            1_405_231,
            format!(
                "{MISTAKES_PREFIX}stage a of chain defaultGroup/new: module /missing.wasm: No such file or directory (os error 2); build the module, or correct `source`: the path begins at the definition's directory"
            ),
        ),
        (
            "POST",
            ROUTE,
            definition_with_hook(&json!({"name": "a", "plugin": {"source": "ftp:x"}})),
            1_405_231,
            format!(
                "{MISTAKES_PREFIX}admissionWebhooks[0].plugin.source: \"ftp:x\" does not say where the module is; write `file:` and a path, an `https://` URL, or `oci://registry/repository:tag`"
            ),
        ),
    ] {
        let (status, answer) = driver.send_definition(method, path, body.clone()).await;
        let expected = json!({
            "result": false,
            "code": code,
            "message": format!("(bcs-mesos-driver):{message}"),
            "data": {},
        });
        assert_eq!((status, answer), (200, expected.to_string()), "{method} {path} {body}");
    }
    assert_eq!(list_files(), files_before);
    assert_eq!(
        driver.reply_data("GET", &existing_path).await["admissionWebhooks"][0]["clientConfig"]["url"],
        "https://h.example"
    );
    let (_, status) = driver.call_admin("GET", "/v1/status", "").await;
    assert_eq!(status["revision"], 2, "nothing of it had an effect");
}

#[tokio::test]
async fn a_reply_lists_a_limited_number_of_mistakes() {
    let directory = TempDir::new().unwrap();
    let driver = start_driver(&directory).await;
    let body = definition_with(&json!({"admissionWebhooks": vec![1; 60]}));
    let (_, answer) = driver.send_definition("POST", ROUTE, body).await;
    let (code, message) = parse_refusal(&answer);
    assert_eq!((code, message.lines().count()), (1_405_231, 51));
    assert!(message.ends_with("\nand 10 more"), "{message}");
}
