use regex::Regex;

/// A pattern for paths. `*` matches any characters except `/`; `**` matches any number of parts.
#[derive(Clone, Debug, derive_more::Display)]
#[display("{text}")]
pub(super) struct PathGlob {
    text: String,
    regex: Regex,
}

/// The problem of an invalid pattern, as a predicate whose subject is the pattern.
pub(super) const DOUBLE_STAR_INSIDE: &str = "has `**` next to other characters";

impl PathGlob {
    pub(super) fn new(text: &str) -> Result<Self, &'static str> {
        let parts: Vec<&str> = text.split('/').collect();
        let mut expression = String::from(r"\A(?s:");
        let last = parts.len() - 1;
        for (index, part) in parts.iter().enumerate() {
            match *part {
                "**" if index == last => expression.push_str(".+"),
                "**" => expression.push_str("(?:[^/]+/)*"),
                part if part.contains("**") => return Err(DOUBLE_STAR_INSIDE),
                part => {
                    let literals: Vec<String> = part.split('*').map(regex::escape).collect();
                    expression.push_str(&literals.join("[^/]*"));
                    if index < last {
                        expression.push('/');
                    }
                }
            }
        }
        expression.push_str(r")\z");
        let regex = Regex::new(&expression).map_err(|_| "is too long")?;
        Ok(Self {
            text: text.to_owned(),
            regex,
        })
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

impl PartialEq for PathGlob {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for PathGlob {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_star_matches_within_a_path_segment_and_two_across_segments() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a.b", "axb", false),
            ("*", "abc", true),
            ("*", "", true),
            ("*", "a/b", false),
            ("a*c", "abc", true),
            ("a*c", "a/c", false),
            ("*.wasm", "a.wasm", true),
            ("a/**", "a/b", true),
            ("a/**", "a/b/c", true),
            ("a/**", "a/", false),
            ("a/**", "a", false),
            ("a/**", "ab/c", false),
            ("a/**/c", "a/c", true),
            ("a/**/c", "a/b/b/c", true),
            ("a/**/c", "a/bc", false),
            ("**", "a/b", true),
            ("(a|b)", "a", false),
            ("a", "a\n", false),
        ] {
            let glob = PathGlob::new(pattern).unwrap();
            assert_eq!(glob.matches(text), expected, "{pattern} {text:?}");
        }
        for wrong in ["a**", "**a", "a/b**/c", "***"] {
            assert!(PathGlob::new(wrong).is_err(), "{wrong}");
        }
    }
}
