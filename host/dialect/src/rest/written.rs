//! Writes an HTTP request that a route reads as a given admission request.

use admittance_admission::Request;
use http::{Method, header::CONTENT_TYPE};

use super::{PreparedRoute, ValueSource};
use crate::template::{PathTemplate, encode_segment, wrap_at};

const EXAMPLE: &str = "example";

impl PreparedRoute {
    /// Returns `None` if `request` does not belong to the route, or if the route accepts only PATCH.
    pub(super) fn http_request(&self, request: Option<&Request>) -> Option<http::Request<String>> {
        let route = &self.config;
        let is_own = |request: &Request| {
            (request.operation, &request.resource, &request.subresource)
                == (route.operation, &route.resource, &route.subresource)
        };
        if !request.is_none_or(is_own) {
            return None;
        }
        let method = route.methods.iter().find(|method| *method != Method::PATCH)?;
        let name = |name: &str| Some(name.trim_start_matches('*').to_owned());
        let path = PathTemplate::parse(&route.path, name)?.fill(|parameter| match request {
            Some(request) => self.parameter_value(parameter, request).map(encode_segment).ok_or(()),
            None => Ok(EXAMPLE.to_owned()),
        });
        let object = match request {
            Some(request) => request.object.as_ref().map(|object| object.text()),
            None => Some("{}"),
        };
        let body = object.map(|object| wrap_at(object, &route.object));
        let builder = http::Request::builder()
            .method(method)
            .uri(path.ok()?)
            .header(CONTENT_TYPE, "application/json");
        builder.body(body.unwrap_or_default()).ok()
    }

    /// Returns the name or the namespace of the request, if this path parameter contains one of the two. Returns `None`
    /// for any other parameter.
    fn parameter_value<'r>(&self, parameter: &str, request: &'r Request) -> Option<&'r str> {
        let has_source = |sources: &[ValueSource]| {
            let mut sources = sources.iter();
            sources.any(|source| matches!(source, ValueSource::Path(name) if name == parameter))
        };
        if has_source(&self.config.name) {
            Some(&request.name)
        } else if has_source(&self.config.namespace) {
            request.namespace.as_deref()
        } else {
            None
        }
    }
}
