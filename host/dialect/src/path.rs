//! Paths as the servers behind may read them. A path must not slip past the chains because it is
//! written in another way than the rules have it.

use percent_encoding::percent_decode_str;

/// The ways in which a server may read a path: decoded segment by segment (an encoded slash stays a
/// part of its segment), and decoded before it is split, as Go's servers do. In both, empty and dot
/// segments are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Readings {
    /// Encoded slashes are still written `%2F`, so that it can be split.
    pub(crate) by_segment: String,
    /// Only when it differs.
    pub(crate) whole: Option<String>,
}

impl Readings {
    pub(crate) fn of(path: &str) -> Self {
        // Most paths are plain.
        if !path.contains('%') && !path.contains("//") && !path.contains("/.") {
            return Self {
                by_segment: trim(path),
                whole: None,
            };
        }
        let segments = path
            .split('/')
            .map(|segment| decode(segment).replace('/', "%2F"))
            .collect::<Vec<_>>();
        let by_segment = normalize(segments.iter().map(String::as_str));
        let decoded = decode(path);
        let whole = normalize(decoded.split('/'));
        Self {
            whole: (whole != by_segment).then_some(whole),
            by_segment,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.by_segment.as_str()).chain(self.whole.as_deref())
    }
}

/// A value taken from a template's parameter: with its encoded slashes as slashes.
pub(crate) fn parameter(value: &str) -> String {
    value.replace("%2F", "/")
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn trim(path: &str) -> String {
    match path.strip_suffix('/') {
        Some("") | None => path.to_owned(),
        Some(path) => path.to_owned(),
    }
}

fn normalize<'a>(segments: impl Iterator<Item = &'a str>) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for segment in segments {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings() {
        for (path, by_segment, whole) in [
            ("/", "/", None),
            ("/a/b", "/a/b", None),
            ("/a/b/", "/a/b", None),
            ("//a///b", "/a/b", None),
            ("/a/./b/../c", "/a/c", None),
            ("/%61/b", "/a/b", None),
            ("/a/b%2Fc", "/a/b%2Fc", Some("/a/b/c")),
            ("/a/b%2fc", "/a/b%2Fc", Some("/a/b/c")),
            ("/a/%2e%2e/b", "/b", None),
            ("/a/x%2F..%2Fb", "/a/x%2F..%2Fb", Some("/a/b")),
            ("/../..", "/", None),
        ] {
            let readings = Readings::of(path);
            assert_eq!(readings.by_segment, by_segment, "{path}");
            assert_eq!(readings.whole.as_deref(), whole, "{path}");
        }
    }
}
