use std::collections::{HashMap, HashSet};

use wasm_encoder::{
    CodeSection, ConstExpr, DataCountSection, DataSection, ElementSection, EntityType, ExportSection, Function,
    FunctionSection, GlobalSection, ImportSection, Instruction, MemorySection, Module, TableSection, TypeSection,
    reencode::{Error, Reencode, utils},
};
use wasmparser::{DataKind, Operator};

use super::{Item, Kind, PerKind, core_module::CoreModule, reachable::find_reachable};

/// The name of the instance from which a merged module imports all items. The items themselves have numbers as names.
pub(super) const IMPORT_INSTANCE: &str = "";

pub(super) struct MergedModule {
    pub(super) bytes: Vec<u8>,
    pub(super) imports: Vec<(Kind, Item)>,
}

impl MergedModule {
    pub(super) fn merge(core_modules: &[CoreModule<'_>], numbers: &[usize], exports: &[(Kind, Item)]) -> Option<Self> {
        let core_modules: Vec<_> = numbers
            .iter()
            .map(|number| Some((*number, core_modules.get(*number)?)))
            .collect::<Option<_>>()?;
        // The merged module would have all memories of these modules. `SnapshotTemplate` can replace the data of a
        // module only if the module has a single memory. So modules with more than one memory in total are not merged.
        let memories = core_modules.iter().map(|(_, core_module)| core_module.memories.len());
        if core_modules.len() > 1 && memories.sum::<usize>() > 1 {
            return None;
        }
        let (indices, imports) = Indices::assign(&core_modules)?;
        let reachable = find_reachable(&core_modules, exports)?;
        let mut sections = ModuleSections::default();
        for (name, (kind, item)) in exports.iter().enumerate() {
            let index = indices.merged_index(*kind, *item)?;
            sections.exports.export(&name.to_string(), (*kind).into(), index);
        }
        for (number, core_module) in &core_modules {
            let mut translation = IndexTranslation {
                indices: &indices,
                number: *number,
                core_module,
            };
            sections.add_module(&mut translation, &imports, &reachable).ok()?;
        }
        Some(Self {
            bytes: sections.finish(),
            imports,
        })
    }
}

struct Indices {
    /// The number of each original module, and the first indices that its items have in the merged module.
    first_indices: HashMap<usize, FirstIndices>,
    imports: HashMap<(Kind, Item), u32>,
    /// The values of immutable globals, which replace references to these globals in constant expressions.
    constants: HashMap<Item, i32>,
}

#[derive(Clone, Default)]
struct FirstIndices {
    definitions: PerKind<u32>,
    types: u32,
    elements: u32,
    /// The indices of the module's first passive and first active data segment in the merged module.
    data: (u32, u32),
}

impl Indices {
    fn assign(core_modules: &[(usize, &CoreModule<'_>)]) -> Option<(Self, Vec<(Kind, Item)>)> {
        let mut indices = Self {
            first_indices: core_modules
                .iter()
                .map(|(number, _)| (*number, FirstIndices::default()))
                .collect(),
            imports: HashMap::new(),
            constants: HashMap::new(),
        };
        let mut imports = Vec::new();
        let mut next_indices = FirstIndices::default();
        for (kind, item, _) in core_modules.iter().flat_map(|(_, core_module)| &core_module.imports) {
            if !indices.is_merged(*item) && !indices.imports.contains_key(&(*kind, *item)) {
                let index = next_indices.definitions.get_mut(*kind);
                indices.imports.insert((*kind, *item), *index);
                *index = index.checked_add(1)?;
                imports.push((*kind, *item));
            }
        }
        let passive_counts = core_modules
            .iter()
            .map(|(_, core_module)| to_u32(core_module.data.len() - core_module.active_data().count()));
        next_indices.data.1 = passive_counts.sum::<Option<u32>>()?;
        for (number, core_module) in core_modules {
            indices.first_indices.insert(*number, next_indices.clone());
            let counts = core_module.counts();
            for kind in [Kind::Function, Kind::Table, Kind::Memory, Kind::Global] {
                let index = next_indices.definitions.get_mut(kind);
                *index = index.checked_add(to_u32(*counts.get(kind))?)?;
            }
            let types = core_module.types.iter().map(|group| group.types().len()).sum();
            next_indices.types = next_indices.types.checked_add(to_u32(types)?)?;
            next_indices.elements = next_indices.elements.checked_add(to_u32(core_module.elements.len())?)?;
            let active_count = core_module.active_data().count();
            next_indices.data.0 = next_indices
                .data
                .0
                .checked_add(to_u32(core_module.data.len() - active_count)?)?;
            next_indices.data.1 = next_indices.data.1.checked_add(to_u32(active_count)?)?;
            indices.add_constants(*number, core_module)?;
        }
        Some((indices, imports))
    }

    fn add_constants(&mut self, number: usize, core_module: &CoreModule<'_>) -> Option<()> {
        for (definition, global) in core_module.globals.iter().enumerate() {
            if !global.ty.mutable
                && let Some(value) = self.constant_value(&global.init_expr, number, core_module)
            {
                self.constants.insert(
                    Item::Defined {
                        core_module: number,
                        definition: to_u32(definition)?,
                    },
                    value,
                );
            }
        }
        Some(())
    }

    fn constant_value(
        &self,
        expression: &wasmparser::ConstExpr<'_>,
        number: usize,
        core_module: &CoreModule<'_>,
    ) -> Option<i32> {
        let mut stack: Vec<i32> = Vec::new();
        for operator in expression.get_operators_reader() {
            let value = match operator.ok()? {
                Operator::I32Const { value } => value,
                Operator::GlobalGet { global_index } => {
                    *self
                        .constants
                        .get(&core_module.item(number, Kind::Global, global_index)?)?
                }
                Operator::I32Add => stack.pop()?.wrapping_add(stack.pop()?),
                Operator::End => continue,
                _ => return None,
            };
            stack.push(value);
        }
        stack.pop()
    }

    fn is_merged(&self, item: Item) -> bool {
        matches!(item, Item::Defined { core_module, .. } if self.first_indices.contains_key(&core_module))
    }

    fn merged_index(&self, kind: Kind, item: Item) -> Option<u32> {
        if let Item::Defined {
            core_module,
            definition,
        } = item
            && let Some(first) = self.first_indices.get(&core_module)
        {
            return first.definitions.get(kind).checked_add(definition);
        }
        self.imports.get(&(kind, item)).copied()
    }
}

fn to_u32(number: usize) -> Option<u32> {
    u32::try_from(number).ok()
}

struct IndexTranslation<'a> {
    indices: &'a Indices,
    number: usize,
    core_module: &'a CoreModule<'a>,
}

impl IndexTranslation<'_> {
    fn translate_index(&self, kind: Kind, index: u32) -> Result<u32, Error<()>> {
        let item = self.core_module.item(self.number, kind, index);
        item.and_then(|item| self.indices.merged_index(kind, item))
            .ok_or(Error::UserError(()))
    }

    fn offset_index(&self, index: u32, select_first: impl Fn(&FirstIndices) -> u32) -> Result<u32, Error<()>> {
        let first_index = self.indices.first_indices.get(&self.number).map(select_first);
        first_index
            .and_then(|first| first.checked_add(index))
            .ok_or(Error::UserError(()))
    }
}

impl Reencode for IndexTranslation<'_> {
    type Error = ();

    fn function_index(&mut self, index: u32) -> Result<u32, Error<()>> {
        self.translate_index(Kind::Function, index)
    }

    fn table_index(&mut self, index: u32) -> Result<u32, Error<()>> {
        self.translate_index(Kind::Table, index)
    }

    fn memory_index(&mut self, index: u32) -> Result<u32, Error<()>> {
        self.translate_index(Kind::Memory, index)
    }

    fn global_index(&mut self, index: u32) -> Result<u32, Error<()>> {
        self.translate_index(Kind::Global, index)
    }

    fn type_index(&mut self, index: u32) -> Result<u32, Error<()>> {
        self.offset_index(index, |first| first.types)
    }

    fn element_index(&mut self, index: u32) -> Result<u32, Error<()>> {
        self.offset_index(index, |first| first.elements)
    }

    fn data_index(&mut self, index: u32) -> Result<u32, Error<()>> {
        let segments = &self.core_module.data;
        let segment = segments.get(index as usize).ok_or(Error::UserError(()))?;
        let wants_passive = is_passive(&segment.kind);
        let preceding = segments.iter().take(index as usize);
        let segment_count = preceding
            .filter(|preceding_segment| is_passive(&preceding_segment.kind) == wants_passive)
            .count();
        let position = to_u32(segment_count).ok_or(Error::UserError(()))?;
        self.offset_index(
            position,
            |first| if wants_passive { first.data.0 } else { first.data.1 },
        )
    }

    fn tag_index(&mut self, _: u32) -> Result<u32, Error<()>> {
        Err(Error::UserError(()))
    }

    fn instruction<'a>(&mut self, operator: Operator<'a>) -> Result<Instruction<'a>, Error<()>> {
        match operator {
            // `ref.func` is valid only for a function that its module declares, for example in an export. A merged
            // module exports other functions than the original, so the function may not be declared there. Modules with
            // this instruction are not merged.
            Operator::RefFunc { .. } => Err(Error::UserError(())),
            operator => utils::instruction(self, operator),
        }
    }

    /// Replaces globals in a constant expression with their values.
    fn const_expr(&mut self, expression: wasmparser::ConstExpr<'_>) -> Result<ConstExpr, Error<()>> {
        if let Some(value) = self.indices.constant_value(&expression, self.number, self.core_module) {
            return Ok(ConstExpr::i32_const(value));
        }
        let mut bytes = Vec::new();
        for operator in expression.get_operators_reader() {
            let instruction = match operator? {
                Operator::GlobalGet { global_index }
                    if self
                        .core_module
                        .item(self.number, Kind::Global, global_index)
                        .is_none_or(|item| self.indices.is_merged(item)) =>
                {
                    return Err(Error::UserError(()));
                }
                // The `end` of the expression is left out, because `ConstExpr` appends one itself.
                Operator::End => continue,
                operator => utils::instruction(self, operator)?,
            };
            wasm_encoder::Encode::encode(&instruction, &mut bytes);
        }
        Ok(ConstExpr::raw(bytes))
    }
}

fn is_passive(kind: &DataKind<'_>) -> bool {
    matches!(kind, DataKind::Passive)
}

#[derive(Default)]
struct ModuleSections<'a> {
    types: TypeSection,
    imports: ImportSection,
    functions: FunctionSection,
    tables: TableSection,
    memories: MemorySection,
    globals: GlobalSection,
    exports: ExportSection,
    elements: ElementSection,
    code: CodeSection,
    passive_data: Vec<&'a [u8]>,
    /// The memory, the offset and the content of each active data segment.
    active_data: Vec<(u32, ConstExpr, &'a [u8])>,
}

impl<'a> ModuleSections<'a> {
    /// Adds the content of an original module to the merged module. Imports that an earlier module has already added
    /// are left out, as are functions that cannot be reached.
    fn add_module(
        &mut self,
        translation: &mut IndexTranslation<'a>,
        imports: &[(Kind, Item)],
        reachable: &HashSet<Item>,
    ) -> Result<(), Error<()>> {
        let core_module = translation.core_module;
        for group in &core_module.types {
            translation.parse_recursive_type_group(self.types.ty(), group.clone())?;
        }
        for (kind, item, ty) in &core_module.imports {
            let name = self.imports.len();
            if imports.get(name as usize) == Some(&(*kind, *item)) {
                let ty: EntityType = translation.entity_type(*ty)?;
                self.imports.import(IMPORT_INSTANCE, &name.to_string(), ty);
            }
        }
        for ty in &core_module.functions {
            self.functions.function(translation.type_index(*ty)?);
        }
        for table in &core_module.tables {
            translation.parse_table(&mut self.tables, table.clone())?;
        }
        for memory in &core_module.memories {
            self.memories.memory(translation.memory_type(*memory)?);
        }
        for global in &core_module.globals {
            translation.parse_global(&mut self.globals, global.clone())?;
        }
        for segment in &core_module.elements {
            translation.parse_element(&mut self.elements, segment.clone())?;
        }
        for (definition, body) in (0..).zip(&core_module.bodies) {
            let item = Item::Defined {
                core_module: translation.number,
                definition,
            };
            if reachable.contains(&item) {
                translation.parse_function_body(&mut self.code, body.clone())?;
            } else {
                let mut trap = Function::new([]);
                trap.instructions().unreachable().end();
                self.code.function(&trap);
            }
        }
        let passive_segments = core_module.data.iter().filter(|segment| is_passive(&segment.kind));
        self.passive_data.extend(passive_segments.map(|segment| segment.data));
        for (memory, offset, data) in core_module.active_data() {
            let (memory, offset) = (
                translation.memory_index(memory)?,
                translation.const_expr(offset.clone())?,
            );
            self.active_data.push((memory, offset, data));
        }
        Ok(())
    }

    fn finish(self) -> Vec<u8> {
        let mut data = DataSection::new();
        for segment in self.passive_data {
            data.passive(segment.iter().copied());
        }
        for (memory, offset, segment) in self.active_data {
            data.active(memory, &offset, segment.iter().copied());
        }
        let mut module = Module::new();
        module
            .section(&self.types)
            .section(&self.imports)
            .section(&self.functions)
            .section(&self.tables)
            .section(&self.memories)
            .section(&self.globals)
            .section(&self.exports)
            .section(&self.elements);
        if !data.is_empty() {
            module.section(&DataCountSection { count: data.len() });
        }
        module.section(&self.code).section(&data);
        module.finish()
    }
}
