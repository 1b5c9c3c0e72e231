//! Headers and parameters that override the method or path of a request, which some servers obey.

use http::request::Parts;

/// Headers that override the method.
const METHOD_HEADERS: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];
/// Headers that override the path.
const PATH_HEADERS: [&str; 2] = ["x-original-url", "x-rewrite-url"];
/// The query parameter that overrides the method.
const METHOD_PARAMETER: &str = "_method";

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
