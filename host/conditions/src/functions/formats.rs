//! Kubernetes' named formats, such as `format.dns1123Label().validate(text)`, which returns the mistakes in a string.

use std::sync::{Arc, LazyLock};

use ::regex::Regex;

use super::{
    Library,
    time::read_timestamp,
    typed::{FormatMarker, ListOf, OptionalOf, Str},
    url::Url,
};
use crate::value::{CelList, Value};

#[derive(Debug)]
pub(crate) struct Format {
    pub(crate) name: &'static str,
    function: &'static str,
    check: fn(&str) -> Vec<String>,
    /// The approximate length of the regular expression that defines the format, such as that of a DNS label. If it is
    /// long, checking a text against the format costs more.
    size: u64,
}

static FORMATS: [Format; 13] = [
    format("dns1123Label", "format.dns1123Label", dns_label, 30),
    format("dns1123Subdomain", "format.dns1123Subdomain", dns_subdomain, 60),
    format("dns1035Label", "format.dns1035Label", dns_1035_label, 30),
    format("qualifiedName", "format.qualifiedName", qualified_name, 60),
    format(
        "dns1123LabelPrefix",
        "format.dns1123LabelPrefix",
        |text| dns_label(&mask_trailing_dash(text)),
        30,
    ),
    format(
        "dns1123SubdomainPrefix",
        "format.dns1123SubdomainPrefix",
        |text| dns_subdomain(&mask_trailing_dash(text)),
        60,
    ),
    format(
        "dns1035LabelPrefix",
        "format.dns1035LabelPrefix",
        |text| dns_1035_label(&mask_trailing_dash(text)),
        30,
    ),
    format("labelValue", "format.labelValue", label_value, 40),
    format("uri", "format.uri", uri, 1900),
    format(
        "uuid",
        "format.uuid",
        |text| error_unless(UUID.is_match(text), "does not match the UUID format"),
        86,
    ),
    format(
        "byte",
        "format.byte",
        |text| error_unless(BASE64.is_match(text), "invalid base64"),
        90,
    ),
    format(
        "date",
        "format.date",
        |text| error_unless(is_date(text), "invalid date"),
        73,
    ),
    format(
        "datetime",
        "format.datetime",
        |text| error_unless(is_datetime(text), "invalid datetime"),
        73,
    ),
];

const fn format(name: &'static str, function: &'static str, check: fn(&str) -> Vec<String>, size: u64) -> Format {
    Format {
        name,
        function,
        check,
        size,
    }
}

pub(super) fn register(library: &mut Library) {
    for format in &FORMATS {
        library.add_global::<(), FormatMarker>(format.function, move |_, ()| Ok(format));
    }
    library.add_global::<(Str,), OptionalOf<FormatMarker>>("format.named", |_, (name,)| {
        let named_format = FORMATS.iter().find(|format| *format.name == *name);
        Ok(named_format.map(|format| Arc::new(Value::Format(format))))
    });
    library.add_member::<(FormatMarker, Str), OptionalOf<ListOf<Str>>>("validate", |machine, (format, text)| {
        machine.charge((text.len() as u64 + 1).div_ceil(10) * format.size.div_ceil(4))?;
        let mistakes: CelList<'_> = (format.check)(&text).into_iter().map(Value::string).collect();
        Ok((mistakes.len() > 0).then(|| Arc::new(Value::List(mistakes))))
    });
}

struct FormatRule {
    regex: LazyLock<Regex>,
    written: &'static str,
    says: &'static str,
    examples: &'static [&'static str],
    longest: usize,
}

impl FormatRule {
    fn check(&self, text: &str) -> Vec<String> {
        let mut mistakes = Vec::new();
        if text.len() > self.longest {
            mistakes.push(format!("must be no more than {} bytes", self.longest));
        }
        if !self.regex.is_match(text) {
            mistakes.push(self.explanation());
        }
        mistakes
    }

    fn explanation(&self) -> String {
        let examples: Vec<String> = self.examples.iter().map(|example| format!("'{example}', ")).collect();
        format!(
            "{} (e.g. {}regex used for validation is '{}')",
            self.says,
            examples.join(" or "),
            self.written
        )
    }
}

macro_rules! rule {
    ($name:ident, $written:literal, $longest:literal, $says:literal, $examples:expr) => {
        static $name: FormatRule = FormatRule {
            regex: LazyLock::new(|| compiled(concat!("^(?:", $written, ")$"))),
            written: $written,
            says: $says,
            examples: &$examples,
            longest: $longest,
        };
    };
}

rule!(
    LABEL,
    "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
    63,
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an \
     alphanumeric character",
    ["my-name", "123-abc"]
);
rule!(
    SUBDOMAIN,
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    253,
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end \
     with an alphanumeric character",
    ["example.com"]
);
rule!(
    LABEL_1035,
    "[a-z]([-a-z0-9]*[a-z0-9])?",
    63,
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and \
     end with an alphanumeric character",
    ["my-name", "abc-123"]
);
rule!(
    NAME_PART,
    "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
    63,
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    ["MyName", "my.name", "123-abc"]
);
rule!(
    LABEL_VALUE,
    "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
    63,
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end \
     with an alphanumeric character",
    ["MyValue", "my_value", "12345"]
);

static UUID: LazyLock<Regex> =
    LazyLock::new(|| compiled("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$"));
static BASE64: LazyLock<Regex> =
    LazyLock::new(|| compiled("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$"));
static TIME: LazyLock<Regex> =
    LazyLock::new(|| compiled("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"));

#[allow(clippy::expect_used, reason = "the patterns are constants, and a test uses each")]
fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern of this file is valid")
}

fn dns_label(text: &str) -> Vec<String> {
    LABEL.check(text)
}

fn dns_subdomain(text: &str) -> Vec<String> {
    SUBDOMAIN.check(text)
}

fn dns_1035_label(text: &str) -> Vec<String> {
    LABEL_1035.check(text)
}

fn label_value(text: &str) -> Vec<String> {
    LABEL_VALUE.check(text)
}

fn qualified_name(text: &str) -> Vec<String> {
    let mut mistakes = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                NAME_PART.explanation()
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                mistakes.push("prefix part must be non-empty".to_owned());
            } else {
                mistakes.extend(
                    dns_subdomain(prefix)
                        .into_iter()
                        .map(|why| format!("prefix part {why}")),
                );
            }
            name
        }
    };
    if name.is_empty() {
        mistakes.push("name part must be non-empty".to_owned());
    } else if name.len() > NAME_PART.longest {
        mistakes.push(format!("name part must be no more than {} bytes", NAME_PART.longest));
    }
    if !NAME_PART.regex.is_match(name) {
        mistakes.push(format!("name part {}", NAME_PART.explanation()));
    }
    mistakes
}

/// Replaces a dash at the end of a prefix with a letter, as Kubernetes does before it checks the prefix as a name. The
/// dash is valid in a prefix, because the name continues after it.
fn mask_trailing_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(front) if !front.is_empty() => {
            let mut masked = front.to_owned();
            masked.pop();
            masked.push('a');
            masked
        }
        _ => text.to_owned(),
    }
}

fn uri(text: &str) -> Vec<String> {
    match Url::parse_request(text) {
        Ok(_) => Vec::new(),
        Err(why) => vec![format!("parse {text:?}: {why}")],
    }
}

fn error_unless(is_valid: bool, mistake: &str) -> Vec<String> {
    if is_valid { Vec::new() } else { vec![mistake.to_owned()] }
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && read_timestamp(&format!("{text}T00:00:00Z")).is_some()
}

fn is_datetime(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let Some((date, time)) = text.split_once('t') else {
        return false;
    };
    let part = |index: usize, maximum: &str| {
        let parts = TIME.captures(time)?;
        parts.get(index).map(|part| part.as_str() <= maximum)
    };
    let range_checks = [part(1, "23"), part(2, "59"), part(3, "59")];
    is_date(date) && range_checks.iter().all(|part| *part == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_formats_accept_and_reject_the_same_strings_as_in_kubernetes() {
        // The cases are from the tests of Kubernetes' format library.
        let long_label = "a".repeat(64);
        for (name, good, bad, why) in [
            (
                "dns1123Label",
                "my-label-name",
                "-my",
                "a lowercase RFC 1123 label must",
            ),
            ("dns1123Label", "a", &long_label, "must be no more than 63 bytes"),
            (
                "dns1123Subdomain",
                "apiextensions.k8s.io",
                ".io",
                "regex used for validation is '[a-z0-9]",
            ),
            (
                "dns1035Label",
                "my-label",
                "1a",
                "(e.g. 'my-name',  or 'abc-123', regex",
            ),
            (
                "dns1123LabelPrefix",
                "my-label-prefix-",
                "-my",
                "a lowercase RFC 1123 label must",
            ),
            ("dns1123SubdomainPrefix", "my.-", ".", "a lowercase RFC 1123 subdomain"),
            ("dns1035LabelPrefix", "a-", "1a-", "a DNS-1035 label"),
            (
                "qualifiedName",
                "apiextensions.k8s.io/v1beta1",
                "a/b/c",
                "with an optional DNS subdomain prefix and '/'",
            ),
            ("qualifiedName", "a", "/b", "prefix part must be non-empty"),
            ("qualifiedName", "a/b", "a/", "name part must be non-empty"),
            ("labelValue", "", "a b", "a valid label must be an empty string or"),
            ("uri", "http://example.com", "a", "parse \"a\": invalid URI for request"),
            (
                "uuid",
                "123e4567-e89b-12d3-a456-426614174000",
                "123",
                "does not match the UUID format",
            ),
            ("byte", "aGVsbG8=", "a", "invalid base64"),
            ("date", "2021-01-01", "2021-02-30", "invalid date"),
            (
                "datetime",
                "2021-01-01T00:00:00Z",
                "2021-01-01T24:00:00Z",
                "invalid datetime",
            ),
        ] {
            let format = FORMATS.iter().find(|format| format.name == name).unwrap();
            assert_eq!((format.check)(good), Vec::<String>::new(), "{name}: {good}");
            let mistakes = (format.check)(bad);
            assert!(
                mistakes.iter().any(|wrong| wrong.contains(why)),
                "{name}: {bad}: {mistakes:?}"
            );
        }
    }
}
