//! Objects that a control plane will generate of others, as Gatekeeper's `ExpansionTemplate` describes them.

use std::{borrow::Cow, ptr, sync::Arc};

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::{
    Deadline, Effect, Failure, FailureKind, GroupVersionKind, Mutator, Object, Operation, Request, Rule,
    Surroundings, UserInfo, mutation, work::offload::offload,
};

/// What a stage sees instead of the object of a request: an object that the control plane will generate of it, such as
/// the Pod of a Deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct Expansion {
    /// The requests whose objects generate others.
    pub generators: Vec<Rule>,
    /// From object to object: from a CronJob to its Job, and from this to its Pod.
    pub steps: Vec<Generation>,
    /// The mutators that each generated object passes.
    pub mutators: Arc<[Mutator]>,
}

/// How an object is generated of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generation {
    /// The fields that lead to it in the other: `spec`, `template`.
    pub source: Vec<String>,
    /// Its kind.
    pub kind: GroupVersionKind,
}

impl Expansion {
    /// The request to create the generated object; `None` if nothing is generated of the object of this one.
    async fn of(
        &self,
        request: &Request,
        surroundings: Surroundings<'_>,
        deadline: Deadline,
    ) -> Result<Option<Request>, Failure> {
        let matches = self.generators.iter().any(|rule| rule.matches(request));
        if !matches || request.object.is_none() {
            return Ok(None);
        }
        let mut current = Cow::Borrowed(request);
        for step in &self.steps {
            let mut generated = step.of(&current, deadline).await?;
            let response = mutation::mutate(&self.mutators, &generated, surroundings, deadline).await?;
            if let Effect::Change(object, _) = response.verdict.effect(&generated, deadline).await? {
                generated.object = Some(object);
            }
            current = Cow::Owned(generated);
        }
        Ok(Some(current.into_owned()))
    }
}

/// What was generated so far, by the addresses of the expansion and the request: stages share it. Lives while these
/// stages are called.
#[derive(Default)]
pub(crate) struct Generated(Mutex<Vec<((usize, usize), Option<Request>)>>);

impl Generated {
    /// As [`Expansion::of`].
    pub(crate) async fn of(
        &self,
        expansion: &Arc<Expansion>,
        request: &Request,
        surroundings: Surroundings<'_>,
        deadline: Deadline,
    ) -> Result<Option<Request>, Failure> {
        let key = (Arc::as_ptr(expansion).addr(), ptr::from_ref(request).addr());
        let known = {
            let all = self.0.lock();
            let known = all.iter().find(|(of, _)| *of == key);
            known.map(|(_, generated)| generated.clone())
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let generated = expansion.of(request, surroundings, deadline).await?;
        let mut all = self.0.lock();
        all.push((key, generated.clone()));
        Ok(generated)
    }
}

impl Generation {
    async fn of(&self, request: &Request, deadline: Deadline) -> Result<Request, Failure> {
        let name = format!("{}-{}", request.name, self.kind.kind).to_lowercase();
        let template = Template {
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
        // As in Gatekeeper, it is not known who creates it.
        Ok(Request {
            operation: Operation::Create,
            resource: self.kind.guess_resource(),
            kind: self.kind.clone(),
            subresource: None,
            requested: None,
            name,
            user: UserInfo::default(),
            object: Some(object),
            old_object: None,
            options: None,
            ..request.clone()
        })
    }
}

/// What a generated object is made of.
struct Template {
    generation: Generation,
    name: String,
    namespace: Option<String>,
    /// The reference to the object that it is generated of, if that has a name.
    owner: Option<Value>,
}

impl Template {
    /// `None` if there is no object at the source.
    fn object(self, of: Option<&Value>) -> Option<Object> {
        let Generation { source, kind } = self.generation;
        let found = source.iter().try_fold(of?, |value, field| value.get(field))?;
        let mut object = found.as_object()?.clone();
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
