//! Names of conditions: Kubernetes' qualified names.

use super::ConditionError;
use admittance_admission::{NAME_PART_LENGTH, is_name_part};

const LONGEST_PREFIX: usize = 253;

/// Check a qualified name: an optional DNS prefix and `/`, and a name part of letters, digits, `-`, `_`
/// and `.` that begins and ends with a letter or a digit.
pub(crate) fn check(name: &str) -> Result<(), ConditionError> {
    let wrong = |why: &str| {
        Err(ConditionError::Name {
            name: name.to_owned(),
            why: why.to_owned(),
        })
    };
    if name.is_empty() {
        return wrong("it is empty");
    }
    let part = match name.split_once('/') {
        Some((prefix, part)) => {
            if !is_dns_subdomain(prefix) {
                return wrong(
                    "what is before the `/` must be a DNS name in lower case, of at most 253 characters",
                );
            }
            part
        }
        None => name,
    };
    if part.is_empty() {
        return wrong("nothing follows the `/`");
    }
    if part.len() > NAME_PART_LENGTH {
        return wrong("the name part is longer than 63 characters");
    }
    if !is_name_part(part) {
        return wrong(
            "the name part may have letters, digits, `-`, `_` and `.`, and begins and ends with a letter or a digit",
        );
    }
    Ok(())
}

fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= LONGEST_PREFIX
        && text.split('.').all(|label| {
            let ends = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
            label
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
                && ends(label.as_bytes().first())
                && ends(label.as_bytes().last())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualified_names() {
        // Source: kube-apiserver's validation of qualified names.
        let longest = "a".repeat(63);
        for (name, good) in [
            ("exclude-leases", true),
            ("a", true),
            ("Upper_and.dots-1", true),
            ("example.com/my-condition", true),
            (longest.as_str(), true),
            ("", false),
            ("/a", false),
            ("a/", false),
            ("a/b/c", false),
            ("Example.com/a", false),
            ("example..com/a", false),
            ("-a", false),
            ("a-", false),
            (".a", false),
            ("a b", false),
            ("ä", false),
            (
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                false,
            ),
        ] {
            assert_eq!(check(name).is_ok(), good, "{name}");
        }
        let error = check("a b").unwrap_err().to_string();
        assert_eq!(
            error,
            "the name of a match condition cannot be `a b`: the name part may have letters, digits, `-`, `_` \
             and `.`, and begins and ends with a letter or a digit"
        );
    }
}
