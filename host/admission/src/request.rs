use std::{fmt, str::FromStr};

use crate::{IdentityFields, Object, Spelling};

/// One admission request. Lives from the front door to the outcome.
#[derive(Clone, Debug)]
pub struct Request {
    /// Names the request in logs, traces and replies.
    pub uid: Uid,
    /// What the caller wants to do.
    pub operation: Operation,
    /// The type of the object.
    pub kind: GroupVersionKind,
    /// The collection that the object is in.
    pub resource: GroupVersionResource,
    /// `status`, `scale` and so on; none for the resource itself.
    pub subresource: Option<String>,
    /// What the caller named, where the control plane converted the object from another version.
    pub requested: Option<Box<Requested>>,
    /// The object's name; empty when the control plane is still to generate it.
    pub name: String,
    /// None for a resource that is in no namespace, and where the request names none.
    pub namespace: Option<String>,
    /// Who asks.
    pub user: UserInfo,
    /// The object as the caller sent it and as the stages so far left it.
    pub object: Option<Object>,
    /// The object as it is stored.
    pub old_object: Option<Object>,
    /// The options of the operation, where the control plane has them.
    pub options: Option<Object>,
    /// The result will not be stored.
    pub dry_run: bool,
    /// Which fields of the object say who it is; no stage may change them.
    pub identity: IdentityFields,
    /// How the keys of the object must be spelled; what a stage leaves is brought into this spelling.
    pub spelling: Spelling,
}

impl Request {
    /// A request with a fresh uid, no user, no objects, and Kubernetes' identity fields and spelling.
    pub fn new(operation: Operation, kind: GroupVersionKind, resource: GroupVersionResource) -> Self {
        Self {
            uid: Uid::fresh(),
            operation,
            kind,
            resource,
            subresource: None,
            requested: None,
            name: String::new(),
            namespace: None,
            user: UserInfo::default(),
            object: None,
            old_object: None,
            options: None,
            dry_run: false,
            identity: IdentityFields::kubernetes(),
            spelling: Spelling::kubernetes(),
        }
    }

    /// The same request with this object; name and namespace are taken from its `metadata`.
    pub fn with_object(mut self, object: Object) -> Self {
        let head = object.head();
        self.name = head.name.clone().unwrap_or_default();
        self.namespace = head.namespace.clone().filter(|namespace| !namespace.is_empty());
        self.object = Some(object);
        self
    }
}

/// What the caller of a request named, before the control plane converted the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// The type of the object that the caller sent.
    pub kind: GroupVersionKind,
    /// The collection that the caller sent it to.
    pub resource: GroupVersionResource,
    /// And its subresource.
    pub subresource: Option<String>,
}

/// Names one request: whatever text the caller gave it, or a random UUID.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(String);

impl Uid {
    /// A new random one.
    pub fn fresh() -> Self {
        Self(uuid::Uuid::new_v4().to_string())
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Uid {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the caller wants to do to the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    /// Make it.
    Create,
    /// Change it.
    Update,
    /// Remove it.
    Delete,
    /// Open a connection to it.
    Connect,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 4] = [Self::Create, Self::Update, Self::Delete, Self::Connect];

    /// As rules and reviews write it: `CREATE`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an operation: use CREATE, UPDATE, DELETE or CONNECT")]
pub struct UnknownOperation(pub String);

impl FromStr for Operation {
    type Err = UnknownOperation;

    /// Case does not matter: Kubernetes users write `CREATE`, BCS users `Create`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|operation| operation.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| UnknownOperation(text.to_owned()))
    }
}

/// The type of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupVersionKind {
    /// Empty for the core group and for control planes without groups.
    pub group: String,
    /// `v1`, `v4`.
    pub version: String,
    /// `Pod`, `application`.
    pub kind: String,
}

impl GroupVersionKind {
    /// From an object's `apiVersion` (`v1`, `apps/v1`) and `kind`.
    pub fn from_api_version(api_version: &str, kind: impl Into<String>) -> Self {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.into(),
        }
    }
}

impl GroupVersionKind {
    /// The resource that objects of this kind are most likely in: the plural in lower case, as
    /// Kubernetes guesses it where nothing better is known.
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
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        write!(f, "{}/{}", self.version, self.kind)
    }
}

/// The collection that an object is in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupVersionResource {
    /// Empty for the core group and for control planes without groups.
    pub group: String,
    /// `v1`, `v4`.
    pub version: String,
    /// Plural, lower case: `pods`, `applications`.
    pub resource: String,
}

impl fmt::Display for GroupVersionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        write!(f, "{}/{}", self.version, self.resource)
    }
}

/// Who asks. All of it is empty when the control plane does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The name it goes by.
    pub username: String,
    /// The authenticator's own identifier.
    pub uid: String,
    /// The groups it is in.
    pub groups: Vec<String>,
    /// More that the authenticator knows: a key and its values.
    pub extra: Vec<(String, Vec<String>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_their_resources() {
        for (api_version, kind, resource) in [
            ("v1", "Pod", "v1/pods"),
            ("apps/v1", "Deployment", "apps/v1/deployments"),
            (
                "networking.k8s.io/v1",
                "Ingress",
                "networking.k8s.io/v1/ingresses",
            ),
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
    fn operations_whatever_their_case() {
        assert_eq!("create".parse(), Ok(Operation::Create));
        assert_eq!("Update".parse(), Ok(Operation::Update));
        let error = "put".parse::<Operation>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`put` is not an operation: use CREATE, UPDATE, DELETE or CONNECT"
        );
    }
}
