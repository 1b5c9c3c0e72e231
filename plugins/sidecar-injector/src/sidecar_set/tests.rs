use admittance_sdk::serde_json::{Value, json};
use admittance_sdk::testing::{self, Outcome};

use crate::SidecarInjector;

fn inject(sets: &[Value], object: Value) -> Value {
    sets.iter().fold(object, |object, set| {
        let outcome = run(set, &object);
        assert_eq!(outcome.denial(), None);
        outcome.object().cloned().expect("a CREATE has an object")
    })
}

fn run(set: &Value, object: &Value) -> Outcome {
    let settings = json!({ "sidecarSet": set });
    let plugin = testing::configure::<SidecarInjector>(&settings).expect("the settings are right");
    testing::create(object).admit(&plugin).expect("there is a verdict")
}

fn container_names(object: &Value, list: &str) -> Vec<String> {
    let containers = object["spec"][list].as_array().expect("a list").iter();
    containers
        .map(|container| container["name"].as_str().expect("a name").to_owned())
        .collect()
}

fn injection_mark() -> Value {
    json!({"name": "IS_INJECTED", "value": "true"})
}

#[test]
fn containers_are_injected_with_their_volumes_and_pull_secrets() {
    let set = json!({
        "name": "logs",
        "containers": [{
            "name": "agent", "image": "agent:1", "upgradeStrategy": {"upgradeType": "ColdUpgrade"},
            "env": [{"name": "LEVEL", "value": "info"}],
            "volumeMounts": [{"name": "logs", "mountPath": "/logs"}],
        }],
        "volumes": [{"name": "unused", "emptyDir": {}}, {"name": "logs", "emptyDir": {}}],
        "imagePullSecrets": [{"name": "mine"}, {"name": "pull"}],
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "web", "image": "web:1"}], "imagePullSecrets": [{"name": "mine"}]},
    });
    assert_eq!(
        inject(&[set], pod),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web", "annotations": {"kruise.io/sidecarset-injected-list": "logs"}},
            "spec": {
                "containers": [
                    {
                        "name": "agent", "image": "agent:1", "imagePullPolicy": "IfNotPresent",
                        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                        "env": [{"name": "LEVEL", "value": "info"}, injection_mark()],
                        "volumeMounts": [{"name": "logs", "mountPath": "/logs"}],
                    },
                    {"name": "web", "image": "web:1"},
                ],
                "volumes": [{"name": "logs", "emptyDir": {}}],
                "imagePullSecrets": [{"name": "mine"}, {"name": "pull"}],
            },
        })
    );
}

#[test]
fn containers_are_injected_in_the_order_of_openkruise() {
    let container = |name: &str, policy: Value| json!({"name": name, "podInjectPolicy": policy});
    let set = json!({
        "name": "a",
        "containers": [
            container("z-after", json!("AfterAppContainer")), container("first", json!("BeforeAppContainer")),
            container("same", json!(null)), container("second", json!(null)),
            container("a-after", json!("AfterAppContainer")),
        ],
        "initContainers": [
            container("m", json!(null)), container("c", json!(null)), container("early", json!("BeforeAppContainer")),
        ],
    });
    let other = json!({"name": "b", "containers": [container("b", json!(null))],
                       "initContainers": [{"name": "d"}, {"name": "n"}, {"name": "a"}]});
    let pod = json!({"kind": "Pod", "spec": {"containers": [{"name": "web"}, {"name": "same", "image": "theirs"}],
                                             "initContainers": [{"name": "setup"}]}});
    let pod = inject(&[set, other], pod);
    assert_eq!(
        container_names(&pod, "containers"),
        ["b", "first", "second", "web", "same", "z-after", "a-after"]
    );
    let replaced_container = &pod["spec"]["containers"][4];
    assert_eq!(
        (
            &replaced_container["name"],
            &replaced_container["image"],
            &replaced_container["env"]
        ),
        (&json!("same"), &json!(null), &json!([injection_mark()]))
    );
    assert_eq!(
        container_names(&pod, "initContainers"),
        ["early", "setup", "a", "c", "d", "m", "n"]
    );
    let list = &pod["metadata"]["annotations"]["kruise.io/sidecarset-injected-list"];
    assert_eq!(list, "a,b");
}

#[test]
fn a_second_injection_of_a_sidecar_set_changes_nothing() {
    let set = json!({"name": "a", "containers": [{"name": "x", "shareVolumePolicy": {"type": "enabled"}}],
                     "initContainers": [{"name": "i"}]});
    let pod = json!({"kind": "Pod", "spec": {"containers": [{"name": "web", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}});
    let once = inject(std::slice::from_ref(&set), pod);
    assert_eq!(inject(&[set], once.clone()), once);
}

#[test]
fn raw_block_devices_of_the_pod_are_shared() {
    let own_volume = json!({"name": "own", "persistentVolumeClaim": {"claimName": "own"}});
    let set = json!({"name": "a", "volumes": [own_volume], "containers": [{
        "name": "agent",
        "shareVolumeDevicePolicy": {"type": "enabled"},
        "volumeDevices": [{"name": "own", "devicePath": "/dev/taken"}],
    }]});
    let device = |name: &str, path: &str| json!({"name": name, "devicePath": path});
    let pod = json!({"kind": "Pod", "spec": {"containers": [
        {"name": "web", "volumeDevices": [device("a", "/dev/a"), device("b", "/dev/taken")]},
        {"name": "db", "volumeDevices": [device("c", "/dev/c")]},
    ]}});
    let injected = inject(&[set], pod);
    let agent = injected.pointer("/spec/containers/0").unwrap();
    assert_eq!(agent["name"], "agent");
    let expected = json!([
        device("own", "/dev/taken"),
        device("a", "/dev/a"),
        device("c", "/dev/c")
    ]);
    assert_eq!(agent["volumeDevices"], expected);
    assert_eq!(injected["spec"]["volumes"], json!([own_volume]));
}

#[test]
fn volumes_and_variables_of_the_pod_are_shared() {
    let set = json!({"name": "a", "volumes": [{"name": "own", "emptyDir": {}}], "containers": [{
        "name": "agent",
        "shareVolumePolicy": {"type": "enabled"},
        "volumeMounts": [{"name": "own", "mountPath": "/taken"}],
        "env": [{"name": "KEPT", "value": "mine"}],
        "transferEnv": [
            {"sourceContainerName": "web", "envName": "SECRET"},
            {"sourceContainerName": "web", "envNames": ["Z", "A", "KEPT", "NONE"]},
            {"sourceContainerNameFrom": {"fieldRef": {"fieldPath": "metadata.labels['main']"}}, "envName": "OF_LABEL"},
            {"sourceContainerNameFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations['x.io/main']"}}, "envName": "OF_ANNOTATION"},
            {"sourceContainerName": "nobody", "envName": "A"},
        ],
    }]});
    let env = json!([
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}, {"name": "A", "value": "1"},
        {"name": "Z", "value": "2"}, {"name": "KEPT", "value": "theirs"}, {"name": "OF_LABEL", "value": "3"},
        {"name": "OF_ANNOTATION", "value": "4"}, {"name": "DIR", "value": "5"}, {"name": "9DIR", "value": "6"},
    ]);
    let pod = json!({
        "kind": "Pod",
        "metadata": {"labels": {"main": "web"}, "annotations": {"x.io/main": "web"}},
        "spec": {"containers": [
            {"name": "web", "env": env, "volumeMounts": [
                {"name": "data", "mountPath": "/data", "subPathExpr": "a/$(DIR)/$(9DIR)/$(NONE)/$(open"},
                {"name": "data", "mountPath": "/taken"},
            ]},
            {"name": "other", "env": null, "volumeMounts": [{"name": "more", "mountPath": "/more", "readOnly": true},
                                                            {"name": "less", "mountPath": "/data"}]},
            {"name": "injected", "env": [injection_mark()], "volumeMounts": [{"name": "hidden", "mountPath": "/hidden"}]},
        ]},
    });
    let agent = inject(&[set], pod)["spec"]["containers"][0].clone();
    assert_eq!(
        agent["volumeMounts"],
        json!([
            {"name": "own", "mountPath": "/taken"},
            {"name": "data", "mountPath": "/data", "subPathExpr": "a/$(DIR)/$(9DIR)/$(NONE)/$(open"},
            {"name": "more", "mountPath": "/more", "readOnly": true},
        ])
    );
    assert_eq!(
        agent["env"],
        json!([
            {"name": "KEPT", "value": "mine"}, injection_mark(),
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "A", "value": "1"}, {"name": "Z", "value": "2"}, {"name": "OF_LABEL", "value": "3"},
            {"name": "OF_ANNOTATION", "value": "4"}, {"name": "DIR", "value": "5"},
        ])
    );
}

#[test]
fn annotations_are_added_to_the_pod_according_to_their_patch_policy() {
    let set = json!({"name": "a", "containers": [{"name": "x"}], "patchPodMetadata": [
        {"annotations": {"kept": "new", "added": "new"}},
        {"annotations": {"replaced": "new"}, "patchPolicy": "Overwrite"},
        {"annotations": {"oom": "{\"x\": 1, \"gone\": null}", "fresh": "{\"x\":1}"}, "patchPolicy": "MergePatchJson"},
    ]});
    let pod = |oom: &str| {
        json!({"kind": "Pod", "spec": {"containers": []}, "metadata": {"annotations": {
            "kept": "old", "replaced": "old", "oom": oom, "kruise.io/sidecarset-injected-list": "b"}}})
    };
    let after = inject(std::slice::from_ref(&set), pod("{\"y\":2,\"gone\":3}"));
    let mut annotations = after["metadata"]["annotations"].clone();
    let merged_text = annotations["oom"].take();
    let merged_object: Value = admittance_sdk::serde_json::from_str(merged_text.as_str().expect("a text")).unwrap();
    assert_eq!(merged_object, json!({"x": 1, "y": 2}));
    assert_eq!(
        annotations,
        json!({"kept": "old", "added": "new", "replaced": "new", "oom": null, "fresh": "{\"x\":1}",
               "kruise.io/sidecarset-injected-list": "a,b"})
    );
    let plugin = testing::configure::<SidecarInjector>(json!({ "sidecarSet": set })).unwrap();
    let error = testing::create(pod("no JSON")).admit(&plugin).unwrap_err().to_string();
    assert!(error.contains("the annotation oom cannot be changed"), "{error}");
}

#[test]
fn a_sidecar_set_changes_only_created_pods() {
    let settings = json!({"sidecarSet": {"name": "a", "containers": [{"name": "x"}]}});
    let plugin = testing::configure::<SidecarInjector>(&settings).unwrap();
    let pod = json!({"kind": "Pod", "spec": {"containers": [{"name": "web"}]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": {"containers": []}}}});
    for request in [
        testing::update(&pod, &pod),
        testing::delete(&pod),
        testing::create(&pod).subresource("ephemeralcontainers"),
        testing::create(&job),
        testing::create(json!({"kind": "Pod", "spec": null})),
    ] {
        let outcome = request.admit(&plugin).unwrap();
        assert!(outcome.is_allowed() && outcome.patch().is_none(), "{outcome:?}");
    }
}

#[test]
fn every_mistake_is_reported_with_its_path() {
    let container = |extra: Value| {
        let mut container = json!({"name": "x"});
        let fields = container.as_object_mut().expect("an object");
        fields.extend(extra.as_object().expect("an object").clone());
        json!({"name": "a", "containers": [container]})
    };
    for (set, pointer, says) in [
        (json!({"name": "a"}), "/sidecarSet", "no containers"),
        (json!({"containers": [{"name": "x"}]}), "/sidecarSet", "name"),
        (
            json!({"name": "a", "containers": [{"image": "x"}]}),
            "/sidecarSet/containers/0",
            "no name",
        ),
        (
            json!({"name": "a", "containers": [{"name": "x"}], "initContainers": [{"name": "x"}]}),
            "/sidecarSet/containers/0",
            "rename",
        ),
        (
            container(json!({"podInjectPolicy": "Middle"})),
            "/sidecarSet/containers/0/podInjectPolicy",
            "Middle",
        ),
        (
            container(json!({"shareVolumePolicy": {"type": "on"}})),
            "/sidecarSet/containers/0/shareVolumePolicy",
            "on",
        ),
        (
            container(json!({"shareVolumeDevicePolicy": {"type": "on"}})),
            "/sidecarSet/containers/0/shareVolumeDevicePolicy",
            "on",
        ),
        (
            container(json!({"resourcesPolicy": {"targetContainersMode": "sum"}})),
            "/sidecarSet/containers/0/resourcesPolicy",
            "write `resources`",
        ),
        (
            container(json!({"transferEnv": [{"sourceContainer": "x"}]})),
            "/sidecarSet/containers/0/transferEnv",
            "sourceContainer",
        ),
        (
            container(
                json!({"transferEnv": [{"sourceContainerNameFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.x"}}}]}),
            ),
            "/sidecarSet/containers/0/transferEnv/0",
            "spec.x",
        ),
        (
            container(
                json!({"transferEnv": [{"sourceContainerNameFrom": {"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.labels['a']"}}}]}),
            ),
            "/sidecarSet/containers/0/transferEnv/0",
            "must be v1",
        ),
        (
            container(json!({"volumeDevices": [{"name": "v", "devicePath": "/v"}]})),
            "/sidecarSet/containers/0/volumeDevices/0/name",
            "no volume \"v\"",
        ),
        (
            container(json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]})),
            "/sidecarSet/containers/0/volumeMounts/0/name",
            "no volume \"v\"",
        ),
        (
            container(json!({"env": {"A": "b"}})),
            "/sidecarSet/containers/0/env",
            "list",
        ),
        (
            json!({"name": "a", "containers": [{"name": "x"}], "volumes": [{"name": "v"}, {"name": "v"}]}),
            "/sidecarSet/volumes/1",
            "duplicate",
        ),
        (
            json!({"name": "a", "containers": [{"name": "x"}], "imagePullSecrets": [{}]}),
            "/sidecarSet/imagePullSecrets/0",
            "no name",
        ),
        (
            json!({"name": "a", "containers": [{"name": "x"}], "patchPodMetadata": [{"patchPolicy": "Drop"}]}),
            "/sidecarSet/patchPodMetadata/0/patchPolicy",
            "Drop",
        ),
    ] {
        let settings = json!({ "sidecarSet": set });
        let errors = testing::configure::<SidecarInjector>(&settings).unwrap_err();
        let reported_error = errors
            .iter()
            .find(|error| error.pointer() == pointer)
            .unwrap_or_else(|| panic!("{pointer} of {errors}"));
        assert!(reported_error.message().contains(says), "{errors}");
    }
    let settings = json!({"sidecarSet": {"name": "a", "containers": [{"name": "x"}]}, "labels": {"a": "b"}});
    let errors = testing::configure::<SidecarInjector>(&settings).unwrap_err();
    assert!(errors.to_string().contains("remove the other settings"), "{errors}");
}
