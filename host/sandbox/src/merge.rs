//! Merges the core modules of a component into one.
//!
//! A component of many modules costs time in every call. Each module becomes an instance, and each import from another
//! module is looked up. A table that modules share is filled completely: wasmtime fills the entries of a table on first
//! use only if the table and its elements are in one module. Python's interpreter consists of 14 modules with 2,300
//! imports and 5,667 elements.
//!
//! Each module is assigned to a level, and the modules of each level are merged. A host function that needs the memory
//! of a module can be created only after that module. Modules of the first level import no such function; modules of
//! each further level import functions that need a module of the previous level. Toolchains produce two levels: almost
//! everything, and a small module that puts the host's functions into a table.

use wasm_encoder::ExportKind;
use wasmparser::ExternalKind;

use parsed_component::ParsedComponent;

mod component;
mod core_module;
mod module;
mod parsed_component;
mod reachable;
#[cfg(test)]
mod tests;

/// Merges the core modules of a snapshot, in which start functions have already run.
pub(crate) fn merge(component: &[u8]) -> Option<Vec<u8>> {
    let parsed = ParsedComponent::parse(component)?;
    let levels = parsed.modules_by_level();
    if parsed.core_modules.len() <= levels.len() || !parsed.keeps_order() {
        return None;
    }
    parsed.encode(&levels)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Function,
    Table,
    Memory,
    Global,
}

impl Kind {
    fn from_external(kind: ExternalKind) -> Option<Self> {
        match kind {
            ExternalKind::Func => Some(Self::Function),
            ExternalKind::Table => Some(Self::Table),
            ExternalKind::Memory => Some(Self::Memory),
            ExternalKind::Global => Some(Self::Global),
            ExternalKind::Tag | ExternalKind::FuncExact => None,
        }
    }
}

impl From<Kind> for ExportKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Function => Self::Func,
            Kind::Table => Self::Table,
            Kind::Memory => Self::Memory,
            Kind::Global => Self::Global,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct PerKind<T> {
    functions: T,
    tables: T,
    memories: T,
    globals: T,
}

impl<T> PerKind<T> {
    fn get(&self, kind: Kind) -> &T {
        match kind {
            Kind::Function => &self.functions,
            Kind::Table => &self.tables,
            Kind::Memory => &self.memories,
            Kind::Global => &self.globals,
        }
    }

    fn get_mut(&mut self, kind: Kind) -> &mut T {
        match kind {
            Kind::Function => &mut self.functions,
            Kind::Table => &mut self.tables,
            Kind::Memory => &mut self.memories,
            Kind::Global => &mut self.globals,
        }
    }
}

/// The function, table, memory or global that an index of the component refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Item {
    /// A core function that the component itself defines, such as a lowered host function. The number is its position
    /// among these functions.
    Canonical(usize),
    /// A function, table, memory or global that a module defines. `definition` is its position among the definitions of
    /// its kind in this module.
    Defined { core_module: usize, definition: u32 },
}
