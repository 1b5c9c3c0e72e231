use std::sync::Arc;

use async_trait::async_trait;

use crate::{Deadline, Failure, Request, Response};

/// A plugin, a webhook, or code of your own that a stage calls for a verdict.
///
/// One hook serves many requests at once and lives as long as the chain that holds it.
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
    /// Gives the verdict on one request, by the deadline.
    ///
    /// `request.object` is the object after the previous stages. The chain drops this future at the deadline and counts
    /// a timeout, so it must be safe to drop at any await. The request is shared, so that a hook can keep it for work
    /// in another task without a copy.
    ///
    /// # Errors
    ///
    /// Returns a [`Failure`] when the hook cannot give a verdict; a refusal is not an error.
    async fn admit(&self, request: &Arc<Request>, deadline: Deadline) -> Result<Response, Failure>;
}
