mod convention;

use admittance_sdk::serde_json::{Value, json};
use admittance_sdk::testing::{self, Outcome, RequestBuilder};

use super::*;

const INJECT: &str = "sidecar-injector.admittance.dev/inject";
const STATUS: &str = "sidecar-injector.admittance.dev/status";

fn settings() -> Value {
    json!({
        "containers": [{"name": "agent", "image": "a.io/agent:1", "args": ["-v"]}],
        "initContainers": [{"name": "setup", "image": "a.io/setup:1"}],
        "volumes": [{"name": "logs", "emptyDir": {}}],
        "annotations": {"example.com/logs": "collected"},
        "labels": {"logs": "yes"},
    })
}

fn run(settings: &Value, request: RequestBuilder) -> Outcome {
    let plugin = testing::configure::<SidecarInjector>(settings).expect("the settings are right");
    request.admit(&plugin).expect("there is a verdict")
}

fn inject(settings: &Value, object: Value) -> Value {
    let outcome = run(settings, testing::create(&object));
    assert_eq!(outcome.denial(), None, "{object}");
    outcome.object().cloned().expect("a CREATE has an object")
}

fn pod(annotations: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": annotations},
           "spec": {"containers": [{"name": "web", "image": "web:1"}]}})
}

#[test]
fn missing_lists_and_maps_are_created_for_additions() {
    let object =
        json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "web", "image": "web:1", "x": 1}]}});
    assert_eq!(
        inject(&settings(), object),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "annotations": {"example.com/logs": "collected", STATUS: "agent,setup"},
                "labels": {"logs": "yes"},
            },
            "spec": {
                "containers": [
                    {"name": "web", "image": "web:1", "x": 1},
                    {"name": "agent", "image": "a.io/agent:1", "args": ["-v"]},
                ],
                "initContainers": [{"name": "setup", "image": "a.io/setup:1"}],
                "volumes": [{"name": "logs", "emptyDir": {}}],
            },
        })
    );
}

#[test]
fn existing_containers_labels_and_volumes_are_kept() {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"annotations": {"example.com/logs": "mine"}, "labels": {"logs": "no", "app": "web"}},
        "spec": {
            "containers": [{"name": "agent", "image": "my/agent"}],
            "initContainers": null,
            "volumes": [{"name": "logs", "hostPath": {"path": "/x"}}, {"name": "other"}],
        },
    });
    let after = inject(&settings(), object);
    assert_eq!(after["metadata"]["annotations"]["example.com/logs"], "mine");
    assert_eq!(after["metadata"]["labels"], json!({"logs": "no", "app": "web"}));
    assert_eq!(
        after["spec"]["containers"],
        json!([{"name": "agent", "image": "my/agent"}])
    );
    assert_eq!(
        after["spec"]["initContainers"],
        json!([{"name": "setup", "image": "a.io/setup:1"}])
    );
    assert_eq!(
        after["spec"]["volumes"],
        json!([{"name": "logs", "hostPath": {"path": "/x"}}, {"name": "other"}])
    );
}

#[test]
fn every_kind_of_workload_is_injected_once() {
    let template = json!({"template": {"metadata": {"name": "t"}, "spec": {"containers": [{"image": "web:1"}]}}});
    let bare = json!({"template": {"spec": {"containers": [{"image": "web:1"}]}}});
    let table = [
        (
            "apps/v1",
            "Deployment",
            json!({"spec": template}),
            "/spec/template/spec",
            "/spec/template/metadata",
        ),
        (
            "apps/v1",
            "Deployment",
            json!({"spec": bare}),
            "/spec/template/spec",
            "/spec/template/metadata",
        ),
        (
            "apps/v1",
            "StatefulSet",
            json!({"spec": template}),
            "/spec/template/spec",
            "/spec/template/metadata",
        ),
        (
            "apps/v1",
            "DaemonSet",
            json!({"spec": template}),
            "/spec/template/spec",
            "/spec/template/metadata",
        ),
        (
            "apps/v1",
            "ReplicaSet",
            json!({"spec": template}),
            "/spec/template/spec",
            "/spec/template/metadata",
        ),
        (
            "v1",
            "ReplicationController",
            json!({"spec": template}),
            "/spec/template/spec",
            "/spec/template/metadata",
        ),
        (
            "batch/v1",
            "Job",
            json!({"spec": template}),
            "/spec/template/spec",
            "/spec/template/metadata",
        ),
        (
            "batch/v1",
            "CronJob",
            json!({"spec": {"jobTemplate": {"spec": template}}}),
            "/spec/jobTemplate/spec/template/spec",
            "/spec/jobTemplate/spec/template/metadata",
        ),
        (
            "v4",
            "application",
            json!({"metadata": {"name": "a"}, "spec": bare}),
            "/spec/template/spec",
            "/metadata",
        ),
        (
            "v4",
            "Application",
            json!({"spec": bare}),
            "/spec/template/spec",
            "/metadata",
        ),
        (
            "v4",
            "deployment",
            json!({"spec": template}),
            "/spec/template/spec",
            "/spec/template/metadata",
        ),
    ];
    for (api_version, kind, mut object, spec, metadata) in table {
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.into();
        let after = inject(&settings(), object);
        let at = |parent: &str, child: &str| after.pointer(&format!("{parent}/{child}")).cloned().unwrap_or_default();
        assert_eq!(at(spec, "containers/1/name"), "agent", "{kind}: {after}");
        assert_eq!(at(spec, "initContainers/0/name"), "setup", "{kind}: {after}");
        assert_eq!(at(spec, "volumes/0/name"), "logs", "{kind}: {after}");
        assert_eq!(at(metadata, "annotations")[STATUS], "agent,setup", "{kind}: {after}");
        let again = run(&settings(), testing::update(&after, &after));
        assert_eq!(again.patch(), None, "{kind}: a second run adds nothing");
        let again = run(&settings(), testing::create(&after));
        assert_eq!(again.patch(), None, "{kind}: a second run adds nothing");
    }
}

#[test]
fn an_annotation_opts_a_workload_in_or_out() {
    let yes = json!({INJECT: "true"});
    let no = json!({INJECT: "False"});
    let odd = json!({INJECT: "maybe"});
    let table = [
        ("optOut", json!({}), true, 0),
        ("optOut", no.clone(), false, 0),
        ("optOut", yes.clone(), true, 0),
        ("optOut", odd.clone(), true, 1),
        ("optIn", json!({}), false, 0),
        ("optIn", no.clone(), false, 0),
        ("optIn", yes, true, 0),
        ("optIn", odd, false, 1),
        ("always", no, true, 0),
    ];
    for (mode, annotations, expected, warnings) in table {
        let mut settings = settings();
        settings["mode"] = mode.into();
        let outcome = run(&settings, testing::create(pod(annotations.clone())));
        assert_eq!(outcome.patch().is_some(), expected, "{mode} {annotations}");
        assert_eq!(outcome.warnings().len(), warnings, "{mode} {annotations}");
    }
}

#[test]
fn the_opt_in_annotation_may_be_on_the_object_or_have_another_name() {
    let mut settings = settings();
    settings["annotation"] = "example.com/inject".into();
    let object = |on_object: Value, on_template: Value| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"annotations": on_object},
               "spec": {"template": {"metadata": {"annotations": on_template}, "spec": {"containers": []}}}})
    };
    let (yes, no) = (
        json!({"example.com/inject": "true"}),
        json!({"example.com/inject": "false"}),
    );
    let table = [
        ("on the object", object(no.clone(), json!({})), false),
        ("on the template", object(json!({}), no.clone()), false),
        ("the template's counts", object(no, yes), true),
        (
            "under the usual name",
            object(json!({INJECT: "false"}), json!({})),
            true,
        ),
    ];
    for (name, object, expected) in table {
        assert_eq!(
            run(&settings, testing::create(object)).patch().is_some(),
            expected,
            "{name}"
        );
    }
}

#[test]
fn sidecars_are_injected_only_by_requests_that_may_change_a_pod_template() {
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": {"containers": []}}}});
    let table = [
        ("a CREATE", testing::create(pod(json!({}))), true),
        ("a Pod's UPDATE", testing::update(pod(json!({})), pod(json!({}))), false),
        ("a workload's UPDATE", testing::update(&job, &job), true),
        ("a DELETE", testing::delete(pod(json!({}))), false),
        ("a CONNECT", testing::connect(pod(json!({}))), false),
        (
            "a subresource",
            testing::create(pod(json!({}))).subresource("status"),
            false,
        ),
        (
            "no workload",
            testing::create(json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": []}})),
            false,
        ),
        (
            "a template of something else",
            testing::create(
                json!({"apiVersion": "a.b/v1", "kind": "C", "spec": {"template": {"spec": {"domain": {}}}}}),
            ),
            false,
        ),
    ];
    for (name, request, expected) in table {
        assert_eq!(run(&settings(), request).patch().is_some(), expected, "{name}");
    }
}

#[test]
fn injected_containers_without_names_are_recognized() {
    let object = |annotations: Value, containers: Value| {
        json!({"apiVersion": "v4", "kind": "application", "metadata": {"annotations": annotations},
               "spec": {"template": {"spec": {"containers": containers}}}})
    };
    let settings = json!({"containers": [{"name": "agent", "image": "a.io/agent:1"}]});
    let always = json!({"containers": [{"name": "agent", "image": "a.io/agent:1"}], "mode": "always"});
    let rewritten = json!([{"image": "web"}, {"image": "mirror.io/agent:1"}]);
    let table = [
        (
            "by image",
            &settings,
            object(json!({}), json!([{"image": "web"}, {"image": "a.io/agent:1"}])),
            2,
        ),
        (
            "by status",
            &settings,
            object(json!({STATUS: "agent"}), rewritten.clone()),
            2,
        ),
        (
            "not by the status of another",
            &settings,
            object(json!({STATUS: "agents,a"}), rewritten.clone()),
            3,
        ),
        (
            "not by a status where none can decline",
            &always,
            object(json!({STATUS: "agent"}), rewritten),
            3,
        ),
        (
            "not by image if it has a name",
            &settings,
            object(json!({}), json!([{"name": "x", "image": "a.io/agent:1"}])),
            2,
        ),
        (
            "not by status if all have names",
            &settings,
            object(json!({STATUS: "agent"}), json!([{"name": "x", "image": "y"}])),
            2,
        ),
    ];
    for (name, settings, object, count) in table {
        let after = inject(settings, object);
        let containers = after
            .pointer("/spec/template/spec/containers")
            .and_then(Value::as_array)
            .expect(name);
        assert_eq!(containers.len(), count, "{name}: {after}");
    }
}

#[test]
fn a_workload_with_keys_in_another_case_is_denied() {
    let object = json!({"apiVersion": "v4", "kind": "application", "spec": {"template": {"spec": {"Containers": []}}}});
    let outcome = run(&settings(), testing::create(&object));
    assert!(
        outcome
            .denial()
            .is_some_and(|denial| denial.message.contains("/spec/template/spec/Containers"))
    );
}

#[test]
fn every_mistake_in_the_settings_is_reported() {
    let table: [(Value, &[(&str, &str)]); 6] = [
        (json!({}), &[("", "nothing to inject")]),
        (
            json!({"containers": [{"args": []}, {"name": "a"}, {"name": 5, "image": "b"}], "initContainers": [{"name": "a"}], "volumes": [{}]}),
            &[
                ("/containers/0", "`name`, or at least an `image`"),
                ("/containers/2/name", "must be a string"),
                ("/initContainers/0", "\"a\" is a duplicate"),
                ("/volumes/0", "give it a `name`"),
            ],
        ),
        (
            json!({"containers": ["agent"]}),
            &[("/containers/0", "invalid type: string \"agent\"")],
        ),
        (
            json!({"labels": {"": "x"}, "annotation": ""}),
            &[("/annotation", "no name"), ("/labels/", "a key is empty")],
        ),
        (
            json!({"annotations": {INJECT: "false"}, "statusAnnotation": INJECT}),
            &[
                (
                    "/annotations/sidecar-injector.admittance.dev~1inject",
                    "by which workloads decide",
                ),
                (
                    "/annotations/sidecar-injector.admittance.dev~1inject",
                    "records the injection",
                ),
                ("/statusAnnotation", "another annotation"),
            ],
        ),
        (
            json!({"labels": {"a": "b"}, "mode": "sometimes"}),
            &[("/mode", "unknown variant `sometimes`")],
        ),
    ];
    for (settings, expected) in table {
        let errors = testing::configure::<SidecarInjector>(&settings).expect_err("they are wrong");
        assert_eq!(errors.len(), expected.len(), "{settings}: {errors}");
        for (error, (pointer, part)) in errors.iter().zip(expected) {
            assert!(error.pointer().starts_with(pointer), "{settings}: {error:?}");
            assert!(error.message().contains(part), "{settings}: {error:?}");
        }
    }
}
