//! Field selectors and field masks, with which a policy limits its queries about objects.

use serde_json::Value;

/// The maximum number of conditions in a selector, and of masks in a query.
const MAX_FIELDS: usize = 64;

/// Conditions such as `metadata.name=a,spec.nodeName!=b`. Strings, numbers and booleans are compared as text.
pub(super) struct FieldSelector(Vec<(String, bool, String)>);

impl FieldSelector {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').filter(|part| !part.trim().is_empty()).collect();
        check_field_count(parts.len())?;
        let parts = parts.into_iter().map(|part| {
            let (field, value) = part
                .split_once('=')
                .ok_or_else(|| format!("the field selector `{part}` has no `=`"))?;
            let (field, is_equal) = field.strip_suffix('!').map_or((field, true), |field| (field, false));
            let value = value.strip_prefix('=').unwrap_or(value);
            Ok((field.trim().to_owned(), is_equal, value.trim().to_owned()))
        });
        parts.collect::<Result<_, String>>().map(Self)
    }

    pub(super) fn selects(&self, object: &str) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let object: Value = serde_json::from_str(object).unwrap_or_default();
        self.0.iter().all(|(field, is_equal, expected)| {
            let value = field.split('.').try_fold(&object, |value, key| value.get(key));
            let text = match value {
                Some(Value::String(text)) => text.clone(),
                Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
                _ => String::new(),
            };
            (text == *expected) == *is_equal
        })
    }
}

/// Refuses more conditions or masks than the limit, because each is compared with every field of every object.
fn check_field_count(count: usize) -> Result<(), String> {
    if count > MAX_FIELDS {
        return Err(format!("the request names {count} fields; the limit is {MAX_FIELDS}"));
    }
    Ok(())
}

/// Removes all fields of an object except the masked ones and its identity.
pub(super) fn keep_fields(object: String, masks: Option<&[String]>) -> Result<String, String> {
    let Some(masks) = masks.filter(|masks| !masks.is_empty()) else {
        return Ok(object);
    };
    check_field_count(masks.len())?;
    let Ok(mut value) = serde_json::from_str::<Value>(&object) else {
        return Ok(object);
    };
    let always = ["apiVersion", "kind", "metadata.name", "metadata.namespace"];
    let texts = always.into_iter().chain(masks.iter().map(String::as_str));
    let paths: Vec<Vec<&str>> = texts.map(|path| path.split('.').collect()).collect();
    retain_paths(&mut value, &paths.iter().map(Vec::as_slice).collect::<Vec<_>>());
    Ok(value.to_string())
}

fn retain_paths(value: &mut Value, paths: &[&[&str]]) {
    match value {
        Value::Object(fields) => fields.retain(|key, value| {
            let below: Vec<&[&str]> = paths
                .iter()
                .filter_map(|path| {
                    path.split_first()
                        .filter(|(first, _)| *first == key)
                        .map(|(_, rest)| rest)
                })
                .collect();
            let is_whole = below.iter().any(|rest| rest.is_empty());
            if !is_whole && !below.is_empty() {
                retain_paths(value, &below);
            }
            !below.is_empty()
        }),
        Value::Array(items) => items.iter_mut().for_each(|item| retain_paths(item, paths)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_selector_selects_objects_by_their_fields() {
        let object = r#"{"metadata":{"name":"a"},"spec":{"nodeName":"n","hostNetwork":true}}"#;
        for (selector, selected) in [
            ("", true),
            ("metadata.name=a", true),
            ("metadata.name==a,spec.hostNetwork=true", true),
            ("metadata.name!=a", false),
            ("spec.nodeName = n, metadata.name != b", true),
            ("status.phase!=Running", true),
            ("status.phase=Running", false),
        ] {
            let fields = FieldSelector::parse(selector).unwrap();
            assert_eq!(fields.selects(object), selected, "{selector}");
        }
        assert!(FieldSelector::parse("metadata.name").is_err());
    }

    #[test]
    fn a_request_with_too_many_field_conditions_or_masks_is_refused() {
        let names = |count: usize| vec!["a=b".to_owned(); count];
        assert!(FieldSelector::parse(&names(MAX_FIELDS).join(",")).is_ok());
        keep_fields("{}".to_owned(), Some(&names(MAX_FIELDS))).unwrap();
        for error in [
            FieldSelector::parse(&names(MAX_FIELDS + 1).join(",")).err(),
            keep_fields("{}".to_owned(), Some(&names(MAX_FIELDS + 1))).err(),
        ] {
            assert_eq!(error.unwrap(), "the request names 65 fields; the limit is 64");
        }
    }

    #[test]
    fn field_masks_keep_only_the_named_fields() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "uid": "1", "labels": {"x": "y"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "n"},
        });
        for (masks, expected) in [
            (vec![], pod.clone()),
            (
                vec!["metadata.labels", "spec.containers.image"],
                json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": "a", "labels": {"x": "y"}},
                    "spec": {"containers": [{"image": "i"}]},
                }),
            ),
            (
                vec!["spec", "spec.nodeName"],
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": pod["spec"]}),
            ),
        ] {
            let masks: Vec<String> = masks.into_iter().map(str::to_owned).collect();
            let masked = keep_fields(pod.to_string(), Some(&masks)).unwrap();
            assert_eq!(serde_json::from_str::<Value>(&masked).unwrap(), expected, "{masks:?}");
        }
    }
}
