//! Finds the route of a request, for every way in which a server may read its method and path: headers and parameters
//! that override them included.

use std::sync::Arc;

use http::{Method, request::Parts};
use matchit::Router;

use super::{Matched, Prepared, Rest, Unmatched};
use crate::{
    Class, Rejection, RejectionKind,
    path::{self, PathReadings},
};

/// Headers that override the method.
const METHOD_HEADERS: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];
/// Headers that override the path.
const PATH_HEADERS: [&str; 2] = ["x-original-url", "x-rewrite-url"];
/// The query parameter that overrides the method.
const METHOD_PARAMETER: &str = "_method";

impl Prepared {
    fn takes(&self, method: &Method) -> bool {
        self.route
            .methods
            .iter()
            .any(|own| own.as_str().eq_ignore_ascii_case(method.as_str()))
    }
}

/// The parameters of a path, if it matches this template.
fn parameters(template: &Router<()>, path: &str) -> Option<Vec<(String, String)>> {
    let found = template.at(path).ok()?;
    let parameters = found.params.iter();
    Some(
        parameters
            .map(|(key, value)| (key.to_owned(), path::parameter(value)))
            .collect(),
    )
}

/// A template in lower case, except for the names of its parameters.
pub(super) fn in_lower_case(template: &str) -> String {
    let mut is_name = false;
    let lower = |letter: char| {
        match letter {
            '{' => is_name = true,
            '}' => is_name = false,
            _ => {}
        }
        if is_name {
            letter.to_string()
        } else {
            letter.to_lowercase().collect()
        }
    };
    template.chars().map(lower).collect()
}

impl Matched {
    /// Whether a lenient server, which may ignore case, uses the same route and parameters.
    fn agrees_with(&self, lenient: &Self) -> bool {
        let lower = |parameters: &[(String, String)]| -> Vec<String> {
            parameters.iter().map(|(_, value)| value.to_lowercase()).collect()
        };
        Arc::ptr_eq(&self.route, &lenient.route) && lower(&self.parameters) == lower(&lenient.parameters)
    }
}

impl Rest {
    /// The first route for this method and this reading of the path.
    fn find(&self, method: &Method, path: &str) -> Option<Matched> {
        let mut routes = self
            .routes
            .iter()
            .filter(|route| route.route.methods.contains(method));
        routes.find_map(|route| {
            Some(Matched {
                parameters: parameters(&route.template, path)?,
                route: route.clone(),
            })
        })
    }

    /// The first route for this method, in whatever case, and the lenient reading of the path.
    fn find_lenient(&self, method: &Method, path: &str) -> Option<Matched> {
        self.routes
            .iter()
            .filter(|route| route.takes(method))
            .find_map(|route| {
                Some(Matched {
                    parameters: parameters(&route.lenient_template, path)?,
                    route: route.clone(),
                })
            })
    }

    /// The route of a request, if there is one. The error says why the request is ambiguous.
    pub(super) fn route(&self, head: &Parts) -> Result<Option<Matched>, Rejection> {
        let (method, path) = (&head.method, head.uri.path());
        let readings = PathReadings::of(path);
        let mut found = readings.iter().filter_map(|path| self.find(method, path));
        let first = found.next();
        if let Some(first) = &first
            && found
                .any(|other| !Arc::ptr_eq(&first.route, &other.route) || first.parameters != other.parameters)
        {
            return Err(ambiguous(
                "servers may read its path in different ways; write slashes and dots plainly",
            ));
        }
        if path::is_plain(path) && is_known(method) {
            return Ok(first);
        }
        let Some(lenient) = path::lenient(path) else {
            // An unreadable path cannot bypass a route if no route has such a method.
            return match self.routes.iter().any(|route| route.takes(method)) || !is_known(method) {
                true => Err(ambiguous(
                    "its path is encoded several times, or has control characters or invalid UTF-8",
                )),
                false => Ok(None),
            };
        };
        match (&first, self.find_lenient(method, &lenient)) {
            (Some(first), Some(lenient)) if !first.agrees_with(&lenient) => Err(ambiguous(
                "servers may read its path in different ways; write it without `;`, `\\`, encoded slashes and dots, and in \
                 the case of the API",
            )),
            (None, Some(_)) => Err(ambiguous(
                "its method or path differs from the API's, but some servers would accept it; write it \
                 plainly",
            )),
            _ => Ok(first),
        }
    }

    /// Whether some server could match the path to a route, whatever the method.
    pub(super) fn may_be_routed(&self, path: &str) -> bool {
        let Some(lenient) = path::lenient(path) else {
            return true;
        };
        let readings = PathReadings::of(path);
        self.routes.iter().any(|route| {
            readings.iter().any(|path| route.template.at(path).is_ok())
                || route.lenient_template.at(&lenient).is_ok()
        })
    }

    /// How a request without a route is handled.
    pub(super) fn unmatched(&self, head: &Parts) -> Class {
        let is_read = is_read(&head.method);
        match self.unmatched {
            _ if is_read => Class::Pass,
            Unmatched::Refuse => Class::Refuse(Rejection::new(
                RejectionKind::Unmatched,
                "no route matches this method and path, and unmatched writes are refused",
            )),
            // It is unknown what a server does with such a method.
            Unmatched::Pass if !is_known(&head.method) && self.may_be_routed(head.uri.path()) => {
                Class::Refuse(ambiguous("its method is unknown"))
            }
            Unmatched::Pass => Class::Pass,
        }
    }
}

fn is_read(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE].contains(method)
}

/// Whether it is one of the methods of HTTP, in its only spelling.
fn is_known(method: &Method) -> bool {
    is_read(method) || [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(method)
}

pub(super) fn ambiguous(why: &str) -> Rejection {
    Rejection::new(
        RejectionKind::Ambiguous,
        format!("the request is ambiguous: {why}"),
    )
}

/// The header or parameter that names a method or path other than the request's own, if any.
pub(super) fn overridden(head: &Parts) -> Option<String> {
    let method = head.method.as_str();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
    let is_other = |name: &str, value: &[u8]| {
        if METHOD_HEADERS.contains(&name) {
            !value.eq_ignore_ascii_case(method.as_bytes())
        } else {
            PATH_HEADERS.contains(&name) && value != path.as_bytes()
        }
    };
    // Gateways to other programs (CGI, WSGI) do not distinguish `_` from `-`.
    let mut headers = head
        .headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("x"));
    let header = headers.find(|(name, value)| is_other(&name.as_str().replace('_', "-"), value.as_bytes()));
    if let Some((name, _)) = header {
        return Some(format!("the header {name}"));
    }
    // Some servers also separate parameters by semicolons.
    let parameters = head.uri.query().unwrap_or_default().split(['&', ';']);
    parameters
        .flat_map(|parameter| form_urlencoded::parse(parameter.as_bytes()))
        .any(|(key, value)| key == METHOD_PARAMETER && !value.eq_ignore_ascii_case(method))
        .then(|| format!("the query parameter {METHOD_PARAMETER}"))
}
