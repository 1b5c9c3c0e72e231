//! A checked expression, ready to be evaluated.

use std::sync::Arc;

use super::{functions::Function, pattern::Pattern};

/// An expression. Its depth is bounded when it is made.
#[derive(Debug)]
pub(crate) enum Expression {
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
pub(crate) enum Constant {
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

/// A macro that goes through a list or the keys of a map.
#[derive(Debug)]
pub(crate) struct Each {
    pub(crate) kind: EachKind,
    pub(crate) range: Expression,
    /// Where an item is bound, on the stack of such names.
    pub(crate) place: usize,
    /// What must hold of an item; for `map` of three arguments too.
    pub(crate) test: Option<Expression>,
    /// What `map` makes of an item.
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
    /// Whether the body gives an optional value itself.
    pub(crate) flat: bool,
}
