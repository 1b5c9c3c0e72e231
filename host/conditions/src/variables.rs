//! The variables that conditions can use.

use std::sync::Arc;

use crate::{expression::Variable, functions::authorizer::AccessCheck, value::Value};
use admittance_admission::{GroupVersionKind, GroupVersionResource, Object, Request, UserInfo};

/// The variables that an expression uses, of those that are built for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    pub(crate) request: bool,
    pub(crate) authorizer: bool,
}

impl Uses {
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            request: self.request || other.request,
            authorizer: self.authorizer || other.authorizer,
        }
    }
}

/// The variables of one evaluation. Objects are borrowed; the others are built once.
#[derive(Debug)]
pub(crate) struct Variables<'a> {
    source: &'a Request,
    request: Value<'a>,
    authorizer: Value<'a>,
    request_resource: Value<'a>,
}

impl<'a> Variables<'a> {
    /// Only used variables are built; the others are null.
    pub(crate) fn new(source: &'a Request, uses: Uses) -> Self {
        let check = |check: fn(&Request) -> AccessCheck| {
            uses.authorizer
                .then(|| Value::AccessCheck(Arc::new(check(source))))
        };
        Self {
            source,
            request: if uses.request {
                request(source)
            } else {
                Value::Null
            },
            authorizer: check(|_| AccessCheck::new()).unwrap_or(Value::Null),
            request_resource: check(AccessCheck::of_request).unwrap_or(Value::Null),
        }
    }

    pub(crate) fn get(&self, variable: Variable) -> Value<'a> {
        match variable {
            Variable::Object => tree(self.source.object.as_ref()),
            Variable::OldObject => tree(self.source.old_object.as_ref()),
            Variable::Request => self.request.clone(),
            Variable::NamespaceObject => Value::Null,
            Variable::Authorizer => self.authorizer.clone(),
            Variable::RequestResource => self.request_resource.clone(),
        }
    }
}

fn tree(object: Option<&Object>) -> Value<'_> {
    object.map_or(Value::Null, |object| Value::of(object.value()))
}

/// The fields of a record. Empty ones are absent, as in the JSON of an AdmissionReview: `has` is false, and a
/// select is an error.
struct Fields<'a>(Vec<(Value<'a>, Value<'a>)>);

impl<'a> Fields<'a> {
    fn always(mut self, name: &'a str, value: Value<'a>) -> Self {
        self.0.push((Value::text(name), value));
        self
    }

    fn unless_empty(self, name: &'a str, text: &'a str) -> Self {
        if text.is_empty() {
            self
        } else {
            self.always(name, Value::text(text))
        }
    }

    fn value(self) -> Value<'a> {
        Value::map(self.0)
    }
}

fn request(source: &Request) -> Value<'_> {
    let subresource = source.subresource.as_deref().unwrap_or_default();
    let (kind, resource, requested_subresource) = match &source.requested {
        Some(requested) => (
            &requested.kind,
            &requested.resource,
            requested.subresource.as_deref().unwrap_or_default(),
        ),
        None => (&source.kind, &source.resource, subresource),
    };
    let fields = Fields(Vec::with_capacity(12))
        .always("operation", Value::text(source.operation.as_str()))
        .always("kind", kind_value(&source.kind))
        .always("resource", resource_value(&source.resource))
        .always("requestKind", kind_value(kind))
        .always("requestResource", resource_value(resource))
        .always("userInfo", user(&source.user))
        .always("dryRun", Value::Bool(source.dry_run))
        .unless_empty("name", &source.name)
        .unless_empty("namespace", source.namespace.as_deref().unwrap_or_default())
        .unless_empty("subResource", subresource)
        .unless_empty("requestSubResource", requested_subresource)
        .always("options", tree(source.options.as_ref()));
    fields.value()
}

fn kind_value(kind: &GroupVersionKind) -> Value<'_> {
    Fields(Vec::with_capacity(3))
        .always("group", Value::text(&kind.group))
        .always("version", Value::text(&kind.version))
        .always("kind", Value::text(&kind.kind))
        .value()
}

fn resource_value(resource: &GroupVersionResource) -> Value<'_> {
    Fields(Vec::with_capacity(3))
        .always("group", Value::text(&resource.group))
        .always("version", Value::text(&resource.version))
        .always("resource", Value::text(&resource.resource))
        .value()
}

fn user(user: &UserInfo) -> Value<'_> {
    let mut fields = Fields(Vec::with_capacity(4))
        .unless_empty("username", &user.username)
        .unless_empty("uid", &user.uid);
    if !user.groups.is_empty() {
        fields = fields.always("groups", texts(&user.groups));
    }
    if !user.extra.is_empty() {
        let extra = user.extra.iter();
        let extra = extra.map(|(key, values)| (Value::text(key), texts(values)));
        fields = fields.always("extra", Value::map(extra.collect()));
    }
    fields.value()
}

fn texts(texts: &[String]) -> Value<'_> {
    Value::list(texts.iter().map(|text| Value::text(text)).collect())
}
