//! Finds the route of a request.

use std::sync::LazyLock;

use admittance_admission::path::PathReadings;
use http::{Method, request::Parts};
use matchit::Router;

use super::{DriverRoute, PREFIX, RouteAction, RouteVerb, SchedulerTarget, routes};

#[derive(Clone, Debug)]
pub enum RouteLookup {
    Found(MatchedTarget),
    /// No route has this path and method, but routes with these methods have the path.
    OtherMethod(Vec<Method>),
    NotFound,
}

/// The route of a request, and the parameters in the request's path. Lives as long as the request.
#[derive(Clone, Debug)]
pub struct MatchedTarget {
    pub route: &'static DriverRoute,
    parameters: Vec<(&'static str, String)>,
    pub(crate) target: Option<&'static SchedulerTarget>,
}

impl MatchedTarget {
    /// Returns the decoded value of a parameter in the path; empty if the route has no parameter of that name.
    pub fn parameter(&self, name: &str) -> &str {
        self.parameters
            .iter()
            .find(|(key, _)| *key == name)
            .map_or("", |(_, value)| value)
    }
}

#[derive(Debug)]
struct PreparedTarget {
    route: &'static DriverRoute,
    target: Option<SchedulerTarget>,
}

/// Finds the route of a path. Each method has a router of its own, because a path such as `/applications/rollback` is a
/// route for PUT but not for GET.
#[derive(Debug)]
struct MethodMatchers {
    routers: Vec<(RouteVerb, Router<PreparedTarget>)>,
}

static ROUTING: LazyLock<MethodMatchers> = LazyLock::new(|| MethodMatchers {
    routers: RouteVerb::ALL
        .iter()
        .map(|verb| {
            let mut router = Router::new();
            for route in routes().filter(|route| route.verb == *verb) {
                let target = match &route.action {
                    RouteAction::Scheduler(call) | RouteAction::Definitions(call) => call.target(),
                    RouteAction::Console | RouteAction::CustomResourceDefinitions | RouteAction::CustomResources => {
                        None
                    }
                };
                // Inserting fails only if the pattern is invalid. A test checks all patterns, so the result is ignored.
                let _ = router.insert(router_pattern(route.path), PreparedTarget { route, target });
            }
            (*verb, router)
        })
        .collect(),
});

pub(crate) fn router_pattern(path: &str) -> String {
    path.replace("{uri:*}", "{*uri}")
}

pub(crate) fn needs_kind(method: &Method, path: &str) -> bool {
    let Some(path) = path.strip_prefix(PREFIX) else {
        return false;
    };
    let router = ROUTING.routers.iter().find(|(verb, _)| verb.method() == *method);
    let route_match = router.and_then(|(_, router)| router.at(path).ok());
    route_match.is_some_and(|hit| match hit.value.route.action {
        RouteAction::Scheduler(call) | RouteAction::Definitions(call) => call.body.needs_kind(),
        RouteAction::Console | RouteAction::CustomResourceDefinitions | RouteAction::CustomResources => false,
    })
}

/// Finds the route of a request by its method and path.
///
/// A path is decoded before it is split at slashes, as in Go's servers. So a parameter's value never contains a slash.
pub fn lookup(head: &Parts) -> RouteLookup {
    let readings = PathReadings::new(head.uri.path());
    let path = readings.decoded_first.as_deref().unwrap_or(&readings.by_segment);
    let Some(path) = path.strip_prefix(PREFIX).filter(|path| path.starts_with('/')) else {
        return RouteLookup::NotFound;
    };
    let mut other_methods = Vec::new();
    for (verb, router) in &ROUTING.routers {
        let Ok(route_match) = router.at(path) else {
            continue;
        };
        if verb.method() != head.method {
            other_methods.push(verb.method());
            continue;
        }
        let parameters = route_match.params.iter();
        return RouteLookup::Found(MatchedTarget {
            route: route_match.value.route,
            parameters: parameters.map(|(key, value)| (key, value.to_owned())).collect(),
            target: route_match.value.target.as_ref(),
        });
    }
    if other_methods.is_empty() {
        RouteLookup::NotFound
    } else {
        RouteLookup::OtherMethod(other_methods)
    }
}
