//! Kubernetes' authorization library. With its variable `authorizer`, expressions check permissions.

use std::{collections::BTreeMap, sync::Arc};

use admittance_admission::{
    AccessAttributes, AccessCheckResult, AuthorizerError, Request, UserInfo, is_dns_label, is_dns_subdomain,
};

use super::{
    Library,
    typed::{CelType, DecisionMarker, Str},
    value_or_error,
};
use crate::{
    machine::{Fault, Halt, Machine},
    types::Type,
    value::Value,
};

/// The cost of a call of the authorizer, as in Kubernetes. The cost limit of an expression allows two calls.
const QUESTION_COST: u64 = 350_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccessCheck {
    /// The user whose permission is checked; `None` for the request's user.
    user: Option<UserInfo>,
    target: CheckTarget,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum CheckTarget {
    Unset,
    Group(String),
    /// An action on a path or a resource. Its verb is empty until the expression calls `check` with the verb.
    Attributes(AccessAttributes),
}

impl AccessCheck {
    pub(crate) fn new() -> Self {
        Self {
            user: None,
            target: CheckTarget::Unset,
        }
    }

    pub(crate) fn of_request(request: &Request) -> Self {
        Self {
            user: None,
            target: CheckTarget::Attributes(AccessAttributes::Resource {
                verb: String::new(),
                group: request.resource.group.clone(),
                version: "*".to_owned(),
                resource: request.resource.resource.clone(),
                subresource: request.subresource.clone().unwrap_or_default(),
                namespace: request.namespace.clone().unwrap_or_default(),
                name: request.name.clone(),
                field_selector: String::new(),
                label_selector: String::new(),
            }),
        }
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self.target {
            CheckTarget::Unset => Authorizer::NAME,
            CheckTarget::Group(_) => GroupCheck::NAME,
            CheckTarget::Attributes(AccessAttributes::Path { .. }) => PathCheck::NAME,
            CheckTarget::Attributes(AccessAttributes::Resource { .. }) => ResourceCheck::NAME,
        }
    }

    fn with_target(
        &self,
        machine: &mut Machine<'_>,
        text: &str,
        target: impl FnOnce() -> CheckTarget,
    ) -> Result<Arc<Self>, Fault> {
        let user = self.user.as_ref().map_or(0, |user| 4 * user.username.len());
        machine.charge_bytes(user + self.target_size() + text.len())?;
        Ok(Arc::new(Self {
            user: self.user.clone(),
            target: target(),
        }))
    }

    fn target_size(&self) -> usize {
        match &self.target {
            CheckTarget::Unset => 0,
            CheckTarget::Group(group) => group.len(),
            CheckTarget::Attributes(AccessAttributes::Path { path, .. }) => path.len(),
            CheckTarget::Attributes(AccessAttributes::Resource {
                group,
                resource,
                subresource,
                namespace,
                name,
                field_selector,
                label_selector,
                ..
            }) => [
                group,
                resource,
                subresource,
                namespace,
                name,
                field_selector,
                label_selector,
            ]
            .map(String::len)
            .iter()
            .sum(),
        }
    }

    pub(crate) fn question(&self, verb: &str) -> Option<AuthorizerQuestion> {
        let CheckTarget::Attributes(attributes) = &self.target else {
            return None;
        };
        let mut attributes = attributes.clone();
        let (AccessAttributes::Path { verb: unset, .. } | AccessAttributes::Resource { verb: unset, .. }) =
            &mut attributes;
        verb.clone_into(unset);
        Some(AuthorizerQuestion {
            user: self.user.clone(),
            attributes,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthorizerQuestion {
    pub(crate) user: Option<UserInfo>,
    pub(crate) attributes: AccessAttributes,
}

pub(crate) type Answer = Result<AccessCheckResult, AuthorizerError>;

/// The authorizer's replies during one evaluation. There are few of them, because each call is expensive.
#[derive(Debug, Default)]
pub(crate) struct AuthorizerAnswers(Vec<(AuthorizerQuestion, Arc<Answer>)>);

impl AuthorizerAnswers {
    fn get(&self, question: &AuthorizerQuestion) -> Option<Arc<Answer>> {
        let (_, answer) = self.0.iter().find(|(answered, _)| answered == question)?;
        Some(Arc::clone(answer))
    }

    pub(crate) fn insert(&mut self, question: AuthorizerQuestion, answer: Answer) {
        self.0.push((question, Arc::new(answer)));
    }
}

macro_rules! access_checks {
    ($($name:ident;)*) => {$(
        pub(crate) struct $name;

        impl $name {
            pub(crate) const NAME: &'static str = concat!("kubernetes.authorization.", stringify!($name));
        }

        impl CelType for $name {
            type Rust<'a> = Arc<AccessCheck>;

            fn cel() -> Type {
                Type::Opaque(Self::NAME)
            }

            fn read<'a>(value: &Value<'a>) -> Option<Arc<AccessCheck>> {
                match value {
                    Value::AccessCheck(check) if check.kind() == Self::NAME => Some(Arc::clone(check)),
                    _ => None,
                }
            }

            fn write<'a>(check: Arc<AccessCheck>) -> Value<'a>
            where
                'a: 'a,
            {
                Value::AccessCheck(check)
            }
        }
    )*};
}

access_checks! {
    Authorizer;
    PathCheck;
    GroupCheck;
    ResourceCheck;
}

pub(super) fn register(library: &mut Library) {
    register_checks(library);
    register_decisions(library);
}

fn register_checks(library: &mut Library) {
    library.add_member::<(Authorizer, Str), PathCheck>("path", |machine, (authorizer, path)| {
        let check = authorizer.with_target(machine, &path, || {
            CheckTarget::Attributes(AccessAttributes::Path {
                verb: String::new(),
                path: path.to_string(),
            })
        })?;
        value_or_error((!path.is_empty()).then_some(check), "path must not be empty")
    });
    library.add_member::<(Authorizer, Str), GroupCheck>("group", |machine, (authorizer, group)| {
        authorizer.with_target(machine, &group, || CheckTarget::Group(group.to_string()))
    });
    library.add_member::<(Authorizer, Str, Str), Authorizer>("serviceAccount", |machine, (_, namespace, name)| {
        machine.charge_bytes(namespace.len() + name.len())?;
        service_account(&namespace, &name)
    });
    library.add_member::<(GroupCheck, Str), ResourceCheck>("resource", |machine, (check, resource)| {
        let CheckTarget::Group(group) = &check.target else {
            return Err(Fault::no_overload());
        };
        check.with_target(machine, &resource, || {
            CheckTarget::Attributes(AccessAttributes::Resource {
                verb: String::new(),
                group: group.clone(),
                version: "*".to_owned(),
                resource: resource.to_string(),
                subresource: String::new(),
                namespace: String::new(),
                name: String::new(),
                field_selector: String::new(),
                label_selector: String::new(),
            })
        })
    });
    for field in ["subresource", "namespace", "name", "fieldSelector", "labelSelector"] {
        library.add_member::<(ResourceCheck, Str), ResourceCheck>(field, move |machine, (check, text)| {
            if field.ends_with("Selector") {
                // Kubernetes charges a fixed cost for the selector, and a cost for each requirement in it. It assumes
                // that every two bytes of the selector are a requirement.
                machine.charge(10)?;
                machine.charge_items(text.len().saturating_mul(25))?;
            }
            check.with_target(machine, &text, || {
                let mut target = check.target.clone();
                if let CheckTarget::Attributes(AccessAttributes::Resource {
                    subresource,
                    namespace,
                    name,
                    field_selector,
                    label_selector,
                    ..
                }) = &mut target
                {
                    let value = match field {
                        "subresource" => subresource,
                        "namespace" => namespace,
                        "fieldSelector" => field_selector,
                        "labelSelector" => label_selector,
                        _ => name,
                    };
                    *value = text.to_string();
                }
                target
            })
        });
    }
}

fn register_decisions(library: &mut Library) {
    library.add_member::<(PathCheck, Str), DecisionMarker>("check", |machine, (check, verb)| {
        decide(machine, &check, &verb)
    });
    library.add_member::<(ResourceCheck, Str), DecisionMarker>("check", |machine, (check, verb)| {
        decide(machine, &check, &verb)
    });
    library.add_member::<(DecisionMarker,), bool>("allowed", |_, (answer,)| {
        Ok((*answer).as_ref().is_ok_and(|access| access.allowed))
    });
    library.add_member::<(DecisionMarker,), Str>("reason", |_, (answer,)| {
        Ok((*answer)
            .as_ref()
            .map(|access| access.reason.clone())
            .unwrap_or_default()
            .into())
    });
    library.add_member::<(DecisionMarker,), bool>("errored", |_, (answer,)| Ok(answer.is_err()));
    library.add_member::<(DecisionMarker,), Str>("error", |_, (answer,)| {
        Ok((*answer)
            .as_ref()
            .err()
            .map(|error| error.0.clone())
            .unwrap_or_default()
            .into())
    });
}

fn service_account(namespace: &str, name: &str) -> Result<Arc<AccessCheck>, Fault> {
    if !is_dns_label(namespace) {
        return Err(Fault::error("Invalid service account namespace"));
    }
    if !is_dns_subdomain(name) {
        return Err(Fault::error("Invalid service account name"));
    }
    Ok(Arc::new(AccessCheck {
        user: Some(UserInfo {
            username: format!("system:serviceaccount:{namespace}:{name}"),
            uid: String::new(),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ],
            extra: BTreeMap::new(),
        }),
        target: CheckTarget::Unset,
    }))
}

fn decide(machine: &mut Machine<'_>, check: &AccessCheck, verb: &str) -> Result<Arc<Answer>, Fault> {
    machine.charge_question(QUESTION_COST)?;
    let question = check.question(verb).ok_or_else(Fault::no_overload)?;
    match machine.authorizer_answers.get(&question) {
        Some(answer) => Ok(answer),
        None => Err(Fault::Halt(Halt::Question(Box::new(question)))),
    }
}
