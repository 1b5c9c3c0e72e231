use wasmparser::{
    ConstExpr, Data, DataKind, Element, Export, FunctionBody, Global, MemoryType, Parser, Payload, RecGroup,
    Table, TypeRef,
};

use super::{Item, Kind, PerKind};

#[derive(Default)]
pub(super) struct Member<'a> {
    /// The highest level among the imported items, which is also the level of the module.
    pub(super) level: usize,
    pub(super) types: Vec<RecGroup>,
    /// The imports in order, each with the type that the module declares.
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

impl<'a> Member<'a> {
    /// Reads a module; `None` if it contains anything that cannot be merged.
    pub(super) fn of(module: &'a [u8], find: impl Fn(&str, &str) -> Option<(Kind, Item)>) -> Option<Self> {
        let mut member = Self::default();
        for payload in Parser::new(0).parse_all(module) {
            match payload.ok()? {
                Payload::TypeSection(section) => member.types = all(section)?,
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import.ok()?;
                        let (kind, item) = find(import.module, import.name)?;
                        member.imports.push((kind, item, import.ty));
                        member.imported.of_mut(kind).push(item);
                    }
                }
                Payload::FunctionSection(section) => member.functions = all(section)?,
                Payload::TableSection(section) => member.tables = all(section)?,
                Payload::MemorySection(section) => member.memories = all(section)?,
                Payload::GlobalSection(section) => member.globals = all(section)?,
                Payload::ExportSection(section) => member.exports = all(section)?,
                Payload::ElementSection(section) => member.elements = all(section)?,
                Payload::DataSection(section) => member.data = all(section)?,
                Payload::CodeSectionEntry(body) => member.bodies.push(body),
                // The component is a snapshot, in which start functions have already run, so no module should have one.
                Payload::StartSection { .. } | Payload::TagSection(_) => return None,
                _ => {}
            }
        }
        Some(member)
    }

    /// Returns the item that an index of the module `number` refers to.
    pub(super) fn item(&self, number: usize, kind: Kind, index: u32) -> Option<Item> {
        let imported = self.imported.of(kind);
        if let Some(item) = imported.get(index as usize) {
            return Some(*item);
        }
        Some(Item::Defined {
            member: number,
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

    /// Returns the memory, the offset and the content of each active data segment.
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

fn all<'a, T: wasmparser::FromReader<'a>>(section: wasmparser::SectionLimited<'a, T>) -> Option<Vec<T>> {
    section.into_iter().collect::<wasmparser::Result<_>>().ok()
}
