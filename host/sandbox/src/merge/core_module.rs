use wasmparser::{
    ConstExpr, Data, DataKind, Element, Export, FunctionBody, Global, MemoryType, Parser, Payload, RecGroup, Table,
    TypeRef,
};

use super::{Item, Kind, PerKind};

#[derive(Default)]
pub(super) struct CoreModule<'a> {
    /// The level of this module. A host function may need the memory of a module, so it can be created only after that
    /// module. A module that imports such a function has a higher level than the other module; without such imports,
    /// the level is 0. Only modules of the same level are merged.
    pub(super) level: usize,
    pub(super) types: Vec<RecGroup>,
    pub(super) imports: Vec<(Kind, Item, TypeRef)>,
    imported: PerKind<Vec<Item>>,
    pub(super) functions: Vec<u32>,
    pub(super) tables: Vec<Table<'a>>,
    pub(super) memories: Vec<MemoryType>,
    pub(super) globals: Vec<Global<'a>>,
    pub(super) exports: Vec<Export<'a>>,
    pub(super) elements: Vec<Element<'a>>,
    pub(super) data: Vec<Data<'a>>,
    pub(super) bodies: Vec<FunctionBody<'a>>,
}

impl<'a> CoreModule<'a> {
    /// Reads a core module; returns `None` if it contains anything that cannot be merged.
    pub(super) fn parse(module: &'a [u8], find: impl Fn(&str, &str) -> Option<(Kind, Item)>) -> Option<Self> {
        let mut core_module = Self::default();
        for payload in Parser::new(0).parse_all(module) {
            match payload.ok()? {
                Payload::TypeSection(section) => core_module.types = collect_items(section)?,
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import.ok()?;
                        let (kind, item) = find(import.module, import.name)?;
                        core_module.imports.push((kind, item, import.ty));
                        core_module.imported.get_mut(kind).push(item);
                    }
                }
                Payload::FunctionSection(section) => core_module.functions = collect_items(section)?,
                Payload::TableSection(section) => core_module.tables = collect_items(section)?,
                Payload::MemorySection(section) => core_module.memories = collect_items(section)?,
                Payload::GlobalSection(section) => core_module.globals = collect_items(section)?,
                Payload::ExportSection(section) => core_module.exports = collect_items(section)?,
                Payload::ElementSection(section) => core_module.elements = collect_items(section)?,
                Payload::DataSection(section) => core_module.data = collect_items(section)?,
                Payload::CodeSectionEntry(body) => core_module.bodies.push(body),
                // A snapshot has no start function, because the start functions ran before it was taken. So a module
                // with a start function is not from a snapshot, and is not merged.
                Payload::StartSection { .. } | Payload::TagSection(_) => return None,
                _ => {}
            }
        }
        Some(core_module)
    }

    pub(super) fn item(&self, number: usize, kind: Kind, index: u32) -> Option<Item> {
        let imported = self.imported.get(kind);
        if let Some(item) = imported.get(index as usize) {
            return Some(*item);
        }
        Some(Item::Defined {
            core_module: number,
            definition: index.checked_sub(u32::try_from(imported.len()).ok()?)?,
        })
    }

    pub(super) fn counts(&self) -> PerKind<usize> {
        PerKind {
            functions: self.functions.len(),
            tables: self.tables.len(),
            memories: self.memories.len(),
            globals: self.globals.len(),
        }
    }

    /// Returns the memory, the offset and the content of each active data segment of the module.
    pub(super) fn active_data(&self) -> impl Iterator<Item = (u32, &ConstExpr<'a>, &'a [u8])> {
        self.data.iter().filter_map(|segment| match &segment.kind {
            DataKind::Active {
                memory_index,
                offset_expr,
            } => Some((*memory_index, offset_expr, segment.data)),
            DataKind::Passive => None,
        })
    }
}

fn collect_items<'a, T: wasmparser::FromReader<'a>>(section: wasmparser::SectionLimited<'a, T>) -> Option<Vec<T>> {
    section.into_iter().collect::<wasmparser::Result<_>>().ok()
}
