//! The routes of the original scheduler below `/v1`, in the order of its file `routes.go`.

use http::{Method, Uri};

use super::{
    cluster_state::RouteEffect::{self, Change, Create, Define, Delete, Get, List, Nothing, Scale, Versions},
    cluster_state::SchedulerKind::{Application, ConfigMap, Daemonset, Deployment, Secret, Service},
    shape::{BodyShape, ObjectField, must},
    types,
};

#[derive(Debug)]
pub(super) struct SchedulerRoute {
    method: &'static str,
    path: &'static str,
    query: &'static [&'static str],
    body: Option<BodyShape>,
    pub(super) effect: RouteEffect,
}

pub(super) enum RouteMatch {
    Route(&'static SchedulerRoute, Vec<(&'static str, String)>),
    Nothing,
}

const fn row(
    method: &'static str,
    path: &'static str,
    query: &'static [&'static str],
    body: Option<BodyShape>,
    effect: RouteEffect,
) -> SchedulerRoute {
    SchedulerRoute {
        method,
        path,
        query,
        body,
        effect,
    }
}

const fn body(shape: BodyShape) -> Option<BodyShape> {
    Some(shape)
}

const AGENTS: BodyShape = BodyShape::List(&BodyShape::Object(&[ObjectField("innerIP", must(&BodyShape::Text))]));
/// The type of a request body whose members are not checked, such as a command or a custom resource.
const ANY: BodyShape = BodyShape::Object(&[]);

#[rustfmt::skip]
static ROUTES: [SchedulerRoute; 57] = [
    row("POST",   "/v1/apps",                                        &[], body(types::VERSION), Create(Application)),
    row("GET",    "/v1/{ns}/apps",                                   &["kind"], None, List(Application)),
    row("GET",    "/v1/apps/{ns}/{name}",                            &["kind"], None, Get(Application)),
    row("DELETE", "/v1/apps/{ns}/{name}",                            &["enforce", "kind"], None, Delete(Application)),
    row("POST",   "/v1/apps/{ns}/{name}/update",                     &["instances", "args", "kind"], body(types::VERSION), Change(Application)),
    row("POST",   "/v1/apps/{ns}/{name}/scale",                      &["instances", "kind"], None, Scale(Application)),
    row("GET",    "/v1/apps/{ns}/{name}/taskgroups",                 &[], None, Nothing),
    row("PUT",    "/v1/taskgroup/{name}/rescheduler",                &["hostRetainTime"], None, Nothing),
    row("POST",   "/v1/taskgroup/{name}/restart",                    &[], None, Nothing),
    row("POST",   "/v1/taskgroup/{name}/reload",                     &[], None, Nothing),
    row("POST",   "/v1/apps/{ns}/{name}/message",                    &[], body(types::MESSAGE), Nothing),
    row("POST",   "/v1/apps/{ns}/{name}/message/{taskgroup}",        &[], body(types::MESSAGE), Nothing),
    row("GET",    "/v1/apps/{ns}/{name}/versions",                   &[], None, Versions),
    row("GET",    "/v1/apps/{ns}/{name}/versions/{version}",         &[], None, Nothing),
    row("POST",   "/v1/configmap",                                   &[], body(types::NAMED_OBJECT), Create(ConfigMap)),
    row("PUT",    "/v1/configmap",                                   &[], body(types::NAMED_OBJECT), Change(ConfigMap)),
    row("DELETE", "/v1/configmap/{ns}/{name}",                       &[], None, Delete(ConfigMap)),
    row("POST",   "/v1/secret",                                      &[], body(types::NAMED_OBJECT), Create(Secret)),
    row("PUT",    "/v1/secret",                                      &[], body(types::NAMED_OBJECT), Change(Secret)),
    row("DELETE", "/v1/secret/{ns}/{name}",                          &[], None, Delete(Secret)),
    row("POST",   "/v1/service",                                     &[], body(types::NAMED_OBJECT), Create(Service)),
    row("PUT",    "/v1/service",                                     &[], body(types::NAMED_OBJECT), Change(Service)),
    row("DELETE", "/v1/service/{ns}/{name}",                         &[], None, Delete(Service)),
    row("GET",    "/v1/cluster/resources",                           &[], None, Nothing),
    row("GET",    "/v1/cluster/endpoints",                           &[], None, Nothing),
    row("GET",    "/v1/cluster/current/offers",                      &[], None, Nothing),
    row("POST",   "/v1/deployment/{ns}/{name}",                      &[], body(types::DEPLOYMENT_DEF), Create(Deployment)),
    row("PUT",    "/v1/deployment/{ns}/{name}",                      &["args"], body(types::DEPLOYMENT_DEF), Change(Deployment)),
    row("POST",   "/v1/deployment/{ns}/{name}/cancelupdate",         &[], None, Nothing),
    row("POST",   "/v1/deployment/{ns}/{name}/pauseupdate",          &[], None, Nothing),
    row("POST",   "/v1/deployment/{ns}/{name}/resumeupdate",         &[], None, Nothing),
    row("DELETE", "/v1/deployment/{ns}/{name}",                      &["enforce"], None, Delete(Deployment)),
    row("PUT",    "/v1/deployment/{ns}/{name}/scale/{instances}",    &[], None, Scale(Deployment)),
    row("GET",    "/v1/agentsettings",                               &["ips"], None, Nothing),
    row("POST",   "/v1/agentsettings",                               &[], body(AGENTS), Nothing),
    row("POST",   "/v1/agentsettings/enable",                        &["ips"], None, Nothing),
    row("POST",   "/v1/agentsettings/disable",                       &["ips"], None, Nothing),
    row("PUT",    "/v1/agentsettings/taint",                         &[], body(AGENTS), Nothing),
    row("PUT",    "/v1/agentsettings/extendedresource",              &[], body(ANY), Nothing),
    row("POST",   "/v1/crr/register",                                &[], body(ANY), Nothing),
    row("POST",   "/v1/crd/namespaces/{ns}/{kind}",                  &[], body(ANY), Nothing),
    row("PUT",    "/v1/crd/namespaces/{ns}/{kind}",                  &[], body(ANY), Nothing),
    row("DELETE", "/v1/crd/namespaces/{ns}/{kind}/{name}",           &[], None, Nothing),
    row("GET",    "/v1/crd/namespaces/{ns}/{kind}",                  &[], None, Nothing),
    row("GET",    "/v1/crd/namespaces/{ns}/{kind}/{name}",           &[], None, Nothing),
    row("GET",    "/v1/crd/{kind}",                                  &[], None, Nothing),
    row("POST",   "/v1/image/commit/{taskgroup}",                    &["image", "url"], None, Nothing),
    row("GET",    "/v1/definition/application/{ns}/{name}",          &[], None, Define(Application)),
    row("GET",    "/v1/definition/deployment/{ns}/{name}",           &[], None, Define(Deployment)),
    row("POST",   "/v1/command/{of}/{ns}/{name}",                    &[], body(ANY), Nothing),
    row("GET",    "/v1/command/{of}/{ns}/{name}",                    &["id"], None, Nothing),
    row("DELETE", "/v1/command/{of}/{ns}/{name}",                    &["id"], None, Nothing),
    row("POST",   "/v1/daemonsets",                                  &[], body(types::DAEMONSET_DEF), Create(Daemonset)),
    row("DELETE", "/v1/daemonsets/{ns}/{name}",                      &["enforce"], None, Delete(Daemonset)),
    row("GET",    "/v1/transactions/{ns}",                           &["objKind", "objName"], None, Nothing),
    row("DELETE", "/v1/transactions/{ns}/{name}",                    &[], None, Nothing),
    row("POST",   "/v1/healthcheck",                                 &[], body(ANY), Nothing),
];

pub(super) fn find(method: &Method, uri: &Uri) -> RouteMatch {
    for route in &ROUTES {
        if route.method == method.as_str()
            && let Some(parameters) = parameters(route.path, uri.path())
        {
            return RouteMatch::Route(route, parameters);
        }
    }
    RouteMatch::Nothing
}

fn parameters(pattern: &'static str, path: &str) -> Option<Vec<(&'static str, String)>> {
    let mut pairs = Vec::new();
    let (mut expected, mut segments) = (pattern.split('/'), path.split('/'));
    loop {
        match (expected.next(), segments.next()) {
            (None, None) => return Some(pairs),
            (Some(expected), Some(segment)) => {
                let name = expected.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
                match name {
                    Some(name) if !segment.is_empty() => pairs.push((name, segment.to_owned())),
                    None if expected == segment => {}
                    Some(_) | None => return None,
                }
            }
            (Some(_), None) | (None, Some(_)) => return None,
        }
    }
}

impl SchedulerRoute {
    pub(super) fn problems(&self, uri: &Uri, body: &[u8]) -> Vec<String> {
        let query = uri.query().unwrap_or_default().split('&');
        let names = query.filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, _) = pair.split_once('=').unwrap_or((pair, ""));
            name
        });
        let mut problems: Vec<String> = names
            .filter(|name| !self.query.contains(name))
            .map(|name| format!("the query has `{name}`"))
            .collect();
        match (&self.body, body.is_empty()) {
            (None, true) => {}
            (None, false) => problems.push("it has a body".to_owned()),
            (Some(shape), _) => match serde_json::from_slice(body) {
                Ok(value) => shape.check("body", &value, &mut problems),
                Err(error) => problems.push(format!("the body: {error}")),
            },
        }
        problems
    }
}
