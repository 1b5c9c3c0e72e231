//! Limits the complexity of a module before any other code parses it.
//!
//! The size of a module does not bound its cost: a component of a few hundred bytes can demand a billion instances, and
//! a function of a few kilobytes can keep a compiler busy for minutes. One pass over the module counts the items that
//! determine the cost, without recursion or expansion.

use wasmparser::{
    BinaryReader, ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, ComponentType,
    ComponentTypeDeclaration, ComponentTypeRef, CompositeInnerType, CoreType, Encoding, Instance,
    ModuleTypeDeclaration, Parser, Payload, RecGroup, TypeRef,
};

use crate::Error;

mod function;

/// A kind of item that is counted in a component, and the maximum count. Each maximum is at least seven times the count
/// in componentize-py's Python interpreter.
#[derive(Clone, Copy)]
struct Limit(&'static str, u64);

const NESTING: Limit = Limit("levels of nested components", 20);
const TYPE_NESTING: Limit = Limit("levels of nested component types", 20);
const INSTANCES: Limit = Limit(
    "instances, counting nested components each time they are instantiated",
    1_000,
);
const DEFINITIONS: Limit = Limit(
    "imports, exports, aliases and functions of components, counting nested components each time they are instantiated",
    100_000,
);
const MODULES: Limit = Limit("core modules", 500);
const COMPONENTS: Limit = Limit("components", 500);
const TYPES: Limit = Limit("types", 100_000);
const FUNCTIONS: Limit = Limit("functions", 200_000);
const GLOBALS: Limit = Limit("globals", 100_000);
const IMPORTS: Limit = Limit("imports of core modules", 100_000);
const EXPORTS: Limit = Limit("exports of core modules", 100_000);
const SEGMENTS: Limit = Limit("element and data segments", 100_000);

impl Limit {
    fn check(self, count: u64) -> Result<(), Error> {
        let Self(items, limit) = self;
        if count <= limit {
            return Ok(());
        }
        Err(Error::TooComplex { items, count, limit })
    }

    fn add_to_total(self, total: &mut u64, increment: impl Into<u64>) -> Result<(), Error> {
        *total = total.saturating_add(increment.into());
        self.check(*total)
    }
}

/// Refuses a module that would cost too much to compile or instantiate. Validation is left to the compiler.
pub(crate) fn check(module: &[u8]) -> Result<(), Error> {
    let mut counts = ComplexityCounts::default();
    let mut open_scopes: Vec<OpenScope> = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        match payload.map_err(parse_error)? {
            Payload::Version { encoding, .. } => {
                open_scopes.push(match encoding {
                    Encoding::Component => OpenScope::Component(ComponentLevel::default()),
                    Encoding::Module => OpenScope::Module(function::Types::default()),
                });
                let (total, limit) = match encoding {
                    Encoding::Component => (&mut counts.components, COMPONENTS),
                    Encoding::Module => (&mut counts.modules, MODULES),
                };
                limit.add_to_total(total, 1_u32)?;
                NESTING.check(open_scopes.len() as u64)?;
            }
            Payload::End(_) => {
                let closed = open_scopes.pop();
                match (closed, open_scopes.last_mut()) {
                    (Some(OpenScope::Component(nested)), Some(OpenScope::Component(parent))) => {
                        parent.component_costs.push(Some(nested.cost));
                    }
                    (Some(OpenScope::Component(outermost)), None) => outermost.cost.check()?,
                    _ => {}
                }
            }
            payload => match open_scopes.split_last_mut() {
                Some((OpenScope::Module(types), _)) => counts.count_in_module(payload, types)?,
                Some((OpenScope::Component(component), outer)) => {
                    counts.count_in_component(payload, module, component, outer)?;
                }
                None => {}
            },
        }
    }
    Ok(())
}

fn parse_error(error: wasmparser::Error) -> Error {
    match error.to_string() {
        text if text.contains("unexpected end") => Error::Truncated(text),
        text => Error::from_compile_failure(text),
    }
}

#[derive(Default)]
struct ComplexityCounts {
    components: u64,
    modules: u64,
    types: u64,
    functions: u64,
    globals: u64,
    imports: u64,
    exports: u64,
    segments: u64,
    function_totals: function::Totals,
}

enum OpenScope {
    Component(ComponentLevel),
    Module(function::Types),
}

#[derive(Default)]
struct ComponentLevel {
    /// The cost of instantiating each component, by the index of the component; `None` for an imported component.
    component_costs: Vec<Option<Cost>>,
    cost: Cost,
}

/// The number of items that are created when a component is instantiated, including those of nested instantiations.
#[derive(Clone, Copy, Default)]
struct Cost {
    instances: u64,
    definitions: u64,
}

impl Cost {
    fn check(self) -> Result<(), Error> {
        INSTANCES.check(self.instances)?;
        DEFINITIONS.check(self.definitions)
    }

    fn add(&mut self, other: Self) {
        self.instances = self.instances.saturating_add(other.instances);
        self.definitions = self.definitions.saturating_add(other.definitions);
    }

    fn add_definitions(&mut self, count: usize) {
        self.definitions = self.definitions.saturating_add(count as u64);
    }
}

impl ComplexityCounts {
    fn count_in_component(
        &mut self,
        payload: Payload<'_>,
        module: &[u8],
        component: &mut ComponentLevel,
        outer: &[OpenScope],
    ) -> Result<(), Error> {
        match payload {
            Payload::ComponentTypeSection(types) => {
                let section = module.get(types.range()).unwrap_or_default();
                self.count_component_types(BinaryReader::new(section, types.range().start))?;
            }
            Payload::CoreTypeSection(types) => {
                for core_type in types {
                    self.count_core_type(&core_type.map_err(parse_error)?)?;
                }
            }
            Payload::InstanceSection(instances) => {
                for instance in instances {
                    component.cost.instances += 1;
                    component.cost.add_definitions(match instance.map_err(parse_error)? {
                        Instance::Instantiate { args, .. } => args.len(),
                        Instance::FromExports(exports) => exports.len(),
                    });
                }
            }
            Payload::ComponentInstanceSection(instances) => {
                for instance in instances {
                    component.add_instance(&instance.map_err(parse_error)?)?;
                }
            }
            Payload::ComponentAliasSection(aliases) => {
                for alias in aliases {
                    component.add_alias(&alias.map_err(parse_error)?, outer);
                }
            }
            Payload::ComponentImportSection(imports) => {
                for import in imports {
                    component.cost.add_definitions(1);
                    if let ComponentTypeRef::Component(_) = import.map_err(parse_error)?.ty {
                        component.component_costs.push(None);
                    }
                }
            }
            Payload::ComponentExportSection(exports) => {
                for export in exports {
                    let export = export.map_err(parse_error)?;
                    component.cost.add_definitions(1);
                    // A component that is exported gets a second index. Later sections can use both indices, so the
                    // cost of the component is noted for the second one too.
                    if export.kind == ComponentExternalKind::Component {
                        let exported_cost = component.component_costs.get(export.index as usize);
                        component.component_costs.push(exported_cost.copied().flatten());
                    }
                }
            }
            Payload::ComponentCanonicalSection(functions) => component.cost.add_definitions(functions.count() as usize),
            _ => {}
        }
        Ok(())
    }

    /// Counts the declarations of a type section, without wasmparser's unlimited recursion.
    fn count_component_types(&mut self, mut section: BinaryReader<'_>) -> Result<(), Error> {
        // A type may contain a list of declarations, and these may contain further types. This stack has an entry for
        // each list that is being read, with the innermost list last. The entry is the number of declarations that are
        // still to be read.
        let mut remaining_counts = vec![section.read_var_u32().map_err(parse_error)?];
        while let Some(count) = remaining_counts.last_mut() {
            let Some(remaining) = count.checked_sub(1) else {
                remaining_counts.pop();
                continue;
            };
            *count = remaining;
            TYPES.add_to_total(&mut self.types, 1_u32)?;
            // The outermost list is the type section, and all its items are types. A list inside a type can have other
            // items too, such as imports. Each item there begins with a byte that says whether it is a type.
            let mut is_type = remaining_counts.len() == 1;
            if !is_type {
                let mut lookahead = section.clone();
                if lookahead.read_u8().map_err(parse_error)? == DECLARED_TYPE {
                    section = lookahead;
                    is_type = true;
                }
            }
            if !is_type {
                match section.read::<ComponentTypeDeclaration<'_>>().map_err(parse_error)? {
                    ComponentTypeDeclaration::CoreType(core_type) => self.count_core_type(&core_type)?,
                    _ => continue,
                }
                continue;
            }
            let mut lookahead = section.clone();
            if NESTED_TYPES.contains(&lookahead.read_u8().map_err(parse_error)?) {
                remaining_counts.push(lookahead.read_var_u32().map_err(parse_error)?);
                TYPE_NESTING.check(remaining_counts.len() as u64)?;
                section = lookahead;
            } else {
                section.read::<ComponentType<'_>>().map_err(parse_error)?;
            }
        }
        Ok(())
    }

    fn count_core_type(&mut self, core_type: &CoreType<'_>) -> Result<(), Error> {
        match core_type {
            CoreType::Rec(group) => TYPES.add_to_total(&mut self.types, group.types().len() as u64),
            CoreType::Module(declarations) => {
                for declaration in declarations {
                    let declared_count = match declaration {
                        ModuleTypeDeclaration::Type(group) => group.types().len(),
                        _ => 1,
                    };
                    TYPES.add_to_total(&mut self.types, declared_count as u64)?;
                }
                Ok(())
            }
        }
    }

    fn count_in_module(&mut self, payload: Payload<'_>, types: &mut function::Types) -> Result<(), Error> {
        match payload {
            Payload::TypeSection(groups) => {
                for group in groups {
                    let group: RecGroup = group.map_err(parse_error)?;
                    TYPES.add_to_total(&mut self.types, group.types().len() as u64)?;
                    for sub_type in group.types() {
                        match &sub_type.composite_type.inner {
                            CompositeInnerType::Func(function) => {
                                types.add_type(function.params().len(), function.results().len());
                            }
                            _ => types.add_type(0, 0),
                        }
                    }
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    IMPORTS.add_to_total(&mut self.imports, 1_u32)?;
                    if let TypeRef::Func(index) | TypeRef::FuncExact(index) = import.map_err(parse_error)?.ty {
                        types.add_import(index);
                    }
                }
            }
            Payload::FunctionSection(functions) => {
                FUNCTIONS.add_to_total(&mut self.functions, functions.count())?;
                for index in functions {
                    types.add_function(index.map_err(parse_error)?);
                }
            }
            Payload::GlobalSection(globals) => GLOBALS.add_to_total(&mut self.globals, globals.count())?,
            Payload::ExportSection(exports) => EXPORTS.add_to_total(&mut self.exports, exports.count())?,
            Payload::ElementSection(segments) => SEGMENTS.add_to_total(&mut self.segments, segments.count())?,
            Payload::DataSection(segments) => SEGMENTS.add_to_total(&mut self.segments, segments.count())?,
            Payload::CodeSectionEntry(body) => self.function_totals.count_function(&body, types)?,
            _ => {}
        }
        Ok(())
    }
}

const DECLARED_TYPE: u8 = 0x01;
/// The bytes with which a component type and an instance type begin.
const NESTED_TYPES: [u8; 2] = [0x41, 0x42];

fn unknown_cost_error() -> Error {
    Error::Unusable(
        "the component instantiates a component that it imports or takes from an instance; this host instantiates only \
         components that are defined inside the loaded component"
            .to_owned(),
    )
}

impl ComponentLevel {
    fn add_instance(&mut self, instance: &ComponentInstance<'_>) -> Result<(), Error> {
        self.cost.instances += 1;
        match instance {
            ComponentInstance::Instantiate { component_index, args } => {
                self.cost.add_definitions(args.len());
                let nested = self.component_costs.get(*component_index as usize).copied().flatten();
                self.cost.add(nested.ok_or_else(unknown_cost_error)?);
            }
            ComponentInstance::FromExports(exports) => {
                self.cost.add_definitions(exports.len());
            }
        }
        Ok(())
    }

    fn add_alias(&mut self, alias: &ComponentAlias<'_>, outer: &[OpenScope]) {
        self.cost.add_definitions(1);
        match alias {
            ComponentAlias::InstanceExport {
                kind: ComponentExternalKind::Component,
                ..
            } => self.component_costs.push(None),
            ComponentAlias::Outer {
                kind: ComponentOuterAliasKind::Component,
                count,
                index,
            } => {
                let aliased_cost = match count.checked_sub(1) {
                    None => self.component_costs.get(*index as usize).copied(),
                    Some(levels_up) => match outer.iter().rev().nth(levels_up as usize) {
                        Some(OpenScope::Component(component)) => {
                            component.component_costs.get(*index as usize).copied()
                        }
                        _ => None,
                    },
                };
                self.component_costs.push(aliased_cost.flatten());
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
