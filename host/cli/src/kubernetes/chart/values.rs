//! Writes the values of the chart, with their documentation and schema.

use admittance_definitions::document::to_yaml;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};

type Object = Map<String, Json>;

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Values {
    /// The image of the Pods.
    pub(super) image: Image,
    /// The number of Pods; with autoscaling, the smallest number.
    #[schemars(range(min = 1))]
    pub(super) replicas: u64,
    /// A HorizontalPodAutoscaler for the Pods.
    pub(super) autoscaling: Autoscaling,
    /// CPU and memory of a Pod, as in the field `resources` of a container.
    pub(super) resources: Object,
    /// The priority class of the Pods; system-cluster-critical keeps them when a node is full.
    pub(super) priority_class_name: String,
    /// Labels of the nodes that Pods may run on.
    pub(super) node_selector: Object,
    /// Taints of nodes that Pods tolerate, as in the field `tolerations` of a Pod.
    pub(super) tolerations: Vec<Object>,
    /// The affinity of the Pods, as in the field `affinity` of a Pod. Without it, Pods are spread over the nodes.
    pub(super) affinity: Object,
    /// A PersistentVolumeClaim for the store of modules and their compiled forms. The Pods share the volume, so that a
    /// new Pod finds it filled. Its content is executed: no other Pod may mount it. If the value is empty, each Pod has
    /// a store of its own.
    pub(super) store_claim: String,
    /// Additional labels of all objects.
    pub(super) labels: Object,
    /// Annotations of all objects.
    pub(super) annotations: Object,
    /// Additional labels of the Pods.
    pub(super) pod_labels: Object,
    /// Annotations of the Pods. With a ServiceMonitor, remove the annotations of Prometheus: it would read the metrics
    /// twice.
    pub(super) pod_annotations: Object,
    /// A NetworkPolicy that allows connections only to the ports of the Pods, and outgoing connections only if the
    /// chains need them.
    pub(super) network_policy: NetworkPolicy,
    /// A ServiceMonitor for the Prometheus Operator.
    pub(super) service_monitor: ServiceMonitor,
    /// The Secret with the certificate of the webhooks, which cert-manager can make.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Tls")]
    pub(super) tls: Option<Tls>,
    /// Values that a parent chart shares with all charts; this chart does not use them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) global: Option<Object>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Image {
    /// The reference of the image, whose entry point is the program `admittance`.
    #[schemars(length(min = 1))]
    pub(super) reference: String,
    /// Always, IfNotPresent or Never. If the value is empty, Kubernetes decides.
    #[schemars(extend("enum" = ["", "Always", "IfNotPresent", "Never"]))]
    pub(super) pull_policy: String,
    /// The Secrets of the registry, as in the field `imagePullSecrets` of a Pod.
    pub(super) pull_secrets: Vec<Object>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Autoscaling {
    pub(super) enabled: bool,
    /// The largest number of Pods.
    #[schemars(range(min = 1))]
    pub(super) max_replicas: u64,
    /// The percentage of the CPU request above which Pods are added.
    #[schemars(range(min = 1))]
    pub(super) target_cpu: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NetworkPolicy {
    pub(super) enabled: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ServiceMonitor {
    pub(super) enabled: bool,
    /// Labels by which Prometheus selects the ServiceMonitor.
    pub(super) labels: Object,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Tls {
    /// A Secret of the type kubernetes.io/tls in the namespace of the release, which also contains the certificate's
    /// authority as ca.crt. If the value is empty, its name is the name of the release and `-tls`.
    pub(super) secret_name: String,
    /// Whether cert-manager makes the Secret and renews the certificate. The leader writes the authority into the
    /// webhook configurations.
    pub(super) cert_manager: CertManager,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CertManager {
    pub(super) enabled: bool,
    /// An issuer with one authority, as in the field `issuerRef` of a Certificate: `{ kind: ClusterIssuer, name: ca }`.
    pub(super) issuer_ref: Object,
}

impl Values {
    /// Returns the schema of the values of this chart, which helm checks.
    pub(super) fn schema(&self) -> Json {
        // Every helm 3 and 4 reads this draft.
        let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
        let mut schema = settings.into_generator().into_root_schema_for::<Values>();
        schema.remove("title");
        if self.tls.is_none() {
            if let Some(Json::Object(properties)) = schema.pointer_mut("/properties") {
                properties.shift_remove("tls");
            }
            if let Some(Json::Array(required)) = schema.pointer_mut("/required") {
                required.retain(|name| name != "tls");
            }
            return schema.to_value();
        }
        // With cert-manager, the issuer needs a name. The defaults of all other values are valid.
        let cert_manager = |of_it: Json| json!({"properties": {"tls": {"properties": {"certManager": {"properties": of_it}}}}});
        let disabled = cert_manager(json!({"enabled": {"const": false}}));
        let from_issuer = cert_manager(json!({"issuerRef": {"required": ["name"]}}));
        schema.insert("anyOf".into(), json!([disabled, from_issuer]));
        schema.to_value()
    }

    /// Returns the text of `values.yaml`, in which comments describe each value as the schema does.
    pub(super) fn text(&self) -> crate::Result<String> {
        let values = serde_json::to_value(self)?;
        let mut text = String::new();
        describe(&values, &self.schema(), 0, &mut text);
        Ok(text)
    }
}

fn describe(values: &Json, schema: &Json, indent: usize, text: &mut String) {
    let space = " ".repeat(indent);
    for (name, value) in values.as_object().into_iter().flatten() {
        let property = schema
            .pointer(&format!("/properties/{name}"))
            .unwrap_or(&Json::Null);
        if let Some(description) = property.get("description").and_then(Json::as_str) {
            for line in wrapped(description, 116 - indent) {
                text.push_str(&format!("{space}# {line}\n"));
            }
        }
        match value.as_object() {
            Some(fields) if !fields.is_empty() && property.get("properties").is_some() => {
                text.push_str(&format!("{space}{name}:\n"));
                describe(value, property, indent + 2, text);
            }
            _ => {
                let document = to_yaml(&json!({name: value}));
                // The first line separates documents.
                for line in document.lines().skip(1) {
                    text.push_str(format!("{space}{line}").trim_end());
                    text.push('\n');
                }
            }
        }
    }
}

/// Wraps a text into lines of this width.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
