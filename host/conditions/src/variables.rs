//! The values of the global variables that expressions can use.

use std::sync::Arc;

use crate::{
    expression::CelVariable,
    functions::{authorizer::AccessCheck, time::read_timestamp},
    value::Value,
};
use admittance_admission::{GroupVersionKind, GroupVersionResource, Object, Request, UserInfo};
use serde_json::Value as Json;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    pub(crate) request: bool,
    pub(crate) authorizer: bool,
    pub(crate) namespace: bool,
    pub(crate) exceptions: bool,
    pub(crate) http: bool,
}

impl Uses {
    pub(crate) const ALL: Self = Self {
        request: true,
        authorizer: true,
        namespace: true,
        exceptions: true,
        http: true,
    };

    pub(crate) fn union(self, other: Self) -> Self {
        Self {
            request: self.request || other.request,
            authorizer: self.authorizer || other.authorizer,
            namespace: self.namespace || other.namespace,
            exceptions: self.exceptions || other.exceptions,
            http: self.http || other.http,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Variables<'a> {
    object: Option<&'a Object>,
    old_object: Option<&'a Object>,
    request: Value<'a>,
    authorizer: Value<'a>,
    request_resource: Value<'a>,
    namespace: Value<'a>,
    params: Value<'a>,
    exceptions: Value<'a>,
}

impl<'a> Variables<'a> {
    /// The values for an expression that uses no variables, such as a constant that is evaluated during compilation.
    pub(crate) const NONE: Variables<'static> = Variables {
        object: None,
        old_object: None,
        request: Value::Null,
        authorizer: Value::Null,
        request_resource: Value::Null,
        namespace: Value::Null,
        params: Value::Null,
        exceptions: Value::Null,
    };

    pub(crate) fn new(source: &'a Request, uses: Uses) -> Self {
        let check =
            |check: fn(&Request) -> AccessCheck| uses.authorizer.then(|| Value::AccessCheck(Arc::new(check(source))));
        Self {
            object: source.object.as_ref(),
            old_object: source.old_object.as_ref(),
            request: if uses.request {
                request_value(source)
            } else {
                Value::Null
            },
            authorizer: check(|_| AccessCheck::new()).unwrap_or(Value::Null),
            request_resource: check(AccessCheck::of_request).unwrap_or(Value::Null),
            ..Self::NONE
        }
    }

    pub(crate) fn with_object(self, object: Option<&'a Object>) -> Self {
        Self { object, ..self }
    }

    pub(crate) fn with_namespace_and_params(self, namespace: Option<&'a Json>, params: Option<&'a Json>) -> Self {
        Self {
            namespace: namespace.map_or(Value::Null, namespace_value),
            params: params.map_or(Value::Null, Value::from_tree),
            ..self
        }
    }

    pub(crate) fn with_exceptions(self, images: Vec<Value<'a>>, values: Vec<Value<'a>>) -> Self {
        let exceptions = RecordFields(Vec::new())
            .add_field("allowedImages", Value::list(images))
            .add_field("allowedValues", Value::list(values))
            .value();
        Self { exceptions, ..self }
    }

    pub(crate) fn get(&self, variable: CelVariable) -> Value<'a> {
        match variable {
            CelVariable::Object => object_value(self.object),
            CelVariable::OldObject => object_value(self.old_object),
            CelVariable::Request => self.request.clone(),
            CelVariable::NamespaceObject => self.namespace.clone(),
            CelVariable::Authorizer => self.authorizer.clone(),
            CelVariable::RequestResource => self.request_resource.clone(),
            CelVariable::Params => self.params.clone(),
            CelVariable::Exceptions => self.exceptions.clone(),
        }
    }
}

fn object_value(object: Option<&Object>) -> Value<'_> {
    object.map_or(Value::Null, |object| Value::from_tree(object.value()))
}

/// The fields of a record such as `request`. A field with an empty value is left out, as in an AdmissionReview, so that
/// `has` is false for it.
struct RecordFields<'a>(Vec<(Value<'a>, Value<'a>)>);

impl<'a> RecordFields<'a> {
    fn add_field(mut self, name: &'a str, value: Value<'a>) -> Self {
        self.0.push((Value::text(name), value));
        self
    }

    fn add_field_unless_empty(self, name: &'a str, text: &'a str) -> Self {
        if text.is_empty() {
            self
        } else {
            self.add_field(name, Value::text(text))
        }
    }

    fn value(self) -> Value<'a> {
        Value::map(self.0)
    }
}

fn request_value(source: &Request) -> Value<'_> {
    let subresource = source.subresource.as_deref().unwrap_or_default();
    let (kind, resource, requested_subresource) = match &source.requested_kind {
        Some(requested) => (
            &requested.kind,
            &requested.resource,
            requested.subresource.as_deref().unwrap_or_default(),
        ),
        None => (&source.kind, &source.resource, subresource),
    };
    let fields = RecordFields(Vec::with_capacity(12))
        .add_field("operation", Value::text(source.operation.as_str()))
        .add_field("kind", kind_value(&source.kind))
        .add_field("resource", resource_value(&source.resource))
        .add_field("requestKind", kind_value(kind))
        .add_field("requestResource", resource_value(resource))
        .add_field("userInfo", user_value(&source.user))
        .add_field("dryRun", Value::Bool(source.dry_run))
        .add_field_unless_empty("name", &source.name)
        .add_field_unless_empty("namespace", source.namespace.as_deref().unwrap_or_default())
        .add_field_unless_empty("subResource", subresource)
        .add_field_unless_empty("requestSubResource", requested_subresource)
        .add_field("options", object_value(source.options.as_ref()));
    fields.value()
}

fn kind_value(kind: &GroupVersionKind) -> Value<'_> {
    RecordFields(Vec::with_capacity(3))
        .add_field("group", Value::text(&kind.group))
        .add_field("version", Value::text(&kind.version))
        .add_field("kind", Value::text(&kind.kind))
        .value()
}

fn resource_value(resource: &GroupVersionResource) -> Value<'_> {
    RecordFields(Vec::with_capacity(3))
        .add_field("group", Value::text(&resource.group))
        .add_field("version", Value::text(&resource.version))
        .add_field("resource", Value::text(&resource.resource))
        .value()
}

fn user_value(user: &UserInfo) -> Value<'_> {
    let mut fields = RecordFields(Vec::with_capacity(4))
        .add_field_unless_empty("username", &user.username)
        .add_field_unless_empty("uid", &user.uid);
    if !user.groups.is_empty() {
        fields = fields.add_field("groups", text_list(&user.groups));
    }
    if !user.extra.is_empty() {
        let entries = user.extra.iter();
        let extra = entries.map(|(key, values)| (Value::text(key), text_list(values)));
        fields = fields.add_field("extra", Value::map(extra.collect()));
    }
    fields.value()
}

fn text_list(texts: &[String]) -> Value<'_> {
    Value::list(texts.iter().map(|text| Value::text(text)).collect())
}

/// Creates the value of `namespaceObject`, with the fields and the spelling of kube-apiserver. Empty fields are absent.
fn namespace_value(namespace: &Json) -> Value<'_> {
    const METADATA: [(&str, &str); 12] = [
        ("name", "name"),
        ("generateName", "generateName"),
        ("namespace", "namespace"),
        ("labels", "labels"),
        ("annotations", "annotations"),
        ("uid", "UID"),
        ("resourceVersion", "resourceVersion"),
        ("generation", "generation"),
        ("creationTimestamp", "creationTimestamp"),
        ("deletionTimestamp", "deletionTimestamp"),
        ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
        ("finalizers", "finalizers"),
    ];
    let part = |name: &str, fields: &[(&'static str, &'static str)]| {
        let part = namespace.get(name);
        let fields = fields.iter().filter_map(|&(written, shown)| {
            let value = match (part?.get(written)?, shown) {
                (Json::String(text), "creationTimestamp" | "deletionTimestamp") => {
                    Value::Timestamp(read_timestamp(text)?)
                }
                (value, _) => Value::from_tree(value),
            };
            Some((Value::text(shown), value))
        });
        Value::map(fields.collect())
    };
    RecordFields(Vec::with_capacity(3))
        .add_field("metadata", part("metadata", &METADATA))
        .add_field("spec", part("spec", &[("finalizers", "finalizers")]))
        .add_field("status", part("status", &[("phase", "phase")]))
        .value()
}
