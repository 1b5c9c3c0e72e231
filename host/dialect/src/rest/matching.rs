//! Finds the route of a request. Its method and path are interpreted in every way in which servers may interpret them.

use std::sync::Arc;

use admittance_admission::path::{self, PathReadings};
use http::{Method, request::Parts};
use matchit::Router;

use super::{MatchedRoute, PreparedRoute, Rest, UnmatchedWrites};
use crate::{Class, Rejection, RejectionKind, ambiguous_rejection};

impl PreparedRoute {
    fn accepts_method(&self, method: &Method) -> bool {
        self.config
            .methods
            .iter()
            .any(|route_method| route_method.as_str().eq_ignore_ascii_case(method.as_str()))
    }
}

/// Converts a path template to lower case, except for the names of its parameters.
pub(super) fn template_in_one_case(template: &str) -> String {
    let (mut rest, mut text) = (template, String::new());
    while let Some((outside, name)) = rest.split_once('{') {
        let (name, after) = name.split_once('}').unwrap_or((name, ""));
        text.extend([&path::fold_case(outside), "{", name, "}"]);
        rest = after;
    }
    text + &path::fold_case(rest)
}

impl MatchedRoute {
    fn new(route: &Arc<PreparedRoute>, template: &Router<()>, path: &str, value: fn(&str) -> String) -> Option<Self> {
        let template_match = template.at(path).ok()?;
        let parameters = template_match.params.iter();
        Some(Self {
            parameters: parameters.map(|(key, text)| (key.to_owned(), value(text))).collect(),
            route: route.clone(),
        })
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.route, &other.route) && self.parameters == other.parameters
    }

    /// Returns this route with the values of its parameters in lower case. A server that ignores case may find a route
    /// for the same request, and the two can then be compared.
    fn in_one_case(&self) -> Self {
        let parameters = self.parameters.iter();
        Self {
            parameters: parameters
                .map(|(key, value)| (key.clone(), path::fold_case(value)))
                .collect(),
            route: self.route.clone(),
        }
    }
}

impl Rest {
    /// Returns the first route that has this method and path. Servers decode a path in different ways, and `path` is
    /// the result of one of them.
    fn find_strictly(&self, method: &Method, path: &str) -> Option<MatchedRoute> {
        self.routes
            .iter()
            .filter(|route| route.config.methods.contains(method))
            .find_map(|route| MatchedRoute::new(route, &route.template, path, path::parameter_value))
    }

    /// Returns whether a lenient server, such as one ignoring case, can find a route other than `first` for this path.
    fn leads_to_other_route(&self, first: Option<&MatchedRoute>, method: &Method, path: &str) -> bool {
        let find = |template: fn(&PreparedRoute) -> &Router<()>, path: &str| {
            self.routes
                .iter()
                .filter(|route| route.accepts_method(method))
                .find_map(|route| MatchedRoute::new(route, template(route), path, path::lenient_parameter_value))
        };
        let exact = find(|route| &route.template, path);
        let in_any_case = find(|route| &route.lenient_template, &path::fold_case(path));
        match first {
            Some(first) => {
                exact.is_some_and(|exact| !first.is_same(&exact))
                    || in_any_case.is_some_and(|lenient| !first.in_one_case().is_same(&lenient))
            }
            None => exact.is_some() || in_any_case.is_some(),
        }
    }

    /// Returns `None` if no route matches. The error states why the request is ambiguous.
    pub(super) fn match_route(&self, head: &Parts) -> Result<Option<MatchedRoute>, Rejection> {
        let (method, path) = (&head.method, head.uri.path());
        let readings = PathReadings::new(path);
        let mut route_matches = readings.iter().filter_map(|path| self.find_strictly(method, path));
        let first = route_matches.next();
        if let Some(first) = &first
            && route_matches.any(|other| !first.is_same(&other))
        {
            return Err(ambiguous_rejection(
                "servers may read its path in different ways; write slashes and dots plainly",
            ));
        }
        let Some(lenient) = path::lenient_readings(path) else {
            // The path could mean too many things, for example because it is encoded several times. The request is
            // refused, unless its method is a known one that no route has: no route can match it then.
            if is_known(method) && !self.routes.iter().any(|route| route.accepts_method(method)) {
                return Ok(None);
            }
            return Err(ambiguous_rejection(
                "its path is encoded several times, has control characters or invalid UTF-8, or can be read in too many \
                 ways",
            ));
        };
        if lenient
            .iter()
            .any(|path| self.leads_to_other_route(first.as_ref(), method, path))
        {
            return Err(ambiguous_rejection(match first {
                Some(_) => {
                    "servers may read its path in different ways; write it without `;`, `\\`, encoded, doubled and final \
                     slashes and dots, and in the case of the API"
                }
                None => {
                    "its method or path differs from the API's, but some servers would accept it; write it \
                     plainly"
                }
            }));
        }
        Ok(first)
    }

    /// Returns whether a route has this path, in one of the ways in which servers may read the path. The methods of the
    /// routes do not matter.
    pub(super) fn may_be_routed(&self, path: &str) -> bool {
        let Some(lenient) = path::lenient_readings(path) else {
            return true;
        };
        let readings = PathReadings::new(path);
        self.routes.iter().any(|route| {
            readings.iter().any(|path| route.template.at(path).is_ok())
                || lenient
                    .iter()
                    .any(|path| route.lenient_template.at(&path::fold_case(path)).is_ok())
        })
    }

    pub(super) fn classify_unmatched(&self, head: &Parts) -> Class {
        let is_read = is_read(&head.method);
        match self.unmatched_writes {
            _ if is_read => Class::Pass,
            UnmatchedWrites::Refuse => Class::Refuse(Rejection::new(
                RejectionKind::Unmatched,
                "no route matches this method and path, and unmatched writes are refused",
            )),
            // A server may treat an unknown method like any other.
            UnmatchedWrites::Pass if !is_known(&head.method) && self.may_be_routed(head.uri.path()) => {
                Class::Refuse(ambiguous_rejection("its method is unknown"))
            }
            UnmatchedWrites::Pass => Class::Pass,
        }
    }
}

fn is_read(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE].contains(method)
}

fn is_known(method: &Method) -> bool {
    is_read(method) || [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method)
}
