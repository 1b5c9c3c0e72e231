//! The definitions of BCS among those that are there.

use admittance::{
    ChangeError, Host,
    definitions::{BcsObject, Location, StoredDefinition},
};

use super::{asked::Name, refusal::Refusal};

/// A definition of BCS, and what it says.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) definition: StoredDefinition,
    pub(super) object: BcsObject,
}

impl Stored {
    pub(super) fn is(&self, name: &Name) -> bool {
        self.object.namespace() == name.namespace && self.object.name() == name.name
    }

    pub(super) fn location(&self) -> Location {
        Location {
            file: self.definition.file.display().to_string(),
            line: self.definition.line,
            column: 1,
        }
    }
}

/// All of them, by namespace and name.
pub(super) async fn all(host: &Host) -> Result<Vec<Stored>, Refusal> {
    read(host).await.map_err(Refusal::failed)
}

/// The one of this name.
pub(super) async fn find(host: &Host, name: &Name) -> Result<Option<Stored>, Refusal> {
    let stored = all(host).await?;
    Ok(stored.into_iter().find(|stored| stored.is(name)))
}

async fn read(host: &Host) -> Result<Vec<Stored>, ChangeError> {
    let definitions = host.definitions().await?.into_iter();
    let mut stored: Vec<Stored> = definitions
        .filter_map(|definition| {
            Some(Stored {
                object: definition.bcs_object()?,
                definition,
            })
        })
        .collect();
    stored.sort_by(|a, b| {
        let key = |stored: &Stored| {
            let object = &stored.object;
            (object.namespace().to_owned(), object.name().to_owned())
        };
        key(a).cmp(&key(b))
    });
    Ok(stored)
}
