use admittance_admission::bounded_warnings;
use http::{HeaderMap, HeaderValue, header::WARNING};

/// Adds the warnings of an outcome to the headers of a reply, each as `Warning: 299 - "text"`.
///
/// Control characters are removed and repeated warnings left out, as in kube-apiserver. If the warnings have more than
/// 4096 characters in total, long ones are cut and the last ones left out.
pub fn append_warnings(headers: &mut HeaderMap, warnings: &[String]) {
    for text in bounded_warnings(warnings) {
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
            headers.append(WARNING, value);
        }
    }
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
    fn each_distinct_warning_becomes_one_quoted_header() {
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
    fn warnings_are_cut_and_left_out_at_the_limits() {
        let long = "ä".repeat(4096);
        assert_eq!(headers(&[&long]), [format!("299 - \"{long}\"")]);
        let strings: Vec<String> = (0..40).map(|i| format!("{i:02}{}", "x".repeat(998))).collect();
        let texts: Vec<&str> = strings.iter().map(String::as_str).collect();
        let headers = headers(&texts);
        assert_eq!(headers.len(), 4096 / 256);
        assert!(headers.iter().all(|header| header.len() == 256 + 8));
    }
}
