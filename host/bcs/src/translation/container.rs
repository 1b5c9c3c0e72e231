//! Translates a container in a template to the scheduler's `Container`.

use serde_json::{Map, Value, json};

use super::{
    TranslationFault, quantity,
    view::{CheckedView, copy_other_members, members},
};

/// The keys of a container that are translated. All other keys are copied unchanged.
const READ_KEYS: [&str; 17] = [
    "hostname",
    "command",
    "args",
    "parameters",
    "type",
    "image",
    "imagePullUser",
    "imagePullPasswd",
    "imagePullPolicy",
    "privileged",
    "env",
    "ports",
    "healthChecks",
    "resources",
    "volumes",
    "configmaps",
    "secrets",
];

/// Translates a container. `pod` is the `spec` of the template that contains the container.
pub(super) fn container(
    container: CheckedView<'_>,
    pod: CheckedView<'_>,
) -> Result<Map<String, Value>, TranslationFault> {
    let resources = container.at("resources");
    let limits = ContainerQuantities::read(resources.at("limits"))?;
    // If a container has a limit for processors but requests none, all its limits are also used as its requests: those
    // for processors, memory and disk.
    let requests = if resources.at("requests").at("cpu").text().is_empty()
        && !resources.at("limits").at("cpu").text().is_empty()
    {
        limits
    } else {
        ContainerQuantities::read(resources.at("requests"))?
    };
    let network_limit = pod.at("netLimit").value();
    let mut into = members(json!({
        "Type": container.at("type").text(),
        "Docker": docker_fields(container, pod, requests, limits),
        "Volumes": container.at("volumes").elements().map(translate_volume).collect::<Value>(),
        "Resources": requests.to_json(),
        // The scheduler has this key with a spelling mistake.
        "LimitResoures": limits.to_json(),
        "DataClass": {
            "Resources": requests.to_json(),
            "LimitResources": limits.to_json(),
            "ExtendedResources": resources.at("extendedResources").value(),
            "Msgs": [],
            "NetLimit": network_limit,
            "ProcInfo": null,
        },
        "ConfigMaps": container.at("configmaps").value(),
        "Secrets": container.at("secrets").value(),
        "HealthChecks": match container.at("healthChecks") {
            checks if checks.exists() => checks.elements().map(translate_health_check).collect::<Value>(),
            _ => Value::Null,
        },
        "NetLimit": network_limit,
    }));
    copy_other_members(container, &READ_KEYS, &mut into, &[]);
    Ok(into)
}

fn docker_fields(
    container: CheckedView<'_>,
    pod: CheckedView<'_>,
    requests: ContainerQuantities,
    limits: ContainerQuantities,
) -> Value {
    json!({
        "Hostname": container.at("hostname").text(),
        "ForcePullImage": container.at("imagePullPolicy").text() == "Always",
        "Image": container.at("image").text(),
        "ImagePullUser": container.at("imagePullUser").text(),
        "ImagePullPasswd": container.at("imagePullPasswd").text(),
        "Network": pod.at("networkMode").text(),
        "NetworkType": pod.at("networkType").text(),
        "Command": container.at("command").text(),
        "Arguments": container.at("args").value(),
        "Parameters": container.at("parameters").elements().map(translate_parameter).collect::<Value>(),
        "PortMappings": container.at("ports").elements().map(translate_port).collect::<Value>(),
        "Env": environment(container, requests, limits),
        "Privileged": container.at("privileged").flag(),
    })
}

fn translate_parameter(parameter: CheckedView<'_>) -> Value {
    let mut into = members(json!({
        "Key": parameter.at("key").text(),
        "Value": parameter.at("value").text(),
    }));
    copy_other_members(parameter, &["key", "value"], &mut into, &[]);
    into.into()
}

fn translate_port(port: CheckedView<'_>) -> Value {
    let mut into = members(json!({
        "ContainerPort": port.at("containerPort").integer(),
        "HostPort": port.at("hostPort").integer(),
        "Name": port.at("name").text(),
        "Protocol": port.at("protocol").text(),
    }));
    copy_other_members(port, &["containerPort", "hostPort", "name", "protocol"], &mut into, &[]);
    into.into()
}

fn translate_volume(unit: CheckedView<'_>) -> Value {
    let volume = unit.at("volume");
    let mut into = members(json!({
        "ContainerPath": volume.at("mountPath").text(),
        "HostPath": volume.at("hostPath").text(),
        "Mode": if volume.at("readOnly").flag() { "R" } else { "RW" },
    }));
    copy_other_members(volume, &["mountPath", "hostPath", "readOnly"], &mut into, &[]);
    copy_other_members(unit, &["volume"], &mut into, &[]);
    into.into()
}

/// A variable is left out if its value refers to an unknown resource, as in bcs-mesos-driver.
fn environment(
    container: CheckedView<'_>,
    requests: ContainerQuantities,
    limits: ContainerQuantities,
) -> Map<String, Value> {
    let mut into = Map::new();
    for variable in container.at("env").elements() {
        let value = match variable.at("valueFrom").at("resourceFieldRef").at("resource").text() {
            "" => variable.at("value").text().to_owned(),
            "requests.cpu" => fixed_point(requests.cpus * 1000.0),
            "requests.memory" => fixed_point(requests.memory),
            "limits.cpu" => fixed_point(limits.cpus * 1000.0),
            "limits.memory" => fixed_point(limits.memory),
            _ => continue,
        };
        into.insert(variable.at("name").text().to_owned(), value.into());
    }
    into
}

/// Formats a number as `%f` of Go does.
fn fixed_point(number: f64) -> String {
    format!("{number:.6}")
}

fn translate_health_check(check: CheckedView<'_>) -> Value {
    let mut into = check.object();
    for (key, default) in [
        ("delaySeconds", 10),
        ("intervalSeconds", 60),
        ("timeoutSeconds", 20),
        ("gracePeriodSeconds", 300),
    ] {
        if check.at(key).integer() <= 0 {
            into.insert(key.to_owned(), default.into());
        }
    }
    into.into()
}

/// The number of processors, and the memory and disk in megabytes.
#[derive(Clone, Copy, Debug)]
struct ContainerQuantities {
    cpus: f64,
    memory: f64,
    disk: f64,
}

impl ContainerQuantities {
    fn read(list: CheckedView<'_>) -> Result<Self, TranslationFault> {
        Ok(Self {
            cpus: quantity_of(list, "cpu")?,
            memory: quantity_of(list, "memory")?,
            disk: quantity_of(list, "storage")?,
        })
    }

    fn to_json(self) -> Value {
        json!({"Cpus": self.cpus, "Mem": self.memory, "Disk": self.disk})
    }
}

/// A text that is not a number means 0, as in bcs-mesos-driver.
fn quantity_of(list: CheckedView<'_>, key: &str) -> Result<f64, TranslationFault> {
    let text = list.at(key).text();
    let number = quantity::parse(text).unwrap_or_default();
    if number.is_finite() {
        Ok(number)
    } else {
        Err(TranslationFault::Encode(format!("{key} is `{text}`")))
    }
}
