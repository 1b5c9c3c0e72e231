//! Checked expressions.

use std::sync::Arc;

use crate::{functions::Function, value::Value};

/// An expression. The checker bounds its depth.
#[derive(Debug)]
pub(crate) enum Expression {
    Constant(Value<'static>),
    Variable(Variable),
    /// A variable of a macro: its index among those that are in scope.
    Local(usize),
    /// A variable that a policy defines: its index.
    Composed(usize),
    Select(Box<Select>),
    /// Whether the operand has the field.
    Has(Box<Select>),
    Index(Box<Index>),
    And(Box<[Expression; 2]>),
    Or(Box<[Expression; 2]>),
    Conditional(Box<[Expression; 3]>),
    /// `or` and `orValue` of an optional value; the second operand is evaluated if the first has none.
    OrElse(Box<OrElse>),
    Call(&'static Function, Box<[Expression]>),
    List(Box<[Item]>),
    Map(Box<[Entry]>),
    /// A part of an object to apply, or an operation of a JSON Patch, with its path or type.
    Part(Arc<str>, Box<[Entry]>),
    Each(Box<Each>),
    /// `x.optMap(v, body)` and `x.optFlatMap(v, body)`.
    WithValue(Box<WithValue>),
}

/// The variables of every condition, and the parameters of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    Object,
    OldObject,
    Request,
    NamespaceObject,
    Authorizer,
    RequestResource,
    Params,
}

/// A variable that a policy defines.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) name: Box<str>,
    pub(crate) text: Box<str>,
    pub(crate) expression: Expression,
}

impl PartialEq for Definition {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.text == other.text
    }
}

#[derive(Debug)]
pub(crate) struct OrElse {
    pub(crate) operand: Expression,
    pub(crate) otherwise: Expression,
    /// Whether the result is a value, not an optional one.
    pub(crate) value: bool,
}

#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) operand: Expression,
    pub(crate) field: Box<str>,
    /// Whether it was written `.?`.
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) operand: Expression,
    pub(crate) index: Expression,
    /// Whether it was written `[?`.
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) value: Expression,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Expression,
    pub(crate) value: Expression,
    pub(crate) optional: bool,
}

/// A macro over the items of a list or the keys of a map, or over both indexes and items, or keys and values.
#[derive(Debug)]
pub(crate) struct Each {
    pub(crate) kind: EachKind,
    pub(crate) range: Expression,
    /// The index of its first variable among those in scope.
    pub(crate) slot: usize,
    /// Whether it has two variables: index or key, and value.
    pub(crate) pairs: bool,
    /// The test of an item; the macros that transform may have one too.
    pub(crate) test: Option<Expression>,
    /// The result of a macro that transforms, for an item.
    pub(crate) result: Option<Expression>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EachKind {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    /// A map with the same keys.
    TransformMap,
    /// A map with the entries of the maps that the result is.
    TransformMapEntry,
    /// The items, sorted by the result.
    SortBy,
}

#[derive(Debug)]
pub(crate) struct WithValue {
    pub(crate) operand: Expression,
    pub(crate) body: Expression,
    /// Whether the body has an optional value itself.
    pub(crate) flat: bool,
}
