//! Matches names, messages and warnings.

use std::str::FromStr;

use regex::Regex;

/// A substring, or a regular expression between slashes: `is missing`, `/^spec\..* is missing/`.
#[derive(Clone, Debug, derive_more::Display)]
pub(crate) enum TextPattern {
    Part(String),
    #[display("/{_0}/")]
    Expression(Regex),
}

impl TextPattern {
    pub(crate) fn is_in(&self, text: &str) -> bool {
        match self {
            Self::Part(part) => text.contains(part.as_str()),
            Self::Expression(expression) => expression.is_match(text),
        }
    }
}

impl FromStr for TextPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expression = text
            .strip_prefix('/')
            .and_then(|text| text.strip_suffix('/'))
            .filter(|text| !text.is_empty());
        match expression {
            None => Ok(Self::Part(text.to_owned())),
            Some(expression) => match Regex::new(expression) {
                Ok(expression) => Ok(Self::Expression(expression)),
                Err(regex::Error::Syntax(error)) => {
                    // The error of `regex` shows the pattern on several lines, and the reason on the last line.
                    let line = error.lines().last().unwrap_or_default();
                    let why = line.trim_start_matches("error: ");
                    Err(format!("`{text}` is not a valid regular expression: {why}"))
                }
                Err(error) => Err(format!("`{text}` is not a valid regular expression: {error}")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_substring_or_a_regular_expression_between_slashes() {
        for (pattern, text, expected) in [
            ("containers[0]", "spec.containers[0].image", true),
            ("containers[1]", "spec.containers[0].image", false),
            ("/containers\\[\\d\\]/", "spec.containers[0].image", true),
            ("/^containers/", "spec.containers[0].image", false),
            ("/spec", "/spec/containers", true),
            ("/", "a/b", true),
            ("//", "a//b", true),
        ] {
            let parsed: TextPattern = pattern.parse().unwrap();
            assert_eq!(parsed.is_in(text), expected, "{pattern}");
            assert_eq!(parsed.to_string(), pattern);
        }
        let error = "/a(/".parse::<TextPattern>().unwrap_err();
        assert_eq!(error, "`/a(/` is not a valid regular expression: unclosed group");
    }
}
