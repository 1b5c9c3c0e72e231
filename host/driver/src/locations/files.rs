use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use admittance_definitions::DefinitionStore;

use super::{DefinitionLocation, LocationError};
use crate::Connections;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionFiles(pub PathBuf);

impl DefinitionLocation for DefinitionFiles {
    fn name(&self) -> String {
        self.0.display().to_string()
    }

    fn stores(&self, _: &Connections) -> Result<Vec<Arc<dyn DefinitionStore>>, LocationError> {
        Ok(Vec::new())
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.0)
    }
}
