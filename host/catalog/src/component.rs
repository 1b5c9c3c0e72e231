use serde::Serialize;
use wasmparser::{Encoding, Parser, Payload};

/// The imports and exports of a component, as listed in the configuration of an artifact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Component {
    pub(crate) exports: Vec<String>,
    pub(crate) imports: Vec<String>,
}

impl Component {
    /// Reads them from a component's bytes, without validating the component.
    ///
    /// # Errors
    ///
    /// When the bytes are not a component; the error says what they are.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let mut component = Self::default();
        let mut depth = 0_usize;
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload.map_err(|error| format!("it is not valid WebAssembly: {error}"))?;
            match payload {
                Payload::Version {
                    encoding: Encoding::Module,
                    ..
                } if depth == 0 => {
                    return Err(
                        "it is a core module, and plugins are components: build it for `wasm32-wasip2`"
                            .to_owned(),
                    );
                }
                Payload::Version { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(imports) if depth == 1 => {
                    for import in imports {
                        let import = import.map_err(|error| error.to_string())?;
                        component.imports.push(import.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(exports) if depth == 1 => {
                    for export in exports {
                        let export = export.map_err(|error| error.to_string())?;
                        component.exports.push(export.name.name.to_owned());
                    }
                }
                _ => {}
            }
        }
        Ok(component)
    }
}
