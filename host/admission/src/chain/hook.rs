use std::sync::Arc;

use async_trait::async_trait;

use crate::{Deadline, Failure, Request, Response};

/// A plugin, a webhook or native code that gives a stage's verdict.
///
/// One hook handles many requests at the same time, and lives as long as its chain.
///
/// ```
/// use std::sync::Arc;
///
/// use admittance_admission::{async_trait, Deadline, Denial, Failure, Hook, Request, Response};
///
/// /// Refuses objects without an owner.
/// struct OwnerRequired;
///
/// #[async_trait]
/// impl Hook for OwnerRequired {
///     async fn admit(&self, request: &Arc<Request>, _deadline: Deadline) -> Result<Response, Failure> {
///         let owner = request.object.as_ref().and_then(|object| object.labels().get("owner"));
///         Ok(match owner {
///             Some(_) => Response::allow(),
///             None => Response::deny(Denial::forbidden("metadata.labels.owner is missing; add it")),
///         })
///     }
/// }
/// ```
#[async_trait]
pub trait Hook: Send + Sync + 'static {
    /// Returns the verdict on one request, by the deadline.
    ///
    /// `request.object` is the object after the previous stages. At the deadline the chain drops this future and counts
    /// a timeout, so dropping it must be safe at each await point. A hook may keep the shared request for another task.
    ///
    /// # Errors
    ///
    /// Returns a [`Failure`] when the hook cannot give a verdict. A denial is not a failure.
    async fn admit(&self, request: &Arc<Request>, deadline: Deadline) -> Result<Response, Failure>;
}
