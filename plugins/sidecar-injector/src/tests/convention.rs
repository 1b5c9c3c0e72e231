//! Tests kube-sidecar-injector's annotations. The expected results follow `mutationRequired` and `updateAnnotation` in
//! its `webhook.go`, without its bug that loses annotations.

use super::*;

const MORVEN_INJECT: &str = "sidecar-injector-webhook.morven.me/inject";
const MORVEN_STATUS: &str = "sidecar-injector-webhook.morven.me/status";

/// Returns the value of `sidecarconfig.yaml`, from the file `deploy/configmap.yaml` of
/// `morvencao/kube-sidecar-injector`.
fn sidecarconfig() -> Value {
    json!({
        "containers": [{
            "name": "sidecar-nginx",
            "image": "nginx:1.12.2",
            "imagePullPolicy": "IfNotPresent",
            "volumeMounts": [{"name": "nginx-conf", "mountPath": "/etc/nginx"}],
        }],
        "volumes": [{"name": "nginx-conf", "configMap": {"name": "nginx-configmap"}}],
    })
}

fn with_fields(mut settings: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().into_iter().flatten() {
        settings[key] = value.clone();
    }
    settings
}

fn in_namespace(mut pod: Value, namespace: &str) -> Value {
    pod["metadata"]["namespace"] = namespace.into();
    pod
}

/// The settings are files of kube-sidecar-injector, and of tutorials that are based on it. They are accepted unchanged.
#[test]
fn a_sidecarconfig_is_accepted_as_settings() {
    let table = [
        ("the file of the project", sidecarconfig()),
        (
            "with a key that has nothing behind it",
            with_fields(
                sidecarconfig(),
                &json!({"initContainers": null, "imagePullSecrets": null, "labels": null}),
            ),
        ),
        (
            // Some configuration files in this format also contain the lists `initContainers` and `imagePullSecrets`,
            // such as those of istio and of `Andrewmatilde/webhook-injector`.
            "with the lists of later ones",
            with_fields(
                sidecarconfig(),
                &json!({"initContainers": [{"name": "init", "image": "busybox"}], "imagePullSecrets": [{"name": "regcred"}]}),
            ),
        ),
        (
            // The three containers are copied from the configuration files of `s1240zsw/centos-packet-agent`,
            // `apigee-remote-service-envoy` and `network-delay-sidecar`.
            "containers alone, with what else they have",
            json!({"containers": [
                {"name": "sidecar-monitor", "image": "docker.io/s1240zsw/centos-packet-agent:v1", "stdin": true, "tty": true},
                {"name": "apigee", "image": "google/apigee-envoy-adapter:v2.1.1", "ports": [{"containerPort": 5000}],
                 "args": ["--log-level=debug"], "resources": {"limits": {"cpu": "100m", "memory": "100Mi"}}},
                {"name": "network-delay-sidecar", "image": "127.0.0.1:5080/network-delay-exec:v1",
                 "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}, "hostPid": true},
            ]}),
        ),
    ];
    for (name, settings) in table {
        let after = inject(&settings, pod(json!({MORVEN_INJECT: "yes"})));
        let web = json!({"name": "web", "image": "web:1"});
        for list in ["containers", "initContainers", "volumes", "imagePullSecrets"] {
            let mut expected: Vec<Value> = settings[list].as_array().cloned().unwrap_or_default();
            if list == "containers" {
                expected.insert(0, web.clone());
            }
            let list = after["spec"][list].as_array().cloned().unwrap_or_default();
            assert_eq!(list, expected, "{name}");
        }
        assert_eq!(after["metadata"]["annotations"][MORVEN_STATUS], "injected", "{name}");
        assert_eq!(run(&settings, testing::create(&after)).patch(), None, "{name}: once");
    }
}

#[test]
fn missing_image_pull_secrets_are_added() {
    let settings = json!({"imagePullSecrets": [{"name": "a"}, {"name": "b"}]});
    let table = [
        ("absent", json!({}), json!([{"name": "a"}, {"name": "b"}])),
        (
            "null",
            json!({"imagePullSecrets": null}),
            json!([{"name": "a"}, {"name": "b"}]),
        ),
        (
            "empty",
            json!({"imagePullSecrets": []}),
            json!([{"name": "a"}, {"name": "b"}]),
        ),
        (
            "one is there",
            json!({"imagePullSecrets": [{"name": "b"}, {}]}),
            json!([{"name": "b"}, {}, {"name": "a"}]),
        ),
    ];
    for (name, spec, expected) in table {
        let mut object = pod(json!({}));
        object["spec"] = with_fields(object["spec"].clone(), &spec);
        let after = inject(&settings, object);
        assert_eq!(after["spec"]["imagePullSecrets"], expected, "{name}");
        assert_eq!(run(&settings, testing::create(&after)).patch(), None, "{name}: once");
    }
    let wrong = json!({"imagePullSecrets": [{"name": "a"}, {"name": "a"}, {}]});
    let errors = testing::configure::<SidecarInjector>(wrong).expect_err("they are wrong");
    let pointers: Vec<&str> = errors.iter().map(|error| error.pointer()).collect();
    assert_eq!(pointers, ["/imagePullSecrets/1", "/imagePullSecrets/2"]);
}

/// kube-sidecar-injector injects by default since its commit 612007d of 2022. Before, workloads had to opt in.
#[test]
fn annotations_of_kube_sidecar_injector_opt_in_or_out() {
    let usual = json!({});
    let opt_in = json!({"mode": "optIn"});
    let always = json!({"mode": "always"});
    let admittance_convention = json!({"convention": "admittance"});
    let kube_convention = json!({"convention": "kubeSidecarInjector"});
    let kube_opt_in = json!({"convention": "kubeSidecarInjector", "mode": "optIn"});
    // The annotations of a workload. After them, whether the plugin injects with each of the six settings, in the order
    // in which they are defined above.
    let table: [(Value, [bool; 6]); 20] = [
        (json!({}), [true, false, true, true, true, false]),
        (json!({MORVEN_INJECT: "yes"}), [true, true, true, true, true, true]),
        (json!({MORVEN_INJECT: "YES"}), [true, true, true, true, true, true]),
        (json!({MORVEN_INJECT: "y"}), [true, true, true, true, true, true]),
        (json!({MORVEN_INJECT: "True"}), [true, true, true, true, true, true]),
        (json!({MORVEN_INJECT: "on"}), [true, true, true, true, true, true]),
        (json!({MORVEN_INJECT: "no"}), [false, false, true, true, false, false]),
        (json!({MORVEN_INJECT: "N"}), [false, false, true, true, false, false]),
        (json!({MORVEN_INJECT: "not"}), [false, false, true, true, false, false]),
        (
            json!({MORVEN_INJECT: "false"}),
            [false, false, true, true, false, false],
        ),
        (json!({MORVEN_INJECT: "Off"}), [false, false, true, true, false, false]),
        (json!({MORVEN_INJECT: "1"}), [true, false, true, true, true, false]),
        (json!({MORVEN_INJECT: ""}), [true, false, true, true, true, false]),
        (json!({MORVEN_INJECT: null}), [true, false, true, true, true, false]),
        (
            json!({MORVEN_INJECT: "yes", MORVEN_STATUS: "injected"}),
            [false, false, true, true, false, false],
        ),
        (
            json!({MORVEN_INJECT: "yes", MORVEN_STATUS: "Injected"}),
            [false, false, true, true, false, false],
        ),
        (
            json!({MORVEN_STATUS: "injected"}),
            [false, false, true, true, false, false],
        ),
        (
            json!({MORVEN_INJECT: "yes", MORVEN_STATUS: "failed"}),
            [true, true, true, true, true, true],
        ),
        // The last two columns are for the convention `kubeSidecarInjector`. With this convention, only
        // kube-sidecar-injector's annotation `MORVEN_INJECT` has an effect, and the plugin's own annotation `INJECT`
        // has none.
        (
            json!({MORVEN_INJECT: "no", INJECT: "true"}),
            [true, true, true, true, false, false],
        ),
        (
            json!({MORVEN_INJECT: "yes", INJECT: "false"}),
            [false, false, true, false, true, true],
        ),
    ];
    for (annotations, expected) in table {
        let pod = in_namespace(pod(annotations.clone()), "shop");
        for (more, expected) in [
            &usual,
            &opt_in,
            &always,
            &admittance_convention,
            &kube_convention,
            &kube_opt_in,
        ]
        .into_iter()
        .zip(expected)
        {
            let outcome = run(&with_fields(sidecarconfig(), more), testing::create(&pod));
            let containers = outcome.at("/spec/containers").and_then(Value::as_array).map(Vec::len);
            let count = if expected { 2 } else { 1 };
            assert_eq!(containers, Some(count), "{more} {annotations}");
        }
    }
}

#[test]
fn annotations_with_an_unknown_value_cause_warnings() {
    let table = [
        (json!({MORVEN_INJECT: "maybe"}), Some("neither \"yes\" nor \"no\"")),
        (json!({INJECT: "maybe"}), Some("neither \"true\" nor \"false\"")),
        (json!({MORVEN_INJECT: "y"}), None),
        (json!({MORVEN_INJECT: "maybe", INJECT: "true"}), None),
    ];
    for (annotations, part) in table {
        let outcome = run(&sidecarconfig(), testing::create(pod(annotations.clone())));
        match (outcome.warnings(), part) {
            ([], None) => {}
            ([warning], Some(part)) => assert!(warning.contains(part), "{warning}"),
            (warnings, _) => panic!("{annotations}: {warnings:?}"),
        }
    }
}

#[test]
fn system_namespaces_are_not_injected() {
    let usual = json!({});
    let opt_in = json!({"mode": "optIn"});
    let kube_convention = json!({"convention": "kubeSidecarInjector"});
    let kube_always = json!({"convention": "kubeSidecarInjector", "mode": "always"});
    let table = [
        ("kube-system", &kube_convention, json!({MORVEN_INJECT: "yes"}), false),
        ("kube-public", &kube_convention, json!({MORVEN_INJECT: "yes"}), false),
        ("kube-public", &kube_always, json!({}), false),
        ("kube-node-lease", &kube_convention, json!({MORVEN_INJECT: "yes"}), true),
        ("shop", &kube_convention, json!({MORVEN_INJECT: "yes"}), true),
        // By default, kube-sidecar-injector's annotation cannot ask for the injection in this namespace.
        ("kube-system", &usual, json!({MORVEN_INJECT: "yes"}), false),
        ("kube-system", &opt_in, json!({MORVEN_INJECT: "yes"}), false),
        ("kube-system", &usual, json!({}), true),
        ("kube-system", &opt_in, json!({INJECT: "true"}), true),
    ];
    for (namespace, more, annotations, expected) in table {
        let pod = in_namespace(pod(annotations.clone()), namespace);
        let outcome = run(&with_fields(sidecarconfig(), more), testing::create(&pod));
        assert_eq!(outcome.patch().is_some(), expected, "{namespace} {more} {annotations}");
    }
}

/// kube-sidecar-injector's own patch loses annotations, because it replaces all of them with a map of one key.
#[test]
fn an_injection_keeps_the_other_annotations() {
    let kube_settings = with_fields(sidecarconfig(), &json!({"convention": "kubeSidecarInjector"}));
    let both = sidecarconfig();
    let list = "sidecar-nginx";
    let odd = json!({"a/b": "1", "c~d": "2", "~1": "3", "e~0/f": "4", "": "5", "g\"h\\i": "6"});
    // (case, settings, metadata, expected annotations after the injection)
    let table = [
        (
            "absent metadata",
            &kube_settings,
            json!(null),
            json!({MORVEN_STATUS: "injected"}),
        ),
        (
            "absent",
            &kube_settings,
            json!({"name": "p"}),
            json!({MORVEN_STATUS: "injected"}),
        ),
        (
            "null",
            &kube_settings,
            json!({"annotations": null}),
            json!({MORVEN_STATUS: "injected"}),
        ),
        (
            "empty",
            &kube_settings,
            json!({"annotations": {}}),
            json!({MORVEN_STATUS: "injected"}),
        ),
        (
            "keys that a pointer escapes",
            &kube_settings,
            json!({"annotations": odd}),
            with_fields(odd.clone(), &json!({MORVEN_STATUS: "injected"})),
        ),
        (
            "a status that says something else",
            &kube_settings,
            json!({"annotations": {"a/b": "1", MORVEN_STATUS: "failed"}}),
            json!({"a/b": "1", MORVEN_STATUS: "injected"}),
        ),
        (
            "both, asked by its annotation",
            &both,
            json!({"annotations": with_fields(odd.clone(), &json!({MORVEN_INJECT: "yes"}))}),
            with_fields(
                odd.clone(),
                &json!({MORVEN_INJECT: "yes", MORVEN_STATUS: "injected", STATUS: list}),
            ),
        ),
        (
            "both, not asked",
            &both,
            json!({"annotations": {"a/b": "1"}}),
            json!({"a/b": "1", STATUS: list}),
        ),
        (
            "both, asked by its own",
            &both,
            json!({"annotations": {INJECT: "true", MORVEN_INJECT: "yes"}}),
            json!({INJECT: "true", MORVEN_INJECT: "yes", STATUS: list}),
        ),
    ];
    for (name, settings, metadata, expected) in table {
        let mut object = pod(json!({}));
        object["metadata"] = metadata;
        for volumes in [None, Some(json!(null)), Some(json!([])), Some(json!([{"name": "v"}]))] {
            if let Some(volumes) = volumes {
                object["spec"]["volumes"] = volumes;
            }
            let after = inject(settings, object.clone());
            assert_eq!(after["metadata"]["annotations"], expected, "{name}");
            let mut volumes = object["spec"]["volumes"].as_array().cloned().unwrap_or_default();
            volumes.extend(settings["volumes"].as_array().cloned().unwrap_or_default());
            assert_eq!(after["spec"]["volumes"], Value::Array(volumes), "{name}");
            assert_eq!(run(settings, testing::create(&after)).patch(), None, "{name}: once");
        }
    }
}

#[test]
fn pods_of_an_injected_workload_are_not_injected_again() {
    let template = json!({"metadata": {"annotations": {MORVEN_INJECT: "yes"}}, "spec": {"containers": []}});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": template}});
    for more in [json!({}), json!({"convention": "kubeSidecarInjector"})] {
        let settings = with_fields(sidecarconfig(), &more);
        let after = inject(&settings, deployment.clone());
        let template = &after["spec"]["template"];
        assert_eq!(template["metadata"]["annotations"][MORVEN_STATUS], "injected", "{more}");
        assert_eq!(template["spec"]["containers"][0]["name"], "sidecar-nginx", "{more}");
        let of_it = with_fields(json!({"apiVersion": "v1", "kind": "Pod"}), template);
        assert_eq!(run(&settings, testing::create(of_it)).patch(), None, "{more}");
    }
}

#[test]
fn annotation_names_in_the_settings_take_precedence() {
    let renamed = json!({"annotation": MORVEN_INJECT, "statusAnnotation": MORVEN_STATUS});
    let added = json!({"annotations": {MORVEN_STATUS: "injected"}});
    let other =
        json!({"convention": "kubeSidecarInjector", "annotation": "x.io/inject", "statusAnnotation": "x.io/status"});
    // (settings, annotations before, expected annotations after or `None` if nothing is injected)
    let table = [
        (
            &renamed,
            json!({MORVEN_INJECT: "yes"}),
            Some(json!({MORVEN_INJECT: "yes", MORVEN_STATUS: "sidecar-nginx"})),
        ),
        (
            &renamed,
            json!({MORVEN_STATUS: "injected"}),
            Some(json!({MORVEN_STATUS: "injected"})),
        ),
        (
            &added,
            json!({MORVEN_INJECT: "no"}),
            Some(json!({MORVEN_INJECT: "no", MORVEN_STATUS: "injected", STATUS: "sidecar-nginx"})),
        ),
        (
            &other,
            json!({"x.io/inject": "y"}),
            Some(json!({"x.io/inject": "y", "x.io/status": "injected"})),
        ),
        (&other, json!({"x.io/inject": "y", "x.io/status": "injected"}), None),
        (
            &other,
            json!({MORVEN_INJECT: "no"}),
            Some(json!({MORVEN_INJECT: "no", "x.io/status": "injected"})),
        ),
    ];
    for (more, before, after) in table {
        let outcome = run(
            &with_fields(sidecarconfig(), more),
            testing::create(pod(before.clone())),
        );
        assert_eq!(outcome.patch().is_some(), after.is_some(), "{more} {before}");
        if after.is_some() {
            assert_eq!(outcome.at("/metadata/annotations"), after.as_ref(), "{more} {before}");
        }
    }
    let clash =
        json!({"convention": "kubeSidecarInjector", "annotation": MORVEN_STATUS, "annotations": {MORVEN_STATUS: "x"}});
    let errors =
        testing::configure::<SidecarInjector>(with_fields(sidecarconfig(), &clash)).expect_err("they are wrong");
    assert_eq!(errors.len(), 3, "{errors}");
}

#[test]
fn the_settings_schema_describes_the_annotation_conventions() {
    let description = testing::describe::<SidecarInjector>();
    let schema = description.settings_schema.expect("there is a schema");
    for part in [
        "kubeSidecarInjector",
        "admittance",
        "both",
        "sidecarconfig.yaml",
        MORVEN_INJECT,
        MORVEN_STATUS,
    ] {
        assert!(schema.contains(part), "{part}: {schema}");
    }
    let schema: Value = schema.parse().expect("it is JSON");
    assert_eq!(schema["properties"]["containers"]["type"], "array");
    assert_eq!(schema["required"], Value::Null);
}
