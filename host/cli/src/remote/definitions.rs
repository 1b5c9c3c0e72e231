//! `admittance get`: shows the definitions in the driver's files.

use admittance::definitions::DefinitionId;
use admittance_admin::api::{DefinitionList, StoredDefinition};
use clap::Args;

use super::{Query, completion};
use crate::{
    output::{BAD, WARN, sanitize_lines},
    table::{TableCell, TextTable},
};

/// List the definitions that the driver's files contain now, or print the text of one.
///
/// The live definitions differ from these if a definition in the files is invalid, or after a rollback; `status` shows
/// the live ones.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  admittance get
  admittance get AdmissionChain/pods")]
pub(crate) struct GetArguments {
    /// Print the text of the definition with this kind and name: AdmissionChain/pods.
    #[arg(value_name = "KIND/NAME", add = completion::definitions())]
    id: Option<DefinitionId>,
    #[command(flatten)]
    query: Query,
}

impl GetArguments {
    pub(crate) fn run(&self) -> crate::Result<()> {
        let (path, text): (_, fn(&[StoredDefinition]) -> String) = match &self.id {
            Some(id) => (path_of(id), definition_texts),
            None => (vec!["definitions"], definitions_table),
        };
        let text = |list: &DefinitionList| text(&list.definitions);
        let list = self.query.get_and_print(&path, &[], text)?;
        if let Some(to) = list.rolled_back_to {
            anstream::eprintln!(
                "{WARN}warning:{WARN:#} a rollback to revision {to} is live; its definitions may differ from these"
            );
        }
        Ok(())
    }
}

pub(super) fn path_of(id: &DefinitionId) -> Vec<&str> {
    ["definitions", id.kind.as_str()]
        .into_iter()
        .chain(id.name.split('/'))
        .collect()
}

fn definition_texts(definitions: &[StoredDefinition]) -> String {
    let text = |definition: &StoredDefinition| format!("{}\n", sanitize_lines(&definition.text).trim_end_matches('\n'));
    definitions.iter().map(text).collect::<Vec<_>>().join("---\n")
}

fn definitions_table(definitions: &[StoredDefinition]) -> String {
    let mut table = TextTable::new(["DEFINITION", "CHAIN", "FILE"]);
    for definition in definitions {
        let chain = match &definition.chain {
            _ if definition.has_mistakes => TableCell::text("has mistakes").with_style(BAD),
            Some(chain) => TableCell::text(chain.to_string()),
            None => TableCell::default(),
        };
        let in_list = if definition.in_list { " (in a list)" } else { "" };
        let (file, line) = (definition.file.display(), definition.line);
        table.push_row([
            TableCell::text(definition.id.to_string()),
            chain,
            TableCell::text(format!("{file}:{line}{in_list}")),
        ]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::table::strip_styles;

    fn stored_definition(kind: &str, name: &str, chain: Option<&str>) -> StoredDefinition {
        let mut definition = json!({
            "kind": kind,
            "name": name,
            "file": "/etc/chains/a.yaml",
            "line": 3,
            "text": "# why\nkind: AdmissionChain\n\n",
            "inList": chain.is_none(),
            "hasMistakes": chain.is_none(),
        });
        if let Some(chain) = chain {
            definition["chain"] = chain.into();
        }
        serde_json::from_value(definition).unwrap()
    }

    #[test]
    fn each_definition_is_listed_in_a_row() {
        let definitions = [
            stored_definition("AdmissionChain", "pods", Some("Mutating:pods")),
            stored_definition("admissionwebhook", "ns/a", None),
        ];
        assert_eq!(
            strip_styles(&definitions_table(&definitions)),
            "\
DEFINITION             CHAIN          FILE
AdmissionChain/pods    Mutating:pods  /etc/chains/a.yaml:3
admissionwebhook/ns/a  has mistakes   /etc/chains/a.yaml:3 (in a list)
"
        );
        assert_eq!(
            definition_texts(&definitions),
            "# why\nkind: AdmissionChain\n---\n# why\nkind: AdmissionChain\n"
        );
    }

    #[test]
    fn definition_names_become_api_paths() {
        for (id, expected) in [
            ("AdmissionChain/pods", vec!["definitions", "AdmissionChain", "pods"]),
            (
                "admissionwebhook/ns/a",
                vec!["definitions", "admissionwebhook", "ns", "a"],
            ),
        ] {
            assert_eq!(path_of(&id.parse().unwrap()), expected);
        }
    }
}
