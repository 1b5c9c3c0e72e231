//! Generates objects that a control plane will generate from other objects, as Gatekeeper's `ExpansionTemplate` does.

use std::{any::Any, borrow::Cow, sync::Arc};

use admittance_admission::{
    Deadline, Effect, EvaluationSources, Failure, FailureKind, GroupVersionKind, Object, ObjectGenerator, Operation,
    Request, Rule, UserInfo, async_trait, offload,
};
use serde_json::{Map, Value, json};

use crate::{Mutator, mutator::mutate};

/// Generates the object that the control plane will create because of a request, such as the Pod for a Deployment. A
/// stage then sees the generated object instead of the request's object.
#[derive(Clone, Debug, PartialEq)]
pub struct Expansion {
    /// The rules that select requests. For the object of a selected request, another object is generated.
    pub generators: Vec<Rule>,
    /// The generations, in order. For example, a Job is generated from a CronJob, and then a Pod from the Job.
    pub steps: Vec<Generation>,
    /// The mutators that are applied to each generated object.
    pub mutators: Arc<[Mutator]>,
}

/// Describes how one object is generated from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The generated object's path in the object from which it is generated: `spec` and `template` for a Job's Pod.
    pub source: Vec<String>,
    /// The kind of the generated object.
    pub kind: GroupVersionKind,
}

#[async_trait]
impl ObjectGenerator for Expansion {
    fn generators(&self) -> &[Rule] {
        &self.generators
    }

    fn is_equal(&self, other: &dyn ObjectGenerator) -> bool {
        (other as &dyn Any).downcast_ref() == Some(self)
    }

    async fn generate(
        &self,
        request: &Request,
        sources: EvaluationSources<'_>,
        deadline: Deadline,
    ) -> Result<Option<Request>, Failure> {
        let matches = self.generators.iter().any(|rule| rule.matches(request));
        if !matches || request.object.is_none() {
            return Ok(None);
        }
        let mut current = Cow::Borrowed(request);
        for step in &self.steps {
            let mut generated = step.generate(&current, deadline).await?;
            let response = mutate(&self.mutators, &generated, sources, deadline).await?;
            if let Effect::Change(object, _) = response.verdict.into_effect(&generated, deadline).await? {
                generated.object = Some(object);
            }
            current = Cow::Owned(generated);
        }
        Ok(Some(current.into_owned()))
    }
}

impl Generation {
    async fn generate(&self, request: &Request, deadline: Deadline) -> Result<Request, Failure> {
        let name = format!("{}-{}", request.name, self.kind.kind).to_lowercase();
        let template = GeneratedTemplate {
            generation: self.clone(),
            name: name.clone(),
            namespace: request.namespace.clone(),
            owner: (!request.name.is_empty()).then(|| {
                json!({
                    "apiVersion": request.kind.api_version(),
                    "kind": request.kind.kind,
                    "name": request.name,
                    "uid": "",
                })
            }),
        };
        let object = request.object.clone();
        let bytes = object.as_ref().map_or(0, |object| object.text().len());
        let generated = offload(bytes, deadline, move || {
            template.object(object.as_ref().map(Object::value))
        });
        let object = generated.await?.ok_or_else(|| {
            let source = self.source.join(".");
            let message = format!(
                "nothing can be generated of {} {:?}: it has no object at {source}",
                request.kind.kind, request.name
            );
            Failure::new(FailureKind::Error, message)
        })?;
        // The generated object is not in the client's request: a controller will create the object later. So the stage
        // sees a request to create the object, which has no user, as in Gatekeeper.
        let mut generated_request = request.clone();
        generated_request.operation = Operation::Create;
        generated_request.resource = self.kind.guess_resource();
        generated_request.kind = self.kind.clone();
        generated_request.subresource = None;
        generated_request.requested_kind = None;
        generated_request.name = name;
        generated_request.user = UserInfo::default();
        generated_request.object = Some(object);
        generated_request.old_object = None;
        generated_request.options = None;
        Ok(generated_request)
    }
}

struct GeneratedTemplate {
    generation: Generation,
    name: String,
    namespace: Option<String>,
    owner: Option<Value>,
}

impl GeneratedTemplate {
    fn object(self, generator: Option<&Value>) -> Option<Object> {
        let Generation { source, kind } = self.generation;
        let source_value = source.iter().try_fold(generator?, |value, field| value.get(field))?;
        let mut object = source_value.as_object()?.clone();
        object.insert("apiVersion".to_owned(), kind.api_version().into());
        object.insert("kind".to_owned(), kind.kind.into());
        let metadata = object.entry("metadata").or_insert(Value::Null);
        if !metadata.is_object() {
            *metadata = Map::new().into();
        }
        let metadata = metadata.as_object_mut()?;
        metadata.insert("name".to_owned(), self.name.into());
        if let Some(namespace) = self.namespace {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        if let Some(owner) = self.owner {
            let owners = metadata
                .entry("ownerReferences")
                .or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(owners) = owners {
                owners.push(owner);
            }
        }
        Object::from_value(object.into())
    }
}
