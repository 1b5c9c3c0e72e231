use std::collections::{HashMap, HashSet};

use wasm_encoder::{
    Alias, CanonicalFunctionSection, ComponentAliasSection, ComponentSectionId, ExportKind, InstanceSection, ModuleArg,
    RawSection,
    reencode::{Error, Reencode, ReencodeComponent},
};

use super::{
    Item, Kind, PerKind,
    module::{IMPORT_INSTANCE, MergedModule},
    parsed_component::{NonModuleSection, ParsedComponent},
};

impl ParsedComponent<'_> {
    pub(super) fn encode(&self, levels: &[Vec<usize>]) -> Option<Vec<u8>> {
        let mut component = wasm_encoder::Component::new();
        let mut indices = NewIndices::new(&self.items);
        for part in &self.sections_before_lifts {
            part.encode(&mut component, &mut indices)?;
        }
        let needed_items = self.needed_items()?;
        let level_ends = self.canonical_functions.iter().map(|canonical| canonical.level + 1);
        for level in 0..level_ends.max().unwrap_or(0).max(levels.len()) {
            let mut functions = CanonicalFunctionSection::new();
            for (number, canonical) in self.canonical_functions.iter().enumerate() {
                if canonical.level == level {
                    let function = canonical.function.clone();
                    indices.parse_component_canonical(&mut functions, function).ok()?;
                    indices.add_item(Kind::Function, Item::Canonical(number));
                }
            }
            component.section(&functions);
            let Some(numbers) = levels.get(level).filter(|numbers| !numbers.is_empty()) else {
                continue;
            };
            let selected = needed_items.iter().filter(|(_, item)| match item {
                Item::Canonical(_) => false,
                Item::Defined { core_module, .. } => numbers.contains(core_module),
            });
            let exports: Vec<_> = selected.copied().collect();
            let merged = MergedModule::merge(&self.core_modules, numbers, &exports)?;
            indices.add_instance(&mut component, &merged, &exports)?;
        }
        for part in &self.sections_after_lifts {
            part.encode(&mut component, &mut indices)?;
        }
        Some(component.finish())
    }

    fn needed_items(&self) -> Option<Vec<(Kind, Item)>> {
        let mut items = Vec::new();
        for core_module in &self.core_modules {
            let imports = core_module
                .imports
                .iter()
                .filter(|(_, item, _)| self.level(*item) != Some(core_module.level));
            items.extend(imports.map(|(kind, item, _)| (*kind, *item)));
        }
        let lifts = self.sections_after_lifts.iter().filter_map(|part| match part {
            NonModuleSection::Lifts(lifts) => Some(lifts),
            _ => None,
        });
        let canonicals = self.canonical_functions.iter().map(|canonical| &canonical.function);
        for function in canonicals.chain(lifts.flatten()) {
            items.extend(self.referenced_items(function)?);
        }
        let mut unique_items = HashSet::new();
        items.retain(|needed_item| unique_items.insert(*needed_item));
        Some(items)
    }
}

impl NonModuleSection<'_> {
    fn encode(&self, component: &mut wasm_encoder::Component, indices: &mut NewIndices<'_>) -> Option<()> {
        match self {
            Self::Section(raw) => component.section(raw),
            Self::Aliases(aliases) => component.section(aliases),
            Self::Lifts(lifts) => {
                let mut functions = CanonicalFunctionSection::new();
                for lift in lifts {
                    indices.parse_component_canonical(&mut functions, lift.clone()).ok()?;
                }
                component.section(&functions)
            }
        };
        Some(())
    }
}

/// Assigns indices in the merged component, and finds the new index of each core item of the original component.
struct NewIndices<'a> {
    old: &'a PerKind<Vec<Item>>,
    new: HashMap<(Kind, Item), u32>,
    counts: PerKind<u32>,
    modules: u32,
    instances: u32,
}

impl<'a> NewIndices<'a> {
    fn new(old: &'a PerKind<Vec<Item>>) -> Self {
        Self {
            old,
            new: HashMap::new(),
            counts: PerKind::default(),
            modules: 0,
            instances: 0,
        }
    }

    fn add_item(&mut self, kind: Kind, item: Item) {
        let count = self.counts.get_mut(kind);
        self.new.insert((kind, item), *count);
        *count = count.saturating_add(1);
    }

    fn translate_index(&self, kind: Kind, index: u32) -> Result<u32, Error<()>> {
        let item = self.old.get(kind).get(index as usize).ok_or(Error::UserError(()))?;
        self.new.get(&(kind, *item)).copied().ok_or(Error::UserError(()))
    }

    /// Adds a module and its instance, and gives indices to those of its exports that the rest of the component uses.
    fn add_instance(
        &mut self,
        component: &mut wasm_encoder::Component,
        merged: &MergedModule,
        exports: &[(Kind, Item)],
    ) -> Option<()> {
        component.section(&RawSection {
            id: ComponentSectionId::CoreModule.into(),
            data: &merged.bytes,
        });
        let imports = merged.imports.iter().enumerate().map(|(name, (kind, item))| {
            Some((
                name.to_string(),
                ExportKind::from(*kind),
                *self.new.get(&(*kind, *item))?,
            ))
        });
        let mut instances = InstanceSection::new();
        instances.export_items(imports.collect::<Option<Vec<_>>>()?);
        let arguments = ModuleArg::Instance(self.instances);
        instances.instantiate(self.modules, [(IMPORT_INSTANCE, arguments)]);
        component.section(&instances);
        self.modules = self.modules.checked_add(1)?;
        let instance = self.instances.checked_add(1)?;
        self.instances = instance.checked_add(1)?;
        let mut aliases = ComponentAliasSection::new();
        for (name, (kind, item)) in exports.iter().enumerate() {
            aliases.alias(Alias::CoreInstanceExport {
                instance,
                kind: (*kind).into(),
                name: &name.to_string(),
            });
            self.add_item(*kind, *item);
        }
        component.section(&aliases);
        Some(())
    }
}

impl Reencode for NewIndices<'_> {
    type Error = ();

    fn function_index(&mut self, index: u32) -> Result<u32, Error<()>> {
        self.translate_index(Kind::Function, index)
    }

    fn memory_index(&mut self, index: u32) -> Result<u32, Error<()>> {
        self.translate_index(Kind::Memory, index)
    }
}

impl ReencodeComponent for NewIndices<'_> {}
