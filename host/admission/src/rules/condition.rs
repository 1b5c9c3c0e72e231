//! Match conditions, which a request must satisfy in addition to rules and selectors, and the authorizer that
//! they may use.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use crate::{Deadline, Failure, Request, UserInfo};

/// The compiled match conditions of a stage. The crate `admittance-conditions` implements this for CEL.
#[async_trait]
pub trait Conditions: Send + Sync + 'static {
    /// The name of the first that is false for the request; `None` if the request matches all of them.
    ///
    /// # Errors
    ///
    /// When they cannot be evaluated for this request.
    async fn first_false(
        &self,
        request: &Request,
        authorizer: &dyn Authorizer,
        deadline: Deadline,
    ) -> Result<Option<Arc<str>>, Failure>;

    /// Whether any of them may use the authorizer.
    fn uses_authorizer(&self) -> bool;

    /// Name and expression of each, in the order in which they are evaluated.
    fn expressions(&self) -> Vec<(&str, &str)>;
}

/// The match conditions of a stage, compared by names and expressions. Cheap to clone.
#[derive(Clone, Default)]
pub struct MatchConditions(Option<Arc<dyn Conditions>>);

impl MatchConditions {
    /// Wraps compiled conditions.
    pub fn new(conditions: impl Conditions) -> Self {
        Self(Some(Arc::new(conditions)))
    }

    /// Whether there are none, so that every request matches.
    pub fn is_empty(&self) -> bool {
        self.expressions().is_empty()
    }

    /// Name and expression of each, in the order in which they are evaluated.
    pub fn expressions(&self) -> Vec<(&str, &str)> {
        self.0
            .as_ref()
            .map(|conditions| conditions.expressions())
            .unwrap_or_default()
    }

    /// Whether any of them may use the authorizer, so that the stage needs a cluster.
    pub fn uses_authorizer(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|conditions| conditions.uses_authorizer())
    }

    pub(crate) async fn matches(
        &self,
        request: &Request,
        authorizer: &dyn Authorizer,
        deadline: Deadline,
    ) -> Result<bool, Failure> {
        let first_false = self.first_false(request, authorizer, deadline).await?;
        Ok(first_false.is_none())
    }

    /// The name of the first that is false for the request; `None` if the request matches all of them.
    ///
    /// # Errors
    ///
    /// When they cannot be evaluated for this request.
    pub async fn first_false(
        &self,
        request: &Request,
        authorizer: &dyn Authorizer,
        deadline: Deadline,
    ) -> Result<Option<Arc<str>>, Failure> {
        let Some(conditions) = &self.0 else {
            return Ok(None);
        };
        for object in [&request.object, &request.old_object].into_iter().flatten() {
            object.prepare_value(deadline).await?;
        }
        conditions.first_false(request, authorizer, deadline).await
    }
}

impl PartialEq for MatchConditions {
    fn eq(&self, other: &Self) -> bool {
        self.expressions() == other.expressions()
    }
}

impl Eq for MatchConditions {}

impl fmt::Debug for MatchConditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MatchConditions")
            .field(&self.expressions())
            .finish()
    }
}

/// Checks what a user may do, like Kubernetes' `SubjectAccessReview`. Lives as long as the program.
#[async_trait]
pub trait Authorizer: Send + Sync + 'static {
    /// Checks whether this user may do this.
    ///
    /// # Errors
    ///
    /// When it cannot be checked. The condition sees the error as in kube-apiserver: `allowed()` is false,
    /// `errored()` is true, and `error()` is the text.
    async fn authorize(
        &self,
        user: &UserInfo,
        attributes: &AccessAttributes,
    ) -> Result<Access, AuthorizerError>;
}

/// The action that is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessAttributes {
    /// An action on a resource: `resourceAttributes` of the review. Empty fields are not set.
    Resource {
        /// `get`, or another verb of the cluster's roles.
        verb: String,
        /// Empty for the core group.
        group: String,
        /// Always `*`, because conditions do not name versions.
        version: String,
        /// Plural, lower case.
        resource: String,
        /// `status`, `scale` and so on.
        subresource: String,
        /// Empty for cluster-scoped resources, or for all namespaces.
        namespace: String,
        /// Empty for all names.
        name: String,
        /// The objects that are meant, by their fields, in the text form of a query; empty for all.
        field_selector: String,
        /// The objects that are meant, by their labels, in the text form of a query; empty for all.
        label_selector: String,
    },
    /// An action on a path of the API server: `nonResourceAttributes` of the review.
    Path {
        /// `get`, `post` and so on.
        verb: String,
        /// `/healthz`.
        path: String,
    },
}

/// The answer: `status` of the review.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Whether it is allowed.
    pub allowed: bool,
    /// The authorizer's reason; may be empty.
    pub reason: String,
}

/// The authorizer did not answer; the text says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AuthorizerError(pub String);

/// The authorizer of a host without a cluster: every check fails with an error that says so.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAuthorizer;

#[async_trait]
impl Authorizer for NoAuthorizer {
    async fn authorize(&self, _: &UserInfo, _: &AccessAttributes) -> Result<Access, AuthorizerError> {
        Err(AuthorizerError(
            "the authorizer needs a cluster, but none is configured".to_owned(),
        ))
    }
}
