use serde_json::{Value, json};

/// Returns a Pod with this number of containers: 1 kB with two, 5 kB with sixteen.
pub(crate) fn pod(containers: usize) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-7c9f6d5b8-x2x4q",
            "namespace": "shop",
            "uid": "6f1c2d3e-4a5b-4c6d-8e7f-9a0b1c2d3e4f",
            "labels": {"app": "web", "tier": "front", "pod-template-hash": "7c9f6d5b8"},
            "annotations": {"example.com/owner": "team-shop", "example.com/reviewed": "yes"},
        },
        "spec": {
            "serviceAccountName": "web",
            "restartPolicy": "Always",
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "containers": (0..containers).map(container).collect::<Vec<_>>(),
            "volumes": [{"name": "config", "configMap": {"name": "web-config"}}],
        },
    })
    .to_string()
}

fn container(index: usize) -> Value {
    json!({
        "name": format!("container-{index}"),
        "image": format!("registry.example.com/shop/web-{index}:1.4.2"),
        "ports": [{"containerPort": 8080 + index, "protocol": "TCP"}],
        "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "REGION", "value": "north"}],
        "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m"}},
    })
}
