//! The capability `cluster`: plugins read resources of the control plane, and check what users may do.

use std::{fmt, num::NonZeroU32, str::FromStr, sync::Arc};

use async_trait::async_trait;
use serde_json::json;

use crate::{Access, AccessAttributes, Deadline, FieldMask, Tape, UserInfo};

/// The API group and version of access reviews.
const AUTHORIZATION: &str = "authorization.k8s.io/v1";
/// The API group and version of roles.
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const OWN_ACCESS: &str = "SelfSubjectAccessReview";
const ANY_ACCESS: &str = "SubjectAccessReview";

/// A kind of resource: `v1/Node`, `apps/v1/Deployment`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterKind {
    api_version: String,
    kind: String,
}

impl ClusterKind {
    /// Creates a kind from an object's `apiVersion` and `kind`.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
        }
    }

    /// Returns the group and version, such as `v1` or `apps/v1`.
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// Returns the kind, such as `Node`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the kind whose grant lets a plugin ask what the user of its request may do.
    pub fn own_access() -> Self {
        Self::new(AUTHORIZATION, OWN_ACCESS)
    }

    /// Returns the kind whose grant lets a plugin ask what any user may do.
    pub fn any_access() -> Self {
        Self::new(AUTHORIZATION, ANY_ACCESS)
    }

    /// Returns whether a grant of this kind lets a plugin ask what any user may do.
    pub(crate) fn is_any_access(&self) -> bool {
        self.api_version == AUTHORIZATION && self.kind == ANY_ACCESS
    }

    /// Returns whether this is the kind of an access review. A grant of such a kind allows questions about users; there
    /// are no objects to read.
    pub fn is_access_review(&self) -> bool {
        self.api_version == AUTHORIZATION && [OWN_ACCESS, ANY_ACCESS].contains(&self.kind.as_str())
    }
}

/// A text that is not a valid kind: not `version/Kind` or `group/version/Kind`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid kind: write version and kind, `v1/Node` or `apps/v1/Deployment`")]
pub struct InvalidClusterKind(pub String);

impl FromStr for ClusterKind {
    type Err = InvalidClusterKind;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || InvalidClusterKind(text.to_owned());
        let (api_version, kind) = text.rsplit_once('/').ok_or_else(error)?;
        let whole = api_version.split('/').all(|part| !part.is_empty()) && !kind.is_empty();
        if !whole || api_version.split('/').count() > 2 {
            return Err(error());
        }
        Ok(Self::new(api_version, kind))
    }
}

impl fmt::Display for ClusterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version, self.kind)
    }
}

/// Reads resources of the control plane for plugins that have the grant.
///
/// The sandbox checks the grant before it calls, and stops waiting at the deadline.
#[async_trait]
pub trait ClusterReader: fmt::Debug + Send + Sync + 'static {
    /// Reads one object as JSON; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Fails when the control plane does not answer; the error is passed to the plugin.
    async fn get(
        &self,
        kind: &ClusterKind,
        namespace: Option<&str>,
        name: &str,
        deadline: Deadline,
    ) -> Result<Option<String>, ClusterError>;

    /// Lists the objects of a kind.
    ///
    /// # Errors
    ///
    /// Fails when the control plane does not answer, or the query is not valid; the error is passed to the plugin.
    async fn list(
        &self,
        kind: &ClusterKind,
        query: &ClusterQuery,
        deadline: Deadline,
    ) -> Result<ClusterPage, ClusterError>;

    /// Checks whether this user may do this. Default: unavailable.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be checked; the error is passed to the plugin.
    async fn access(
        &self,
        user: &UserInfo,
        action: &AccessAttributes,
        deadline: Deadline,
    ) -> Result<Access, ClusterError> {
        let _ = (user, action, deadline);
        Err(ClusterError::Unavailable(
            "this host does not check what users may do".to_owned(),
        ))
    }
}

/// Selects the objects of a kind for a list. Default: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterQuery {
    /// `None` for all namespaces.
    pub namespace: Option<String>,
    /// The labels of the objects, as a selector in text form: `app in (web),!canary`. Empty selects all.
    pub label_selector: String,
    /// The fields that the plugin gets. A reader may return more: the sandbox removes them.
    pub fields: FieldMask,
    /// The most objects; `None` for all.
    pub limit: Option<NonZeroU32>,
    /// The end of the previous page: its [`ClusterPage::rest`]. The text comes from the plugin.
    pub from: Option<String>,
}

/// A page of listed objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterPage {
    /// The objects as JSON texts.
    pub objects: Vec<Arc<str>>,
    /// The start of the next page, if the limit left objects out.
    pub rest: Option<String>,
}

/// An error of a request to the control plane.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// The control plane is unavailable; with the reason.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The control plane did not answer by the deadline.
    #[error("no answer in time")]
    Timeout,
    /// The control plane refused the request; with its message.
    #[error("refused: {0}")]
    Refused(String),
}

/// The reader of the control plane for one request. If the request is recorded, so are the objects that its hooks read.
#[derive(Clone, Copy, Debug)]
pub struct RecordedCluster<'a> {
    reader: &'a dyn ClusterReader,
    tape: Option<&'a Tape>,
}

impl<'a> RecordedCluster<'a> {
    /// Creates the reader for a request with this tape.
    pub fn new(reader: &'a dyn ClusterReader, tape: Option<&'a Tape>) -> Self {
        Self { reader, tape }
    }

    /// Reads one object as JSON; returns `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Fails as [`ClusterReader::get`] does.
    pub async fn get(
        self,
        kind: &ClusterKind,
        namespace: Option<&str>,
        name: &str,
        deadline: Deadline,
    ) -> Result<Option<String>, ClusterError> {
        let found = self.reader.get(kind, namespace, name, deadline).await?;
        if let Some(tape) = self.tape {
            tape.objects(kind, found.as_deref().map(Arc::from));
        }
        Ok(found)
    }

    /// Lists the objects of a kind.
    ///
    /// # Errors
    ///
    /// Fails as [`ClusterReader::list`] does.
    pub async fn list(
        self,
        kind: &ClusterKind,
        query: &ClusterQuery,
        deadline: Deadline,
    ) -> Result<ClusterPage, ClusterError> {
        let page = self.reader.list(kind, query, deadline).await?;
        if let Some(tape) = self.tape {
            tape.objects(kind, page.objects.iter().cloned());
        }
        Ok(page)
    }
}

impl Tape {
    /// Adds the objects that a lookup found.
    pub(crate) fn objects(&self, kind: &ClusterKind, objects: impl IntoIterator<Item = Arc<str>>) {
        let mut taped = self.lock();
        taped.looked_up = true;
        for object in objects {
            taped.keep(kind.clone(), object);
        }
    }

    /// Adds the answer to an access review. An allowed action becomes a role and its binding.
    pub fn access(&self, user: &UserInfo, action: &AccessAttributes, is_allowed: bool) {
        let mut taped = self.lock();
        taped.looked_up = true;
        if !is_allowed {
            return;
        }
        let (rule, namespace) = match action {
            AccessAttributes::Resource {
                verb,
                group,
                resource,
                subresource,
                namespace,
                name,
                ..
            } => {
                let resource = match subresource.as_str() {
                    "" => resource.clone(),
                    subresource => format!("{resource}/{subresource}"),
                };
                let names: Vec<_> = Some(name).into_iter().filter(|name| !name.is_empty()).collect();
                let rule = json!({"verbs": [verb], "apiGroups": [group], "resources": [resource],
                                  "resourceNames": names});
                (rule, namespace.as_str())
            }
            AccessAttributes::Path { verb, path } => {
                (json!({"verbs": [verb], "nonResourceURLs": [path]}), "")
            }
        };
        let subject = match (user.username.as_str(), user.groups.first()) {
            ("", Some(group)) => json!({"kind": "Group", "name": group}),
            (name, _) => json!({"kind": "User", "name": name}),
        };
        let name = format!("recorded-{}", taped.objects.len());
        let role =
            json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]});
        let (kind, metadata) = match namespace {
            "" => ("ClusterRoleBinding", json!({"name": name})),
            namespace => ("RoleBinding", json!({"name": name, "namespace": namespace})),
        };
        let binding = json!({"apiVersion": RBAC, "kind": kind, "metadata": metadata,
                             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                                         "name": name},
                             "subjects": [subject]});
        taped.keep(ClusterKind::new(RBAC, "ClusterRole"), role.to_string().into());
        taped.keep(ClusterKind::new(RBAC, kind), binding.to_string().into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_round_trips_through_text() {
        for (text, expected) in [
            ("v1/Node", Some(("v1", "Node"))),
            ("apps/v1/Deployment", Some(("apps/v1", "Deployment"))),
            ("Node", None),
            ("/Node", None),
            ("v1/", None),
            ("a/b/v1/Node", None),
            ("apps//Node", None),
            ("", None),
        ] {
            let parsed = text.parse::<ClusterKind>().ok();
            let parsed = parsed.as_ref().map(|kind| (kind.api_version(), kind.kind()));
            assert_eq!(parsed, expected, "{text}");
        }
    }

    #[test]
    fn only_kinds_of_access_reviews_allow_checks_of_access() {
        for (text, expected) in [
            ("authorization.k8s.io/v1/SubjectAccessReview", true),
            ("authorization.k8s.io/v1/SelfSubjectAccessReview", true),
            ("authorization.k8s.io/v1/SelfSubjectRulesReview", false),
            ("example.com/v1/SubjectAccessReview", false),
            ("v1/Node", false),
        ] {
            assert_eq!(
                text.parse::<ClusterKind>().unwrap().is_access_review(),
                expected,
                "{text}"
            );
        }
    }
}
