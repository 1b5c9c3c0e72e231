//! Checked expressions.

use crate::{functions::Function, value::Value};

/// An expression. The checker bounds its depth.
#[derive(Debug)]
pub(crate) enum Expression {
    Constant(Value<'static>),
    Variable(Variable),
    /// A variable of a macro: its index among those that are in scope.
    Local(usize),
    Select(Box<Select>),
    /// Whether the operand has the field.
    Has(Box<Select>),
    Index(Box<Index>),
    And(Box<[Expression; 2]>),
    Or(Box<[Expression; 2]>),
    Conditional(Box<[Expression; 3]>),
    Call(&'static Function, Box<[Expression]>),
    List(Box<[Item]>),
    Map(Box<[Entry]>),
    Each(Box<Each>),
    /// `x.optMap(v, body)` and `x.optFlatMap(v, body)`.
    WithValue(Box<WithValue>),
}

/// The variables of every condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    Object,
    OldObject,
    Request,
    NamespaceObject,
    Authorizer,
    RequestResource,
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

/// A macro over the items of a list or the keys of a map.
#[derive(Debug)]
pub(crate) struct Each {
    pub(crate) kind: EachKind,
    pub(crate) range: Expression,
    /// The index of its variable among those in scope.
    pub(crate) slot: usize,
    /// The test of an item; `map` with three arguments has one too.
    pub(crate) test: Option<Expression>,
    /// The result of `map` for an item.
    pub(crate) result: Option<Expression>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EachKind {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

#[derive(Debug)]
pub(crate) struct WithValue {
    pub(crate) operand: Expression,
    pub(crate) body: Expression,
    /// Whether the body has an optional value itself.
    pub(crate) flat: bool,
}
