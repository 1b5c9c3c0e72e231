//! Who may do what: the question that `authorizer` asks, and who answers it.

use async_trait::async_trait;

use crate::UserInfo;

/// Answers what a user may do: the question of Kubernetes' `SubjectAccessReview`. Lives as long as the
/// program.
#[async_trait]
pub trait Authorizer: Send + Sync + 'static {
    /// Whether this user may do this.
    ///
    /// # Errors
    ///
    /// When it cannot be told. The condition sees it as kube-apiserver's conditions do: `allowed()` is
    /// false, `errored()` is true, and `error()` is the text.
    async fn authorize(
        &self,
        user: &UserInfo,
        attributes: &AccessAttributes,
    ) -> Result<Access, AuthorizerError>;
}

/// What a user wants to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessAttributes {
    /// Something with a resource: `resourceAttributes` of the review. What is empty is not named.
    Resource {
        /// `get`, or whatever word the cluster's roles use.
        verb: String,
        /// Empty for the core group.
        group: String,
        /// Always `*` for now: conditions do not name versions.
        version: String,
        /// Plural, lower case.
        resource: String,
        /// `status`, `scale` and so on.
        subresource: String,
        /// Empty for resources that are in no namespace, or for all namespaces.
        namespace: String,
        /// Empty for all names.
        name: String,
    },
    /// Something with a path of the API server: `nonResourceAttributes` of the review.
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
    /// It may.
    pub allowed: bool,
    /// Why, in the authorizer's words; may be empty.
    pub reason: String,
}

/// Nobody could tell whether the user may; the text says why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AuthorizerError(pub String);

/// The authorizer where there is no cluster to ask: every answer is an error that says so.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoAuthorizer;

#[async_trait]
impl Authorizer for NoAuthorizer {
    async fn authorize(&self, _: &UserInfo, _: &AccessAttributes) -> Result<Access, AuthorizerError> {
        Err(AuthorizerError(
            "there is no cluster to ask what a user may do; configure one".to_owned(),
        ))
    }
}
