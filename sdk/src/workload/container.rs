//! The parts of a container that most plugins do not need. Each is parsed when its method is called.

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use serde_json::value::RawValue;

use super::{Container, TextMap};
use crate::{Error, Text, pointer};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawPart<'a>(&'a str);

impl<'de> Deserialize<'de> for RawPart<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|raw| Self(raw.get()))
    }
}

impl<'a> Container<'a> {
    /// Returns the resources that the container requests, and their limits.
    ///
    /// # Errors
    /// Fails if `resources` cannot be parsed; the message names the container and the field.
    pub fn resources(&self) -> Result<Resources<'a>, Error> {
        self.parse_part("resources", self.resources.as_ref())
    }

    /// Returns the ports of the container.
    ///
    /// # Errors
    /// Fails as [`Container::resources`] does.
    pub fn ports(&self) -> Result<Vec<Port<'a>>, Error> {
        self.parse_part("ports", self.ports.as_ref())
    }

    /// Returns the container's environment variables, without the variables of `envFrom`.
    ///
    /// # Errors
    /// Fails as [`Container::resources`] does.
    pub fn env(&self) -> Result<Vec<EnvVar<'a>>, Error> {
        self.parse_part("env", self.env.as_ref())
    }

    /// Returns the container's own security context, without the fields of the Pod's context.
    ///
    /// # Errors
    /// Fails as [`Container::resources`] does.
    pub fn security_context(&self) -> Result<SecurityContext<'a>, Error> {
        self.parse_part("securityContext", self.security_context.as_ref())
    }

    /// Returns the probe that checks whether the container still works; `None` if it has none.
    ///
    /// # Errors
    /// Fails as [`Container::resources`] does.
    pub fn liveness_probe(&self) -> Result<Option<Probe<'a>>, Error> {
        self.parse_part("livenessProbe", self.liveness_probe.as_ref())
    }

    /// Returns the probe that checks whether the container may get traffic; `None` if it has none.
    ///
    /// # Errors
    /// Fails as [`Container::resources`] does.
    pub fn readiness_probe(&self) -> Result<Option<Probe<'a>>, Error> {
        self.parse_part("readinessProbe", self.readiness_probe.as_ref())
    }

    /// Returns the probe that checks whether the container has started; `None` if it has none.
    ///
    /// # Errors
    /// Fails as [`Container::resources`] does.
    pub fn startup_probe(&self) -> Result<Option<Probe<'a>>, Error> {
        self.parse_part("startupProbe", self.startup_probe.as_ref())
    }

    fn parse_part<T: Deserialize<'a> + Default>(&self, field: &str, raw: Option<&RawPart<'a>>) -> Result<T, Error> {
        let Some(RawPart(text)) = raw else {
            return Ok(T::default());
        };
        let mut deserializer = serde_json::Deserializer::from_str(text);
        serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            let name = self.name.as_deref().unwrap_or_default();
            let (at, message) = (pointer::from_path(error.path()), pointer::message(error.inner()));
            Error::other(format!("container \"{name}\": {field}{at}: {message}"))
        })
    }
}

/// The field `resources` of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources<'a> {
    /// The limits of the container, by the name of the resource, such as `memory`.
    #[serde(borrow)]
    pub limits: Option<Quantities<'a>>,
    /// The amounts of resources that are reserved for the container, by the name of the resource.
    #[serde(borrow)]
    pub requests: Option<Quantities<'a>>,
}

impl Resources<'_> {
    /// Returns the container's limit of a resource as it is written, such as `512Mi`.
    pub fn limit(&self, resource: &str) -> Option<&str> {
        self.limits.as_ref()?.0.get(resource)
    }

    /// Returns the amount of a resource reserved for the container, such as `250m`. The text is as in the object.
    pub fn request(&self, resource: &str) -> Option<&str> {
        self.requests.as_ref()?.0.get(resource)
    }
}

/// Quantities of resources by name, such as `500m` for `cpu` and `512Mi` for `memory`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quantities<'a>(TextMap<'a>);

impl<'a> Quantities<'a> {
    /// Returns the names of the resources, with their quantities as they are written.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Quantities<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        TextMap::with_values(deserializer, |scalar: TextOrNumber<'de>| scalar.0).map(Self)
    }
}

/// A JSON string, or a JSON number as text. Quantities and ports may be either.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextOrNumber<'a>(Text<'a>);

impl TextOrNumber<'_> {
    /// Returns the string, or the number in the form in which it is written.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for TextOrNumber<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The text of the value is read, because a number must keep the form in which it is written.
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        let text = if raw.starts_with('"') {
            serde_json::from_str(raw).map_err(D::Error::custom)?
        } else if raw.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
            Text::from(raw)
        } else {
            return Err(D::Error::custom("neither a string nor a number"));
        };
        Ok(Self(text))
    }
}

/// A port of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Port<'a> {
    /// The name of the port.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// The number of the port in the container.
    pub container_port: Option<i64>,
    /// The number of the port on the node.
    pub host_port: Option<i64>,
    /// The address of the node at which the port is reached.
    #[serde(borrow, rename = "hostIP")]
    pub host_ip: Option<Text<'a>>,
    /// The protocol of the port: `TCP`, `UDP` or `SCTP`. Default: TCP.
    #[serde(borrow)]
    pub protocol: Option<Text<'a>>,
}

/// An environment variable of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar<'a> {
    /// The name of the variable.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// The value of the variable, if it is given directly.
    #[serde(borrow)]
    pub value: Option<Text<'a>>,
    /// The source of the variable's value, if the value is not given directly.
    #[serde(borrow)]
    pub value_from: Option<EnvSource<'a>>,
}

/// The source of the value of an environment variable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvSource<'a> {
    /// The key of a Secret that contains the value.
    #[serde(borrow)]
    pub secret_key_ref: Option<KeyRef<'a>>,
    /// The key of a ConfigMap that contains the value.
    #[serde(borrow)]
    pub config_map_key_ref: Option<KeyRef<'a>>,
}

/// A key of a Secret or ConfigMap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KeyRef<'a> {
    /// The name of the Secret or ConfigMap.
    #[serde(borrow)]
    pub name: Option<Text<'a>>,
    /// The key in the Secret or ConfigMap.
    #[serde(borrow)]
    pub key: Option<Text<'a>>,
}

/// The security context of a container. If a field is absent, the field of the Pod's security context applies, or else
/// the default of the container runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityContext<'a> {
    /// Whether the container has all privileges of the node.
    pub privileged: Option<bool>,
    /// Whether processes in the container may gain privileges.
    pub allow_privilege_escalation: Option<bool>,
    /// Whether the container cannot write to its root file system.
    pub read_only_root_filesystem: Option<bool>,
    /// Whether the container must run as another user than root.
    pub run_as_non_root: Option<bool>,
    /// The user ID of the container's processes.
    pub run_as_user: Option<i64>,
    /// The group ID of the container's processes.
    pub run_as_group: Option<i64>,
    /// Changes to the Linux capabilities of the container.
    #[serde(borrow)]
    pub capabilities: Option<Capabilities<'a>>,
    /// The type of the mount of `/proc` in the container: `Default` or `Unmasked`.
    #[serde(borrow)]
    pub proc_mount: Option<Text<'a>>,
    /// The seccomp profile of the container.
    #[serde(borrow)]
    pub seccomp_profile: Option<SeccompProfile<'a>>,
}

/// Changes to the Linux capabilities of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capabilities<'a> {
    /// The capabilities that the container gets, such as `NET_ADMIN`.
    #[serde(borrow)]
    pub add: Option<Vec<Text<'a>>>,
    /// The capabilities that the container loses.
    #[serde(borrow)]
    pub drop: Option<Vec<Text<'a>>>,
}

/// The seccomp profile of a container or Pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SeccompProfile<'a> {
    /// The kind of profile: `RuntimeDefault`, `Localhost` or `Unconfined`.
    #[serde(borrow, rename = "type")]
    pub kind: Option<Text<'a>>,
    /// The file of the profile on the node, for the kind `Localhost`.
    #[serde(borrow)]
    pub localhost_profile: Option<Text<'a>>,
}

/// A probe of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe<'a> {
    /// The HTTP request with which the container is probed.
    #[serde(borrow)]
    pub http_get: Option<HttpProbe<'a>>,
    /// The connection with which the container is probed.
    #[serde(borrow)]
    pub tcp_socket: Option<TcpProbe<'a>>,
    /// The command with which the container is probed. It runs inside the container.
    #[serde(borrow)]
    pub exec: Option<ExecProbe<'a>>,
    /// The number of seconds before the first probe.
    pub initial_delay_seconds: Option<i64>,
    /// The number of seconds between two probes.
    pub period_seconds: Option<i64>,
    /// The timeout of a probe, in seconds.
    pub timeout_seconds: Option<i64>,
    /// The number of consecutive failures after which the container counts as failed.
    pub failure_threshold: Option<i64>,
}

/// A probe that sends an HTTP request to the container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpProbe<'a> {
    /// The path in the URL of the HTTP request.
    #[serde(borrow)]
    pub path: Option<Text<'a>>,
    /// The number or the name of the port.
    #[serde(borrow)]
    pub port: Option<TextOrNumber<'a>>,
}

/// A probe that opens a connection to the container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TcpProbe<'a> {
    /// The number or the name of the port.
    #[serde(borrow)]
    pub port: Option<TextOrNumber<'a>>,
}

/// A probe that runs a command in the container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecProbe<'a> {
    /// The command of the probe, and its arguments.
    #[serde(borrow)]
    pub command: Option<Vec<Text<'a>>>,
}
