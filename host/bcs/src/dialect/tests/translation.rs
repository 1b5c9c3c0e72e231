//! Tests of the bodies that are sent to the scheduler.

use serde_json::Value;

use super::*;

const DEPLOYMENTS: &str = "/mesosdriver/v4/namespaces/path/deployments";
const DAEMONSETS: &str = "/mesosdriver/v4/namespaces/path/daemonset";

pub(super) fn application() -> Value {
    json!({
        "apiVersion": "v4", "kind": "application",
        "metadata": {"name": "app-test", "namespace": "ns", "labels": {"podname": "app-test"}},
        "restartPolicy": {"policy": "Never", "interval": 5, "backoff": 10}, "killPolicy": {"gracePeriod": 5},
        "constraint": {"intersectionItem": []},
        "spec": {"instance": 2, "template": {"spec": {
            "containers": [{
                "type": "MESOS", "image": "dockerhub:8443/bcs/game/gamesvr:v1.1.1", "imagePullPolicy": "Always",
                "privileged": false,
                "ports": [{"containerPort": 9999, "name": "test-port", "protocol": "HTTP"}],
                "resources": {"limits": {"cpu": "2", "memory": "100"}},
            }],
            "networkMode": "BRIDGE", "networkType": "BRIDGE",
        }}},
    })
}

fn deployment() -> Value {
    json!({
        "apiVersion": "v4", "kind": "deployment",
        "metadata": {"name": "deployment-test", "namespace": "ns", "labels": {"label_deployment": "l"}},
        "restartPolicy": {"policy": "Always", "interval": 5, "backoff": 10},
        "spec": {
            "instance": 2, "selector": {"podname": "deployment-test"},
            "template": {"metadata": {"name": "x", "namespace": "y", "labels": {"own": "o"}}, "spec": {
                "containers": [{"type": "MESOS", "image": "i", "resources": {"limits": {"cpu": "0.1", "memory": "1"}}}],
            }},
            "strategy": {"type": "RollingUpdate", "rollingupdate": {
                "maxUnavilable": 1, "maxSurge": 1, "upgradeDuration": 60, "rollingOrder": "CreateFirst",
            }},
        },
    })
}

pub(super) fn object_of_kind(kind: &str) -> Value {
    let mut object = application();
    object["kind"] = kind.into();
    if kind == "process" {
        object["spec"]["template"]["spec"] =
            json!({"processes": [{"procName": "p", "uris": [{"value": "u"}], "other": 1}]});
    }
    object
}

fn path_of(kind: &str) -> &'static str {
    match kind {
        "application" => APPLICATIONS,
        "process" => "/mesosdriver/v4/namespaces/path/processes",
        "deployment" => DEPLOYMENTS,
        _ => DAEMONSETS,
    }
}

pub(super) fn scheduler_request(method: &str, path: &str, body: &str) -> (String, Value) {
    match translate(
        &request_head(method, path, &[]),
        &Bytes::copy_from_slice(body.as_bytes()),
    ) {
        SchedulerForwarding::Rewritten(RewrittenRequest {
            method,
            path_and_query,
            body: NextBody::New(body),
            ..
        }) => (
            format!("{method} {path_and_query}"),
            serde_json::from_slice(&body).unwrap(),
        ),
        other => panic!("{body} became {}", describe(other)),
    }
}

fn creation_body(object: &Value) -> Value {
    let kind = object["kind"].as_str().unwrap();
    scheduler_request("POST", path_of(kind), &object.to_string()).1
}

#[test]
fn an_application_becomes_a_version_object_of_the_scheduler() {
    let object = application();
    let (target, version) = scheduler_request("POST", APPLICATIONS, &object.to_string());
    assert_eq!(target, "POST /v1/apps");
    let expected_resources = json!({"Cpus": 2.0, "Mem": 100.0, "Disk": 0.0});
    let expected = json!({
        "ID": "app-test",
        "Name": "",
        "ObjectMeta": object["metadata"],
        "PodObjectMeta": {"name": "app-test", "namespace": "ns", "labels": {"podname": "app-test"}},
        "Instances": 2,
        "RunAs": "ns",
        "Container": [{
            "Type": "MESOS",
            "Docker": {
                "Hostname": "",
                "ForcePullImage": true,
                "Image": "dockerhub:8443/bcs/game/gamesvr:v1.1.1",
                "ImagePullUser": "",
                "ImagePullPasswd": "",
                "Network": "BRIDGE",
                "NetworkType": "BRIDGE",
                "Command": "",
                "Arguments": null,
                "Parameters": [],
                "PortMappings": [{"ContainerPort": 9999, "HostPort": 0, "Name": "test-port", "Protocol": "HTTP"}],
                "Env": {},
                "Privileged": false,
            },
            "Volumes": [],
            "Resources": expected_resources,
            "LimitResoures": expected_resources,
            "DataClass": {
                "Resources": expected_resources,
                "LimitResources": expected_resources,
                "ExtendedResources": null,
                "Msgs": [],
                "NetLimit": null,
                "ProcInfo": null,
            },
            "ConfigMaps": null,
            "Secrets": null,
            "HealthChecks": null,
            "NetLimit": null,
        }],
        "Process": [],
        "Labels": {"podname": "app-test"},
        "KillPolicy": {"gracePeriod": 5},
        "RestartPolicy": {"policy": "Never", "interval": 5, "backoff": 10},
        "Constraints": {"intersectionItem": []},
        "Uris": [],
        "Ip": [],
        "Mode": "",
        "Kind": "application",
        "raw_json": object,
    });
    assert_eq!(version.to_string(), expected.to_string());
}

#[test]
fn a_deployment_becomes_a_scheduler_deployment_def() {
    let object = deployment();
    let (target, definition) = scheduler_request("POST", DEPLOYMENTS, &object.to_string());
    assert_eq!(target, "POST /v1/deployment/ns/deployment-test");
    let keys: Vec<&String> = definition.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["metadata", "selector", "version", "strategy", "raw_json"]);
    assert_eq!(definition["metadata"], object["metadata"]);
    assert_eq!(definition["selector"], object["spec"]["selector"]);
    assert_eq!(definition["strategy"], object["spec"]["strategy"]);
    assert_eq!(definition["raw_json"], object);
    let version = &definition["version"];
    assert_eq!(version["Kind"], "application");
    assert_eq!(version["ObjectMeta"], object["metadata"]);
    assert_eq!(
        version["PodObjectMeta"],
        json!({"name": "deployment-test", "namespace": "ns", "labels": {"own": "o", "label_deployment": "l"}})
    );
    assert_eq!(version["Labels"], json!({"label_deployment": "l", "own": "o"}));
    assert_eq!(version.get("raw_json"), None);

    let (target, _) = scheduler_request("PUT", &format!("{DEPLOYMENTS}?args=resource"), &object.to_string());
    assert_eq!(target, "PUT /v1/deployment/ns/deployment-test?args=resource");
}

#[test]
fn a_deployment_without_a_template_binds_an_application() {
    for template in [None, Some(Value::Null)] {
        let mut object = deployment();
        // bcs-mesos-driver does not check the restart policy of a deployment without a template.
        object["restartPolicy"]["policy"] = "other".into();
        match template {
            None => drop(object["spec"].as_object_mut().unwrap().remove("template")),
            Some(template) => object["spec"]["template"] = template,
        }
        object["spec"].as_object_mut().unwrap().remove("strategy");
        object["spec"].as_object_mut().unwrap().remove("selector");
        let definition = creation_body(&object);
        assert_eq!(definition["version"], Value::Null);
        assert_eq!(definition["strategy"], json!({"type": "", "rollingupdate": null}));
        assert_eq!(definition.get("selector"), None);
    }
}

#[test]
fn a_daemonset_becomes_a_scheduler_daemonset_def() {
    let mut object = object_of_kind("daemonset");
    object["other"] = json!({"a": 1});
    object["Labels"] = json!("the scheduler would take it for those of the metadata");
    object["spec"]["more"] = 2.into();
    object["spec"]["mode"] = "the scheduler has a field of this name".into();
    object["spec"]["template"]["spec"]["most"] = 3.into();
    let (target, definition) = scheduler_request("POST", DAEMONSETS, &object.to_string());
    assert_eq!(target, "POST /v1/daemonsets");
    let keys: Vec<&String> = definition.as_object().unwrap().keys().collect();
    let expected = ["name", "namespace", "labels", "version", "constraint", "other"];
    assert_eq!(keys, expected);
    let version = &definition["version"];
    assert_eq!(version["Kind"], "daemonset");
    assert_eq!(version["RunAs"], "ns");
    assert_eq!(version["Constraints"], Value::Null);
    assert_eq!((&version["more"], &version["most"]), (&json!(2), &json!(3)));
    assert_eq!(version["Mode"], "");
    assert_eq!((version.get("mode"), version.get("raw_json")), (None, None));
}

#[test]
fn a_process_is_forwarded_with_all_its_fields() {
    let object = object_of_kind("process");
    let (target, version) = scheduler_request("POST", path_of("process"), &object.to_string());
    assert_eq!(target, "POST /v1/apps");
    assert_eq!(version["Process"], object["spec"]["template"]["spec"]["processes"]);
    assert_eq!(
        (&version["Kind"], &version["Container"]),
        (&json!("process"), &json!([]))
    );
    let mut deployed = object;
    deployed["kind"] = "deployment".into();
    assert_eq!(creation_body(&deployed)["version"]["Kind"], "process");
}

#[test]
#[rustfmt::skip]
fn the_scheduler_gets_defaults_and_derived_values() {
    let container = "/spec/template/spec/containers/0";
    // (section or source file with this rule, kind, path in the object, value to set at that path, path in the
    // scheduler's request, expected value at that path)
    // With the value `None`, the path is removed from the object.
    for (source, kind, object_path, value, request_path, expected) in [
        ("1.5 empty namespace", "application", "/metadata/namespace", None, "/RunAs", json!("defaultGroup")),
        ("1.5 empty namespace", "process", "/metadata/namespace", Some(json!("")), "/RunAs", json!("defaultGroup")),
        ("1.5 empty namespace", "process", "/metadata/namespace", Some(json!(null)), "/ObjectMeta/namespace", json!("")),
        ("create.go: a daemonset has no default", "daemonset", "/metadata/namespace", Some(json!("")), "/version/RunAs", json!("")),
        ("1.5 restart policy", "application", "/restartPolicy", None, "/RestartPolicy", json!({"policy": "OnFailure"})),
        ("1.5 restart policy", "application", "/restartPolicy/policy", Some(json!("")), "/RestartPolicy", json!({"policy": "OnFailure", "interval": 5, "backoff": 10})),
        ("1.5 restart policy", "deployment", "/restartPolicy", Some(json!(null)), "/version/RestartPolicy", json!({"policy": "OnFailure"})),
        ("1.5 restart policy", "daemonset", "/restartPolicy/policy", Some(json!("Always")), "/version/RestartPolicy/policy", json!("Always")),
        ("rc.go KillPolicy", "application", "/killPolicy", None, "/KillPolicy", json!({"gracePeriod": 0})),
        ("rc.go Constraints", "application", "/constraint", None, "/Constraints", json!(null)),
        ("1.5 labels", "application", "/spec/template/metadata", Some(json!({"labels": {"podname": "p", "x": "y"}})), "/PodObjectMeta/labels", json!({"podname": "p", "x": "y"})),
        ("create.go labels", "application", "/spec/template/metadata", Some(json!({"labels": {"podname": "p", "x": "y"}})), "/Labels", json!({"podname": "p", "x": "y"})),
        ("create.go labels", "application", "/metadata/labels", None, "/Labels", json!({})),
        ("1.5 spaces", "application", "/metadata/labels", Some(json!({"io.tencent.bcs.netsvc.requestip.0": " 127.0.0.1 | 127.0.0.2", "a": "b c"})), "/Labels", json!({"io.tencent.bcs.netsvc.requestip.0": "127.0.0.1|127.0.0.2", "a": "b c"})),
        ("1.5 spaces", "process", "/metadata/annotations", Some(json!({"x.io.tencent.bcs.netsvc.requestip.0": " 1 2"})), "/ObjectMeta/annotations", json!({"x.io.tencent.bcs.netsvc.requestip.0": "12"})),
        ("deployment.go keeps spaces", "deployment", "/metadata/annotations", Some(json!({"io.tencent.bcs.netsvc.requestip.0": "1 2"})), "/version/ObjectMeta/annotations", json!({"io.tencent.bcs.netsvc.requestip.0": "1 2"})),
        ("1.5 pull policy", "application", "C/imagePullPolicy", Some(json!("IfNotPresent")), "/Container/0/Docker/ForcePullImage", json!(false)),
        ("1.5 pull policy", "application", "C/imagePullPolicy", None, "/Container/0/Docker/ForcePullImage", json!(false)),
        ("1.5 requests", "application", "C/resources", Some(json!({"requests": {"cpu": "1", "memory": "7"}, "limits": {"cpu": "2", "memory": "9", "storage": "3"}})), "/Container/0/Resources", json!({"Cpus": 1.0, "Mem": 7.0, "Disk": 0.0})),
        ("1.5 requests", "application", "C/resources", Some(json!({"requests": {"memory": "7"}, "limits": {"cpu": "2", "memory": "9", "storage": "3"}})), "/Container/0/DataClass/Resources", json!({"Cpus": 2.0, "Mem": 9.0, "Disk": 3.0})),
        ("1.5 requests: only by the processor", "application", "C/resources", Some(json!({"requests": {"memory": "7"}, "limits": {"memory": "9"}})), "/Container/0/Resources", json!({"Cpus": 0.0, "Mem": 7.0, "Disk": 0.0})),
        ("create.go ParseFloat", "application", "C/resources", Some(json!({"limits": {"cpu": "two"}})), "/Container/0/LimitResoures", json!({"Cpus": 0.0, "Mem": 0.0, "Disk": 0.0})),
        ("create.go ParseFloat: limits as Go reads them", "application", "C/resources", Some(json!({"limits": {"cpu": "0x1p-2", "memory": "1_0", "storage": "1__0"}})), "/Container/0/LimitResoures", json!({"Cpus": 0.25, "Mem": 10.0, "Disk": 0.0})),
        ("create.go extended resources", "application", "C/resources/extendedResources", Some(json!([{"name": "gpu", "value": 1.5}])), "/Container/0/DataClass/ExtendedResources", json!([{"name": "gpu", "value": 1.5}])),
        ("1.5 health checks", "application", "C/healthChecks", Some(json!([{"type": "TCP"}])), "/Container/0/HealthChecks", json!([{"type": "TCP", "delaySeconds": 10, "intervalSeconds": 60, "timeoutSeconds": 20, "gracePeriodSeconds": 300}])),
        ("1.5 health checks", "application", "C/healthChecks", Some(json!([{"delaySeconds": 0, "intervalSeconds": -1, "timeoutSeconds": 1, "gracePeriodSeconds": null}])), "/Container/0/HealthChecks", json!([{"delaySeconds": 10, "intervalSeconds": 60, "timeoutSeconds": 1, "gracePeriodSeconds": 300}])),
        ("create.go volumes", "application", "C/volumes", Some(json!([{"name": "v", "volume": {"hostPath": "/h", "mountPath": "/m", "readOnly": true}}])), "/Container/0/Volumes", json!([{"ContainerPath": "/m", "HostPath": "/h", "Mode": "R", "name": "v"}])),
        ("create.go volumes", "application", "C/volumes", Some(json!([{"volume": {"mountPath": "/m", "subPath": "s"}}])), "/Container/0/Volumes", json!([{"ContainerPath": "/m", "HostPath": "", "Mode": "RW", "subPath": "s"}])),
        ("create.go parameters", "application", "C/parameters", Some(json!([{"key": "k", "value": "v"}])), "/Container/0/Docker/Parameters", json!([{"Key": "k", "Value": "v"}])),
        ("create.go arguments", "application", "C/args", Some(json!(["a", "b"])), "/Container/0/Docker/Arguments", json!(["a", "b"])),
        ("create.go environment", "application", "C/env", Some(json!([{"name": "a", "value": "1"}, {"name": "b"}, {"name": "a", "value": "2"}])), "/Container/0/Docker/Env", json!({"a": "2", "b": ""})),
        ("create.go valueFrom", "application", "C/env", Some(json!([
            {"name": "a", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu"}}},
            {"name": "b", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory"}}},
            {"name": "c", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "d", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
            {"name": "e", "valueFrom": {"resourceFieldRef": {"resource": "limits.storage"}}},
            {"name": "f", "value": "g", "valueFrom": {"resourceFieldRef": {"resource": ""}}},
        ])), "/Container/0/Docker/Env", json!({"a": "2000.000000", "b": "100.000000", "c": "2000.000000", "d": "100.000000", "f": "g"})),
        ("create.go config maps", "application", "C/configmaps", Some(json!([{"name": "c", "items": [{"type": "env", "dataKey": "k", "more": 1}]}])), "/Container/0/ConfigMaps", json!([{"name": "c", "items": [{"type": "env", "dataKey": "k", "more": 1}]}])),
        ("create.go secrets", "application", "C/secrets", Some(json!([{"secretName": "s"}])), "/Container/0/Secrets", json!([{"secretName": "s"}])),
        ("create.go flow limit", "application", "/spec/template/spec/netLimit", Some(json!({"egressLimit": 5})), "/Container/0/NetLimit", json!({"egressLimit": 5})),
        ("create.go flow limit", "application", "/spec/template/spec/netLimit", Some(json!({"egressLimit": 5})), "/Container/0/DataClass/NetLimit", json!({"egressLimit": 5})),
        // The client may write a key in any case, such as `NETWORKTYPE`. The key is forwarded in the documented
        // spelling, such as `networkType`.
        ("5 Go takes keys in any case", "application", "/spec/template/spec/NETWORKTYPE", Some(json!("cni")), "/raw_json/spec/template/spec/networkType", json!("cni")),
        ("5 Go takes keys in any case", "application", "C/Image", Some(json!("other")), "/Container/0/Docker/Image", json!("other")),
    ] {
        let mut object = if kind == "deployment" { deployment() } else { object_of_kind(kind) };
        let full_path = object_path.replacen('C', container, usize::from(object_path.starts_with('C')));
        let (parent, key) = full_path.rsplit_once('/').unwrap();
        let members = object.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        members.retain(|member_name, _| !member_name.eq_ignore_ascii_case(key));
        if let Some(value) = value {
            members.insert(key.to_owned(), value);
        }
        let request = creation_body(&object);
        assert_eq!(request.pointer(request_path), Some(&expected), "{source}: {request}");
    }
}

#[test]
fn fields_that_bcs_mesos_driver_drops_are_kept() {
    let mut object = application();
    object["autoUpgrade"] = true.into();
    object["metadata"]["owner"] = "o".into();
    object["killPolicy"]["signal"] = 9.into();
    object["restartPolicy"]["jitter"] = 0.5.into();
    object["spec"]["pause"] = json!({"x": 1.0});
    let container = &mut object["spec"]["template"]["spec"]["containers"][0];
    container["name"] = "c".into();
    container["workingDir"] = "/w".into();
    container["lifecycle"] = json!({"postStart": ["a"]});
    container["healthChecks"] = json!([{"protocol": "HTTP", "path": "/"}]);
    container["ports"][0]["hostIP"] = "127.0.0.1".into();
    container["ports"][0]["path"] = "/p".into();
    container["parameters"] = json!([{"key": "k", "comment": "x"}]);
    // bcs-mesos-driver ignores the keys `dataClass`, `Docker` and `limitresoures`. The scheduler ignores case, and
    // would take them for its own fields of these names. They must therefore not be copied into the scheduler's
    // container.
    container["dataClass"] = "no object".into();
    container["Docker"] = json!({"Privileged": true});
    container["limitresoures"] = json!({"Cpus": 64});
    let text = object.to_string().replace("1.0}", "1.000}");
    let body = match translate(&request_head("POST", APPLICATIONS, &[]), &Bytes::from(text.clone())) {
        SchedulerForwarding::Rewritten(RewrittenRequest {
            body: NextBody::New(body),
            ..
        }) => String::from_utf8(body.to_vec()).unwrap(),
        other => panic!("{}", describe(other)),
    };
    assert!(body.ends_with(&format!("\"raw_json\":{text}}}")), "{body}");

    let version: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(version["ObjectMeta"]["owner"], "o");
    assert_eq!(version["KillPolicy"]["signal"], 9);
    assert_eq!(version["RestartPolicy"]["jitter"], 0.5);
    let container = &version["Container"][0];
    assert_eq!(
        (&container["name"], &container["workingDir"]),
        (&json!("c"), &json!("/w"))
    );
    assert_eq!(container["lifecycle"], json!({"postStart": ["a"]}));
    assert_eq!(
        (
            &container["HealthChecks"][0]["protocol"],
            &container["HealthChecks"][0]["path"]
        ),
        (&json!("HTTP"), &json!("/"))
    );
    assert_eq!(
        container["Docker"]["PortMappings"][0],
        json!({"ContainerPort": 9999, "HostPort": 0, "Name": "test-port", "Protocol": "HTTP", "hostIP": "127.0.0.1", "path": "/p"})
    );
    assert_eq!(
        container["Docker"]["Parameters"][0],
        json!({"Key": "k", "Value": "", "comment": "x"})
    );
    assert_eq!(container["Docker"]["Privileged"], false);
    for left_out in ["dataClass", "docker", "limitresoures"] {
        assert_eq!(container.get(left_out), None);
    }
}
