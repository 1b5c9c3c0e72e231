//! Writes HTTP requests that the routes read as given requests.

use admittance_admission::Request;
use http::{Method, header::CONTENT_TYPE};

use super::{PreparedRoute, ValueSource};
use crate::template::{Template, enclosed, encoded};

/// The value of a parameter that no request names.
const EXAMPLE: &str = "example";

impl PreparedRoute {
    /// Returns a request to this route; `None` if the route has only patches, which do not name whole objects, or if it
    /// does not read the given request.
    pub(super) fn written(&self, request: Option<&Request>) -> Option<http::Request<String>> {
        let route = &self.route;
        let is_own = |request: &Request| {
            (request.operation, &request.resource, &request.subresource)
                == (route.operation, &route.resource, &route.subresource)
        };
        if !request.is_none_or(is_own) {
            return None;
        }
        let method = route.methods.iter().find(|method| *method != Method::PATCH)?;
        let name = |name: &str| Some(name.trim_start_matches('*').to_owned());
        let path = Template::parse(&route.path, name)?.filled(|parameter| match request {
            Some(request) => self.value(parameter, request).map(encoded).ok_or(()),
            None => Ok(EXAMPLE.to_owned()),
        });
        let object = match request {
            Some(request) => request.object.as_ref().map(|object| object.text()),
            None => Some("{}"),
        };
        let body = object.map(|object| enclosed(object, &route.object));
        let written = http::Request::builder()
            .method(method)
            .uri(path.ok()?)
            .header(CONTENT_TYPE, "application/json");
        written.body(body.unwrap_or_default()).ok()
    }

    /// Returns the value that a request has for a parameter of the path.
    fn value<'r>(&self, parameter: &str, request: &'r Request) -> Option<&'r str> {
        let has = |sources: &[ValueSource]| {
            let mut sources = sources.iter();
            sources.any(|source| matches!(source, ValueSource::Path(name) if name == parameter))
        };
        if has(&self.route.name) {
            Some(&request.name)
        } else if has(&self.route.namespace) {
            request.namespace.as_deref()
        } else {
            None
        }
    }
}
