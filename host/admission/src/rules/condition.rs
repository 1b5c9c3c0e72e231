//! Match conditions, which a request must meet besides rules and selectors, and the authorizer that they may call.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{Deadline, Failure, Request, UserInfo};

/// The compiled match conditions of a stage. The crate `admittance-conditions` implements this trait with CEL.
#[async_trait]
pub trait CompiledConditions: Send + Sync + 'static {
    /// Returns the name of the first condition that is false for the request; `None` if all conditions are true.
    ///
    /// # Errors
    ///
    /// Fails when a condition cannot be evaluated for this request.
    async fn first_false_condition(
        &self,
        request: &Request,
        authorizer: &dyn Authorizer,
        deadline: Deadline,
    ) -> Result<Option<Arc<str>>, Failure>;

    /// Returns whether any condition may check permissions with the authorizer.
    fn uses_authorizer(&self) -> bool;

    /// Returns the name and the CEL expression of each condition, in the order of their evaluation.
    fn expressions(&self) -> Vec<(&str, &str)>;
}

/// The match conditions of a stage. Two values of this type are equal if their conditions have the same names and
/// expressions. Clones share the conditions.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("MatchConditions({:?})", self.expressions())]
pub struct MatchConditions(Option<Arc<dyn CompiledConditions>>);

impl MatchConditions {
    /// Creates match conditions from compiled conditions.
    pub fn new(conditions: impl CompiledConditions) -> Self {
        Self(Some(Arc::new(conditions)))
    }

    /// Returns whether there are no match conditions. If there are none, no request is excluded.
    pub fn is_empty(&self) -> bool {
        self.expressions().is_empty()
    }

    /// Returns the name and expression of each condition, in the order of their evaluation.
    pub fn expressions(&self) -> Vec<(&str, &str)> {
        self.0
            .as_ref()
            .map(|conditions| conditions.expressions())
            .unwrap_or_default()
    }

    /// Returns whether any condition may check permissions with the authorizer, so that the stage needs a cluster.
    pub fn uses_authorizer(&self) -> bool {
        self.0.as_ref().is_some_and(|conditions| conditions.uses_authorizer())
    }

    pub(crate) async fn matches(
        &self,
        request: &Request,
        authorizer: &dyn Authorizer,
        deadline: Deadline,
    ) -> Result<bool, Failure> {
        Ok(self
            .first_false_condition(request, authorizer, deadline)
            .await?
            .is_none())
    }

    /// Returns the name of the first condition that is false for the request; `None` if all conditions are true.
    ///
    /// # Errors
    ///
    /// Fails when a condition cannot be evaluated for this request.
    pub async fn first_false_condition(
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
        conditions.first_false_condition(request, authorizer, deadline).await
    }
}

impl PartialEq for MatchConditions {
    fn eq(&self, other: &Self) -> bool {
        self.expressions() == other.expressions()
    }
}

impl Eq for MatchConditions {}

/// Checks permissions of users, like Kubernetes' `SubjectAccessReview`. An authorizer is created once, and used
/// until the program ends.
#[async_trait]
pub trait Authorizer: Send + Sync + 'static {
    /// Checks whether this user may perform this action.
    ///
    /// # Errors
    ///
    /// Fails when the permission cannot be checked. In the CEL condition that needs the permission, `allowed()` is then
    /// false, `errored()` is true, and `error()` is the text of the error, as in kube-apiserver.
    async fn authorize(
        &self,
        user: &UserInfo,
        attributes: &AccessAttributes,
    ) -> Result<AccessCheckResult, AuthorizerError>;
}

/// An action for which a user's permission is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessAttributes {
    /// An action on a resource, as in a `SubjectAccessReview`'s `resourceAttributes`. Empty fields are left out.
    Resource {
        /// The verb that the user's role must have, such as `get`.
        verb: String,
        /// The API group; empty for the core group.
        group: String,
        /// The API version. It is always `*`, because an expression such as
        /// `authorizer.group('apps').resource('deployments')` does not name a version.
        version: String,
        /// The plural name of the resource in lower case, such as `pods`.
        resource: String,
        /// The subresource, such as `status` or `scale`.
        subresource: String,
        /// The namespace; empty for cluster-scoped resources, or for all namespaces.
        namespace: String,
        /// The name of the object; empty for all names.
        name: String,
        /// A field selector that restricts the action to some objects; empty for all objects.
        field_selector: String,
        /// A label selector that restricts the action to some objects; empty for all objects.
        label_selector: String,
    },
    /// An action on a path of the API server, as in `nonResourceAttributes` of a `SubjectAccessReview`.
    Path {
        /// The verb of the action, such as `get` or `post`.
        verb: String,
        /// The path on the API server, such as `/healthz`.
        path: String,
    },
}

/// The result of a permission check, as in `status` of a `SubjectAccessReview`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessCheckResult {
    /// Whether the user may perform the action.
    pub allowed: bool,
    /// The authorizer's reason for its answer, which may be empty.
    pub reason: String,
}

/// The reason why the authorizer could not check a permission.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AuthorizerError(pub String);

/// The authorizer of a host without a cluster. Each check fails with an explanation.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAuthorizer;

#[async_trait]
impl Authorizer for NoAuthorizer {
    async fn authorize(&self, _: &UserInfo, _: &AccessAttributes) -> Result<AccessCheckResult, AuthorizerError> {
        Err(AuthorizerError(
            "the authorizer needs a cluster, but none is configured".to_owned(),
        ))
    }
}
