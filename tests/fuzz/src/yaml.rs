use admittance_definitions::{
    Mistakes,
    document::{to_json, to_yaml, yaml_to_json},
};
use serde_json::Value;

use crate::definitions::check_mistakes;

/// The largest body.
const LIMIT: usize = 1 << 16;

/// Reads a body of the gateway as YAML: the result is JSON within the limit, however often aliases repeat something, or
/// a mistake with a place in the text. The same text has the same value in a file, and again after the value is
/// written.
pub fn yaml(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let json = match yaml_to_json("file.yaml", text, LIMIT) {
        Ok(json) => json.unwrap_or_default(),
        Err(mistake) => {
            let mut mistakes = Mistakes::new();
            mistakes.push(mistake);
            return check_mistakes(&mistakes, text);
        }
    };
    assert!(json.len() <= LIMIT, "{} bytes", json.len());
    let Ok(value) = serde_json::from_slice::<Value>(&json) else {
        assert!(json.is_empty(), "this is no JSON: {json:?}");
        return;
    };
    if value.is_null() {
        return;
    }
    // Some texts are JSON, whose numbers have fractions.
    if !text
        .trim_start_matches('\u{feff}')
        .trim_start()
        .starts_with(['{', '['])
    {
        assert_eq!(to_json("file.yaml", text).as_ref(), Ok(&value));
    }
    assert_eq!(to_json("file.yaml", &to_yaml(&value)), Ok(value));
}
