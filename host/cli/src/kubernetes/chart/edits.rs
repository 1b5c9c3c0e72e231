//! Replaces what an operator may choose in the objects by values of the chart.

#![expect(
    clippy::indexing_slicing,
    reason = "assigning to a field of a JSON object that was made here cannot fail"
)]

use serde_json::{Map, Value as Json, json};

use super::{
    MODULES, NAMESPACE, RELEASE, directory_of,
    template::{Edit, Template},
    values::Values,
};
use crate::kubernetes::Installation;

/// The name of the Secret with the certificate.
const SECRET: &str = ".Values.tls.secretName | default (printf \"%s-tls\" .Release.Name) | quote";
/// Whether cert-manager makes it.
const CERT_MANAGER: &str = ".Values.tls.certManager.enabled";

const POD: &str = "/spec/template/spec";

/// The template of an object.
pub(super) fn edit(object: Json, values: &Values) -> Template {
    let mut template = Template::new(object);
    template.object["metadata"]["annotations"] = json!({});
    template.edit("/metadata/labels", Edit::Extend(".Values.labels"));
    template.edit("/metadata/annotations", Edit::With(".Values.annotations"));
    let kind = template.object["kind"].as_str().unwrap_or_default().to_owned();
    match kind.as_str() {
        "ConfigMap" => config_map(&mut template),
        "Deployment" => deployment(&mut template, values),
        "HorizontalPodAutoscaler" => autoscaler(&mut template),
        "NetworkPolicy" => template.edit("", Edit::If(".Values.networkPolicy.enabled")),
        "ServiceMonitor" => monitor(&mut template),
        "Service" if template.object["spec"]["clusterIP"] == "None" => {
            template.edit("", Edit::If(".Values.serviceMonitor.enabled"));
        }
        _ => {}
    }
    template
}

fn value(expression: &str) -> Edit {
    Edit::Value(expression.to_owned())
}

fn config_map(template: &mut Template) {
    if let Some(directory) = directory_of(&template.object) {
        let is_empty = template.object["data"].as_object().is_none_or(Map::is_empty);
        if !is_empty {
            template.edit("/data", Edit::Files(directory));
        }
        return;
    }
    let files = template.object["binaryData"].as_object();
    let names: Vec<String> = files.into_iter().flat_map(Map::keys).cloned().collect();
    for name in names {
        let expression = format!(".Files.Get \"{MODULES}/{name}\" | b64enc | quote");
        template.edit(format!("/binaryData/{name}"), Edit::Value(expression));
    }
}

fn deployment(template: &mut Template, values: &Values) {
    let spec = &mut template.object["spec"];
    if let Some(spec) = spec.as_object_mut() {
        spec.shift_insert(0, "replicas".to_owned(), values.replicas.into());
    }
    spec["template"]["metadata"]["annotations"] = json!({});
    let pod = &mut spec["template"]["spec"];
    for field in [
        "priorityClassName",
        "nodeSelector",
        "tolerations",
        "affinity",
        "imagePullSecrets",
    ] {
        pod[field] = json!({});
    }
    pod["containers"][0]["imagePullPolicy"] = "".into();
    let volumes = pod["volumes"].as_array().cloned().unwrap_or_default();
    let secret = format!("{RELEASE}-tls");
    for (index, volume) in volumes.iter().enumerate() {
        if volume.pointer("/secret/secretName") == Some(&Json::from(secret.as_str())) {
            template.edit(format!("{POD}/volumes/{index}/secret/secretName"), value(SECRET));
        }
    }
    if let Some(index) = volumes.iter().position(|volume| volume["name"] == "cache") {
        let place = format!("{POD}/volumes/{index}");
        template.edit(format!("{place}/emptyDir"), Edit::If("not .Values.storeClaim"));
        let claim = format!("{place}/persistentVolumeClaim");
        template.object["spec"]["template"]["spec"]["volumes"][index]["persistentVolumeClaim"] =
            json!({"claimName": ""});
        template.edit(claim.as_str(), Edit::If(".Values.storeClaim"));
        template.edit(format!("{claim}/claimName"), value(".Values.storeClaim | quote"));
        let policy = "fsGroupChangePolicy";
        template.object["spec"]["template"]["spec"]["securityContext"][policy] = "OnRootMismatch".into();
        let policy = format!("{POD}/securityContext/{policy}");
        template.edit(policy, Edit::If(".Values.storeClaim"));
    }
    template.edit("/spec/replicas", Edit::If("not .Values.autoscaling.enabled"));
    template.edit("/spec/replicas", value(".Values.replicas"));
    template.edit(
        "/spec/template/metadata/labels",
        Edit::Extend(".Values.podLabels"),
    );
    for (pointer, edit) in [
        (
            "/spec/template/metadata/annotations",
            Edit::With(".Values.podAnnotations"),
        ),
        (
            "/spec/template/spec/nodeSelector",
            Edit::With(".Values.nodeSelector"),
        ),
        (
            "/spec/template/spec/tolerations",
            Edit::With(".Values.tolerations"),
        ),
        ("/spec/template/spec/affinity", Edit::With(".Values.affinity")),
        (
            "/spec/template/spec/imagePullSecrets",
            Edit::With(".Values.image.pullSecrets"),
        ),
        (
            "/spec/template/spec/priorityClassName",
            Edit::If(".Values.priorityClassName"),
        ),
        (
            "/spec/template/spec/priorityClassName",
            value(".Values.priorityClassName | quote"),
        ),
    ] {
        template.edit(pointer, edit);
    }
    let container = format!("{POD}/containers/0");
    for (field, edit) in [
        ("image", value(".Values.image.reference | quote")),
        ("imagePullPolicy", Edit::If(".Values.image.pullPolicy")),
        ("imagePullPolicy", value(".Values.image.pullPolicy | quote")),
        ("resources", Edit::With(".Values.resources")),
    ] {
        template.edit(format!("{container}/{field}"), edit);
    }
}

fn autoscaler(template: &mut Template) {
    template.edit("", Edit::If(".Values.autoscaling.enabled"));
    template.edit("/spec/minReplicas", value(".Values.replicas"));
    template.edit("/spec/maxReplicas", value(".Values.autoscaling.maxReplicas"));
    let target = "/spec/metrics/0/resource/target/averageUtilization";
    template.edit(target, value(".Values.autoscaling.targetCpu"));
}

fn monitor(template: &mut Template) {
    template.edit("", Edit::If(".Values.serviceMonitor.enabled"));
    template.edit("/metadata/labels", Edit::Extend(".Values.serviceMonitor.labels"));
    let endpoint = "/spec/endpoints/0/tlsConfig/ca/secret";
    if template.object.pointer(endpoint).is_some() {
        template.edit(format!("{endpoint}/name"), value(SECRET));
    }
}

/// The Certificate of cert-manager.
pub(super) fn of_cert_manager(release: &Installation) -> Template {
    let host = format!("{RELEASE}.{NAMESPACE}.svc");
    let spec = json!({
        "secretName": "",
        "dnsNames": [host],
        "issuerRef": {},
        "privateKey": {"algorithm": "ECDSA", "rotationPolicy": "Always"},
    });
    let name = release.named("tls");
    let object = release.object("cert-manager.io/v1", "Certificate", &name, [("spec", spec)]);
    let mut template = Template::new(object);
    template.object["metadata"]["annotations"] = json!({});
    template.edit("", Edit::If(CERT_MANAGER));
    template.edit("/metadata/labels", Edit::Extend(".Values.labels"));
    template.edit("/metadata/annotations", Edit::With(".Values.annotations"));
    template.edit("/spec/secretName", value(SECRET));
    template.edit("/spec/issuerRef", Edit::With(".Values.tls.certManager.issuerRef"));
    template
}
