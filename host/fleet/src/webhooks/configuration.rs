//! Writes a webhook configuration to the API server.

use admittance::admission::Phase;
use admittance_cluster::{Resource, ResourceError, ResourceKind, WatchedResources};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::CHECK_INTERVAL;
use crate::registration::labels;

const MUTATING: ResourceKind = ResourceKind {
    group: "admissionregistration.k8s.io",
    version: "v1",
    kind: "MutatingWebhookConfiguration",
    plural: "mutatingwebhookconfigurations",
    is_namespaced: false,
};

const VALIDATING: ResourceKind = ResourceKind {
    kind: "ValidatingWebhookConfiguration",
    plural: "validatingwebhookconfigurations",
    ..MUTATING
};

pub(super) const KINDS: [(Phase, ResourceKind); 2] = [(Phase::Mutating, MUTATING), (Phase::Validating, VALIDATING)];

/// A webhook configuration as this program wrote it last: the webhooks, and the version that the object had after the
/// write. An old API server drops fields that it does not know, so the stored webhooks may differ from these.
#[derive(Debug)]
pub(super) struct WrittenConfiguration {
    webhooks: Vec<Value>,
    version: Option<String>,
    written_at: Instant,
}

impl WrittenConfiguration {
    /// Returns whether the configuration need not be written: the last write contained these webhooks, nobody has
    /// changed the object since, and the write is less than an hour old. After an hour the configuration is written
    /// again, because the API server may have been updated, and may now store fields that it dropped before.
    fn is_current(&self, resource: &Resource, webhooks: &[Value]) -> bool {
        self.webhooks == webhooks
            && self.version.as_deref() == resource.metadata("resourceVersion")
            && self.written_at.elapsed() < CHECK_INTERVAL
    }
}

/// Replaces the webhooks of a webhook configuration if they differ from `webhooks`.
pub(super) async fn write_configuration(
    resources: &WatchedResources,
    phase: Phase,
    name: &str,
    webhooks: &[Value],
    last_written: &mut Option<WrittenConfiguration>,
) -> (&'static str, Option<Result<(), ResourceError>>) {
    let kind = match phase {
        Phase::Mutating => MUTATING.kind,
        Phase::Validating => VALIDATING.kind,
    };
    let result = match resources.get("", name).await {
        Err(error) => Some(Err(error)),
        Ok(None) if webhooks.is_empty() => None,
        Ok(Some(equal_resource)) if has_webhooks(&equal_resource, webhooks) => None,
        Ok(Some(unchanged_resource))
            if last_written
                .as_ref()
                .is_some_and(|last| last.is_current(&unchanged_resource, webhooks)) =>
        {
            None
        }
        Ok(old_resource) => {
            let set = |object: &mut Map<String, Value>| set_webhooks(object, name, webhooks);
            Some(resources.put("", name, old_resource, set).await)
        }
    };
    let write_result = result.map(|put_result| {
        put_result.map(|stored| {
            *last_written = Some(WrittenConfiguration {
                webhooks: webhooks.to_vec(),
                version: stored.metadata("resourceVersion").map(str::to_owned),
                written_at: Instant::now(),
            });
        })
    });
    (kind, write_result)
}

fn set_webhooks(object: &mut Map<String, Value>, name: &str, webhooks: &[Value]) {
    object.insert("webhooks".to_owned(), webhooks.into());
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    let label_field = metadata
        .as_object_mut()
        .map(|metadata| metadata.entry("labels").or_insert_with(|| json!({})));
    if let (Some(Value::Object(stored_labels)), Value::Object(labels)) = (label_field, labels(name)) {
        stored_labels.extend(labels);
    }
}

/// Returns whether a webhook configuration has exactly these webhooks, apart from fields that the API server adds.
fn has_webhooks(resource: &Resource, webhooks: &[Value]) -> bool {
    let webhook_list = resource.object.get("webhooks").and_then(Value::as_array);
    let stored_webhooks: Vec<_> = webhook_list.into_iter().flatten().map(without_default).collect();
    stored_webhooks == webhooks
}

fn without_default(webhook: &Value) -> Value {
    const SELECTOR: &str = "objectSelector";
    let mut webhook = webhook.clone();
    if let Some(fields) = webhook.as_object_mut()
        && fields.get(SELECTOR) == Some(&json!({}))
    {
        fields.shift_remove(SELECTOR);
    }
    webhook
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored_resource(webhooks: Option<Value>) -> Resource {
        let mut object = Map::new();
        object.insert("metadata".to_owned(), json!({"name": "a", "labels": {"x": "y"}}));
        object.extend(webhooks.map(|webhooks| ("webhooks".to_owned(), webhooks)));
        Resource {
            namespace: String::new(),
            name: "a".to_owned(),
            object,
        }
    }

    #[test]
    fn webhooks_are_recognized_after_the_api_server_has_stored_them() {
        let webhook = json!({"name": "w", "rules": [{"resources": ["pods"]}]});
        // (webhooks in the API server, wanted webhooks, whether the two count as equal)
        for (stored_webhooks, wanted_webhooks, expected) in [
            (None, vec![], true),
            (Some(json!([])), vec![], true),
            (None, vec![webhook.clone()], false),
            (Some(json!([webhook])), vec![], false),
            (Some(json!([webhook])), vec![webhook.clone()], true),
            (
                Some(json!([{"name": "w", "rules": [{"resources": ["pods"]}], "objectSelector": {}}])),
                vec![webhook.clone()],
                true,
            ),
            (
                Some(
                    json!([{"name": "w", "rules": [{"resources": ["pods"]}], "objectSelector": {"matchLabels": {"a": "b"}}}]),
                ),
                vec![webhook.clone()],
                false,
            ),
            (Some(json!([webhook, {"name": "other"}])), vec![webhook.clone()], false),
            (Some(json!([{"name": "w", "rules": []}])), vec![webhook.clone()], false),
        ] {
            let mut resource = stored_resource(stored_webhooks.clone());
            assert_eq!(
                has_webhooks(&resource, &wanted_webhooks),
                expected,
                "{stored_webhooks:?}"
            );
            set_webhooks(&mut resource.object, "hooks", &wanted_webhooks);
            assert!(has_webhooks(&resource, &wanted_webhooks), "{stored_webhooks:?}");
            let labels =
                json!({"x": "y", "app.kubernetes.io/name": "admittance", "app.kubernetes.io/instance": "hooks"});
            assert_eq!(resource.object["metadata"]["labels"], labels);
        }
    }
}
