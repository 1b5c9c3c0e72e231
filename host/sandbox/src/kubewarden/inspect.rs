use bytes::Bytes;
use wasmtime::{Linker, Module};

use super::{
    PolicyMode, define_provided_functions, link,
    metadata::{PROTOCOL_VERSION, PolicyMetadata},
    preview1,
};
use crate::{
    Error, Grant, ModuleImport, ModuleInspection,
    engine::{Effort, error_chain},
    prepare::PluginPreparation,
};

impl PluginPreparation {
    /// Inspects a policy. A waPC policy is started, because only its code can report the version of its protocol.
    pub(crate) async fn inspect_policy(&self, module: Bytes) -> Result<ModuleInspection, Error> {
        let metadata = PolicyMetadata::parse(&module)?;
        let module = self.load_core_module(&self.compile(module, Effort::Least).await?)?;
        let interface = match metadata.mode {
            PolicyMode::Wapc => {
                self.start(&module, false).await?;
                "kubewarden:wapc"
            }
            PolicyMode::Program => {
                link(&self.sandbox, &module, PolicyMode::Program)?;
                "kubewarden:wasi"
            }
        };
        let imports = self
            .policy_imports(&module)
            .map_err(|error| Error::WrongImport(error_chain(&error)))?;
        Ok(ModuleInspection {
            description: metadata.description,
            interface: interface.to_owned(),
            contract: Some(PROTOCOL_VERSION.to_owned()),
            imports,
            annotations: metadata.annotations,
        })
    }

    fn policy_imports(&self, module: &Module) -> wasmtime::Result<Vec<ModuleImport>> {
        let mut provided = Linker::new(module.engine());
        define_provided_functions(&mut provided)?;
        let mut store = self.new_store();
        let mut imports: Vec<ModuleImport> = Vec::new();
        for import in module.imports() {
            let (from, name) = (import.module(), import.name());
            let is_denied = from == preview1::MODULE_NAME && provided.get(&mut store, from, name).is_err();
            let import = if is_denied {
                ModuleImport {
                    name: format!("{from}/{name}"),
                    grant: Grant::Never,
                }
            } else {
                ModuleImport {
                    name: from.to_owned(),
                    grant: Grant::None,
                }
            };
            if !imports.contains(&import) {
                imports.push(import);
            }
        }
        Ok(imports)
    }
}
