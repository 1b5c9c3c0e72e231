//! Kubernetes' library of semantic versions, `semver`.

use std::sync::Arc;

use ::semver::Version;

use super::{
    Library,
    typed::{Semver, Str},
};
use crate::machine::{Fault, Machine};

pub(super) fn register(library: &mut Library) {
    library.add_global::<(Str,), Semver>("semver", |machine, (text,)| {
        read_version(machine, &text, false)?.map_err(Fault::Error)
    });
    library.add_global::<(Str, bool), Semver>("semver", |machine, (text, normalize)| {
        read_version(machine, &text, normalize)?.map_err(Fault::Error)
    });
    library.add_global::<(Str,), bool>("isSemver", |machine, (text,)| {
        Ok(read_version(machine, &text, false)?.is_ok())
    });
    library.add_global::<(Str, bool), bool>("isSemver", |machine, (text, normalize)| {
        Ok(read_version(machine, &text, normalize)?.is_ok())
    });
    // The build metadata of versions is not compared, as in Kubernetes.
    library.add_member::<(Semver, Semver), i64>("compareTo", |_, (one, other)| Ok(one.cmp_precedence(&other) as i64));
    library
        .add_member::<(Semver, Semver), bool>("isLessThan", |_, (one, other)| Ok(one.cmp_precedence(&other).is_lt()));
    library.add_member::<(Semver, Semver), bool>("isGreaterThan", |_, (one, other)| {
        Ok(one.cmp_precedence(&other).is_gt())
    });
    let parts: [(&str, fn(&Version) -> u64); 3] = [
        ("major", |version| version.major),
        ("minor", |version| version.minor),
        ("patch", |version| version.patch),
    ];
    for (name, part) in parts {
        library.add_member::<(Semver,), i64>(name, move |_, (version,)| Ok(part(&version).cast_signed()));
    }
}

/// Parses a semantic version. The inner error means that the text is not a version. The outer error means that the cost
/// limit is exceeded.
fn read_version(machine: &mut Machine<'_>, text: &str, normalize: bool) -> Result<Result<Arc<Version>, String>, Fault> {
    machine.charge_bytes(text.len())?;
    let version = if normalize {
        normalize_version(text)
    } else {
        Ok(text.to_owned())
    };
    Ok(version.and_then(|text| Version::parse(&text).map(Arc::new).map_err(|error| error.to_string())))
}

fn normalize_version(text: &str) -> Result<String, String> {
    let mut parts: Vec<String> = text
        .strip_prefix('v')
        .unwrap_or(text)
        .splitn(3, '.')
        .map(|part| {
            if part.len() < 2 {
                return part.to_owned();
            }
            let rest = part.trim_start_matches('0');
            let zero = if rest.starts_with(|first: char| first.is_ascii_digit()) {
                ""
            } else {
                "0"
            };
            format!("{zero}{rest}")
        })
        .collect();
    let has_more = parts.last().is_some_and(|last| last.contains(['+', '-']));
    if parts.len() < 3 && has_more {
        return Err("short version cannot contain PreRelease/Build meta data".to_owned());
    }
    parts.resize(3, "0".to_owned());
    Ok(parts.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_normalized_as_in_kubernetes() {
        // The cases are from the documentation and the code of Kubernetes' library.
        for (text, expected) in [
            ("v1.2.3", Ok("1.2.3")),
            ("1", Ok("1.0.0")),
            ("v01.02", Ok("1.2.0")),
            ("1.02.03-rc.1+b", Ok("1.2.3-rc.1+b")),
            ("00.0.0", Ok("0.0.0")),
            ("1.2-rc", Err("short version cannot contain PreRelease/Build meta data")),
        ] {
            let normal = normalize_version(text);
            let outcome = normal.as_deref().map_err(String::as_str);
            assert_eq!(outcome, expected, "{text}");
        }
    }
}
