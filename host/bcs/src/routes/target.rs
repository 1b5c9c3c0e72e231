//! Templates for the paths and queries of requests to the scheduler.

use form_urlencoded::Serializer;
use http::uri::PathAndQuery;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::MatchedTarget;
use crate::translation::TranslationFault;

/// The characters that are percent-encoded in a segment of a path.
pub(crate) const SEGMENT: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The template for the path and query of a request to the scheduler.
///
/// The template `/v1/apps/{ns}/{name}/scale?instances={instances}&kind=application` is an example. In a template,
///
/// - `{ns}` is a parameter in the path of the client's request, and `{instances:integer}` is an integer in it;
/// - `{RunAs}`, `{ID}` and `{Instances}` are fields of the `Version` to which the client's body is translated;
/// - `{metadata.namespace}` and `{metadata.name}` are fields of the client's body;
/// - `enforce=` gets its value from the query of the client's request, or is empty if the query has no `enforce`;
/// - all other text is literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SchedulerTarget {
    path: Vec<PlaceholderSource>,
    query: Vec<(&'static str, PlaceholderSource)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PlaceholderSource {
    Literal(&'static str),
    Parameter(&'static str),
    Integer(&'static str),
    Query(&'static str),
    Namespace,
    Name,
    Instances,
}

/// The values from a request's body that can appear in the path and query of the request to the scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TargetValues {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) instances: i64,
}

impl SchedulerTarget {
    pub(crate) fn parse(text: &'static str) -> Option<Self> {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        Some(Self {
            path: path
                .strip_prefix('/')?
                .split('/')
                .map(PlaceholderSource::parse)
                .collect::<Option<_>>()?,
            query: query
                .split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (key, value) = pair.split_once('=')?;
                    let source = match value {
                        "" => PlaceholderSource::Query(key),
                        value => PlaceholderSource::parse(value)?,
                    };
                    Some((key, source))
                })
                .collect::<Option<_>>()?,
        })
    }

    #[cfg(test)]
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &'static str> {
        let query = self.query.iter().map(|(_, source)| source);
        self.path.iter().chain(query).filter_map(|source| match source {
            PlaceholderSource::Parameter(name) | PlaceholderSource::Integer(name) => Some(*name),
            _ => None,
        })
    }

    /// Replaces the placeholders by percent-encoded values, which cannot lead to another route or add to the query.
    pub(crate) fn fill(
        &self,
        matched_target: &MatchedTarget,
        query: &str,
        target_values: &TargetValues,
    ) -> Result<PathAndQuery, TranslationFault> {
        let mut text = String::new();
        for source in &self.path {
            let value = source.resolve(matched_target, query, target_values)?;
            // A server drops empty segments and resolves dots, so such a value would change the meaning of the path.
            if matches!(value.as_str(), "" | "." | "..") {
                return Err(TranslationFault::Unaddressable {
                    what: source.field_name(),
                    value,
                });
            }
            text.push('/');
            text.extend(utf8_percent_encode(&value, &SEGMENT));
        }
        if !self.query.is_empty() {
            let mut pairs = Serializer::new(String::new());
            for (key, source) in &self.query {
                pairs.append_pair(key, &source.resolve(matched_target, query, target_values)?);
            }
            text.push('?');
            text.push_str(&pairs.finish());
        }
        PathAndQuery::try_from(text).map_err(|error| TranslationFault::TooLong(error.to_string()))
    }
}

impl PlaceholderSource {
    fn parse(text: &'static str) -> Option<Self> {
        let Some(placeholder) = text.strip_prefix('{') else {
            return (!text.contains(['{', '}'])).then_some(Self::Literal(text));
        };
        Some(match placeholder.strip_suffix('}')? {
            "RunAs" | "metadata.namespace" => Self::Namespace,
            "ID" | "metadata.name" => Self::Name,
            "Instances" => Self::Instances,
            parameter => match parameter.split_once(':') {
                None => Self::Parameter(parameter),
                Some((name, "integer")) => Self::Integer(name),
                Some(_) => return None,
            },
        })
    }

    fn resolve(
        &self,
        matched: &MatchedTarget,
        query: &str,
        address: &TargetValues,
    ) -> Result<String, TranslationFault> {
        Ok(match self {
            Self::Literal(text) => (*text).to_owned(),
            Self::Parameter(name) => matched.parameter(name).to_owned(),
            Self::Integer(name) => parse_integer(matched.parameter(name))?.to_string(),
            Self::Query(name) => query_value(query, name),
            Self::Namespace => address.namespace.clone(),
            Self::Name => address.name.clone(),
            Self::Instances => address.instances.to_string(),
        })
    }

    fn field_name(&self) -> &'static str {
        match self {
            Self::Literal(name) | Self::Parameter(name) | Self::Integer(name) | Self::Query(name) => name,
            Self::Namespace => "metadata.namespace",
            Self::Name => "metadata.name",
            Self::Instances => "spec.instance",
        }
    }
}

/// Returns the value of a query parameter. If the parameter is repeated, returns its first value, as Go does. If the
/// query does not have it, returns an empty text.
pub(crate) fn query_value(query: &str, name: &str) -> String {
    form_urlencoded::parse(query.as_bytes())
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
}

/// Parses an integer as `strconv.Atoi` of Go does.
fn parse_integer(text: &str) -> Result<i64, TranslationFault> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let reason = if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        "invalid syntax"
    } else {
        "value out of range"
    };
    text.parse().map_err(|_| TranslationFault::NoInteger {
        text: text.to_owned(),
        reason,
    })
}
