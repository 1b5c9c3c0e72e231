//! Tests which manifests each flag produces.

use super::*;

#[tokio::test]
async fn every_object_that_the_manifests_name_is_printed() {
    let printed = PrintedManifests::from_definitions(&chains(), "--network-policy").await;
    assert_eq!(
        printed.kinds(),
        [
            "Namespace",
            "ServiceAccount",
            "ClusterRole",
            "ClusterRoleBinding",
            "Role",
            "RoleBinding",
            "ConfigMap",
            "ConfigMap",
            "ConfigMap",
            "ConfigMap",
            "Service",
            "Deployment",
            "PodDisruptionBudget",
            "NetworkPolicy",
        ]
    );
    let namespace = printed.object("Namespace", "");
    assert_eq!(namespace["metadata"]["labels"]["admittance.dev/ignore"], "true");
    let is_cluster_wide = |kind: &str| kind == "Namespace" || kind.starts_with("ClusterRole");
    for object in &printed.objects {
        let expected = if is_cluster_wide(object["kind"].as_str().unwrap()) {
            &Value::Null
        } else {
            &namespace["metadata"]["name"]
        };
        assert_eq!(&object["metadata"]["namespace"], expected, "{object}");
    }

    let pod = printed.pod();
    let account = printed.object("ServiceAccount", "");
    assert_eq!(pod["serviceAccountName"], account["metadata"]["name"]);
    assert_eq!(
        pod["automountServiceAccountToken"], true,
        "the leader registers webhooks"
    );
    // The program writes into the volumes `cache` and `state`, so these are empty at first. All other volumes contain
    // files.
    let container = &pod["containers"][0];
    for volume in pod["volumes"].as_array().unwrap() {
        let is_empty = printed.volume_files(volume).is_empty();
        let is_its_own = volume["name"] == "cache" || volume["name"] == "state";
        assert_eq!(is_empty, is_its_own, "{volume}");
    }
    assert_eq!(
        container["volumeMounts"].as_array().unwrap().len(),
        pod["volumes"].as_array().unwrap().len()
    );

    // The Service and the probes refer to the container's ports by name, so these names must exist.
    let ports: Vec<_> = container["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| &port["name"])
        .collect();
    let service = printed.object("Service", "");
    assert!(ports.contains(&&service["spec"]["ports"][0]["targetPort"]));
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        assert!(ports.contains(&&container[probe]["httpGet"]["port"]), "{probe}");
    }
    // All objects that select the Pods use the labels in the Deployment's Pod template.
    let labels = &printed.object("Deployment", "")["spec"]["template"]["metadata"]["labels"];
    for selector in [
        &service["spec"]["selector"],
        &printed.object("Deployment", "")["spec"]["selector"]["matchLabels"],
        &printed.object("PodDisruptionBudget", "")["spec"]["selector"]["matchLabels"],
        &printed.object("NetworkPolicy", "")["spec"]["podSelector"]["matchLabels"],
        &pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ] {
        assert_eq!(selector, labels);
    }
    // The Pod meets the strictest Pod Security Standard, `restricted`, and its root file system is read-only.
    let security = &pod["securityContext"];
    assert_eq!(security["runAsNonRoot"], true);
    assert_eq!(security["seccompProfile"], json!({"type": "RuntimeDefault"}));
    assert_eq!(
        container["securityContext"],
        json!({
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        })
    );
    // The Pod waits 5 s, and then up to 30 s for requests in flight.
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > 35);

    assert!(printed.stderr.contains("--server-side"), "{}", printed.stderr);
}

#[tokio::test]
async fn flags_set_the_fields_of_the_manifests() {
    // (flags, kind of a printed object, end of its name, JSON Pointer into it, expected value)
    let table = [
        ("--namespace hooks", "Namespace", "", "/metadata/name", json!("hooks")),
        ("--name hooks", "Service", "", "/metadata/name", json!("hooks")),
        (
            "--name hooks",
            "ConfigMap",
            "-chains",
            "/metadata/name",
            json!("hooks-chains"),
        ),
        (
            "--image r.example/a:1",
            "Deployment",
            "",
            "/spec/template/spec/containers/0/image",
            json!("r.example/a:1"),
        ),
        ("--replicas 3", "Deployment", "", "/spec/replicas", json!(3)),
        (
            "--replicas 3 --max-replicas 9",
            "HorizontalPodAutoscaler",
            "",
            "/spec/minReplicas",
            json!(3),
        ),
        (
            "--max-replicas 9 --name hooks",
            "HorizontalPodAutoscaler",
            "",
            "/spec/scaleTargetRef",
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "hooks"}),
        ),
        (
            "--max-replicas 9 --kubernetes-version 1.22",
            "HorizontalPodAutoscaler",
            "",
            "/apiVersion",
            json!("autoscaling/v2beta2"),
        ),
        (
            "--service-monitor",
            "ServiceMonitor",
            "",
            "/spec/endpoints",
            json!([{"port": "admin", "path": "/metrics"}]),
        ),
        (
            "--kubernetes-version 1.20",
            "PodDisruptionBudget",
            "",
            "/apiVersion",
            json!("policy/v1beta1"),
        ),
        (
            "--priority-class system-cluster-critical",
            "Deployment",
            "",
            "/spec/template/spec/priorityClassName",
            json!("system-cluster-critical"),
        ),
        (
            "--cpu-request 2",
            "Deployment",
            "",
            "/spec/template/spec/containers/0/resources/requests/cpu",
            json!("2"),
        ),
        (
            "--memory-request 1Gi",
            "Deployment",
            "",
            "/spec/template/spec/containers/0/resources/requests/memory",
            json!("1Gi"),
        ),
        (
            "--memory-limit 2Gi",
            "Deployment",
            "",
            "/spec/template/spec/containers/0/resources/limits/memory",
            json!("2Gi"),
        ),
        (
            "--network-policy",
            "NetworkPolicy",
            "",
            "/spec/policyTypes",
            json!(["Ingress"]),
        ),
        (
            "--store-claim store",
            "Deployment",
            "",
            "/spec/template/spec/volumes/2",
            json!({"name": "cache", "persistentVolumeClaim": {"claimName": "store"}}),
        ),
        (
            "--store-claim store",
            "Deployment",
            "",
            "/spec/template/spec/securityContext/fsGroupChangePolicy",
            json!("OnRootMismatch"),
        ),
    ];
    for (flags, kind, name, pointer, expected) in table {
        let printed = PrintedManifests::from_definitions(&chains(), flags).await;
        assert_eq!(printed.object(kind, name).pointer(pointer), Some(&expected), "{flags}");
    }

    for (flags, field, expected) in [
        ("", "failurePolicy", Value::Null),
        ("--per-chain", "perChain", json!(true)),
        ("--timeout 7", "timeoutSeconds", json!(7)),
        ("--failure-policy Ignore", "failurePolicy", json!("Ignore")),
        ("--exclude-namespace cni", "excludeNamespaces", json!(["cni"])),
        ("--include-kube-system", "includeKubeSystem", json!(true)),
    ] {
        let config = PrintedManifests::from_definitions(&chains(), flags).await.config();
        let webhooks = &config["dialect"]["kubernetes"]["webhookConfigurations"];
        assert!(webhooks.is_object(), "{config}");
        assert_eq!(webhooks[field], expected, "{flags}");
    }

    let printed = PrintedManifests::from_definitions(&chains(), "--max-replicas 9 --service-monitor").await;
    let deployment = printed.object("Deployment", "");
    assert_eq!(deployment["spec"].get("replicas"), None, "it is the autoscaler's");
    let metadata = &deployment["spec"]["template"]["metadata"];
    assert_eq!(metadata.get("annotations"), None, "metrics are read once");
    let service = printed.object("Service", "-metrics");
    let monitor = printed.object("ServiceMonitor", "");
    assert_eq!(
        monitor["spec"]["selector"]["matchLabels"],
        service["metadata"]["labels"]
    );
    assert_ne!(
        printed.object("Service", "admittance")["metadata"]["labels"],
        service["metadata"]["labels"]
    );

    let printed = PrintedManifests::from_definitions(&chains(), "--modules-in-image /plugins").await;
    assert!(!printed.kinds().contains(&"NetworkPolicy"));
    let text = printed.object("ConfigMap", "-chains")["data"]["pods.yaml"]
        .as_str()
        .unwrap();
    assert!(text.contains("source: file:/plugins/sidecar_injector.wasm\n"), "{text}");
    assert_eq!(printed.kinds().iter().filter(|kind| **kind == "ConfigMap").count(), 2);
    assert!(!printed.stderr.contains("--server-side"), "{}", printed.stderr);
}

/// After the manifests, the command prints notes. They warn of webhooks that could lock users out of the cluster, and
/// of requests that the chains do not check.
#[tokio::test]
async fn notes_after_the_manifests_say_what_the_user_must_do() {
    let forgetful = chains().replace("pods, pods/ephemeralcontainers", "pods");
    let lock_out = "the webhooks apply to kube-system, and the failure policy is Fail";
    let ephemeral = "add pods/ephemeralcontainers to `resources`";
    // (definitions, flags, notes that are printed)
    for (definitions, flags, expected) in [
        (chains(), "", &[][..]),
        (chains(), "--include-kube-system", &[lock_out]),
        (chains(), "--include-kube-system --failure-policy Ignore", &[]),
        (forgetful, "", &[ephemeral]),
    ] {
        let printed = PrintedManifests::from_definitions(&definitions, flags).await;
        for note in [lock_out, ephemeral] {
            let is_there = printed.stderr.contains(note);
            assert_eq!(is_there, expected.contains(&note), "{flags}: {}", printed.stderr);
        }
    }
}
