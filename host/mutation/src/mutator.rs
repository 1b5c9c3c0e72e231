//! Mutators, as Gatekeeper has them: functions that set a value at a location of an object.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use admittance_admission::{
    Deadline, Failure, FailureKind, Hook, LabelSelector, Labels, NamespaceSource, NoAuthorizer, Object,
    Patch, Request, Response, StageSpec, Surroundings, Verdict, async_trait, offload,
};
use serde_json::Value;

use crate::{ImageParts, Location, Shape, apply::Growth, location::Steps};

/// The value that a mutator sets at its location.
#[derive(Clone, Debug, PartialEq)]
pub enum Mutation {
    /// This value.
    Assign(Value),
    /// The namespace of the object.
    AssignNamespace,
    /// The name of the object.
    AssignName,
    /// A list with these values, of which those that are missing are added at its end.
    Merge(Vec<Value>),
    /// A list without these values.
    Prune(Vec<Value>),
    /// An image with these parts.
    Image(ImageParts),
}

impl Mutation {
    /// Returns the shape of the value after the mutation.
    pub fn shape(&self) -> Shape {
        match self {
            Self::Assign(_) | Self::AssignNamespace | Self::AssignName => Shape::Any,
            Self::Merge(_) | Self::Prune(_) => Shape::Set,
            Self::Image(_) => Shape::Text,
        }
    }
}

/// One mutator.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutator {
    /// Names it in audit annotations and failures.
    pub name: String,
    /// The requests that it is for: rules, namespaces and conditions.
    pub requests: StageSpec,
    /// The objects that it is for, by the labels that they have when it is its turn.
    pub labels: LabelSelector,
    pub(crate) location: Location,
    pub(crate) mutation: Mutation,
    /// The steps of the location after which something must be there, or must not.
    pub(crate) tests: Vec<(usize, bool)>,
}

/// The reason why a test of a path does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathTestError {
    /// The path is not a part of the location.
    #[error("{test} is not the beginning of the location {location}")]
    Elsewhere {
        /// The path of the test.
        test: String,
        /// The location of the mutator.
        location: String,
    },
    /// Two tests cannot both be true.
    #[error("the tests contradict each other: {0} must not exist, and what must exist is there or in it")]
    Contradiction(String),
}

impl Mutator {
    /// A mutator for all requests.
    pub fn new(name: impl Into<String>, location: Location, mutation: Mutation) -> Self {
        let name = name.into();
        Self {
            requests: StageSpec::new(name.as_str()),
            name,
            labels: LabelSelector::default(),
            location,
            mutation,
            tests: Vec::new(),
        }
    }

    /// The object stays as it is unless something is at this path, or unless nothing is.
    ///
    /// # Errors
    ///
    /// When the path is not a beginning of the location, and when it contradicts a test before.
    pub fn test(&mut self, path: &Location, must_exist: bool) -> Result<(), PathTestError> {
        if !self.location.steps().starts_with(path.steps()) {
            return Err(PathTestError::Elsewhere {
                test: path.to_string(),
                location: self.location.to_string(),
            });
        }
        self.tests.push((path.steps().len() - 1, must_exist));
        let deepest = self
            .tests
            .iter()
            .filter(|(_, must)| *must)
            .map(|(step, _)| *step)
            .max();
        let absent = self
            .tests
            .iter()
            .filter(|(_, must)| !must)
            .map(|(step, _)| *step)
            .min();
        match (absent, deepest) {
            (Some(absent), Some(deepest)) if absent <= deepest => {
                let path = self.location.steps().get(..=absent).unwrap_or_default();
                Err(PathTestError::Contradiction(Steps(path).to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Whether both cannot be applied to one object, since their locations expect different types.
    pub fn contradicts(&self, other: &Self) -> bool {
        let shapes = (self.mutation.shape(), other.mutation.shape());
        self.location.contradicts(shapes.0, &other.location, shapes.1)
    }

    /// Whether the labels of the object are those that it is for.
    fn selects(&self, object: &Value) -> bool {
        if self.labels.is_empty() {
            return true;
        }
        let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
        let labels = labels.into_iter().flatten();
        let labels: Labels = labels
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect();
        self.labels.matches(&labels)
    }
}

/// The hook that applies mutators, in their order, again and again until none of them changes anything.
///
/// If one of them cannot be applied, or if they do not come to an end, none of them is.
#[derive(Clone)]
pub struct Mutators {
    mutators: Arc<[Mutator]>,
    namespaces: Arc<dyn NamespaceSource>,
}

impl Mutators {
    /// The key of the audit annotation with the names of the mutators that changed an object.
    pub const ANNOTATION: &'static str = "mutators";

    /// A hook of these mutators.
    pub fn new(mutators: impl Into<Arc<[Mutator]>>, namespaces: Arc<dyn NamespaceSource>) -> Self {
        Self {
            mutators: mutators.into(),
            namespaces,
        }
    }
}

impl fmt::Debug for Mutators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mutators").field(&self.mutators).finish()
    }
}

#[async_trait]
impl Hook for Mutators {
    async fn admit(&self, request: &Request, deadline: Deadline) -> Result<Response, Failure> {
        let surroundings = Surroundings {
            namespaces: &*self.namespaces,
            authorizer: &NoAuthorizer,
        };
        mutate(&self.mutators, request, surroundings, deadline).await
    }
}

/// Applies the mutators that match the request.
pub(crate) async fn mutate(
    mutators: &Arc<[Mutator]>,
    request: &Request,
    surroundings: Surroundings<'_>,
    deadline: Deadline,
) -> Result<Response, Failure> {
    let Some(object) = request.object.clone() else {
        return Ok(Response::allow());
    };
    let mut selected = Vec::new();
    for (index, mutator) in mutators.iter().enumerate() {
        let skipped = mutator.requests.skip_reason(request, surroundings, deadline);
        if skipped.await?.is_none() {
            selected.push(index);
        }
    }
    if selected.is_empty() {
        return Ok(Response::allow());
    }
    // Each of them looks through the object, and changes it again if another one changed it.
    let bytes = object.text().len().saturating_mul(selected.len());
    let (namespace, name) = (request.namespace.clone(), request.name.clone());
    let mutators = Arc::clone(mutators);
    let work = move || {
        let metadata = AssignableMetadata::of(&object, namespace.as_deref(), &name);
        let selected = selected.iter().filter_map(|index| mutators.get(*index)).collect();
        let run = Run {
            selected,
            // As in Gatekeeper, where every mutator may need one iteration.
            rounds: mutators.len() + 1,
            metadata: &metadata,
        };
        run.of(&object, deadline)
    };
    offload(bytes, deadline, work).await?
}

/// The metadata that a mutator may assign.
pub(crate) struct AssignableMetadata {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl AssignableMetadata {
    /// A control plane may not have written it into the object yet.
    fn of(object: &Object, namespace: Option<&str>, name: &str) -> Self {
        let of = |pointer: &str, otherwise: &str| {
            let text = object.value().pointer(pointer).and_then(Value::as_str);
            text.unwrap_or(otherwise).to_owned()
        };
        Self {
            namespace: of("/metadata/namespace", namespace.unwrap_or_default()),
            name: of("/metadata/name", name),
        }
    }
}

/// The mutators of one request.
struct Run<'a> {
    selected: Vec<&'a Mutator>,
    rounds: usize,
    metadata: &'a AssignableMetadata,
}

impl Run<'_> {
    fn of(&self, object: &Object, deadline: Deadline) -> Result<Response, Failure> {
        let original = object.value();
        let mut growth = Growth::of(object.text().len(), deadline);
        let mut current = original.clone();
        // The hash of the object after the previous round: a copy would take as much memory as the object. The keys
        // of the hash are random, so that no client can prepare objects with equal ones.
        let hashes = RandomState::new();
        let mut previous = None;
        let mut changed = Vec::new();
        for _ in 0..self.rounds {
            if !self.round(&mut current, &mut growth, &mut changed)? {
                return Ok(respond(object, current, &changed));
            }
            let hash = hashes.hash_one(&current);
            if previous
                .replace(hash)
                .unwrap_or_else(|| hashes.hash_one(original))
                == hash
            {
                return Ok(respond(object, current, &changed));
            }
        }
        let message = format!(
            "the mutators do not come to an end: after {} rounds the object still changes; look at {}",
            self.rounds,
            changed.join(", ")
        );
        Err(Failure::new(FailureKind::Error, message))
    }

    /// Applies each mutator once. Returns whether one of them changed the object.
    fn round(
        &self,
        current: &mut Value,
        growth: &mut Growth,
        changed: &mut Vec<String>,
    ) -> Result<bool, Failure> {
        let mut is_changed = false;
        for mutator in &self.selected {
            growth.check_deadline()?;
            if !mutator.selects(current) {
                continue;
            }
            let applied = mutator.apply(current, self.metadata, growth);
            let changes = applied.map_err(|failure| {
                let message = format!("{} cannot be applied: {}", mutator.name, failure.message);
                Failure::new(failure.kind, message)
            })?;
            is_changed |= changes;
            if changes && !changed.contains(&mutator.name) {
                changed.push(mutator.name.clone());
            }
        }
        Ok(is_changed)
    }
}

fn respond(object: &Object, current: Value, changed: &[String]) -> Response {
    // An object whose fields were changed stays an object.
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
