//! Lets stages see the object that the control plane will generate, such as the Pod of a Deployment.

use std::{any::Any, fmt, ptr, sync::Arc};

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::{Deadline, EvaluationSources, Failure, Request, Rule};

/// Generates an object from the object of a request, as the control plane will do later. For example, it generates the
/// Pod of a Deployment. A stage with a generator gets the generated object, and not the object of the request.
/// `admittance-mutation` implements this trait for Gatekeeper.
#[async_trait]
pub trait ObjectGenerator: Any + fmt::Debug + Send + Sync {
    /// Returns the rules of this generator. A request must match one of them for an object to be generated.
    fn generators(&self) -> &[Rule];

    /// Returns whether this and the other generator always make equal objects from equal requests.
    fn is_equal(&self, other: &dyn ObjectGenerator) -> bool;

    /// Returns a request to create the generated object; `None` if no object is generated from this request.
    ///
    /// # Errors
    ///
    /// Fails when the object cannot be generated, or not by the deadline.
    async fn generate(
        &self,
        request: &Request,
        sources: EvaluationSources<'_>,
        deadline: Deadline,
    ) -> Result<Option<Request>, Failure>;
}

impl PartialEq for dyn ObjectGenerator {
    fn eq(&self, other: &Self) -> bool {
        self.is_equal(other)
    }
}

/// The objects that generators have made so far. All stages share them. A key is a pair of memory addresses: of the
/// generator, and of the request.
#[derive(Default)]
pub(crate) struct GeneratedObjects(Mutex<Vec<((usize, usize), Option<Arc<Request>>)>>);

impl GeneratedObjects {
    pub(crate) async fn get(
        &self,
        generator: &Arc<dyn ObjectGenerator>,
        request: &Request,
        sources: EvaluationSources<'_>,
        deadline: Deadline,
    ) -> Result<Option<Arc<Request>>, Failure> {
        let key = (Arc::as_ptr(generator).addr(), ptr::from_ref(request).addr());
        let cached_result = {
            let entries = self.0.lock();
            let cached_entry = entries.iter().find(|(entry_key, _)| *entry_key == key);
            cached_entry.map(|(_, generated)| generated.clone())
        };
        if let Some(cached_request) = cached_result {
            return Ok(cached_request);
        }
        let generated = generator.generate(request, sources, deadline).await?.map(Arc::new);
        let mut entries = self.0.lock();
        entries.push((key, generated.clone()));
        Ok(generated)
    }
}
