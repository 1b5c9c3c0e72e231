//! Merges the core modules of a component into one.
//!
//! A component of many modules costs time in every call: each module is an instance, each import of one from another is
//! looked up, and a table that modules share is filled completely, because wasmtime fills the entries of a table when
//! they are first used only if the table and its elements are in one module. Python's interpreter consists of 14
//! modules with 2,300 imports and 5,667 elements.
//!
//! A function of the host that needs the memory of a module exists only after that module. So there is one module for
//! each level: the modules of the first level need no such function, the modules of the next need functions that use
//! the first, and so on. Toolchains produce two levels: almost everything, and a small module that puts the host's
//! functions into a table.

use wasm_encoder::ExportKind;
use wasmparser::ExternalKind;

use parts::Parts;

mod component;
mod member;
mod module;
mod parts;
mod reachable;
#[cfg(test)]
mod tests;

/// Merges the core modules of a component that was started, so that they have no start functions. `None` if they cannot
/// be merged, or are merged already.
pub(crate) fn merge(component: &[u8]) -> Option<Vec<u8>> {
    let parts = Parts::of(component)?;
    let levels = parts.levels();
    if parts.members.len() <= levels.len() || !parts.keeps_order() {
        return None;
    }
    parts.encode(&levels)
}

/// A kind of item that core modules import and export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Function,
    Table,
    Memory,
    Global,
}

impl Kind {
    fn of(kind: ExternalKind) -> Option<Self> {
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

/// A value for each kind.
#[derive(Clone, Debug, Default)]
struct PerKind<T> {
    functions: T,
    tables: T,
    memories: T,
    globals: T,
}

impl<T> PerKind<T> {
    fn of(&self, kind: Kind) -> &T {
        match kind {
            Kind::Function => &self.functions,
            Kind::Table => &self.tables,
            Kind::Memory => &self.memories,
            Kind::Global => &self.globals,
        }
    }

    fn of_mut(&mut self, kind: Kind) -> &mut T {
        match kind {
            Kind::Function => &mut self.functions,
            Kind::Table => &mut self.tables,
            Kind::Memory => &mut self.memories,
            Kind::Global => &mut self.globals,
        }
    }
}

/// The item to which an index refers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Item {
    /// A core function that the component model defines, such as a lowered function of the host, by its number.
    Canonical(usize),
    /// A definition in an instantiated module, by the number of the module and its number among the definitions of its
    /// kind.
    Defined { member: usize, definition: u32 },
}
