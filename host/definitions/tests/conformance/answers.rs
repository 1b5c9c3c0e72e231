//! Compares the outcome of a request here with the recorded response of kube-apiserver.

use std::fmt;

use admittance_admission::{Decision, Outcome, RefusalCause};
use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Deserialize)]
pub(crate) struct RecordedAnswer {
    pub(crate) status: u16,
    message: Option<String>,
    reason: Option<String>,
    details: Option<Value>,
    object: Option<Value>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
    audit: Option<Map<String, Value>>,
}

impl fmt::Display for RecordedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "kube-apiserver: {} {}",
            self.status,
            self.message.as_deref().unwrap_or_default()
        )
    }
}

impl RecordedAnswer {
    /// Returns whether a policy refused the request. The validation of the API server can refuse a request too. In this
    /// case, the message contains "is invalid".
    fn is_of_policy(&self) -> bool {
        let message = self.message.as_deref().unwrap_or_default();
        self.status >= 400 && !message.contains(" is invalid: ")
    }

    pub(crate) fn difference(&self, outcome: &Outcome) -> Option<String> {
        let (decision_text, refusal) = match &outcome.decision {
            Decision::Allowed => ("allowed".to_owned(), None),
            Decision::Refused(refusal) => (refusal.to_string(), Some(refusal)),
        };
        let is_different = match refusal.map(|refusal| &refusal.cause) {
            None => self.is_of_policy() || self.status == 0,
            Some(RefusalCause::Denied(denial)) => {
                let actual = json!({
                    "status": denial.code(), "reason": denial.reason, "message": denial.message,
                    "details": denial.details,
                });
                let expected = json!({
                    "status": self.status, "reason": self.reason, "message": self.message, "details": self.details,
                });
                if self.is_of_policy() && actual != expected {
                    return Some(format!("\n  kube-apiserver: {expected}\n  here:           {actual}"));
                }
                !self.is_of_policy()
            }
            Some(_) => true,
        };
        if is_different {
            return Some(format!("{self}; here: {decision_text}"));
        }
        self.note_difference(outcome)
            .or_else(|| self.object_difference(outcome))
    }

    fn note_difference(&self, outcome: &Outcome) -> Option<String> {
        let expected_warnings: Vec<&str> = self
            .warnings
            .iter()
            .flatten()
            .filter_map(|warning| warning.strip_prefix("299 - \"")?.strip_suffix('"'))
            .filter(|text| text.starts_with("Validation failed"))
            .collect();
        if outcome.warnings != expected_warnings {
            return Some(format!("warnings {expected_warnings:?}; here: {:?}", outcome.warnings));
        }
        let audit = self.audit.iter().flatten();
        let mut expected_notes: Vec<(&str, Value)> = audit
            .filter(|(key, _)| !key.starts_with("apiserver.") && !key.starts_with("pod-security."))
            .filter_map(|(key, value)| Some((key.rsplit('/').next()?, parse_or_text(value.as_str()?))))
            .collect();
        let mut actual_notes: Vec<(&str, Value)> = outcome
            .audit_annotations
            .iter()
            .map(|note| (note.key.as_str(), parse_or_text(&note.value)))
            .collect();
        expected_notes.sort_by_key(|(key, _)| *key);
        actual_notes.sort_by_key(|(key, _)| *key);
        // kube-apiserver's response to a refused request contains no audit annotations, so they are compared only if
        // the request was allowed.
        let are_recorded = self.status < 400;
        (are_recorded && actual_notes != expected_notes)
            .then(|| format!("audit annotations {expected_notes:?}; here: {actual_notes:?}"))
    }

    fn object_difference(&self, outcome: &Outcome) -> Option<String> {
        let expected = self.object.as_ref().filter(|object| object["kind"] != "Status")?;
        let mut actual = with_defaults(outcome.object.as_ref()?.value().clone());
        let metadata = actual["metadata"].as_object_mut()?;
        metadata.retain(|field, _| !SERVER_METADATA.contains(&field.as_str()));
        if actual["kind"] == "PodExecOptions" {
            return None;
        }
        first_difference("", expected, &actual)
    }
}

/// The API server sets these fields in the `metadata` of every object. The objects in the recorded test cases do not
/// contain them.
const SERVER_METADATA: [&str; 4] = ["uid", "creationTimestamp", "managedFields", "resourceVersion"];

fn parse_or_text(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

/// The fields that the API server itself sets in objects, such as `status`. It sets some of them between two policies,
/// and others after the last policy. They are not compared.
const DEFAULTED_FIELDS: [&str; 28] = [
    "defaultMode",
    "kubernetes.io/metadata.name",
    "replicas",
    "targetCPUUtilizationPercentage",
    "status",
    "generation",
    "creationTimestamp",
    "priority",
    "parallelism",
    "completions",
    "backoffLimit",
    "selector",
    "manualSelector",
    "completionMode",
    "suspend",
    "podReplacementPolicy",
    "metrics",
    "minReplicas",
    "defaulted",
    "strategy",
    "revisionHistoryLimit",
    "progressDeadlineSeconds",
    "clusterIP",
    "clusterIPs",
    "type",
    "sessionAffinity",
    "ipFamilies",
    "ipFamilyPolicy",
];

/// Returns the first difference between two objects. Fields that the API server itself sets do not count.
fn first_difference(path: &str, expected: &Value, actual: &Value) -> Option<String> {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            for (key, value) in expected {
                let path = format!("{path}/{key}");
                match actual.get(key) {
                    Some(actual_value) => {
                        if let Some(difference) = first_difference(&path, value, actual_value) {
                            return Some(difference);
                        }
                    }
                    None if DEFAULTED_FIELDS.contains(&key.as_str()) => {}
                    None if is_of_jobs(value) || is_empty(value) => {}
                    None => return Some(format!("object{path}: {value}; here: nothing")),
                }
            }
            let extra_field = actual
                .iter()
                .find(|(key, value)| !expected.contains_key(*key) && !is_empty(value));
            extra_field.map(|(key, value)| format!("object{path}/{key}: nothing; here: {value}"))
        }
        (Value::Array(expected), Value::Array(actual)) if expected.len() == actual.len() => {
            let mut pairs = expected.iter().zip(actual).enumerate();
            pairs.find_map(|(index, (expected_item, actual_item))| {
                first_difference(&format!("{path}/{index}"), expected_item, actual_item)
            })
        }
        _ if expected == actual => None,
        (Value::Number(expected_number), Value::Number(actual_number))
            if expected_number.as_f64() == actual_number.as_f64() =>
        {
            None
        }
        _ => Some(format!("object{path}: {expected}; here: {actual}")),
    }
}

/// Returns whether the value is an empty object or list, which the API server omits.
fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// Returns whether this is the `metadata` that the API server adds to the Pod template of a Job.
fn is_of_jobs(value: &Value) -> bool {
    value.pointer("/labels/job-name").is_some()
}

/// Sets the default values that the API server sets in an object. Only defaults that occur in the recorded cases are
/// known.
pub(crate) fn with_defaults(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata
            .entry("uid")
            .or_insert(json!("5806d7ca-f0db-4621-bf6d-473f2f59ac15"));
        metadata
            .entry("creationTimestamp")
            .or_insert(json!("2026-11-26T16:11:27Z"));
        metadata
            .entry("managedFields")
            .or_insert(json!([{"manager": "unknown"}]));
    }
    let pointer = match object["kind"].as_str().unwrap_or_default() {
        "Widget" => {
            if let Some(spec) = object["spec"].as_object_mut() {
                spec.entry("defaulted").or_insert(json!("dflt"));
            }
            return object;
        }
        "Pod" => "/spec",
        "Deployment" | "StatefulSet" | "Job" => "/spec/template/spec",
        _ => return object,
    };
    let is_pod = pointer == "/spec";
    let Some(spec) = object.pointer_mut(pointer).and_then(Value::as_object_mut) else {
        return object;
    };
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("securityContext", json!({})),
        ("schedulerName", json!("default-scheduler")),
    ] {
        spec.entry(field).or_insert(value);
    }
    if is_pod {
        let toleration =
            |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        let taints = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
        let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
        let entries = tolerations.as_array_mut().unwrap();
        for taint in taints {
            if entries.iter().all(|toleration| toleration["key"] != taint) {
                entries.push(toleration(taint));
            }
        }
        spec.entry("enableServiceLinks").or_insert(json!(true));
        spec.entry("preemptionPolicy").or_insert(json!("PreemptLowerPriority"));
        spec.entry("priority").or_insert(json!(0));
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            add_container_defaults(container);
        }
    }
    if is_pod {
        let members = object.as_object_mut().unwrap();
        members
            .entry("status")
            .or_insert(json!({"phase": "Pending", "qosClass": "BestEffort"}));
    }
    object
}

fn add_container_defaults(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let policy = match image.rsplit_once(':') {
        None | Some((_, "latest")) => "Always",
        Some(_) => "IfNotPresent",
    };
    for (field, value) in [
        ("resources", json!({})),
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
        ("imagePullPolicy", json!(policy)),
    ] {
        container.as_object_mut().unwrap().entry(field).or_insert(value);
    }
    if let Some(probe) = container.get_mut("livenessProbe").and_then(Value::as_object_mut) {
        for (field, value) in [
            ("timeoutSeconds", 1),
            ("periodSeconds", 10),
            ("successThreshold", 1),
            ("failureThreshold", 3),
        ] {
            probe.entry(field).or_insert(json!(value));
        }
        if let Some(get) = probe.get_mut("httpGet").and_then(Value::as_object_mut) {
            get.entry("scheme").or_insert(json!("HTTP"));
        }
    }
}
