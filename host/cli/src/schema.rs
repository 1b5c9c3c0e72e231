//! `admittance schema`: prints JSON Schemas for editors.

use admittance_definitions::CHAIN_SCHEMA;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use crate::output::write;

pub(crate) const EXCEPTION: &str = include_str!("schema/exception.json");
pub(crate) const TEST: &str = include_str!("schema/test.json");

/// The documentation of the configuration's keys, from which the schema is made.
const CONFIGURATION: &str = include_str!("../../../docs/configuration.md");

/// Print the JSON Schema of a kind of document. Editors use it to complete and check such documents.
///
/// The YAML language server uses the schema that a document's first line names: `# yaml-language-server:
/// $schema=schemas/chain.json`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance schema chain > schemas/chain.json
  admittance schema exception > schemas/exception.json
  admittance schema test > schemas/test.json
  admittance schema config > schemas/config.json")]
pub(crate) struct Arguments {
    /// The kind of document whose schema is printed.
    document: SchemaKind,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SchemaKind {
    /// A chain of `admittance.dev/v1alpha1`.
    Chain,
    /// The configuration of `admittance serve`.
    Config,
    /// An exception of `admittance.dev/v1alpha1`.
    Exception,
    /// Cases of `admittance test`.
    Test,
}

pub(crate) fn run(arguments: &Arguments) -> crate::Result<()> {
    let text = match arguments.document {
        SchemaKind::Chain => CHAIN_SCHEMA.to_owned(),
        SchemaKind::Exception => EXCEPTION.to_owned(),
        SchemaKind::Config => format!("{:#}\n", configuration_schema()),
        SchemaKind::Test => TEST.to_owned(),
    };
    Ok(write(&text)?)
}

/// Returns the schema of the configuration. It does not restrict values, because only `check` validates them.
fn configuration_schema() -> Value {
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of admittance serve",
    });
    let rows = CONFIGURATION
        .split("\n## ")
        .find(|section| section.starts_with("Every key\n"))
        .unwrap_or_default()
        .lines()
        .filter(|line| line.starts_with("| `"));
    for row in rows {
        let mut cells = row.trim_matches('|').split(" | ").map(str::trim);
        let (Some(keys), Some(meaning)) = (cells.next(), cells.next()) else {
            continue;
        };
        let mut description = plain_text(meaning);
        if let Some(default) = cells.next().map(plain_text) {
            description += &format!(". Default: {default}");
        }
        for key in keys.split(", ") {
            if let Some(field) = schema_field(&mut schema, key.trim_matches('`')).as_object_mut() {
                field.insert("description".to_owned(), description.clone().into());
            }
        }
    }
    schema
}

/// Returns the schema of a key such as `a.b`, `list[].c` or `map.<name>`. If the whole schema does not describe this
/// key yet, adds an empty schema for it.
fn schema_field<'s>(schema: &'s mut Value, key: &str) -> &'s mut Value {
    let mut subschema = schema;
    for part in key.split('.') {
        let is_list = part.ends_with("[]");
        let name = part.trim_end_matches("[]");
        if name.starts_with('<') {
            subschema = member(subschema, "additionalProperties");
            continue;
        }
        if subschema.get("properties").is_none() && subschema.get("additionalProperties").is_none() {
            *member(subschema, "additionalProperties") = false.into();
        }
        subschema = member(member(subschema, "properties"), name);
        if is_list {
            subschema = member(subschema, "items");
        }
    }
    subschema
}

fn member<'v>(value: &'v mut Value, name: &str) -> &'v mut Value {
    if !value.is_object() {
        *value = Map::new().into();
    }
    match value {
        Value::Object(members) => members.entry(name).or_insert_with(|| Map::new().into()),
        other => other,
    }
}

fn plain_text(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once('[') {
        text += before;
        match link
            .split_once("](")
            .and_then(|(label, target)| Some((label, target.split_once(')')?)))
        {
            Some((label, (_, after))) => {
                text += label;
                rest = after;
            }
            None => {
                text.push('[');
                rest = link;
            }
        }
    }
    (text + rest).replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_schema_describes_nested_keys() {
        let schema = configuration_schema();
        for (pointer, expected) in [
            ("/properties/listen/additionalProperties", json!(false)),
            (
                "/properties/listen/properties/address/description",
                json!(
                    "IP address and port that clients connect to; with port 0, the system chooses one. Default: 127.0.0.1:8080"
                ),
            ),
            (
                "/properties/admin/properties/tokens/items/properties/role/description",
                json!("Read or Admin: roles. Default: required"),
            ),
            (
                "/properties/namespaces/additionalProperties/description",
                json!("labels of a namespace, for label selectors. Default: only kubernetes.io/metadata.name"),
            ),
            (
                "/properties/registration/properties/external/properties/port/description",
                json!(
                    "the address under which bcs-api and gateways should connect instead; both or neither. Default: none"
                ),
            ),
        ] {
            assert_eq!(schema.pointer(pointer), Some(&expected), "{pointer} in {schema:#}");
        }
        assert_eq!(plain_text("a [b](c#d) `e` [f] g"), "a b e [f] g");
    }

    #[test]
    fn every_schema_is_a_json_object() {
        for text in [CHAIN_SCHEMA, EXCEPTION, TEST] {
            let schema: Value = serde_json::from_str(text).unwrap();
            assert_eq!(schema["type"], "object");
        }
    }
}
