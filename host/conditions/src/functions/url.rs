//! Kubernetes' library of URLs. URLs are parsed as Go's `net/url` does, which differs from RFC 3986 and from browsers.

use std::{fmt::Write, sync::Arc};

use super::{
    Library,
    typed::{ListOf, MapOf, Str, UrlMarker},
};
use crate::{
    machine::{Fault, Machine},
    value::{Map, Value},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Url {
    scheme: String,
    opaque: String,
    user: Option<String>,
    host: String,
    path: String,
    query: String,
    fragment: String,
}

/// A part of a URL, which determines the characters that may be escaped.
#[derive(Clone, Copy, PartialEq)]
enum UrlPart {
    Host,
    Path,
    Query,
    Fragment,
}

pub(super) fn register(library: &mut Library) {
    library.add_global::<(Str,), UrlMarker>("url", |machine, (text,)| {
        machine.charge_bytes(text.len())?;
        let url = Url::parse(&text).map_err(|why| {
            Fault::error(format!(
                "URL parse error during conversion from string: parse {:?}: {why}",
                &*text
            ))
        })?;
        Ok(Arc::new(url))
    });
    library.add_global::<(Str,), bool>("isURL", |machine, (text,)| {
        machine.charge_bytes(text.len())?;
        Ok(Url::parse_request(&text).is_ok())
    });
    library.add_member::<(UrlMarker,), Str>("getScheme", |_, (url,)| Ok(url.scheme.clone().into()));
    library.add_member::<(UrlMarker,), Str>("getHost", |_, (url,)| Ok(url.host.clone().into()));
    library.add_member::<(UrlMarker,), Str>("getHostname", |_, (url,)| Ok(url.host_and_port().0.to_owned().into()));
    library.add_member::<(UrlMarker,), Str>("getPort", |_, (url,)| Ok(url.host_and_port().1.to_owned().into()));
    library.add_member::<(UrlMarker,), Str>("getEscapedPath", |_, (url,)| Ok(url.path.clone().into()));
    library.add_member::<(UrlMarker,), MapOf<Str, ListOf<Str>>>("getQuery", |machine, (url,)| {
        parse_query(machine, &url.query)
    });
}

impl Url {
    fn parse(text: &str) -> Result<Self, String> {
        // As in Kubernetes, the whole text must also be valid as the URL of a request. Such a URL has no fragment, so a
        // `#` belongs to its path or query.
        Self::parse_request(text)?;
        let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = Self::parse_as(text, false)?;
        url.fragment = text_of(unescape(fragment, UrlPart::Fragment)?);
        Ok(url)
    }

    pub(crate) fn parse_request(text: &str) -> Result<Self, String> {
        Self::parse_as(text, true)
    }

    /// Parses a URL as Go's package `net/url` does: like its function `ParseRequestURI` if `is_request` is true, and
    /// like `Parse` otherwise. A text such as `//host/path` shows the difference: for `Parse`, it begins with the name
    /// of a host, and for `ParseRequestURI`, all of it is a path.
    fn parse_as(text: &str, is_request: bool) -> Result<Self, String> {
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        if text.is_empty() {
            return Err("empty url".to_owned());
        }
        if text == "*" {
            return Ok(Self {
                path: "*".to_owned(),
                ..Self::default()
            });
        }
        let (scheme, rest) = split_scheme(text)?;
        let mut url = Self {
            scheme: scheme.to_ascii_lowercase(),
            ..Self::default()
        };
        let (mut rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        query.clone_into(&mut url.query);
        if !rest.starts_with('/') {
            if url.scheme.is_empty() {
                return Err("invalid URI for request".to_owned());
            }
            rest.clone_into(&mut url.opaque);
            return Ok(url);
        }
        let may_have_host = !url.scheme.is_empty() || !is_request && !rest.starts_with("///");
        if let (true, Some(authority)) = (may_have_host, rest.strip_prefix("//")) {
            let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
            rest = path;
            let host = match authority.rsplit_once('@') {
                Some((user, host)) => {
                    url.user = Some(check_user_info(user)?.to_owned());
                    host
                }
                None => authority,
            };
            url.host = parse_host(host)?;
        }
        let path = unescape(rest, UrlPart::Path)?;
        url.path = if is_escaped(rest) {
            rest.to_owned()
        } else {
            escape(&path)
        };
        Ok(url)
    }

    fn host_and_port(&self) -> (&str, &str) {
        let (host, port) = match self.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
            _ => (self.host.as_str(), ""),
        };
        let bare_host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        (bare_host.unwrap_or(host), port)
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (place, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if place > 0 => {}
            b':' if place == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok(text.split_once(':').unwrap_or(("", text))),
            _ => break,
        }
    }
    Ok(("", text))
}

fn check_user_info(user: &str) -> Result<&str, String> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    if !user.bytes().all(is_valid) {
        return Err("net/url: invalid userinfo".to_owned());
    }
    unescape(user, UrlPart::Path)?;
    Ok(user)
}

fn parse_host(host: &str) -> Result<String, String> {
    let port = if host.starts_with('[') {
        let end = host.rfind(']').ok_or("missing ']' in host")?;
        host.get(end + 1..).unwrap_or_default()
    } else {
        host.rfind(':').and_then(|colon| host.get(colon..)).unwrap_or_default()
    };
    let digits = port.strip_prefix(':');
    if !port.is_empty() && !digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(format!("invalid port {port:?} after host"));
    }
    unescape(host, UrlPart::Host).map(text_of)
}

fn must_escape(byte: u8) -> bool {
    !(byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte))
}

fn is_escaped(path: &str) -> bool {
    let is_allowed = |byte: u8| b"!$&'()*+,;=:@[]%".contains(&byte) || !must_escape(byte);
    path.bytes().all(is_allowed)
}

fn escape(path: &[u8]) -> String {
    let mut escaped = String::with_capacity(path.len());
    for byte in path {
        if must_escape(*byte) {
            let _ = write!(escaped, "%{byte:02X}");
        } else {
            escaped.push(char::from(*byte));
        }
    }
    escaped
}

fn unescape(text: &str, part: UrlPart) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'%' => {
                let digits = after.split_at_checked(2);
                let decoded = digits.and_then(|(digits, _)| {
                    let digits = std::str::from_utf8(digits).ok()?;
                    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                    u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)
                });
                // In the host of a URL, only non-ASCII characters and `%` may be escaped.
                let value = decoded.filter(|value| part != UrlPart::Host || *value >= 0x80 || *value == b'%');
                let (Some(value), Some((_, after))) = (value, digits) else {
                    let escape = String::from_utf8_lossy(after.get(..2).unwrap_or(after)).into_owned();
                    return Err(format!("invalid URL escape {:?}", format!("%{escape}")));
                };
                bytes.push(value);
                rest = after;
            }
            b'+' if part == UrlPart::Query => bytes.push(b' '),
            byte if part == UrlPart::Host && byte.is_ascii() && !is_host_byte(*byte) => {
                return Err(format!(
                    "invalid character {:?} in host name",
                    char::from(*byte).to_string()
                ));
            }
            byte => bytes.push(*byte),
        }
    }
    Ok(bytes)
}

fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Returns the values of each key in a URL's query. As in Go, a pair that has a `;` or an invalid escape is dropped.
fn parse_query<'a>(machine: &mut Machine<'a>, query: &str) -> Result<Map<'a>, Fault> {
    machine.charge_bytes(query.len())?;
    let mut entries: Vec<(String, Vec<Value<'a>>)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Ok(key), Ok(value)) = (unescape(key, UrlPart::Query), unescape(value, UrlPart::Query)) else {
            continue;
        };
        let (key, value) = (text_of(key), Value::string(text_of(value)));
        machine.charge_items(entries.len() / 16 + 1)?;
        match entries.iter_mut().find(|(entry_key, _)| *entry_key == key) {
            Some((_, values)) => values.push(value),
            None => entries.push((key, vec![value])),
        }
    }
    let shared_entry = |(key, values)| (Value::string(key), Value::list(values));
    Ok(Map::Shared(entries.into_iter().map(shared_entry).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_as_in_go() {
        // The cases are from the documentation of Kubernetes' library, and from the tests of Go's `net/url`.
        for (text, expected) in [
            ("https://example.com:80/", Ok("https example.com:80 example.com 80 /")),
            ("https://[::1]:443/a b", Ok("https [::1]:443 ::1 443 /a%20b")),
            ("https://[::1]/", Ok("https [::1] ::1  /")),
            ("HTTP://a@b.example/x%2Fy?q#f", Ok("http b.example b.example  /x%2Fy")),
            ("/path", Ok("    /path")),
            ("mailto:a@b", Ok("mailto    ")),
            ("*", Ok("    *")),
            ("../relative", Err("invalid URI for request")),
            ("", Err("empty url")),
            (":a", Err("missing protocol scheme")),
            ("http://a b/", Err("invalid character \" \" in host name")),
            ("http://a:b/", Err("invalid port \":b\" after host")),
            ("http://a/%zz", Err("invalid URL escape \"%zz\"")),
            ("http://[::1/", Err("missing ']' in host")),
            ("http://a%20b/", Err("invalid URL escape \"%20\"")),
            ("a\nb", Err("net/url: invalid control character in URL")),
        ] {
            let outcome = Url::parse(text).map(|url| {
                let (host, port) = url.host_and_port();
                format!("{} {} {host} {port} {}", url.scheme, url.host, url.path)
            });
            assert_eq!(outcome.as_deref().map_err(String::as_str), expected, "{text}");
        }
    }
}
