//! Test cases from the code of bcs-mesos-driver. Each names the section of that driver's reference from which it comes.
//! The cases run one after another.

use admittance_tests::Reply;
use bytes::Bytes;
use http::{Method, Request, header::CONTENT_TYPE};
use serde_json::{Value, json};

use super::{
    hooks::MesosHooks,
    scene::{CLUSTER, MesosScene, code_and_message},
};
use crate::scene::{application, source};

struct Vector {
    /// The section of the reference of bcs-mesos-driver from which the case comes, and a description of the case.
    source: &'static str,
    /// The namespace of the request. Cases with the same namespace have the same hooks.
    namespace: &'static str,
    /// The hooks of the namespace, as (name, failure policy), for Create and Update of applications and deployments.
    hooks: &'static [(&'static str, &'static str)],
    /// The values of the request's header `BCS-ClusterID`, of which there may be none or several.
    cluster: &'static [&'static str],
    /// The method of the request, and its path below `/mesosdriver/v4`. In the path, `{ns}` stands for the namespace of
    /// this case.
    ask: (Method, &'static str),
    body: VectorBody,
    /// The status and the code of the reply that the client must get, and a part of its message.
    reply: (u16, u64, &'static str),
    scheduler_line: Option<&'static str>,
    /// The names of the hooks that must be called, in this order.
    called_hooks: &'static [&'static str],
    /// (JSON Pointer, value) for each value that the body to the scheduler must have.
    scheduler_values: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy)]
enum VectorBody {
    Nothing,
    /// The body is an object of this kind with the name `web`.
    Object(&'static str),
    Text(&'static str),
    /// A definition with one hook: (operation, kind of the object, further fields). In the further fields, `CA` stands
    /// for a valid CA bundle.
    Definition(&'static str, &'static str, &'static str),
}

use VectorBody::{Definition, Nothing, Object, Text};

const DEFAULT_VECTOR: Vector = Vector {
    source: "",
    namespace: "",
    hooks: &[],
    cluster: &[CLUSTER],
    ask: (Method::POST, "/namespaces/{ns}/applications"),
    body: Object("application"),
    reply: (200, 0, "success"),
    scheduler_line: None,
    called_hooks: &[],
    scheduler_values: &[],
};

const FIRST_POINTER: &str = "/raw_json/metadata/annotations/first";
const ODD_POINTER: &str = "/raw_json/metadata/annotations/odd";
const IMAGE_POINTER: &str = "/Container/0/Docker/Image";
const CREATE_LINE: Option<&str> = Some("POST /v1/apps");

const POST_DEFINITION: (Method, &str) = (Method::POST, "/namespaces/{ns}/admissionwebhook");
const PUT_DEFINITION: (Method, &str) = (Method::PUT, "/namespaces/{ns}/admissionwebhook");
const GOOD_CLIENT: &str = r#""clientConfig":{"namespace":"hooks","name":"hook","caBundle":"CA"}"#;
const OTHER_CLIENT: &str = r#""clientConfig":{"url":"http://hook.hooks:1/"}"#;
const ANNOTATING_HOOK: &[(&str, &str)] = &[("annotates", "Fail")];
const WRONG_CLUSTER: (u16, u64, &str) = (400, 1_405_234, "http header BCS-ClusterID ");

#[rustfmt::skip]
const VECTORS: &[Vector] = &[
    // The cases from here on test the header `BCS-ClusterID`, which names the cluster.
    Vector { source: "1.2 no BCS-ClusterID, and no hook is called (2.6 no. 12)", namespace: "header", hooks: ANNOTATING_HOOK, cluster: &[], reply: WRONG_CLUSTER, ..DEFAULT_VECTOR },
    Vector { source: "1.2 another cluster", namespace: "header", hooks: ANNOTATING_HOOK, cluster: &["BCS-MESOS-10002"], reply: (400, 1_405_234, "http header BCS-ClusterID BCS-MESOS-10002 don't exist"), ..DEFAULT_VECTOR },
    Vector { source: "1.2 case counts", namespace: "header", hooks: ANNOTATING_HOOK, cluster: &["bcs-mesos-10001"], reply: WRONG_CLUSTER, ..DEFAULT_VECTOR },
    Vector { source: "1.2 two of them", namespace: "header", hooks: ANNOTATING_HOOK, cluster: &[CLUSTER, "BCS-MESOS-10002"], reply: WRONG_CLUSTER, ..DEFAULT_VECTOR },
    Vector { source: "1.2 on every route", namespace: "header", hooks: ANNOTATING_HOOK, cluster: &[], ask: (Method::GET, "/namespaces/{ns}/applications"), body: Nothing, reply: WRONG_CLUSTER, ..DEFAULT_VECTOR },
    Vector { source: "1.2 on the routes of definitions", namespace: "header", hooks: ANNOTATING_HOOK, cluster: &[], ask: (Method::POST, "/namespaces/{ns}/admissionwebhook"), body: Object("admissionwebhook"), reply: WRONG_CLUSTER, ..DEFAULT_VECTOR },
    // The cases from here on test the kind of the object in the body.
    Vector { source: "1.4 wrong kind", namespace: "kinds", ask: (Method::POST, "/namespaces/{ns}/applications"), body: Object("deployment"), reply: (200, 1_405_008, "(bcs-mesos-driver):Kind deployment is invalid"), ..DEFAULT_VECTOR },
    Vector { source: "1.4 wrong kind", namespace: "kinds", ask: (Method::PUT, "/namespaces/{ns}/deployments"), body: Object("application"), reply: (200, 1_405_008, "(bcs-mesos-driver):Kind application is invalid"), ..DEFAULT_VECTOR },
    Vector { source: "1.4 wrong kind", namespace: "kinds", ask: (Method::POST, "/namespaces/{ns}/configmaps"), body: Object("secret"), reply: (200, 1_405_008, "(bcs-mesos-driver):Kind secret is invalid"), ..DEFAULT_VECTOR },
    Vector { source: "1.4 no kind", namespace: "kinds", ask: (Method::POST, "/namespaces/{ns}/services"), body: Text("{}"), reply: (200, 1_405_008, "(bcs-mesos-driver):Kind  is invalid"), ..DEFAULT_VECTOR },
    Vector { source: "2.1 wrong kind of a definition", namespace: "kinds", ask: (Method::POST, "/namespaces/{ns}/admissionwebhook"), body: Object("application"), reply: (200, 1_405_008, "Kind application is invalid"), ..DEFAULT_VECTOR },
    Vector { source: "2.4 the hooks are for the kind of the body; the kind is checked behind them", namespace: "wrong", hooks: ANNOTATING_HOOK, ask: (Method::POST, "/namespaces/{ns}/deployments"), reply: (200, 1_405_008, "Kind application is invalid"), called_hooks: &["annotates"], ..DEFAULT_VECTOR },
    // The cases from here on test errors of the scheduler. The driver passes their codes on to the client.
    Vector { source: "2.2 of a scheduler: created", namespace: "twice", ask: (Method::POST, "/namespaces/{ns}/configmaps"), body: Object("configmap"), scheduler_line: Some("POST /v1/configmap"), ..DEFAULT_VECTOR },
    Vector { source: "2.2 of a scheduler: create twice", namespace: "twice", ask: (Method::POST, "/namespaces/{ns}/configmaps"), body: Object("configmap"), reply: (200, 1_405_201, "(bcs-scheduler):configmap already exist"), scheduler_line: Some("POST /v1/configmap"), ..DEFAULT_VECTOR },
    Vector { source: "2.2 of a scheduler: update absent", namespace: "twice", ask: (Method::PUT, "/namespaces/{ns}/secrets"), body: Object("secret"), reply: (200, 1_405_202, "(bcs-scheduler):secret not exist"), scheduler_line: Some("PUT /v1/secret"), ..DEFAULT_VECTOR },
    Vector { source: "2.2 of a scheduler: delete", namespace: "twice", ask: (Method::DELETE, "/namespaces/{ns}/configmaps/web"), body: Nothing, scheduler_line: Some("DELETE /v1/configmap/twice/web"), ..DEFAULT_VECTOR },
    // The cases from here on test what hooks change, and how hooks fail.
    Vector { source: "2.5 the reply is the new resource", namespace: "changes", hooks: ANNOTATING_HOOK, scheduler_line: CREATE_LINE, called_hooks: &["annotates"], scheduler_values: &[(FIRST_POINTER, "seen")], ..DEFAULT_VECTOR },
    Vector { source: "6 Fail and 500", namespace: "fail-500", hooks: &[("annotates", "Fail"), ("broken", "Fail"), ("passes", "Fail")], reply: (400, 1_405_234, "100% out of order"), called_hooks: &["annotates", "broken"], ..DEFAULT_VECTOR },
    Vector { source: "6 Ignore and 500: the last good body", namespace: "ignore-500", hooks: &[("annotates", "Fail"), ("broken", "Ignore")], scheduler_line: CREATE_LINE, called_hooks: &["annotates", "broken"], scheduler_values: &[(FIRST_POINTER, "seen")], ..DEFAULT_VECTOR },
    Vector { source: "6 Ignore and 500 go on to the next hook", namespace: "goes-on", hooks: &[("broken", "Ignore"), ("annotates", "Fail")], scheduler_line: CREATE_LINE, called_hooks: &["broken", "annotates"], scheduler_values: &[(FIRST_POINTER, "seen")], ..DEFAULT_VECTOR },
    Vector { source: "6 the chain hands bytes on", namespace: "chain", hooks: &[("odd", "Fail"), ("passes", "Fail"), ("annotates", "Fail")], scheduler_line: CREATE_LINE, called_hooks: &["odd", "passes", "annotates"], scheduler_values: &[(ODD_POINTER, "seen"), (FIRST_POINTER, "seen")], ..DEFAULT_VECTOR },
    Vector { source: "6 a reply 201 is a failure", namespace: "fail-201", hooks: &[("created", "Fail")], reply: (400, 1_405_234, "201"), called_hooks: &["created"], ..DEFAULT_VECTOR },
    Vector { source: "6 a reply 201 is a failure", namespace: "ignore-201", hooks: &[("created", "Ignore")], scheduler_line: CREATE_LINE, called_hooks: &["created"], scheduler_values: &[("/raw_json/metadata/annotations/created", "")], ..DEFAULT_VECTOR },
    Vector { source: "2.5 a reply 302 is a failure; the original follows it", namespace: "moved", hooks: &[("moved", "Fail")], reply: (400, 1_405_234, "302"), called_hooks: &["moved"], ..DEFAULT_VECTOR },
    Vector { source: "2.6 no. 3: an empty reply", namespace: "empty", hooks: &[("empty", "Fail")], reply: (400, 1_405_234, "empty"), called_hooks: &["empty"], ..DEFAULT_VECTOR },
    Vector { source: "2.6 no. 3: a reply that is no JSON", namespace: "garbage", hooks: &[("garbage", "Fail")], reply: (400, 1_405_234, "JSON"), called_hooks: &["garbage"], ..DEFAULT_VECTOR },
    Vector { source: "2.6 no. 3: another name", namespace: "renames", hooks: &[("renames", "Fail")], reply: (400, 1_405_234, "/metadata/name"), called_hooks: &["renames"], ..DEFAULT_VECTOR },
    Vector { source: "2.1 no policy is Ignore", namespace: "no-policy", hooks: &[("broken", "")], scheduler_line: CREATE_LINE, called_hooks: &["broken"], ..DEFAULT_VECTOR },
    Vector { source: "2.4 deployments", namespace: "deploys", hooks: ANNOTATING_HOOK, ask: (Method::POST, "/namespaces/{ns}/deployments"), body: Object("deployment"), scheduler_line: Some("POST /v1/deployment/deploys/web"), called_hooks: &["annotates"], scheduler_values: &[(FIRST_POINTER, "seen")], ..DEFAULT_VECTOR },
    Vector { source: "2.4 deployments", namespace: "deploys", hooks: ANNOTATING_HOOK, ask: (Method::PUT, "/namespaces/{ns}/deployments"), body: Object("deployment"), scheduler_line: Some("PUT /v1/deployment/deploys/web?args="), called_hooks: &["annotates"], scheduler_values: &[(FIRST_POINTER, "seen")], ..DEFAULT_VECTOR },
    // The cases from here on test for which requests hooks are called.
    Vector { source: "2.4 POST is Create", namespace: "life", hooks: ANNOTATING_HOOK, scheduler_line: CREATE_LINE, called_hooks: &["annotates"], scheduler_values: &[(FIRST_POINTER, "seen")], ..DEFAULT_VECTOR },
    Vector { source: "2.4 PUT is Update", namespace: "life", hooks: ANNOTATING_HOOK, ask: (Method::PUT, "/namespaces/{ns}/applications?instances=1"), scheduler_line: Some("POST /v1/apps/life/web/update?instances=1&args="), called_hooks: &["annotates"], scheduler_values: &[(FIRST_POINTER, "seen")], ..DEFAULT_VECTOR },
    Vector { source: "6 PUT rollback calls Update hooks", namespace: "life", hooks: ANNOTATING_HOOK, ask: (Method::PUT, "/namespaces/{ns}/applications/rollback"), scheduler_line: Some("POST /v1/apps/life/web/update?instances=2&kind=application"), called_hooks: &["annotates"], scheduler_values: &[(FIRST_POINTER, "seen")], ..DEFAULT_VECTOR },
    Vector { source: "6 no call for GET", namespace: "life", hooks: ANNOTATING_HOOK, ask: (Method::GET, "/namespaces/{ns}/applications/web"), body: Nothing, scheduler_line: Some("GET /v1/apps/life/web?kind=application"), ..DEFAULT_VECTOR },
    Vector { source: "6 no call for scale", namespace: "life", hooks: ANNOTATING_HOOK, ask: (Method::PUT, "/namespaces/{ns}/applications/web/scale/3"), body: Nothing, scheduler_line: Some("POST /v1/apps/life/web/scale?instances=3&kind=application"), ..DEFAULT_VECTOR },
    Vector { source: "6 no call for DELETE", namespace: "life", hooks: ANNOTATING_HOOK, ask: (Method::DELETE, "/namespaces/{ns}/applications/web?enforce=1"), body: Nothing, scheduler_line: Some("DELETE /v1/apps/life/web?enforce=1&kind=application"), ..DEFAULT_VECTOR },
    Vector { source: "6 no call for a process", namespace: "life", hooks: ANNOTATING_HOOK, ask: (Method::POST, "/namespaces/{ns}/processes"), body: Object("process"), scheduler_line: CREATE_LINE, scheduler_values: &[("/Kind", "process")], ..DEFAULT_VECTOR },
    Vector { source: "2.4 an empty body passes the hooks", namespace: "life", hooks: ANNOTATING_HOOK, body: Nothing, reply: (200, 1_405_008, "Unmarshal TypeMeta failed: unexpected end of JSON input"), ..DEFAULT_VECTOR },
    Vector { source: "2.6 no. 10: what cannot be decoded does not", namespace: "life", hooks: ANNOTATING_HOOK, body: Text("{"), reply: (400, 1_405_010, "json decode failed!"), ..DEFAULT_VECTOR },
    Vector { source: "2.6 no. 6: null breaks the original's connection", namespace: "life", hooks: ANNOTATING_HOOK, body: Text("null"), reply: (400, 1_405_010, "json decode failed!"), ..DEFAULT_VECTOR },
    Vector { source: "1.4 a name with a dot", namespace: "dots", hooks: ANNOTATING_HOOK, body: Text(r#"{"kind":"application","metadata":{"name":"a.b","namespace":"x"}}"#), reply: (200, 0, "Name can't contains contains '.'"), ..DEFAULT_VECTOR },
    // The cases from here on test requests about definitions. The driver answers such requests itself, without the
    // scheduler.
    Vector { source: "2.2 create", namespace: "defs", ask: POST_DEFINITION, body: Definition("Create", "secret", GOOD_CLIENT), ..DEFAULT_VECTOR },
    Vector { source: "2.2, 6 create twice", namespace: "defs", ask: POST_DEFINITION, body: Definition("Create", "secret", GOOD_CLIENT), reply: (200, 1_405_201, "admission already exist"), ..DEFAULT_VECTOR },
    Vector { source: "2.2 update", namespace: "defs", ask: PUT_DEFINITION, body: Definition("Create", "secret", OTHER_CLIENT), ..DEFAULT_VECTOR },
    Vector { source: "2.2, 6 update absent", namespace: "defs", ask: PUT_DEFINITION, body: Definition("Create", "service", GOOD_CLIENT), reply: (200, 1_405_202, "admission not exist"), ..DEFAULT_VECTOR },
    Vector { source: "2.2 get", namespace: "defs", ask: (Method::GET, "/namespaces/{ns}/admissionwebhook/of-secret"), body: Nothing, ..DEFAULT_VECTOR },
    Vector { source: "2.2 get absent", namespace: "defs", ask: (Method::GET, "/namespaces/{ns}/admissionwebhook/of-service"), body: Nothing, reply: (200, 1_405_200, "admission not exist"), ..DEFAULT_VECTOR },
    Vector { source: "2.2 list", namespace: "defs", ask: (Method::GET, "/admissionwebhooks"), body: Nothing, ..DEFAULT_VECTOR },
    Vector { source: "2.2 no JSON", namespace: "defs", ask: POST_DEFINITION, body: Text(r#"{"kind":"admissionwebhook","#), reply: (200, 1_405_010, "json decode failed!"), ..DEFAULT_VECTOR },
    Vector { source: "2.2 JSON of other types: every mistake is told", namespace: "defs", ask: POST_DEFINITION, body: Text(r#"{"kind":"admissionwebhook","metadata":1}"#), reply: (200, 1_405_231, "metadata: a number where an object is expected"), ..DEFAULT_VECTOR },
    Vector { source: "6 an unknown operator; the original never calls such a hook", namespace: "defs", ask: POST_DEFINITION, body: Definition("Create", "service", r#""clientConfig":{"namespace":"hooks","name":"hook","caBundle":"CA"},"namespaceSelector":{"operator":"Exists","values":[]}"#), reply: (200, 1_405_231, "Exists"), ..DEFAULT_VECTOR },
    Vector { source: "2.6 no. 10: an unknown policy; in the original it is Ignore", namespace: "defs", ask: POST_DEFINITION, body: Definition("Create", "service", r#""failurePolicy":"fail","clientConfig":{"namespace":"hooks","name":"hook","caBundle":"CA"}"#), reply: (200, 1_405_231, "failurePolicy"), ..DEFAULT_VECTOR },
    Vector { source: "2.6 no. 5: no clientConfig crashes the original", namespace: "defs", ask: POST_DEFINITION, body: Definition("Create", "service", r#""failurePolicy":"Fail""#), reply: (200, 1_405_231, "clientConfig"), ..DEFAULT_VECTOR },
    Vector { source: "2.6 no. 5: no resourcesRef deadlocks the original", namespace: "defs", ask: POST_DEFINITION, body: Text(r#"{"kind":"admissionwebhook","metadata":{"name":"a","namespace":"b"},"admissionWebhooks":[]}"#), reply: (200, 1_405_231, "resourcesRef"), ..DEFAULT_VECTOR },
    Vector { source: "2.5 bad base64", namespace: "defs", ask: POST_DEFINITION, body: Definition("Create", "service", r#""clientConfig":{"namespace":"hooks","name":"hook","caBundle":"xxxxxxxxx"}"#), reply: (200, 1_405_231, "caBundle"), ..DEFAULT_VECTOR },
    Vector { source: "2.5 no certificate", namespace: "defs", ask: POST_DEFINITION, body: Definition("Create", "service", r#""clientConfig":{"namespace":"hooks","name":"hook","caBundle":"aGVsbG8="}"#), reply: (200, 1_405_231, "caBundle"), ..DEFAULT_VECTOR },
    Vector { source: "2.2 a second one for an operation and a kind", namespace: "defs", ask: POST_DEFINITION, body: Definition("Create", "application", GOOD_CLIENT), reply: (200, 1_405_231, "Create"), ..DEFAULT_VECTOR },
    Vector { source: "2.6 no. 14: the documented route", namespace: "defs", ask: (Method::POST, "/crd/namespaces/{ns}/admissionwebhook"), body: Definition("Update", "service", GOOD_CLIENT), ..DEFAULT_VECTOR },
    Vector { source: "2.6 no. 14: the documented route", namespace: "defs", ask: (Method::DELETE, "/crd/namespaces/{ns}/admissionwebhook/of-service"), body: Nothing, ..DEFAULT_VECTOR },
    Vector { source: "2.2 delete", namespace: "defs", ask: (Method::DELETE, "/namespaces/{ns}/admissionwebhook/of-secret"), body: Nothing, ..DEFAULT_VECTOR },
    Vector { source: "2.2 delete absent", namespace: "defs", ask: (Method::DELETE, "/namespaces/{ns}/admissionwebhook/of-secret"), body: Nothing, reply: (200, 1_405_202, "admission not exist"), ..DEFAULT_VECTOR },
    // In the cases from here on, a plugin does the work of a hook.
    Vector { source: "2.5, with a plugin", namespace: "plugin", hooks: &[("plugin", "Fail")], scheduler_line: CREATE_LINE, scheduler_values: &[(IMAGE_POINTER, "mirror.example.com/library/nginx:1.29")], ..DEFAULT_VECTOR },
    Vector { source: "2.5, a plugin between hooks", namespace: "between", hooks: &[("odd", "Fail"), ("plugin", "Fail"), ("annotates", "Fail")], scheduler_line: CREATE_LINE, called_hooks: &["odd", "annotates"], scheduler_values: &[(IMAGE_POINTER, "mirror.example.com/library/nginx:1.29"), (ODD_POINTER, "seen"), (FIRST_POINTER, "seen")], ..DEFAULT_VECTOR },
    Vector { source: "2.5, a plugin that refuses, whatever its policy", namespace: "refuses", hooks: &[("refuses", "Ignore"), ("annotates", "Fail")], reply: (400, 1_405_234, "denied the request"), ..DEFAULT_VECTOR },
    Vector { source: "6 PUT rollback calls Update hooks, with a plugin", namespace: "refuses", hooks: &[("refuses", "Ignore"), ("annotates", "Fail")], ask: (Method::PUT, "/namespaces/{ns}/applications/rollback"), reply: (400, 1_405_234, "denied the request"), ..DEFAULT_VECTOR },
];

fn definitions(hooks: &MesosHooks) -> String {
    let mut stages: Vec<Value> = Vec::new();
    let mut namespaces: Vec<&str> = Vec::new();
    for vector in VECTORS {
        if namespaces.contains(&vector.namespace) {
            continue;
        }
        namespaces.push(vector.namespace);
        for (name, policy) in vector.hooks {
            let mut stage = json!({
                "name": format!("{}-{name}", vector.namespace),
                "namespaceSelector": {"operator": "In", "values": [vector.namespace]},
            });
            if !policy.is_empty() {
                stage["failurePolicy"] = (*policy).into();
            }
            match *name {
                "plugin" | "refuses" => {
                    let settings = match *name {
                        "plugin" => json!({"rewrites": {"docker.io": "mirror.example.com"}}),
                        _ => json!({"allowedRegistries": ["nothing.example.com"]}),
                    };
                    stage["plugin"] = json!({"source": source("image-policy"), "settings": settings});
                }
                name => {
                    let path = format!("/{name}");
                    stage["clientConfig"] =
                        json!({"namespace": "hooks", "name": "hook", "path": path, "caBundle": hooks.bundle});
                }
            }
            stages.push(stage);
        }
    }
    let mut text = String::new();
    for (operation, kind) in [
        ("Create", "application"),
        ("Update", "Application"),
        ("Create", "Deployment"),
        ("Update", "deployment"),
    ] {
        let document = json!({
            "apiVersion": "v4",
            "kind": "admissionwebhook",
            "metadata": {"name": format!("{operation}-{kind}").to_lowercase(), "namespace": "defaultGroup"},
            "resourcesRef": {"operation": operation, "kind": kind},
            "admissionWebhooks": stages,
        });
        text += &format!("---\n{document}\n");
    }
    text
}

#[tokio::test]
async fn replies_match_the_test_vectors_of_bcs_mesos_driver() {
    let hooks = MesosHooks::start().await;
    let mesos = MesosScene::new(&definitions(&hooks), &[("hook.hooks", hooks.address)]).await;
    let mut problems = Vec::new();
    for vector in VECTORS {
        for mistake in vector_mistakes(&mesos, &hooks, vector).await {
            problems.push(format!("{} ({}): {mistake}", vector.source, vector.namespace));
        }
    }
    problems.extend(mesos.scheduler.problems());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

async fn vector_mistakes(mesos: &MesosScene, hooks: &MesosHooks, vector: &Vector) -> Vec<String> {
    let (method, path) = &vector.ask;
    let body = vector_body(vector, &hooks.bundle);
    let url = format!("/mesosdriver/v4{path}").replace("{ns}", vector.namespace);
    let mut request = Request::builder()
        .method(method)
        .uri(mesos.program.url(&url))
        .header(CONTENT_TYPE, "application/json")
        .header("X-Client", "header");
    for cluster in vector.cluster {
        request = request.header("BCS-ClusterID", *cluster);
    }
    let (calls_before, asked_before) = (
        hooks.calls(Some(vector.namespace)).len(),
        mesos.scheduler.requests().len(),
    );
    let reply = mesos.client.send(request.body(body.clone()).unwrap()).await.unwrap();
    let calls = hooks.calls(Some(vector.namespace)).split_off(calls_before);
    let requests = mesos.scheduler.requests().split_off(asked_before);

    let mut mistakes = Vec::new();
    let mut expect = |subject: &str, observed: String, expected: String| {
        if observed != expected {
            mistakes.push(format!("{subject}: {observed}, not {expected}"));
        }
    };
    check_reply(&reply, vector, &mut expect);
    let lines: Vec<String> = requests.iter().map(admittance_tests::SchedulerRequest::line).collect();
    let expected: Vec<String> = vector.scheduler_line.iter().map(|line| (*line).to_owned()).collect();
    expect("the scheduler is asked", format!("{lines:?}"), format!("{expected:?}"));
    let called: Vec<&str> = calls.iter().map(|call| call.path.trim_matches('/')).collect();
    expect("calls", format!("{called:?}"), format!("{:?}", vector.called_hooks));

    // Hooks are called one after another. Each hook gets the last valid reply of an earlier hook, or the bytes from the
    // client if there is no valid reply yet.
    let has_plugins = vector
        .hooks
        .iter()
        .any(|(name, _)| matches!(*name, "plugin" | "refuses"));
    let mut current = body;
    for call in &calls {
        if !has_plugins {
            expect(&call.path, lossy_text(&call.request_body), lossy_text(&current));
        }
        if call.is_good() {
            current = call.reply_body.clone();
        }
        let json = call.headers.get(CONTENT_TYPE);
        expect(
            "a hook's Content-Type",
            format!("{json:?}"),
            "Some(\"application/json\")".to_owned(),
        );
        for name in ["bcs-clusterid", "x-client", "authorization"] {
            expect(name, format!("{:?}", call.headers.get(name)), "None".to_owned());
        }
    }
    for (pointer, value) in vector.scheduler_values {
        let sent_body = requests
            .first()
            .map(admittance_tests::SchedulerRequest::json)
            .unwrap_or_default();
        let actual = sent_body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        expect(pointer, actual.to_owned(), (*value).to_owned());
    }
    mistakes
}

fn vector_body(vector: &Vector, bundle: &str) -> Bytes {
    match vector.body {
        Nothing => Bytes::new(),
        Text(text) => Bytes::from_static(text.as_bytes()),
        Definition(operation, kind, hook) => {
            let hook = hook.replace("CA", bundle);
            let namespace = vector.namespace;
            format!(
                r#"{{"apiVersion":"v4","kind":"admissionwebhook","metadata":{{"name":"of-{kind}","namespace":"{namespace}"}},"resourcesRef":{{"operation":"{operation}","kind":"{kind}"}},"admissionWebhooks":[{{"name":"hook",{hook}}}]}}"#
            )
            .into()
        }
        Object(kind) => {
            let mut object = application(vector.namespace, "web", "docker.io/library/nginx:1.29");
            object["kind"] = kind.into();
            if kind == "deployment" {
                object["spec"]["selector"] = json!({"podname": "web"});
                object["spec"]["strategy"] = json!({"type": "RollingUpdate"});
            }
            // The body has spaces and line ends that would be lost if the driver parsed and serialized it.
            format!("{object:#}").into()
        }
    }
}

fn check_reply(reply: &Reply, vector: &Vector, expect: &mut impl FnMut(&str, String, String)) {
    let (status, code, message) = vector.reply;
    expect("the status", reply.status.as_u16().to_string(), status.to_string());
    if !reply.text().starts_with('{') {
        // bcs-mesos-driver sends some messages as plain text, without its usual JSON envelope.
        expect("the reply", reply.text(), message.to_owned());
        return;
    }
    let (actual_code, text) = code_and_message(reply);
    expect(
        "the code",
        format!("{actual_code} ({text})"),
        format!("{code} ({text})"),
    );
    if !text.contains(message) {
        expect("the message", text.clone(), message.to_owned());
    }
    if code == 1_405_234 {
        // In bcs-mesos-driver, a reply with the code 1405234 comes from a filter, which formats JSON with line breaks.
        // The program has to send exactly the same bytes.
        let envelope = format!(
            "{{\n \"result\": false,\n \"code\": {code},\n \"message\": {},\n \"data\": null\n}}",
            json!(text)
        );
        expect("the envelope", reply.text(), envelope);
    }
}

fn lossy_text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
