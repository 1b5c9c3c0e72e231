//! A checked expression, ready to be evaluated.

use std::sync::Arc;

use super::{functions::Function, pattern::Pattern};

/// An expression. Its depth is bounded when it is made.
#[derive(Debug)]
pub(super) enum Expression {
    Constant(Constant),
    Variable(Variable),
    /// What a macro binds: the place on the stack of such names.
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

#[derive(Debug)]
pub(super) enum Constant {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Box<str>),
    Bytes(Arc<[u8]>),
    Type(&'static str),
    Pattern(Pattern),
}

/// What every condition may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    Object,
    OldObject,
    Request,
    NamespaceObject,
    Authorizer,
    RequestResource,
}

#[derive(Debug)]
pub(super) struct Select {
    pub(super) operand: Expression,
    pub(super) field: Box<str>,
    /// Whether it was written `.?`.
    pub(super) optional: bool,
}

#[derive(Debug)]
pub(super) struct Index {
    pub(super) operand: Expression,
    pub(super) index: Expression,
    /// Whether it was written `[?`.
    pub(super) optional: bool,
}

#[derive(Debug)]
pub(super) struct Item {
    pub(super) value: Expression,
    pub(super) optional: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Expression,
    pub(super) value: Expression,
    pub(super) optional: bool,
}

/// A macro that goes through a list or the keys of a map.
#[derive(Debug)]
pub(super) struct Each {
    pub(super) kind: EachKind,
    pub(super) range: Expression,
    /// Where an item is bound, on the stack of such names.
    pub(super) place: usize,
    /// What must hold of an item; for `map` of three arguments too.
    pub(super) test: Option<Expression>,
    /// What `map` makes of an item.
    pub(super) result: Option<Expression>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EachKind {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
}

#[derive(Debug)]
pub(super) struct WithValue {
    pub(super) operand: Expression,
    pub(super) body: Expression,
    /// Whether the body gives an optional value itself.
    pub(super) flat: bool,
}
