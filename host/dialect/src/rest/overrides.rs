//! Ways in which a request names another method or path than its own, for servers that listen to them.

use http::request::Parts;

/// Headers that name another method.
const METHOD_HEADERS: [&str; 3] = ["x-http-method", "x-http-method-override", "x-method-override"];
/// Headers that name another path.
const PATH_HEADERS: [&str; 2] = ["x-original-url", "x-rewrite-url"];
/// The query parameter that names another method.
const METHOD_PARAMETER: &str = "_method";

/// What of this head names another method or path than the head's own, if anything does.
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
    // Gateways to other programs (CGI, WSGI) do not tell `_` from `-`.
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
