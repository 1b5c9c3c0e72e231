use admittance_definitions::{
    Mistakes,
    document::{to_json, to_yaml, yaml_to_json},
};
use serde_json::Value;

use crate::definitions::check_mistakes;

/// The limit for the size of a request body, in bytes.
const BODY_SIZE_LIMIT: usize = 1 << 16;

/// Reads the body of a request to the gateway as YAML, and converts it to JSON. If the body is invalid, checks that the
/// mistake has a position. If it is valid, checks that the JSON is below the size limit, even if aliases in the YAML
/// repeat large values. Also checks that the value is the same if it is read from a file, and after it is written and
/// read again.
pub fn yaml(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let json = match yaml_to_json("file.yaml", text, BODY_SIZE_LIMIT) {
        Ok(json) => json.unwrap_or_default(),
        Err(mistake) => {
            let mut mistakes = Mistakes::new();
            mistakes.push(mistake);
            return check_mistakes(&mistakes, text);
        }
    };
    assert!(json.len() <= BODY_SIZE_LIMIT, "{} bytes", json.len());
    let Ok(value) = serde_json::from_slice::<Value>(&json) else {
        assert!(json.is_empty(), "this is no JSON: {json:?}");
        return;
    };
    if value.is_null() {
        return;
    }
    // If a text begins like JSON, `to_json` and `yaml_to_json` may return different values, so such a text is not
    // compared. For example, `to_json` reads it as JSON and keeps the fraction of `1.0`, while `yaml_to_json` reads it
    // as YAML and drops this fraction.
    if !text.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '[']) {
        assert_eq!(to_json("file.yaml", text).as_ref(), Ok(&value));
    }
    assert_eq!(to_json("file.yaml", &to_yaml(&value)), Ok(value));
}
