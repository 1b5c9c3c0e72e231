pub(crate) mod trace_context;
pub(crate) mod webhook;

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{EnforcedSpelling, IdentityFields, Object, ResponseRecorder, TraceContext};

/// An admission request. It exists from its arrival at a front end until the outcome is sent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The UID, which identifies the request in logs, traces and replies.
    pub uid: Uid,
    /// The distributed trace to which the request belongs.
    pub trace: Option<TraceContext>,
    /// The operation that the client requests for the object.
    pub operation: Operation,
    /// The kind of the object, such as `Pod`, with its group and version.
    pub kind: GroupVersionKind,
    /// The resource to which the object belongs, such as `pods`.
    pub resource: GroupVersionResource,
    /// The subresource, such as `status` or `scale`; `None` for the resource itself.
    pub subresource: Option<String>,
    /// The client's kind and resource, if the control plane converted the object to another version.
    pub requested_kind: Option<Box<RequestedKind>>,
    /// The object's name; empty if the control plane will generate it.
    pub name: String,
    /// The namespace of the object; `None` if the resource is cluster-scoped, or if the request has no namespace.
    pub namespace: Option<String>,
    /// The user who sent the request to the control plane.
    pub user: UserInfo,
    /// The client's object with the changes of the stages called so far; `None` if the request has no new object.
    pub object: Option<Object>,
    /// The object that the control plane has stored before the request; `None` if there is none.
    pub old_object: Option<Object>,
    /// The options of the operation, such as `DeleteOptions`, if the control plane sends them.
    pub options: Option<Object>,
    /// Whether the request is a dry run, so that the control plane will not store the object.
    pub dry_run: bool,
    /// The fields that identify the object. No stage may change them.
    pub identity: IdentityFields,
    /// The canonical spelling of the object's keys. The result of each stage is converted to it.
    pub spelling: EnforcedSpelling,
    /// Records the responses that plugins receive; `None` if the request is not recorded.
    pub recorder: Option<ResponseRecorder>,
    /// The front end at which the request arrived; `None` if the program itself created it.
    pub front: Option<Arc<FrontEnd>>,
}

/// The front end at which a request arrived, for the decision log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontEnd {
    /// The name of the front end's dialect, such as `kubernetes`, `bcs` or `rest`.
    pub dialect: Option<Arc<str>>,
    /// The address on which the front end listens.
    pub listener: Option<Arc<str>>,
    /// The cluster from which the request comes, if it is known.
    pub cluster: Option<Arc<str>>,
}

impl FrontEnd {
    /// Creates the description of a front end of which only the dialect is known, such as `kubernetes`.
    pub fn of_dialect(name: &str) -> Self {
        Self {
            dialect: Some(name.into()),
            ..Self::default()
        }
    }
}

impl Request {
    /// Creates a request with a new UID and with Kubernetes' identity fields and spelling, without user and objects.
    pub fn new(operation: Operation, kind: GroupVersionKind, resource: GroupVersionResource) -> Self {
        Self {
            uid: Uid::generate(),
            trace: None,
            operation,
            kind,
            resource,
            subresource: None,
            requested_kind: None,
            name: String::new(),
            namespace: None,
            user: UserInfo::default(),
            object: None,
            old_object: None,
            options: None,
            dry_run: false,
            identity: IdentityFields::kubernetes(),
            spelling: EnforcedSpelling::kubernetes(),
            recorder: None,
            front: None,
        }
    }

    /// Returns whether the request's resource is cluster-scoped. Namespaces are cluster-scoped, too.
    pub fn is_cluster_wide(&self) -> bool {
        self.namespace.is_none() || (self.resource.group.is_empty() && self.resource.resource == "namespaces")
    }

    /// Creates a request from its objects. Returns `None` if both objects are missing.
    ///
    /// - `operation` is UPDATE by default if there are both objects, DELETE if there is only an old object, and CREATE
    ///   if there is only a new one.
    /// - `resource` may include a subresource, as in `pods/status`. By default, it is the plural of the object's kind.
    /// - `namespace` is used if the object does not name its namespace.
    pub fn from_objects(
        object: Option<Object>,
        old_object: Option<Object>,
        operation: Option<Operation>,
        resource: Option<&str>,
        namespace: Option<&str>,
    ) -> Option<Self> {
        let operation = operation.unwrap_or(match (&object, &old_object) {
            (Some(_), Some(_)) => Operation::Update,
            (None, Some(_)) => Operation::Delete,
            _ => Operation::Create,
        });
        let (object, old_object) = match operation {
            Operation::Delete => (None, old_object.or(object)),
            _ => (object, old_object),
        };
        let main_object = object.as_ref().or(old_object.as_ref())?;
        let head = main_object.head();
        let kind = GroupVersionKind::from_api_version(
            head.api_version.as_deref().unwrap_or_default(),
            head.kind.clone().unwrap_or_default(),
        );
        let guessed_resource = kind.guess_resource();
        let mut request = Self::new(operation, kind, guessed_resource).with_object(main_object.clone());
        if let Some(resource_path) = resource {
            let (name, subresource) = resource_path
                .split_once('/')
                .map_or((resource_path, None), |(name, subresource)| (name, Some(subresource)));
            request.resource.resource = name.to_owned();
            request.subresource = subresource.map(str::to_owned);
        }
        if request.namespace.is_none() {
            request.namespace = namespace.map(str::to_owned);
        }
        request.object = object;
        request.old_object = old_object;
        Some(request)
    }

    /// Replaces the request's object, and sets the request's name and namespace from the object's `metadata`.
    pub fn with_object(mut self, object: Object) -> Self {
        let head = object.head();
        self.name = head.name.clone().unwrap_or_default();
        self.namespace = head.namespace.clone().filter(|namespace| !namespace.is_empty());
        self.object = Some(object);
        self
    }
}

/// The client's kind and resource. They differ from the request's if the control plane has converted the object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestedKind {
    /// The kind of the object that the client sent.
    pub kind: GroupVersionKind,
    /// The resource that the client requested.
    pub resource: GroupVersionResource,
    /// The subresource that the client requested.
    pub subresource: Option<String>,
}

/// The identifier of a request: a text from the client, or a random UUID.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Display)]
pub struct Uid(Arc<str>);

impl Uid {
    /// Creates a random UID.
    pub fn generate() -> Self {
        let mut text = uuid::Uuid::encode_buffer();
        Self(Arc::from(&*uuid::Uuid::new_v4().hyphenated().encode_lower(&mut text)))
    }

    /// Returns the UID as an AdmissionReview contains it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Uid {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

/// The operation of a request on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, derive_more::Display)]
#[display("{}", self.as_str())]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// The object is created.
    Create,
    /// The object is updated.
    Update,
    /// The object is deleted.
    Delete,
    /// A connection to the object is opened, as by `kubectl exec`.
    Connect,
}

impl Operation {
    /// All operations, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::Create, Self::Update, Self::Delete, Self::Connect];

    /// Returns the operation's name in rules and reviews, such as `CREATE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The error for a text that is not an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an operation: use CREATE, UPDATE, DELETE or CONNECT")]
pub struct UnknownOperation(pub String);

impl FromStr for Operation {
    type Err = UnknownOperation;

    /// Parses an operation's name in any letter case, because Kubernetes writes `CREATE`, and BCS writes `Create`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|operation| operation.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| UnknownOperation(text.to_owned()))
    }
}

/// The kind of an object, with group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupVersionKind {
    /// The API group; empty for the core group, and for control planes without groups.
    pub group: String,
    /// The version in the API group, such as `v1` or `v4`.
    pub version: String,
    /// The name of the kind, such as `Pod` or `application`.
    pub kind: String,
}

impl GroupVersionKind {
    /// Creates the kind from an object's `apiVersion` (`v1`, `apps/v1`) and `kind`.
    pub fn from_api_version(api_version: &str, kind: impl Into<String>) -> Self {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.into(),
        }
    }

    /// Returns the `apiVersion` of objects of this kind, such as `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Guesses the resource of this kind: its plural in lower case, as Kubernetes does without discovery.
    pub fn guess_resource(&self) -> GroupVersionResource {
        let singular = self.kind.to_ascii_lowercase();
        let resource = match singular.as_str() {
            "" | "endpoints" => singular,
            name => match name.strip_suffix('y') {
                Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{stem}ies"),
                _ if name.ends_with('s') || name.ends_with('x') || name.ends_with("ch") => {
                    format!("{name}es")
                }
                _ => format!("{name}s"),
            },
        };
        GroupVersionResource {
            group: self.group.clone(),
            version: self.version.clone(),
            resource,
        }
    }
}

impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_qualified(f, [&self.group, &self.version, &self.kind])
    }
}

fn write_qualified(f: &mut fmt::Formatter<'_>, [group, version, name]: [&str; 3]) -> fmt::Result {
    for part in [group, version].into_iter().filter(|part| !part.is_empty()) {
        write!(f, "{part}/")?;
    }
    f.write_str(name)
}

/// A resource, with group and version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupVersionResource {
    /// The API group; empty for the core group, and for control planes without groups.
    pub group: String,
    /// The version in the API group, such as `v1` or `v4`.
    pub version: String,
    /// The plural name of the resource in lower case, such as `pods` or `applications`.
    pub resource: String,
}

impl fmt::Display for GroupVersionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_qualified(f, [&self.group, &self.version, &self.resource])
    }
}

/// The user of a request. All fields are empty if the control plane does not send the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// The name of the user.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// The user's identifier from the authenticator.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The groups of the user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Additional attributes of the user from the authenticator, by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resource_of_a_kind_is_its_plural() {
        for (api_version, kind, resource) in [
            ("v1", "Pod", "v1/pods"),
            ("apps/v1", "Deployment", "apps/v1/deployments"),
            ("networking.k8s.io/v1", "Ingress", "networking.k8s.io/v1/ingresses"),
            (
                "networking.k8s.io/v1",
                "NetworkPolicy",
                "networking.k8s.io/v1/networkpolicies",
            ),
            ("v1", "Endpoints", "v1/endpoints"),
            ("v1", "Gateway", "v1/gateways"),
            ("v4", "application", "v4/applications"),
            ("v4", "process", "v4/processes"),
        ] {
            let kind = GroupVersionKind::from_api_version(api_version, kind);
            assert_eq!(kind.guess_resource().to_string(), resource, "{kind}");
        }
    }

    #[test]
    fn an_operation_is_parsed_in_any_letter_case() {
        assert_eq!("create".parse(), Ok(Operation::Create));
        assert_eq!("Update".parse(), Ok(Operation::Update));
        let error = "put".parse::<Operation>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`put` is not an operation: use CREATE, UPDATE, DELETE or CONNECT"
        );
    }
}
