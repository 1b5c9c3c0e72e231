//! Inspects a module without its stage's settings, so that operators see what it is and what it needs.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wasmtime::component::Component;

use crate::{
    Description, Error, Grant, PluginConfig, Sandbox,
    capabilities::find_provided,
    complexity,
    contract::PACKAGE,
    engine::Effort,
    imports::link,
    kubewarden::CORE_MODULE_MAGIC,
    prepare::{PluginPreparation, check_bytes, on_blocking_thread},
};

/// The properties and the needs of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModuleInspection {
    /// The module's description of itself.
    pub description: Description,
    /// The module's type: `admittance:plugin` for a component, `kubewarden:wapc` or `kubewarden:wasi` for a policy.
    pub interface: String,
    /// The version of the module's interface, if the module contains it.
    pub contract: Option<String>,
    /// The interfaces that the module imports, in their order in the module.
    pub imports: Vec<ModuleImport>,
    /// Additional properties that the module declares about itself, such as its author.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub annotations: BTreeMap<String, String>,
}

/// An interface that a module imports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModuleImport {
    /// The name of the interface with its version, such as `admittance:plugin/cluster@0.1.0`.
    pub name: String,
    /// The grant that a plugin needs to use the interface.
    pub grant: Grant,
}

impl Sandbox {
    /// Checks and compiles a module, and calls its `describe`, without settings and grants, on a blocking thread.
    ///
    /// # Errors
    ///
    /// Fails when the module is not a plugin of an accepted version, has unknown imports, or exceeds a time limit.
    pub async fn inspect(&self, module: impl Into<Bytes>) -> Result<ModuleInspection, Error> {
        let module = module.into();
        check_bytes(&module, self.inner.config.max_module_size)?;
        let work = PluginPreparation::new(self, "{}", &PluginConfig::default()).await?;
        on_blocking_thread(async move || {
            complexity::check(&module)?;
            if module.starts_with(CORE_MODULE_MAGIC) {
                return work.inspect_policy(module).await;
            }
            let component = work.load_component(&work.compile(module, Effort::Least).await?)?;
            let description = work.describe(&link(&work.sandbox, &component)?).await?;
            Ok(inspect_component(&component, description))
        })
        .await
    }
}

fn needed_grant(import: &str) -> Grant {
    find_provided(import).map_or(Grant::Never, |row| row.grant)
}

fn inspect_component(component: &Component, description: Description) -> ModuleInspection {
    let component_type = component.component_type();
    let imports: Vec<_> = component_type
        .imports(component.engine())
        .map(|(name, _)| ModuleImport {
            name: name.to_owned(),
            grant: needed_grant(name),
        })
        .collect();
    let version = |import: &ModuleImport| {
        let (_, version) = import.name.strip_prefix(PACKAGE)?.split_once('@')?;
        Some(version.to_owned())
    };
    ModuleInspection {
        description,
        interface: PACKAGE.trim_end_matches('/').to_owned(),
        annotations: BTreeMap::new(),
        contract: imports.iter().find_map(version),
        imports,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_needs_the_grant_of_its_interface() {
        for (import, grant) in [
            ("admittance:plugin/types@0.1.0", Grant::None),
            ("admittance:plugin/cluster@0.1.0", Grant::Cluster),
            ("admittance:plugin/http@0.1.0", Grant::Http),
            ("wasi:logging/logging@0.1.0-draft", Grant::None),
            ("wasi:cli/environment@0.2.6", Grant::Environment),
            ("wasi:io/streams@0.2.6", Grant::None),
            ("wasi:filesystem/types@0.2.6", Grant::Never),
            ("wasi:sockets/tcp@0.2.6", Grant::Never),
            ("wasi:http/outgoing-handler@0.2.6", Grant::Never),
        ] {
            assert_eq!(needed_grant(import), grant, "{import}");
        }
    }
}
