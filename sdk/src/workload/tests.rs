use serde_json::{Value, json};

use super::*;
use crate::{Text, testing};

/// Each row contains the version, the kind and the content of an object, and the paths of the pod specs in it.
#[test]
fn templates_are_found_by_kind_and_by_shape() {
    let spec = json!({"containers": [{"name": "a", "image": "b"}]});
    let template = json!({"spec": spec});
    let in_template = json!({"template": template});
    let table = [
        ("v1", "Pod", json!({"spec": spec}), &["/spec"] as &[&str]),
        ("v1", "Pod", json!({"spec": in_template}), &["/spec"]),
        (
            "apps/v1",
            "Deployment",
            json!({"spec": in_template}),
            &["/spec/template/spec"],
        ),
        (
            "apps/v1",
            "StatefulSet",
            json!({"spec": in_template}),
            &["/spec/template/spec"],
        ),
        (
            "apps/v1",
            "DaemonSet",
            json!({"spec": in_template}),
            &["/spec/template/spec"],
        ),
        (
            "apps/v1",
            "ReplicaSet",
            json!({"spec": in_template}),
            &["/spec/template/spec"],
        ),
        (
            "v1",
            "ReplicationController",
            json!({"spec": in_template}),
            &["/spec/template/spec"],
        ),
        (
            "batch/v1",
            "Job",
            json!({"spec": in_template}),
            &["/spec/template/spec"],
        ),
        (
            "batch/v1",
            "CronJob",
            json!({"spec": {"jobTemplate": {"spec": in_template}}}),
            &["/spec/jobTemplate/spec/template/spec"],
        ),
        ("v1", "PodTemplate", json!({"template": template}), &["/template/spec"]),
        (
            "v4",
            "application",
            json!({"spec": in_template}),
            &["/spec/template/spec"],
        ),
        (
            "v4",
            "Deployment",
            json!({"spec": in_template}),
            &["/spec/template/spec"],
        ),
        (
            "argoproj.io/v1alpha1",
            "Rollout",
            json!({"spec": in_template}),
            &["/spec/template/spec"],
        ),
        (
            "example.com/v1",
            "Both",
            json!({"spec": in_template, "template": template}),
            &["/spec/template/spec", "/template/spec"],
        ),
        ("v1", "Service", json!({"spec": {"ports": []}}), &[]),
        ("v1", "ConfigMap", json!({"data": {"spec": "x"}}), &[]),
        (
            "example.com/v1",
            "Mail",
            json!({"spec": {"template": "Dear {name}"}}),
            &[],
        ),
        (
            "monitoring.coreos.com/v1",
            "Prometheus",
            json!({"spec": {"containers": []}}),
            &[],
        ),
        ("v1", "Pod", json!({"spec": null}), &[]),
    ];
    for (api_version, kind, mut object, expected) in table {
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.into();
        let request = testing::create(&object).build();
        let workload = Workload::read(&request).unwrap_or_else(|error| panic!("{object}: {error}"));
        let paths: Vec<&str> = workload
            .iter()
            .flat_map(Workload::templates)
            .map(|template| template.spec_path.as_str())
            .collect();
        assert_eq!(paths, expected, "{object}");
    }
}

#[test]
fn malformed_pod_specs_of_workloads_are_errors() {
    let table = [
        (
            "a Pod",
            json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": {}}}),
            "/spec/containers",
        ),
        (
            "a Deployment",
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": "x"}}),
            "/spec/template",
        ),
        (
            "containers in another kind",
            json!({"apiVersion": "a.b/v1", "kind": "C", "spec": {"template": {"spec": {"containers": [{"image": 5}]}}}}),
            "/spec/template/spec/containers/0/image",
        ),
    ];
    for (name, object, pointer) in table {
        let request = testing::create(&object).build();
        let error = Workload::read(&request).expect_err(name).to_string();
        assert!(error.contains(&format!("\"{pointer}\"")), "{name}: {error}");
    }
}

#[test]
fn a_duplicate_key_is_an_error() {
    let text =
        r#"{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"image":"good"}],"containers":[{"image":"bad"}]}}"#;
    let request = testing::create(text).build();
    let error = Workload::read(&request).expect_err("which of them counts?").to_string();
    assert!(error.contains("duplicate field `containers`"), "{error}");
}

#[test]
fn bcs_objects_without_template_metadata_use_their_own_metadata() {
    let object = |api_version: &str, template: Value| {
        json!({
            "apiVersion": api_version, "kind": "application",
            "metadata": {"name": "a", "annotations": {"of": "object"}},
            "spec": {"template": template},
        })
    };
    let spec = json!({"containers": []});
    let table = [
        ("v4", json!({"spec": spec}), "/metadata", true, Some("object")),
        (
            "v4",
            json!({"spec": spec, "metadata": {"annotations": {"of": "template"}}}),
            "/spec/template/metadata",
            true,
            Some("template"),
        ),
        ("v1", json!({"spec": spec}), "/spec/template/metadata", false, None),
    ];
    for (api_version, template, path, exists, annotation) in table {
        let request = testing::create(object(api_version, template)).build();
        let workload = Workload::read(&request)
            .expect("it has the shape")
            .expect("it has a template");
        let template = &workload.templates()[0];
        assert_eq!(template.metadata_path.as_str(), path);
        assert_eq!(
            (template.has_metadata, template.annotation("of")),
            (exists, annotation),
            "{path}"
        );
    }
}

#[test]
fn keys_that_only_bcs_reads_case_insensitively_are_reported() {
    let table = [
        ("v4", json!({"Spec": {}}), Some("/Spec")),
        ("v4", json!({"spec": {"Template": {}}}), Some("/spec/Template")),
        (
            "v4",
            json!({"spec": {"template": {"SPEC": {}}}}),
            Some("/spec/template/SPEC"),
        ),
        (
            "v4",
            json!({"spec": {"template": {"spec": {"Containers": []}}}}),
            Some("/spec/template/spec/Containers"),
        ),
        (
            "v4",
            json!({"spec": {"template": {"spec": {"container\u{17f}": []}}}}),
            Some("/spec/template/spec/container\u{17f}"),
        ),
        (
            "v4",
            json!({"spec": {"template": {"spec": {"containers": [{"Image": "x"}]}}}}),
            Some("/spec/template/spec/containers/0/Image"),
        ),
        (
            "v4",
            json!({"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}}),
            None,
        ),
        (
            "v1",
            json!({"spec": {"template": {"spec": {"Containers": [], "containers": []}}}}),
            None,
        ),
    ];
    for (api_version, mut object, expected) in table {
        object["apiVersion"] = api_version.into();
        object["kind"] = "application".into();
        let request = testing::create(&object).build();
        let workload = Workload::read(&request).expect("it has the shape");
        let path = workload
            .as_ref()
            .and_then(Workload::misspelt)
            .map(|misspelt| misspelt.path.as_str());
        assert_eq!(path, expected, "{object}");
    }
}

#[test]
fn strings_borrow_from_the_request() {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "spec": {
        "containers": [{"name": "a", "image": "b"}],
        "volumes": [{"name": "v", "image": {"reference": "r"}}],
        "imagePullSecrets": [{"name": "s"}, {}],
    }});
    let request = testing::create(&object).build();
    let workload = Workload::read(&request)
        .expect("it has the shape")
        .expect("it has a template");
    let template = &workload.templates()[0];
    let container = &template.containers.as_ref().expect("there is one")[0];
    assert!(container.image.as_ref().is_some_and(Text::is_borrowed));
    assert_eq!(
        template.volumes.as_ref().expect("there is one")[0].image_reference(),
        Some("r")
    );
    let secrets = template.image_pull_secrets.as_ref().expect("there is a list");
    assert!(secrets[0].name.as_ref().is_some_and(Text::is_borrowed));
    assert_eq!(secrets[1].name, None);
}

#[test]
fn parts_of_a_container_are_parsed_when_accessed() {
    let container = json!({
        "name": "web",
        "resources": {"limits": {"memory": "512Mi", "cpu": 1.5}, "requests": null},
        "ports": [{"containerPort": 8080, "hostPort": 80, "hostIP": "::", "protocol": "TCP"}],
        "env": [
            {"name": "A", "value": "with \"quotes\""},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ],
        "securityContext": {
            "privileged": true,
            "runAsUser": 0,
            "capabilities": {"add": ["NET_ADMIN"], "drop": null},
            "seccompProfile": {"type": "RuntimeDefault"},
            "another": {},
        },
        "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 10},
        "readinessProbe": {"tcpSocket": {"port": 8080}},
        "startupProbe": {"exec": {"command": ["true"]}},
    });
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container, {"name": "plain"}]}});
    let request = testing::create(pod).build();
    let workload = Workload::read(&request).unwrap().unwrap();
    let [web, plain] = workload.templates()[0].containers.as_deref().unwrap() else {
        panic!("two containers")
    };

    let resources = web.resources().unwrap();
    assert_eq!(
        (resources.limit("memory"), resources.limit("cpu")),
        (Some("512Mi"), Some("1.5"))
    );
    assert_eq!((resources.request("memory"), resources.limit("disk")), (None, None));
    assert_eq!(resources.limits.unwrap().iter().count(), 2);
    let ports = web.ports().unwrap();
    assert_eq!((ports[0].container_port, ports[0].host_port), (Some(8080), Some(80)));
    assert_eq!(ports[0].host_ip.as_deref(), Some("::"));
    let env = web.env().unwrap();
    assert_eq!(env[0].value.as_deref(), Some("with \"quotes\""));
    let secret = env[1].value_from.as_ref().unwrap().secret_key_ref.as_ref().unwrap();
    assert_eq!((secret.name.as_deref(), secret.key.as_deref()), (Some("s"), Some("k")));
    let context = web.security_context().unwrap();
    assert_eq!(
        (context.privileged, context.run_as_user, context.run_as_non_root),
        (Some(true), Some(0), None)
    );
    assert_eq!(context.capabilities.unwrap().add.unwrap(), ["NET_ADMIN"]);
    assert_eq!(context.seccomp_profile.unwrap().kind.as_deref(), Some("RuntimeDefault"));
    let probe = web.liveness_probe().unwrap().unwrap();
    assert_eq!(
        (probe.period_seconds, probe.http_get.unwrap().port.unwrap().as_str()),
        (Some(10), "http")
    );
    let probe = web.readiness_probe().unwrap().unwrap();
    assert_eq!(probe.tcp_socket.unwrap().port.unwrap().as_str(), "8080");
    let probe = web.startup_probe().unwrap().unwrap();
    assert_eq!(probe.exec.unwrap().command.unwrap(), ["true"]);

    assert_eq!(plain.resources().unwrap(), Resources::default());
    assert!(plain.ports().unwrap().is_empty() && plain.env().unwrap().is_empty());
    assert_eq!(plain.security_context().unwrap(), SecurityContext::default());
    assert_eq!(plain.liveness_probe().unwrap(), None);
}

#[test]
fn an_invalid_part_of_a_container_is_an_error_only_on_access() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{
        "name": "web", "ports": [{"containerPort": "http"}], "resources": {"limits": {"cpu": {}}},
    }]}});
    let request = testing::create(pod).build();
    let workload = Workload::read(&request).unwrap().unwrap();
    let web = &workload.templates()[0].containers.as_ref().unwrap()[0];
    for (error, part) in [
        (
            web.ports().unwrap_err(),
            "container \"web\": ports/0/containerPort: invalid type: string \"http\"",
        ),
        (
            web.resources().unwrap_err(),
            "container \"web\": resources/limits/cpu: neither a string nor a number",
        ),
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
}
