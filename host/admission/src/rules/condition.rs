//! Match conditions, which a request must satisfy in addition to rules and selectors, and the authorizer that
//! they may use.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use crate::{Deadline, Failure, Request, UserInfo};

/// The compiled match conditions of a stage. The crate `admittance-conditions` implements this for CEL.
#[async_trait]
pub trait Conditions: Send + Sync + 'static {
    /// Returns the name of the first condition that is false for the request; `None` if all are true.
    ///
    /// # Errors
    ///
    /// Fails when a condition cannot be evaluated for this request.
    async fn first_false(
        &self,
        request: &Request,
        authorizer: &dyn Authorizer,
        deadline: Deadline,
    ) -> Result<Option<Arc<str>>, Failure>;

    /// Returns whether any condition may use the authorizer.
    fn uses_authorizer(&self) -> bool;

    /// Returns name and expression of each condition, in the order in which they are evaluated.
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

    /// Returns whether every request matches, because the stage has no conditions.
    pub fn is_empty(&self) -> bool {
        self.expressions().is_empty()
    }

    /// Returns name and expression of each condition, in the order in which they are evaluated.
    pub fn expressions(&self) -> Vec<(&str, &str)> {
        self.0
            .as_ref()
            .map(|conditions| conditions.expressions())
            .unwrap_or_default()
    }

    /// Returns whether any condition may use the authorizer, so that the stage needs a cluster.
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

    /// Returns the name of the first condition that is false for the request; `None` if all are true.
    ///
    /// # Errors
    ///
    /// Fails when a condition cannot be evaluated for this request.
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
    /// Fails when it cannot be checked. The condition sees the error as in kube-apiserver: `allowed()` is false,
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
        /// The verb, such as `get`, as in the cluster's roles.
        verb: String,
        /// The API group; empty for the core group.
        group: String,
        /// The API version, which is always `*`, because conditions do not name versions.
        version: String,
        /// The resource: plural, lower case.
        resource: String,
        /// The subresource, such as `status` or `scale`.
        subresource: String,
        /// The namespace; empty for cluster-scoped resources, or for all namespaces.
        namespace: String,
        /// The name of the object; empty for all names.
        name: String,
        /// Selects the objects by their fields, as the text of a query; empty for all.
        field_selector: String,
        /// Selects the objects by their labels, as the text of a query; empty for all.
        label_selector: String,
    },
    /// An action on a path of the API server: `nonResourceAttributes` of the review.
    Path {
        /// The verb, such as `get` or `post`.
        verb: String,
        /// The path, such as `/healthz`.
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

/// The authorizer did not answer; with the reason.
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
