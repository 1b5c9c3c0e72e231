use std::collections::HashSet;

use http::{HeaderMap, HeaderValue, header::WARNING};

/// All texts together, in characters; kube-apiserver has the same limit.
const TOTAL: usize = 4096;
/// One text that does not fit whole is cut to this, in characters; kube-apiserver does so too.
const CUT: usize = 256;

/// Put the warnings of an outcome on a reply, each as a header `Warning: 299 - "text"`, within the limits
/// of kube-apiserver: control characters are left out, a repeated text appears once, and when the texts
/// are longer than 4096 characters together, long ones are cut and the last ones left out.
pub fn append_warnings(headers: &mut HeaderMap, warnings: &[String]) {
    for text in within_limits(warnings) {
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            headers.append(WARNING, value);
        }
    }
}

/// The texts that are passed on.
pub(crate) fn within_limits(warnings: &[String]) -> Vec<String> {
    let mut seen = HashSet::new();
    let texts: Vec<String> = warnings
        .iter()
        .map(|text| text.chars().filter(|c| !c.is_control()).collect::<String>())
        .filter(|text| !text.is_empty() && seen.insert(text.clone()))
        .collect();
    let total: usize = texts.iter().map(|text| text.chars().count()).sum();
    let mut left = TOTAL;
    let mut kept = Vec::new();
    for text in texts {
        let text: String = if total > TOTAL {
            text.chars().take(CUT).collect()
        } else {
            text
        };
        let Some(rest) = left.checked_sub(text.chars().count()) else {
            break;
        };
        left = rest;
        kept.push(text);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(warnings: &[&str]) -> Vec<String> {
        let warnings: Vec<String> = warnings.iter().map(|text| (*text).to_owned()).collect();
        let mut headers = HeaderMap::new();
        append_warnings(&mut headers, &warnings);
        headers
            .get_all(WARNING)
            .iter()
            .map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn texts() {
        for (case, warnings, expected) in [
            ("none", vec![], vec![]),
            ("plain", vec!["a", "b"], vec![r#"299 - "a""#, r#"299 - "b""#]),
            ("quoted", vec![r#"say "\""#], vec![r#"299 - "say \"\\\"""#]),
            ("header injection", vec!["a\r\nX: y\0"], vec![r#"299 - "aX: y""#]),
            ("twice", vec!["a", "a"], vec![r#"299 - "a""#]),
            ("nothing left", vec!["\n"], vec![]),
            ("not ASCII", vec!["größer"], vec![r#"299 - "größer""#]),
        ] {
            assert_eq!(headers(&warnings), expected, "{case}");
        }
    }

    #[test]
    fn limits() {
        let long = "ä".repeat(4096);
        assert_eq!(headers(&[&long]), [format!("299 - \"{long}\"")]);
        let texts: Vec<String> = (0..40).map(|i| format!("{i:02}{}", "x".repeat(998))).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let headers = headers(&texts);
        assert_eq!(headers.len(), TOTAL / CUT);
        assert!(headers.iter().all(|header| header.len() == CUT + 8));
    }
}
