use std::collections::HashMap;

use wasm_encoder::{Alias, ComponentAliasSection, RawSection};
use wasmparser::{
    CanonicalFunction, CanonicalOption, ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentType,
    ElementKind, Instance, Parser, Payload,
};

use super::{Item, Kind, PerKind, core_module::CoreModule};

#[derive(Default)]
pub(super) struct ParsedComponent<'a> {
    modules: Vec<&'a [u8]>,
    pub(super) core_modules: Vec<CoreModule<'a>>,
    pub(super) canonical_functions: Vec<CanonicalEntry>,
    instances: Vec<HashMap<&'a str, (Kind, Item)>>,
    pub(super) items: PerKind<Vec<Item>>,
    /// The sections of the component in front of the first function that is lifted, which means that it can be called
    /// from outside of the component. The core modules are left out. All later sections are in `sections_after_lifts`.
    pub(super) sections_before_lifts: Vec<NonModuleSection<'a>>,
    pub(super) sections_after_lifts: Vec<NonModuleSection<'a>>,
}

pub(super) struct CanonicalEntry {
    pub(super) function: CanonicalFunction,
    pub(super) level: usize,
}

/// A section of the component that contains no core module. The merged component gets a copy of the section, in which
/// the indices of core functions, memories and other core items are new.
pub(super) enum NonModuleSection<'a> {
    Section(RawSection<'a>),
    Aliases(ComponentAliasSection),
    /// Functions that are lifted from core functions. The core functions and memories to which they refer have new
    /// indices in the merged component.
    Lifts(Vec<CanonicalFunction>),
}

impl<'a> ParsedComponent<'a> {
    pub(super) fn parse(component: &'a [u8]) -> Option<Self> {
        let mut parsed = Self::default();
        let mut depth = 0_u32;
        for payload in Parser::new(0).parse_all(component) {
            let payload = payload.ok()?;
            match &payload {
                Payload::Version { .. } => depth = depth.saturating_add(1),
                Payload::End(_) => depth = depth.saturating_sub(1),
                _ => {}
            }
            if let (1, Some((id, range))) = (depth, payload.as_section()) {
                let data = component.get(range)?;
                parsed.read_section(payload, RawSection { id, data })?;
            }
        }
        Some(parsed)
    }

    fn read_section(&mut self, payload: Payload<'a>, raw: RawSection<'a>) -> Option<()> {
        match payload {
            Payload::ModuleSection { .. } => self.modules.push(raw.data),
            Payload::InstanceSection(section) => {
                for instance in section {
                    let exports = self.instance_exports(&instance.ok()?)?;
                    self.instances.push(exports);
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section {
                    self.read_alias(&alias.ok()?)?;
                }
            }
            Payload::ComponentCanonicalSection(section) => {
                let mut lifts = Vec::new();
                for function in section {
                    match function.ok()? {
                        lift @ CanonicalFunction::Lift { .. } => lifts.push(lift),
                        // This core function comes after a lifted function. A merge would move it in front of the
                        // lifted function, but it may need items defined in between. So such a component is not merged.
                        _ if !lifts.is_empty() || !self.sections_after_lifts.is_empty() => return None,
                        function => self.add_canonical(function)?,
                    }
                }
                if !lifts.is_empty() {
                    self.sections_after_lifts.push(NonModuleSection::Lifts(lifts));
                }
            }
            Payload::ComponentTypeSection(section) => {
                for ty in section {
                    // A resource type may have a destructor, which it names by the index of a core function. Merging
                    // does not change the indices in types, so a component with a destructor is not merged.
                    if let ComponentType::Resource { dtor: Some(_), .. } = ty.ok()? {
                        return None;
                    }
                }
                self.push_section(NonModuleSection::Section(raw));
            }
            Payload::ComponentInstanceSection(section) => {
                for instance in section {
                    if let ComponentInstance::Instantiate { args, .. } = instance.ok()?
                        && args.iter().any(|arg| arg.kind == ComponentExternalKind::Module)
                    {
                        return None;
                    }
                }
                self.push_section(NonModuleSection::Section(raw));
            }
            // Custom sections are dropped, because they refer to items by their old indices.
            Payload::CustomSection(_) => {}
            _ => self.push_section(NonModuleSection::Section(raw)),
        }
        Some(())
    }

    fn push_section(&mut self, part: NonModuleSection<'a>) {
        let parts = if self.sections_after_lifts.is_empty() {
            &mut self.sections_before_lifts
        } else {
            &mut self.sections_after_lifts
        };
        parts.push(part);
    }

    fn instance_exports(&mut self, instance: &Instance<'a>) -> Option<HashMap<&'a str, (Kind, Item)>> {
        match instance {
            Instance::FromExports(exports) => exports
                .iter()
                .map(|export| {
                    let kind = Kind::from_external(export.kind)?;
                    Some((export.name, (kind, self.item(kind, export.index)?)))
                })
                .collect(),
            Instance::Instantiate { module_index, args } => {
                let module = *self.modules.get(*module_index as usize)?;
                let arguments: HashMap<_, _> = args.iter().map(|arg| (arg.name, arg.index)).collect();
                let number = self.core_modules.len();
                let mut core_module = CoreModule::parse(module, |instance, name| {
                    let instance = self.instances.get(*arguments.get(instance)? as usize)?;
                    instance.get(name).copied()
                })?;
                let imports = core_module.imports.iter().map(|(_, item, _)| self.level(*item));
                core_module.level = imports.collect::<Option<Vec<_>>>()?.into_iter().max().unwrap_or(0);
                let items = core_module.exports.iter().map(|export| {
                    let kind = Kind::from_external(export.kind)?;
                    Some((export.name, (kind, core_module.item(number, kind, export.index)?)))
                });
                let exports = items.collect();
                self.core_modules.push(core_module);
                exports
            }
        }
    }

    fn read_alias(&mut self, alias: &ComponentAlias<'a>) -> Option<()> {
        let new_alias = match *alias {
            ComponentAlias::CoreInstanceExport {
                instance_index, name, ..
            } => {
                let exports = self.instances.get(instance_index as usize)?;
                let (kind, item) = *exports.get(name)?;
                self.items.get_mut(kind).push(item);
                return Some(());
            }
            ComponentAlias::InstanceExport {
                kind,
                instance_index,
                name,
            } => Alias::InstanceExport {
                instance: instance_index,
                kind: kind.into(),
                name,
            },
            ComponentAlias::Outer { kind, count, index } => Alias::Outer {
                kind: kind.into(),
                count,
                index,
            },
        };
        let mut aliases = ComponentAliasSection::new();
        aliases.alias(new_alias);
        self.push_section(NonModuleSection::Aliases(aliases));
        Some(())
    }

    fn add_canonical(&mut self, function: CanonicalFunction) -> Option<()> {
        let mut level = 0;
        for item in self.referenced_items(&function)? {
            level = level.max(self.level(item.1)?.checked_add(1)?);
        }
        self.items
            .functions
            .push(Item::Canonical(self.canonical_functions.len()));
        self.canonical_functions.push(CanonicalEntry { function, level });
        Some(())
    }

    /// Returns the core functions and memories to which a canonical function refers. For a lifted function, these are
    /// the core function that is lifted, and the memory and functions in its options. Returns `None` if the options
    /// refer to anything else.
    pub(super) fn referenced_items(&self, function: &CanonicalFunction) -> Option<Vec<(Kind, Item)>> {
        let (lifted_index, options) = match function {
            CanonicalFunction::Lift {
                core_func_index,
                options,
                ..
            } => (Some(*core_func_index), &**options),
            CanonicalFunction::Lower { options, .. } => (None, &**options),
            CanonicalFunction::ResourceNew { .. }
            | CanonicalFunction::ResourceDrop { .. }
            | CanonicalFunction::ResourceRep { .. } => (None, <&[_]>::default()),
            _ => return None,
        };
        let mut indices: Vec<_> = lifted_index.iter().map(|index| (Kind::Function, *index)).collect();
        for option in options {
            match *option {
                CanonicalOption::UTF8 | CanonicalOption::UTF16 | CanonicalOption::CompactUTF16 => {}
                CanonicalOption::Memory(index) => indices.push((Kind::Memory, index)),
                CanonicalOption::Realloc(index) | CanonicalOption::PostReturn(index) => {
                    indices.push((Kind::Function, index));
                }
                _ => return None,
            }
        }
        let items = indices
            .into_iter()
            .map(|(kind, index)| Some((kind, self.item(kind, index)?)));
        items.collect()
    }

    fn item(&self, kind: Kind, index: u32) -> Option<Item> {
        self.items.get(kind).get(index as usize).copied()
    }

    pub(super) fn level(&self, item: Item) -> Option<usize> {
        match item {
            Item::Canonical(number) => self.canonical_functions.get(number).map(|canonical| canonical.level),
            Item::Defined { core_module, .. } => {
                self.core_modules.get(core_module).map(|core_module| core_module.level)
            }
        }
    }

    pub(super) fn modules_by_level(&self) -> Vec<Vec<usize>> {
        let mut levels = Vec::new();
        let last_level = self.core_modules.iter().map(|core_module| core_module.level).max();
        levels.resize(last_level.map_or(0, |last| last + 1), Vec::new());
        for (number, core_module) in self.core_modules.iter().enumerate() {
            if let Some(level) = levels.get_mut(core_module.level) {
                level.push(number);
            }
        }
        levels
    }

    /// Returns whether the merged component writes segments to tables and memories in the same order as the original.
    /// The order matters if segments of several modules write to the same place.
    pub(super) fn keeps_order(&self) -> bool {
        let mut last_levels = HashMap::new();
        self.core_modules.iter().enumerate().all(|(number, core_module)| {
            let table_items = core_module.elements.iter().filter_map(|segment| match segment.kind {
                ElementKind::Active { table_index, .. } => {
                    core_module.item(number, Kind::Table, table_index.unwrap_or(0))
                }
                _ => None,
            });
            let memories = core_module
                .active_data()
                .filter_map(|(memory, ..)| core_module.item(number, Kind::Memory, memory));
            let tables = table_items.map(|item| (Kind::Table, item));
            let mut targets = tables.chain(memories.map(|item| (Kind::Memory, item)));
            targets.all(|target| {
                let previous_level = last_levels.insert(target, core_module.level);
                previous_level.is_none_or(|level| level <= core_module.level)
            })
        })
    }
}
