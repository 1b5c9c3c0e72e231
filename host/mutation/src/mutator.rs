//! Implements the mutators of Gatekeeper, which set a value at a location of an object.

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use admittance_admission::{
    Deadline, EvaluationSources, Failure, FailureKind, Hook, LabelSelector, Labels, NamespaceSource, NoAuthorizer,
    Object, Patch, Request, Response, StageSpec, Verdict, async_trait, offload,
};
use serde_json::Value;

use crate::{FieldLocation, ImageParts, LocationType, apply::Growth, location::LocationSteps};

/// The kind of change that a mutator makes at its location, with the new values.
#[derive(Clone, Debug, PartialEq)]
pub enum Mutation {
    /// Replaces the value at the location with this value.
    Assign(Value),
    /// Sets the value at the location to the namespace of the object.
    AssignNamespace,
    /// Sets the value at the location to the name of the object.
    AssignName,
    /// Appends these values to the list at the location. A value that the list already contains is not appended again.
    Merge(Vec<Value>),
    /// Removes these values from the list at the location.
    Prune(Vec<Value>),
    /// Replaces these parts of the image's name at the location.
    Image(ImageParts),
}

impl Mutation {
    /// Returns the type that the value at the location has after the mutation.
    pub fn location_type(&self) -> LocationType {
        match self {
            Self::Assign(_) | Self::AssignNamespace | Self::AssignName => LocationType::Any,
            Self::Merge(_) | Self::Prune(_) => LocationType::Set,
            Self::Image(_) => LocationType::Text,
        }
    }
}

/// A mutation, and the location at which it is made. A mutator also says to which requests and objects it applies.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutator {
    /// The mutator's name, which audit annotations and failures contain.
    pub name: String,
    /// The rules, namespaces and conditions that select the requests to which the mutator applies.
    pub request_filter: StageSpec,
    /// Selects objects by their labels, including the labels that mutators before this one have set.
    pub labels: LabelSelector,
    pub(crate) location: FieldLocation,
    pub(crate) mutation: Mutation,
    /// The mutator's path tests: the index of a step in the location, and whether the object must (`true`) or must not
    /// (`false`) have a value at this step.
    pub(crate) path_tests: Vec<(usize, bool)>,
}

/// The reason why a path test is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathTestError {
    /// The path test checks a path that is not the beginning of the mutator's location, such as `spec.a` for the
    /// location `spec.b.c`.
    #[error("{test} is not the beginning of the location {location}")]
    NotAPrefix {
        /// The path that the test checks.
        test: String,
        /// The location of the mutator.
        location: String,
    },
    /// Two path tests contradict each other. One of them says that there must be no value at this path, and the other
    /// one says that there must be a value at this path, or below it.
    #[error("the tests contradict each other: {0} must not exist, and what must exist is there or in it")]
    Contradiction(String),
}

impl Mutator {
    /// Returns a mutator that applies to all requests.
    pub fn new(name: impl Into<String>, location: FieldLocation, mutation: Mutation) -> Self {
        let name = name.into();
        Self {
            request_filter: StageSpec::new(name.as_str()),
            name,
            labels: LabelSelector::default(),
            location,
            mutation,
            path_tests: Vec::new(),
        }
    }

    /// Adds a path test: the mutator applies only if a value exists at the path (`must_exist`), or only if none exists.
    ///
    /// # Errors
    ///
    /// Returns an error if the location does not begin with the path, or if the test contradicts an earlier one.
    pub fn add_path_test(&mut self, path: &FieldLocation, must_exist: bool) -> Result<(), PathTestError> {
        if !self.location.steps().starts_with(path.steps()) {
            return Err(PathTestError::NotAPrefix {
                test: path.to_string(),
                location: self.location.to_string(),
            });
        }
        self.path_tests.push((path.steps().len() - 1, must_exist));
        let deepest = self
            .path_tests
            .iter()
            .filter(|(_, must)| *must)
            .map(|(step, _)| *step)
            .max();
        let absent = self
            .path_tests
            .iter()
            .filter(|(_, must)| !must)
            .map(|(step, _)| *step)
            .min();
        match (absent, deepest) {
            (Some(absent), Some(deepest)) if absent <= deepest => {
                let path = self.location.steps().get(..=absent).unwrap_or_default();
                Err(PathTestError::Contradiction(LocationSteps(path).to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the two mutators cannot apply to one object, because their locations expect different types.
    pub fn contradicts(&self, other: &Self) -> bool {
        let types = (self.mutation.location_type(), other.mutation.location_type());
        self.location.contradicts(types.0, &other.location, types.1)
    }

    fn selects(&self, object: &Value) -> bool {
        if self.labels.is_empty() {
            return true;
        }
        let map = object.pointer("/metadata/labels").and_then(Value::as_object);
        let labels: Labels = map
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
        self.labels.matches(&labels)
    }
}

/// Applies mutators in order, and repeats this until no mutator changes the object.
///
/// If a mutator cannot be applied, or the object never stops changing, the hook fails and changes nothing.
#[derive(Clone, derive_more::Debug)]
#[debug("Mutators({mutators:?})")]
pub struct Mutators {
    mutators: Arc<[Mutator]>,
    namespaces: Arc<dyn NamespaceSource>,
}

impl Mutators {
    /// The key of the audit annotation that names the mutators that changed the object.
    pub const ANNOTATION: &'static str = "mutators";

    /// Returns a hook that applies these mutators in this order.
    pub fn new(mutators: impl Into<Arc<[Mutator]>>, namespaces: Arc<dyn NamespaceSource>) -> Self {
        Self {
            mutators: mutators.into(),
            namespaces,
        }
    }
}

#[async_trait]
impl Hook for Mutators {
    async fn admit(&self, request: &Arc<Request>, deadline: Deadline) -> Result<Response, Failure> {
        let sources = EvaluationSources {
            namespaces: &*self.namespaces,
            authorizer: &NoAuthorizer,
        };
        mutate(&self.mutators, request, sources, deadline).await
    }
}

pub(crate) async fn mutate(
    mutators: &Arc<[Mutator]>,
    request: &Request,
    sources: EvaluationSources<'_>,
    deadline: Deadline,
) -> Result<Response, Failure> {
    let Some(object) = request.object.clone() else {
        return Ok(Response::allow());
    };
    let mut selected = Vec::new();
    for (index, mutator) in mutators.iter().enumerate() {
        let skip_reason = mutator.request_filter.skip_reason(request, sources, deadline);
        if skip_reason.await?.is_none() {
            selected.push(index);
        }
    }
    if selected.is_empty() {
        return Ok(Response::allow());
    }
    // The estimated cost is the object's size times the number of mutators, because each mutator visits the object.
    let bytes = object.text().len().saturating_mul(selected.len());
    let (namespace, name) = (request.namespace.clone(), request.name.clone());
    let mutators = Arc::clone(mutators);
    let work = move || {
        let metadata = AssignableMetadata::read(&object, namespace.as_deref(), &name);
        let selected = selected.iter().filter_map(|index| mutators.get(*index)).collect();
        let run = Run {
            selected_mutators: selected,
            // Gatekeeper has the same limit. In the worst case, each round lets only one more mutator take effect, and
            // one more round finds that the object does not change any more.
            max_round_count: mutators.len() + 1,
            metadata: &metadata,
        };
        run.mutate(&object, deadline)
    };
    offload(bytes, deadline, work).await?
}

pub(crate) struct AssignableMetadata {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl AssignableMetadata {
    /// Reads the object's name and namespace, or takes those of the request if the object lacks them.
    fn read(object: &Object, namespace: Option<&str>, name: &str) -> Self {
        let text_at = |pointer: &str, otherwise: &str| {
            let text = object.value().pointer(pointer).and_then(Value::as_str);
            text.unwrap_or(otherwise).to_owned()
        };
        Self {
            namespace: text_at("/metadata/namespace", namespace.unwrap_or_default()),
            name: text_at("/metadata/name", name),
        }
    }
}

struct Run<'a> {
    selected_mutators: Vec<&'a Mutator>,
    max_round_count: usize,
    metadata: &'a AssignableMetadata,
}

impl Run<'_> {
    fn mutate(&self, object: &Object, deadline: Deadline) -> Result<Response, Failure> {
        let original = object.value();
        let mut growth = Growth::for_size(object.text().len(), deadline);
        let mut current = original.clone();
        // Objects are compared by their hashes, which take less memory than copies. The hasher has a random key, so
        // that no client can construct two objects with the same hash.
        let hashes = RandomState::new();
        let mut previous = None;
        let mut changed = Vec::new();
        for _ in 0..self.max_round_count {
            if !self.apply_round(&mut current, &mut growth, &mut changed)? {
                return Ok(respond(object, current, &changed));
            }
            let hash = hashes.hash_one(&current);
            if previous.replace(hash).unwrap_or_else(|| hashes.hash_one(original)) == hash {
                return Ok(respond(object, current, &changed));
            }
        }
        let message = format!(
            "the mutators do not come to an end: after {} rounds the object still changes; look at {}",
            self.max_round_count,
            changed.join(", ")
        );
        Err(Failure::new(FailureKind::Error, message))
    }

    /// Applies each of the mutators once. Returns whether any of them changed the object.
    fn apply_round(
        &self,
        current: &mut Value,
        growth: &mut Growth,
        changed: &mut Vec<String>,
    ) -> Result<bool, Failure> {
        let mut is_changed = false;
        for mutator in &self.selected_mutators {
            growth.check_deadline()?;
            if !mutator.selects(current) {
                continue;
            }
            let outcome = mutator.apply(current, self.metadata, growth);
            let has_effect = outcome.map_err(|failure| {
                let message = format!("{} cannot be applied: {}", mutator.name, failure.message);
                Failure::new(failure.kind, message)
            })?;
            is_changed |= has_effect;
            if has_effect && !changed.contains(&mutator.name) {
                changed.push(mutator.name.clone());
            }
        }
        Ok(is_changed)
    }
}

fn respond(object: &Object, current: Value, changed: &[String]) -> Response {
    // A mutator changes fields of the object, but cannot replace the whole object by a value of another type. So
    // `current` is always a JSON object, and the conversion does not fail.
    let patch = Object::from_value(current).map(|after| Patch::between(object, &after));
    let Some(patch) = patch.filter(|patch| !patch.is_empty()) else {
        return Response::allow();
    };
    let mut response = Response::new(Verdict::Patch(patch));
    let names = (Mutators::ANNOTATION.to_owned(), changed.join(", "));
    response.audit_annotations.push(names);
    response
}

#[cfg(test)]
mod tests;
