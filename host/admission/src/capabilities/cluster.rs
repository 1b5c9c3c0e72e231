//! The capability `cluster`: plugins read resources of the control plane, and check the permissions of users.

use std::{fmt, num::NonZeroU32, str::FromStr, sync::Arc};

use async_trait::async_trait;
use serde_json::json;

use crate::{AccessAttributes, AccessCheckResult, Deadline, FieldMask, ResponseRecorder, UserInfo};

const AUTHORIZATION_API: &str = "authorization.k8s.io/v1";
const RBAC_API: &str = "rbac.authorization.k8s.io/v1";
const OWN_ACCESS_KIND: &str = "SelfSubjectAccessReview";
const ANY_ACCESS_KIND: &str = "SubjectAccessReview";

/// A kind of resource, such as `v1/Node` or `apps/v1/Deployment`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{api_version}/{kind}")]
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

    /// Returns the group and version of the kind, such as `v1` or `apps/v1`.
    pub fn api_version(&self) -> &str {
        &self.api_version
    }

    /// Returns the kind, such as `Node`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the kind `SelfSubjectAccessReview`. A plugin to which this kind is granted may check the permissions of
    /// the request's user.
    pub fn own_access_review() -> Self {
        Self::new(AUTHORIZATION_API, OWN_ACCESS_KIND)
    }

    /// Returns the kind `SubjectAccessReview`. A plugin to which this kind is granted may check any user's permissions.
    pub fn any_access_review() -> Self {
        Self::new(AUTHORIZATION_API, ANY_ACCESS_KIND)
    }

    pub(crate) fn is_any_access(&self) -> bool {
        self.api_version == AUTHORIZATION_API && self.kind == ANY_ACCESS_KIND
    }

    /// Returns whether this is the kind of an access review. A grant of such a kind lets a plugin check permissions.
    pub fn is_access_review(&self) -> bool {
        self.api_version == AUTHORIZATION_API && [OWN_ACCESS_KIND, ANY_ACCESS_KIND].contains(&self.kind.as_str())
    }
}

/// The error for a text that is not a kind in the form `version/Kind` or `group/version/Kind`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid kind: write version and kind, `v1/Node` or `apps/v1/Deployment`")]
pub struct InvalidClusterKind(pub String);

impl FromStr for ClusterKind {
    type Err = InvalidClusterKind;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || InvalidClusterKind(text.to_owned());
        let (api_version, kind) = text.rsplit_once('/').ok_or_else(error)?;
        let is_complete = api_version.split('/').all(|part| !part.is_empty()) && !kind.is_empty();
        if !is_complete || api_version.split('/').count() > 2 {
            return Err(error());
        }
        Ok(Self::new(api_version, kind))
    }
}

/// Reads resources of the control plane for plugins. Before the sandbox calls a method of the reader, it checks that
/// the stage grants the kind. The sandbox waits for the method until the request's deadline.
#[async_trait]
pub trait ClusterReader: fmt::Debug + Send + Sync + 'static {
    /// Returns an object as JSON; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// Fails when the control plane does not reply. The plugin gets the error.
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
    /// Fails when the control plane does not reply, or the query is invalid. The plugin gets the error.
    async fn list(
        &self,
        kind: &ClusterKind,
        query: &ClusterQuery,
        deadline: Deadline,
    ) -> Result<ClusterPage, ClusterError>;

    /// Checks whether a user may perform an action. The default implementation returns [`ClusterError::Unavailable`].
    ///
    /// # Errors
    ///
    /// Fails when the permission cannot be checked. The plugin gets the error.
    async fn check_access(
        &self,
        user: &UserInfo,
        action: &AccessAttributes,
        deadline: Deadline,
    ) -> Result<AccessCheckResult, ClusterError> {
        let _ = (user, action, deadline);
        Err(ClusterError::Unavailable(
            "this host does not check what users may do".to_owned(),
        ))
    }
}

/// Selects the objects of a kind that a plugin lists. Default: all objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterQuery {
    /// The namespace of the objects; `None` selects all namespaces.
    pub namespace: Option<String>,
    /// The labels of the objects, as the text of a selector: `app in (web),!canary`. Empty selects all objects.
    pub label_selector: String,
    /// The fields of the objects that the plugin gets. A reader may return more, because the sandbox removes the rest.
    pub fields: FieldMask,
    /// The maximum number of objects on a page; `None` lists all.
    pub limit: Option<NonZeroU32>,
    /// The start of the page: the [`ClusterPage::rest`] of the previous page, or `None` for the first page. The plugin
    /// may have changed this text, so the reader must not trust it.
    pub from: Option<String>,
}

/// A page of listed objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterPage {
    /// The objects, as JSON.
    pub objects: Vec<Arc<str>>,
    /// The start of the next page. The caller passes it as `from` in the next query. `None` if this is the last page.
    pub rest: Option<String>,
}

/// The reason why a request to the control plane failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterError {
    /// The control plane is unavailable, for this reason.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// The control plane did not reply by the deadline.
    #[error("no answer in time")]
    Timeout,
    /// The control plane refused the request with this message.
    #[error("refused: {0}")]
    Refused(String),
}

/// Reads the control plane for one request. If the request is recorded, so are the objects that its hooks read.
#[derive(Clone, Copy, Debug)]
pub struct RecordedCluster<'a> {
    reader: &'a dyn ClusterReader,
    recorder: Option<&'a ResponseRecorder>,
}

impl<'a> RecordedCluster<'a> {
    /// Creates a reader for one request. If there is a recorder, it records the objects that the reader returns.
    pub fn new(reader: &'a dyn ClusterReader, recorder: Option<&'a ResponseRecorder>) -> Self {
        Self { reader, recorder }
    }

    /// Returns an object as JSON; `None` if it does not exist.
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
        let object = self.reader.get(kind, namespace, name, deadline).await?;
        if let Some(recorder) = self.recorder {
            recorder.record_objects(kind, object.as_deref().map(Arc::from));
        }
        Ok(object)
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
        if let Some(recorder) = self.recorder {
            recorder.record_objects(kind, page.objects.iter().cloned());
        }
        Ok(page)
    }
}

impl ResponseRecorder {
    pub(crate) fn record_objects(&self, kind: &ClusterKind, objects: impl IntoIterator<Item = Arc<str>>) {
        let mut recorded = self.lock();
        recorded.looked_up = true;
        for object in objects {
            recorded.record_object(kind.clone(), object);
        }
    }

    /// Records the answer to a permission check. If the action is allowed, a role and a role binding that grant it are
    /// recorded as objects.
    pub fn record_access(&self, user: &UserInfo, action: &AccessAttributes, is_allowed: bool) {
        let mut recorded = self.lock();
        recorded.looked_up = true;
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
            AccessAttributes::Path { verb, path } => (json!({"verbs": [verb], "nonResourceURLs": [path]}), ""),
        };
        let subject = match (user.username.as_str(), user.groups.first()) {
            ("", Some(group)) => json!({"kind": "Group", "name": group}),
            (name, _) => json!({"kind": "User", "name": name}),
        };
        let name = format!("recorded-{}", recorded.objects.len());
        let role = json!({"apiVersion": RBAC_API, "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]});
        let (kind, metadata) = match namespace {
            "" => ("ClusterRoleBinding", json!({"name": name})),
            namespace => ("RoleBinding", json!({"name": name, "namespace": namespace})),
        };
        let binding = json!({"apiVersion": RBAC_API, "kind": kind, "metadata": metadata,
                             "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                                         "name": name},
                             "subjects": [subject]});
        recorded.record_object(ClusterKind::new(RBAC_API, "ClusterRole"), role.to_string().into());
        recorded.record_object(ClusterKind::new(RBAC_API, kind), binding.to_string().into());
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
            let cluster_kind = text.parse::<ClusterKind>().ok();
            let parsed = cluster_kind.as_ref().map(|kind| (kind.api_version(), kind.kind()));
            assert_eq!(parsed, expected, "{text}");
        }
    }

    #[test]
    fn permission_checks_need_a_grant_of_access_reviews() {
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
