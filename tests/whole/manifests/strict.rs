//! Checks that every field of the printed objects exists in Kubernetes 1.36 and has the right type, because an API
//! server can refuse objects with unknown fields.

use k8s_openapi::{
    Resource,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        apps::v1::Deployment,
        autoscaling::v2::HorizontalPodAutoscaler,
        core::v1::{ConfigMap, Namespace, Pod, Secret, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use serde::{Serialize, de::DeserializeOwned};

use super::*;

/// Parses an object as the type `T` and serializes it again. Unknown fields are lost, which shows in a comparison.
fn round_trip<T: Resource + DeserializeOwned + Serialize>(object: &Value) -> Option<()> {
    if object["kind"] != T::KIND || object["apiVersion"] != T::API_VERSION {
        return None;
    }
    let typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object}"));
    let serialized = serde_json::to_value(&typed).unwrap();
    assert!(is_same(&serialized, object), "{serialized}\n{object}");
    Some(())
}

/// Compares two JSON values. The numbers 1 and 1.0 count as equal.
fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let is_there = |(key, value)| right.get(key).is_some_and(|other| is_same(value, other));
            left.len() == right.len() && left.iter().all(is_there)
        }
        (Value::Array(left), Value::Array(right)) => {
            let mut pairs = left.iter().zip(right);
            left.len() == right.len() && pairs.all(|(left, right)| is_same(left, right))
        }
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        _ => left == right,
    }
}

pub(super) fn assert_valid(object: &Value) {
    round_trip::<CustomResourceDefinition>(object)
        .or_else(|| round_trip::<Namespace>(object))
        .or_else(|| round_trip::<ServiceAccount>(object))
        .or_else(|| round_trip::<ClusterRole>(object))
        .or_else(|| round_trip::<ClusterRoleBinding>(object))
        .or_else(|| round_trip::<Role>(object))
        .or_else(|| round_trip::<RoleBinding>(object))
        .or_else(|| round_trip::<Secret>(object))
        .or_else(|| round_trip::<ConfigMap>(object))
        .or_else(|| round_trip::<Service>(object))
        .or_else(|| round_trip::<Pod>(object))
        .or_else(|| round_trip::<Deployment>(object))
        .or_else(|| round_trip::<PodDisruptionBudget>(object))
        .or_else(|| round_trip::<HorizontalPodAutoscaler>(object))
        .or_else(|| round_trip::<NetworkPolicy>(object))
        .or_else(|| round_trip::<MutatingWebhookConfiguration>(object))
        .or_else(|| round_trip::<ValidatingWebhookConfiguration>(object))
        .unwrap_or_else(|| panic!("no type is known for {object}"));
}

#[tokio::test]
async fn kubernetes_accepts_every_printed_field_in_strict_validation() {
    let directory = tempfile::tempdir().unwrap();
    write(&directory, "pods.yaml", chains());
    let config = write(
        &directory,
        "admittance.yaml",
        "dialect: { kubernetes: {} }\ncluster: {}\ndefinitions: [pods.yaml, { kubernetes: {} }]\n",
    );
    let arguments = format!(
        "--config {} --network-policy --max-replicas 5 --service-monitor --memory-limit 1Gi --priority-class p",
        config.display()
    );
    let printed = PrintedManifests::in_directory(directory, &arguments).await;
    let mut kinds = printed.kinds();
    kinds.dedup();
    assert_eq!(kinds.len(), 14, "{kinds:?}");
    for object in &printed.objects {
        // Kubernetes has no type for a `ServiceMonitor`, which is a resource of the Prometheus operator.
        if object["kind"] != "ServiceMonitor" {
            assert_valid(object);
        }
    }
}
