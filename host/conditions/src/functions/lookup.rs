//! Kyverno's `resource.Get` and `resource.List`, which read objects from the cluster.

use admittance_admission::{ClusterKind, ClusterQuery, Deadline, LabelRequirement, LabelSelector, RecordedCluster};
use serde_json::{Value as Json, json};

use super::{
    Library,
    http::HttpLookup,
    typed::{Dyn, MapOf, Str},
};
use crate::{
    Structure,
    expression::Expression,
    machine::{Fault, Halt, Machine, Outcome, ValueSources},
    value::{Map, Value},
};

/// The cost of a lookup by an expression. The cost limit of the expression allows twenty lookups.
const LOOKUP_COST: u64 = 50_000;

/// Something that an expression looks up because the request does not contain it: objects in the cluster, or the
/// response to an HTTP request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Lookup {
    Objects(ObjectLookup),
    Http(HttpLookup),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObjectLookup {
    kind: ClusterKind,
    namespace: Option<String>,
    name: Option<String>,
    labels: LabelSelector,
}

/// The values that one evaluation has looked up. There are few of them, because each lookup is expensive.
#[derive(Debug, Default)]
pub(crate) struct Lookups(Vec<(Lookup, Result<Value<'static>, String>)>);

impl Lookups {
    pub(crate) fn insert(&mut self, lookup: Lookup, answer: Result<Value<'static>, String>) {
        self.0.push((lookup, answer));
    }
}

pub(crate) fn is_lookup(name: &str) -> bool {
    matches!(
        name,
        "resource.Get" | "resource.get" | "resource.List" | "resource.list"
    )
}

/// Returns the kind that a lookup reads. It must be known before the policy runs, so the arguments must be literals.
pub(crate) fn parse_kind(arguments: &[Expression]) -> Result<ClusterKind, String> {
    let [
        Expression::Constant(Value::String(version)),
        Expression::Constant(Value::String(plural)),
    ] = arguments
    else {
        return Err("write the version and the resource as literals, `'v1', 'configmaps'`".to_owned());
    };
    let kind = Structure::builtin_kinds().find(|kind| {
        let resource = kind.guess_resource();
        kind.api_version() == **version && resource.resource == **plural
    });
    match kind {
        Some(kind) => Ok(ClusterKind::new(kind.api_version(), &*kind.kind)),
        None => Err(format!(
            "{} of {} is not a resource of Kubernetes 1.36, which are the ones that a policy can look up",
            &**plural, &**version
        )),
    }
}

impl Lookup {
    pub(crate) async fn find(&self, sources: &ValueSources<'_>, deadline: Deadline) -> Result<Value<'static>, String> {
        match self {
            Self::Objects(lookup) => lookup.find(sources.cluster, deadline).await,
            Self::Http(lookup) => {
                let recorder = sources.request.recorder.as_ref();
                lookup.send_request(sources.http, recorder, deadline).await
            }
        }
    }

    /// Returns the value if it has been looked up. Otherwise returns a fault that interrupts the evaluation, so that
    /// the value can be looked up.
    pub(super) fn evaluate<'a>(self, machine: &mut Machine<'a>) -> Outcome<'a> {
        machine.charge_question(LOOKUP_COST)?;
        let entry = machine.lookups.0.iter().find(|(known_lookup, _)| *known_lookup == self);
        match entry {
            Some((_, answer)) => answer.clone().map_err(Fault::error),
            None => Err(Fault::Halt(Halt::Lookup(Box::new(self)))),
        }
    }
}

impl ObjectLookup {
    /// Looks up the object with this name; the result is null if it does not exist. If there is no name, looks up all
    /// objects, and returns an object whose field `items` lists them.
    async fn find(&self, cluster: Option<RecordedCluster<'_>>, deadline: Deadline) -> Result<Value<'static>, String> {
        let failed = |why: String| match self.name {
            Some(_) => format!("failed to get resource: {why}"),
            None => format!("failed to list resource: {why}"),
        };
        let cluster = cluster.ok_or_else(|| {
            failed(format!(
                "{} is looked up in a cluster, and none is configured; write `cluster: {{}}`, or with `run` name a file that \
                 has the objects with `--cluster`",
                self.kind
            ))
        })?;
        let namespace = self.namespace.as_deref();
        let parsed_object = match &self.name {
            Some(name) => {
                let object_text = cluster.get(&self.kind, namespace, name, deadline).await;
                object_text
                    .map_err(|error| failed(error.to_string()))?
                    .map(|text| serde_json::from_str(&text))
            }
            None => {
                let mut query = ClusterQuery::default();
                query.namespace = self.namespace.clone();
                query.label_selector = self.labels.to_string();
                let response = cluster.list(&self.kind, &query, deadline).await;
                let page = response.map_err(|error| failed(error.to_string()))?;
                let parsed = page.objects.iter().map(|text| serde_json::from_str(text));
                let items: Result<Vec<Json>, _> = parsed.collect();
                let (version, kind) = (self.kind.api_version(), format!("{}List", self.kind.kind()));
                Some(items.map(|items| json!({"apiVersion": version, "kind": kind, "items": items})))
            }
        };
        match parsed_object {
            Some(Ok(object)) => Ok(Value::owned_from_tree(&object)),
            Some(Err(error)) => Err(failed(error.to_string())),
            None => Ok(Value::Null),
        }
    }
}

pub(super) fn register(library: &mut Library) {
    for name in ["resource.Get", "resource.get"] {
        library.add_global::<(Str, Str, Str, Str), Dyn>(name, |machine, (version, kind, namespace, name)| {
            look_up(
                machine,
                (&version, &kind),
                &namespace,
                Some(&name),
                LabelSelector::default(),
            )
        });
    }
    for name in ["resource.List", "resource.list"] {
        library.add_global::<(Str, Str, Str), Dyn>(name, |machine, (version, kind, namespace)| {
            look_up(machine, (&version, &kind), &namespace, None, LabelSelector::default())
        });
        library.add_global::<(Str, Str, Str, MapOf<Str, Str>), Dyn>(
            name,
            |machine, (version, kind, namespace, labels)| {
                let labels = parse_selector(&labels)?;
                look_up(machine, (&version, &kind), &namespace, None, labels)
            },
        );
    }
}

fn parse_selector(labels: &Map<'_>) -> Result<LabelSelector, Fault> {
    let requirements = labels.entries().map(|(key, value)| match (key, value) {
        (Value::String(key), Value::String(value)) => {
            LabelRequirement::equals(&*key, &*value).map_err(|error| Fault::error(error.to_string()))
        }
        _ => Err(Fault::no_overload()),
    });
    Ok(LabelSelector::new(requirements.collect::<Result<_, _>>()?))
}

fn look_up<'a>(
    machine: &mut Machine<'a>,
    (version, kind): (&str, &str),
    namespace: &str,
    name: Option<&str>,
    labels: LabelSelector,
) -> Outcome<'a> {
    let lookup = ObjectLookup {
        kind: ClusterKind::new(version, kind),
        namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
        name: name.map(str::to_owned),
        labels,
    };
    Lookup::Objects(lookup).evaluate(machine)
}
