//! Waits until the Service of the webhooks has a Pod that answers.

use std::time::Duration;

use http::{Method, StatusCode};
use serde::Deserialize;
use tokio::time::sleep;

use super::Inner;

const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The EndpointSlices of a Service, reduced to the fields that are needed here.
#[derive(Deserialize)]
struct Slices {
    items: Vec<EndpointSliceObject>,
}

#[derive(Deserialize)]
struct EndpointSliceObject {
    #[serde(default)]
    endpoints: Option<Vec<ServiceEndpoint>>,
}

#[derive(Deserialize)]
struct ServiceEndpoint {
    #[serde(default)]
    conditions: ServiceConditions,
}

#[derive(Default, Deserialize)]
struct ServiceConditions {
    /// Whether the endpoint is ready. By the API's rules, a missing value means that it is.
    ready: Option<bool>,
}

impl Slices {
    /// Returns whether a Pod of the Service is ready. Without EndpointSlices, returns true: not every cluster has them.
    fn may_answer(&self) -> bool {
        let mut endpoints = self.items.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        self.items.is_empty() || endpoints.any(|endpoint| endpoint.conditions.ready != Some(false))
    }
}

impl Inner {
    /// Waits until the Service has a ready Pod, because until then the API server would refuse requests.
    pub(super) async fn wait_until_served(&self) {
        for (_, resources) in &self.configurations {
            let configuration = resources.get("", &self.registration.name).await;
            if configuration.is_ok_and(|resource| resource.is_some()) {
                return;
            }
        }
        let mut is_logged = false;
        while !self.may_be_served().await {
            if !is_logged {
                tracing::info!(
                    name = self.registration.name,
                    "the webhook configurations are written when the Service has a ready Pod"
                );
                is_logged = true;
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn may_be_served(&self) -> bool {
        let registration = &self.registration;
        let path = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{}",
            registration.namespace, registration.name
        );
        match self.cluster.send(Method::GET, &path, None).await {
            Ok(answer) if answer.status == StatusCode::OK => {
                let slices = serde_json::from_slice::<Slices>(&answer.body);
                slices.map_or(true, |slices| slices.may_answer())
            }
            // The API server answers that it has no EndpointSlices, or that the account may not read them. Then nobody
            // can tell whether a Pod is ready, so no more time is spent waiting.
            Ok(answer) => !answer.status.is_server_error(),
            // The API server did not answer, so nothing is known about the Pods. The caller asks again after a pause.
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_without_a_ready_pod_does_not_answer() {
        for (case, text, expected) in [
            ("no slices", r#"{"items":[]}"#, true),
            ("no Pods", r#"{"items":[{"endpoints":null},{}]}"#, false),
            (
                "one that starts",
                r#"{"items":[{"endpoints":[{"conditions":{"ready":false}}]}]}"#,
                false,
            ),
            (
                "one of two",
                r#"{"items":[{"endpoints":[{"conditions":{"ready":false}},{"conditions":{"ready":true}}]}]}"#,
                true,
            ),
            (
                "unknown",
                r#"{"items":[{"endpoints":[{"addresses":["10.0.0.1"]}]}]}"#,
                true,
            ),
        ] {
            let slices: Slices = serde_json::from_str(text).unwrap();
            assert_eq!(slices.may_answer(), expected, "{case}");
        }
    }
}
