//! Tests of updates, messages, and bodies that are forwarded unchanged.

use serde_json::Value;

use super::{
    translation::{application, object_of_kind, scheduler_request},
    *,
};
use crate::scheduler::definitions_reply;

#[test]
#[rustfmt::skip]
fn an_update_is_sent_to_the_application_that_its_body_names() {
    // (section or source file with this rule, method, path, expected target of the request to the scheduler)
    for (source, method, path, expected) in [
        ("1.3", "PUT", "applications?instances=1&args=resource", "POST /v1/apps/ns/app-test/update?instances=1&args=resource"),
        ("1.3, nothing asked", "PUT", "applications", "POST /v1/apps/ns/app-test/update?instances=&args="),
        ("1.3 rollback", "PUT", "applications/rollback", "POST /v1/apps/ns/app-test/update?instances=2&kind=application"),
        ("1.3", "PUT", "processes?instances=1", "POST /v1/apps/ns/app-test/update?instances=1&args="),
        ("1.3 rollback", "PUT", "processes/rollback", "POST /v1/apps/ns/app-test/update?instances=2&kind=process"),
    ] {
        let kind = if path.starts_with("processes") {
            "process"
        } else {
            "application"
        };
        let path = format!("/mesosdriver/v4/namespaces/path/{path}");
        let (target, version) = scheduler_request(method, &path, &object_of_kind(kind).to_string());
        assert_eq!(target, expected, "{source}");
        assert_eq!(version["Kind"], kind);
    }
    let mut object = application();
    object["metadata"].as_object_mut().unwrap().remove("namespace");
    let (target, _) = scheduler_request("PUT", APPLICATIONS, &object.to_string());
    assert_eq!(
        target,
        "POST /v1/apps/defaultGroup/app-test/update?instances=&args="
    );
}

#[test]
#[rustfmt::skip]
fn messages_are_translated_for_the_scheduler() {
    let application = "/mesosdriver/v4/namespaces/test/applications/a/message";
    let taskgroup = "/mesosdriver/v4/namespaces/test/applications/a/taskgroups/t/message";
    let message = |kind: i32, key: &str, content: Value| {
        json!({
            "Id": 0, "Type": kind, "TaskGroupId": "", "TaskID": null, key: content,
            "Status": "", "Message": "", "CompleteTime": 0, "CreateTime": 0,
        })
    };
    // (section or source file with this rule, path, type and data of the client's message, expected target and message
    // at the scheduler)
    for (source, path, kind, data, target, expected) in [
        ("6 documented pair", application, "signal", json!({"processname": "myprocess", "signal": 12}), "POST /v1/apps/test/a/message", message(2, "Sig", json!({"Signal": 12, "ProcessName": "myprocess"}))),
        ("1.3 to a taskgroup", taskgroup, "signal", json!({"signal": 9}), "POST /v1/apps/test/a/message/t", message(2, "Sig", json!({"Signal": 9, "ProcessName": ""}))),
        ("1.5 local", application, "local", json!({"to": "t", "user": "u", "right": "r", "ctx": "Yg=="}), "POST /v1/apps/test/a/message", message(1, "Local", json!({"To": "t", "Right": "r", "User": "u", "Base64": "Yg=="}))),
        ("1.5 remote", application, "remote", json!({"to": "t", "user": "u", "right": "r", "remote": "http://x"}), "POST /v1/apps/test/a/message", message(4, "Remote", json!({"To": "t", "Right": "r", "User": "u", "From": "http://x"}))),
        ("1.5 env-key", application, "env-key", json!({"env-key": "k", "env-value": "v"}), "POST /v1/apps/test/a/message", message(3, "Env", json!({"Name": "k", "Value": "v"}))),
        ("send.go: what is no text is none", application, "env-key", json!({"env-key": 1}), "POST /v1/apps/test/a/message", message(3, "Env", json!({"Name": "", "Value": ""}))),
        ("send.go: no data", application, "local", json!(null), "POST /v1/apps/test/a/message", message(1, "Local", json!({"To": "", "Right": "", "User": "", "Base64": ""}))),
        ("other fields", application, "env-key", json!({"env-key": "k", "append": true, "NAME": "n"}), "POST /v1/apps/test/a/message", message(3, "Env", json!({"Name": "k", "Value": "", "append": true}))),
        ("fields that only the scheduler sets", application, "remote", json!({"type": "ftp", "remoteuser": "u"}), "POST /v1/apps/test/a/message", message(4, "Remote", json!({"To": "", "Right": "", "User": "", "From": ""}))),
    ] {
        let body = json!({"name": "a", "namespace": "test", "msgtype": kind, "msgdata": data, "sig": {"Signal": 15}});
        let (scheduler_target, scheduler_message) = scheduler_request("POST", path, &body.to_string());
        assert_eq!(
            (scheduler_target.as_str(), scheduler_message.to_string()),
            (target, expected.to_string()),
            "{source}"
        );
    }
}

#[test]
#[rustfmt::skip]
fn bodies_of_the_right_kind_are_forwarded_unchanged() {
    // (section or source file with this rule, method, path, body, expected target of the request to the scheduler)
    for (source, method, path, body, expected) in [
        ("1.3", "POST", "/namespaces/n/configmaps", r#"{"kind":"configmap" , "datas":{}}"#, "POST /v1/configmap"),
        ("1.3", "PUT", "/namespaces/n/configmaps", r#"{"Kind":"configmap"}"#, "PUT /v1/configmap"),
        ("1.3", "POST", "/namespaces/n/secrets", r#"{"kind":"secret","other":[1.0]}"#, "POST /v1/secret"),
        ("1.3", "PUT", "/namespaces/n/secrets", r#"{"kind":"secret"}"#, "PUT /v1/secret"),
        ("1.3", "POST", "/namespaces/n/services", r#"{"kind":"service"}"#, "POST /v1/service"),
        ("1.3", "PUT", "/namespaces/n/services", r#"{"kind":"service"}"#, "PUT /v1/service"),
        ("1.3", "POST", "/namespaces/n/admissionwebhook", r#"{"kind":"admissionwebhook"}"#, "POST /v1/admissionwebhook"),
        ("1.3", "PUT", "/namespaces/n/admissionwebhook", r#"{"kind":"admissionwebhook"}"#, "PUT /v1/admissionwebhook"),
        ("6 documented path", "POST", "/crd/namespaces/n/admissionwebhook", r#"{"kind":"admissionwebhook"}"#, "POST /v1/admissionwebhook"),
        ("6 documented path", "PUT", "/crd/namespaces/n/admissionwebhook", r#"{"kind":"admissionwebhook"}"#, "PUT /v1/admissionwebhook"),
    ] {
        let head = request_head(method, &format!("{PREFIX}{path}"), &[]);
        let description = describe(translate(&head, &Bytes::from(body)));
        assert_eq!(description, format!("{expected} as it is"), "{source} {method} {path}");
    }
}

#[test]
#[rustfmt::skip]
fn custom_resource_definitions_get_the_api_version_apiextensions_v1beta1() {
    // (section or source file with this rule, method, path, body, expected request to the scheduler)
    for (source, method, path, body, expected) in [
        ("1.3", "POST", "", r#"{"kind":"K","apiVersion":"v4","x":1}"#, r#" {"kind":"K","apiVersion":"apiextensions.k8s.io/v1beta1","x":1}"#),
        ("1.3", "PUT", "/a.b", "{}", r#"/a.b {"apiVersion":"apiextensions.k8s.io/v1beta1"}"#),
        ("customresource.go: what is no JSON goes on", "POST", "", "x", " as it is"),
    ] {
        let head = request_head(method, &format!("{PREFIX}/customresourcedefinitions{path}"), &[]);
        assert!(forwarding(&head, None).is_none(), "{source}");
        let description = describe(translate(&head, &Bytes::from(body)));
        assert_eq!(description, format!("kubernetes /apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions{expected}"), "{source}");
    }
    // (section or source file with this rule, the scheduler's reply, expected reply to the client)
    for (source, reply, expected) in [
        ("1.3 the first place", r#"{"apiVersion":"apiextensions.k8s.io/v1beta1","of":"apiextensions.k8s.io/v1beta1"}"#, r#"{"apiVersion":"v4","of":"apiextensions.k8s.io/v1beta1"}"#),
        ("customresource.go", r#"{"apiVersion":"v1","kind":"Status"}"#, r#"{"apiVersion":"v1","kind":"Status"}"#),
    ] {
        assert_eq!(definitions_reply(&Bytes::from(reply)), expected, "{source}");
    }
}
