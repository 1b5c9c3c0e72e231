//! `admittance get`: the definitions as the driver's files hold them.

use admittance::definitions::DefinitionId;
use admittance_admin::api::{Definition, DefinitionList};
use clap::Args;

use super::{client::Client, connection::Connection};
use crate::{
    output::{BAD, Form, harmless_lines},
    table::{Cell, Table},
};

/// List the definitions as the files hold them now, or print the text of one.
///
/// What is live may be another, when something in the files is wrong or after a rollback: `status` says so.
#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    /// The definition whose text is wanted: kind and name, AdmissionChain/pods.
    #[arg(value_name = "KIND/NAME")]
    id: Option<DefinitionId>,
    /// How to print them.
    #[arg(long, short, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    connection: Connection,
}

pub(crate) fn run(arguments: &GetArguments) -> crate::Result<()> {
    let client = Client::new(&arguments.connection)?;
    let path = match &arguments.id {
        Some(id) => path_of(id),
        None => vec!["definitions"],
    };
    let list: DefinitionList = crate::block_on(client.get(&path, &[]))??;
    arguments.output.print(&list, |list| match arguments.id {
        Some(_) => texts(&list.definitions),
        None => table(&list.definitions),
    })
}

/// Where the API has it. A `/` in a name parts segments.
pub(super) fn path_of(id: &DefinitionId) -> Vec<&str> {
    ["definitions", id.kind.as_str()]
        .into_iter()
        .chain(id.name.split('/'))
        .collect()
}

/// As a file of them would be.
fn texts(definitions: &[Definition]) -> String {
    let text = |definition: &Definition| {
        let text = harmless_lines(&definition.text);
        format!("{}\n", text.trim_end_matches('\n'))
    };
    definitions.iter().map(text).collect::<Vec<_>>().join("---\n")
}

fn table(definitions: &[Definition]) -> String {
    let mut table = Table::new(["DEFINITION", "CHAIN", "FILE"]);
    for definition in definitions {
        let Definition {
            kind,
            name,
            file,
            line,
            chain,
            in_list,
            ..
        } = definition;
        let chain = match chain {
            Some(chain) => Cell::text(chain),
            None => Cell::text("has mistakes").styled(BAD),
        };
        let place = if *in_list { " (in a list)" } else { "" };
        table.row([
            Cell::text(format!("{kind}/{name}")),
            chain,
            Cell::text(format!("{}:{line}{place}", file.display())),
        ]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::plain;

    fn definition(kind: &str, name: &str, chain: Option<&str>) -> Definition {
        Definition {
            kind: kind.to_owned(),
            name: name.to_owned(),
            file: "/etc/chains/a.yaml".into(),
            line: 3,
            text: "# why\nkind: AdmissionChain\n\n".to_owned(),
            chain: chain.map(str::to_owned),
            in_list: chain.is_none(),
        }
    }

    #[test]
    fn a_row_for_each() {
        let definitions = [
            definition("AdmissionChain", "pods", Some("Mutating:pods")),
            definition("admissionwebhook", "ns/a", None),
        ];
        assert_eq!(
            plain(&table(&definitions)),
            "\
DEFINITION             CHAIN          FILE
AdmissionChain/pods    Mutating:pods  /etc/chains/a.yaml:3
admissionwebhook/ns/a  has mistakes   /etc/chains/a.yaml:3 (in a list)
"
        );
        assert_eq!(
            texts(&definitions),
            "# why\nkind: AdmissionChain\n---\n# why\nkind: AdmissionChain\n"
        );
    }

    #[test]
    fn where_the_api_has_it() {
        for (id, expected) in [
            (
                "AdmissionChain/pods",
                vec!["definitions", "AdmissionChain", "pods"],
            ),
            (
                "admissionwebhook/ns/a",
                vec!["definitions", "admissionwebhook", "ns", "a"],
            ),
        ] {
            assert_eq!(path_of(&id.parse().unwrap()), expected);
        }
    }
}
