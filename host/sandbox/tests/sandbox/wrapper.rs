//! Tests of components inside another component, as JavaScript toolchains produce.

use wasm_encoder::{
    Alias, Component, ComponentAliasSection, ComponentExportKind, ComponentExportSection, ComponentInstanceSection,
    RawSection,
};
use wasmparser::{ComponentAlias, ComponentExternalKind, Parser, Payload};

/// The number of definitions of each kind in a component so far, which is also the next definition's index.
#[derive(Default)]
struct DefinitionCounts {
    types: u32,
    instances: u32,
    functions: u32,
}

impl DefinitionCounts {
    fn add(&mut self, kind: ComponentExternalKind) -> (ComponentExportKind, u32) {
        let (kind, next) = match kind {
            ComponentExternalKind::Type => (ComponentExportKind::Type, &mut self.types),
            ComponentExternalKind::Instance => (ComponentExportKind::Instance, &mut self.instances),
            _ => (ComponentExportKind::Func, &mut self.functions),
        };
        *next += 1;
        (kind, *next - 1)
    }
}

/// Wraps a component in another one, which instantiates it `times` times and exports the last instance.
pub(crate) fn wrap_component(inner: &[u8], times: usize) -> Vec<u8> {
    let mut wrapper = Component::new();
    let mut defined = DefinitionCounts::default();
    let (mut arguments, mut names) = (Vec::new(), Vec::new());
    let (mut depth, mut is_in_imports) = (0, true);
    for payload in Parser::new(0).parse_all(inner) {
        let payload = payload.unwrap();
        match payload {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => is_in_imports = false,
            _ => {}
        }
        if depth != 1 {
            continue;
        }
        if let (true, Some((id, range))) = (is_in_imports, payload.as_section()) {
            wrapper.section(&RawSection {
                id,
                data: &inner[range],
            });
        }
        match payload {
            Payload::ComponentTypeSection(section) => defined.types += section.count(),
            Payload::ComponentImportSection(section) => {
                for import in section {
                    let import = import.unwrap();
                    let (kind, index) = defined.add(import.ty.kind());
                    arguments.push((import.name.name.to_owned(), kind, index));
                }
            }
            Payload::ComponentAliasSection(section) if is_in_imports => {
                for alias in section {
                    if let ComponentAlias::InstanceExport { kind, .. } = alias.unwrap() {
                        defined.add(kind);
                    }
                }
            }
            Payload::ComponentExportSection(section) => {
                names.extend(section.into_iter().map(|export| export.unwrap().name.name.to_owned()));
            }
            _ => {}
        }
    }
    let id = wasm_encoder::ComponentSectionId::Component as u8;
    wrapper.section(&RawSection { id, data: inner });
    let mut instances = ComponentInstanceSection::new();
    for _ in 0..times {
        let arguments = arguments
            .iter()
            .map(|(name, kind, index)| (name.as_str(), *kind, *index));
        instances.instantiate(0, arguments);
    }
    wrapper.section(&instances);
    let instance = defined.instances + instances.len() - 1;
    for (name, index) in names.iter().zip((defined.functions..).step_by(2)) {
        let kind = ComponentExportKind::Func;
        let (mut aliases, mut exports) = (ComponentAliasSection::new(), ComponentExportSection::new());
        aliases.alias(Alias::InstanceExport { instance, kind, name });
        exports.export(name.as_str(), kind, index, None);
        wrapper.section(&aliases).section(&exports);
    }
    wrapper.finish()
}
