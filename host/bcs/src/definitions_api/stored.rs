//! Finds BCS's definitions among all stored definitions.

use admittance::Host;
use admittance_definitions::{BcsObject, Location, StoredDefinition};

use super::refusal::DefinitionRefusal;
use crate::definition_name::DefinitionName;

#[derive(Debug)]
pub(super) struct StoredBcsDefinition {
    pub(super) definition: StoredDefinition,
    pub(super) name: DefinitionName,
    /// `None` if the content cannot be parsed.
    pub(super) object: Option<BcsObject>,
}

impl StoredBcsDefinition {
    fn parse(definition: StoredDefinition) -> Option<Self> {
        let object = definition.bcs_object();
        let name = match &object {
            Some(object) if !object.name().is_empty() => DefinitionName::new(object.namespace(), object.name()),
            _ => DefinitionName::from_id(&definition.id)?,
        };
        Some(Self {
            definition,
            name,
            object,
        })
    }

    /// Returns the new text of the stored definition when a client updates it to `object`. The name and namespace stay
    /// those of the stored definition, provided that the stored definition is valid.
    pub(super) fn updated_text(&self, object: BcsObject, moment: &str) -> String {
        let after = match &self.object {
            Some(before) if self.definition.chain.is_some() => before.with_fields_of(object),
            _ => object.with_creation_time(moment),
        };
        let text = self.definition.with_bcs_object(&after);
        text.unwrap_or_else(|| after.to_text())
    }

    pub(super) fn location(&self) -> Location {
        Location {
            file: self.definition.file.display().to_string(),
            line: self.definition.line,
            column: 1,
        }
    }
}

pub(super) async fn list_all(host: &Host) -> Result<Vec<StoredBcsDefinition>, DefinitionRefusal> {
    let definitions = host.definitions().await.map_err(DefinitionRefusal::from_error)?;
    let mut stored: Vec<StoredBcsDefinition> = definitions.into_iter().filter_map(StoredBcsDefinition::parse).collect();
    stored.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(stored)
}

pub(super) async fn find(host: &Host, name: &DefinitionName) -> Result<Option<StoredBcsDefinition>, DefinitionRefusal> {
    let stored = list_all(host).await?;
    Ok(stored.into_iter().find(|stored| stored.name == *name))
}
