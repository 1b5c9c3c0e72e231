//! The tree of a checked expression.

use std::sync::Arc;

use crate::{functions::CelFunction, value::Value};

/// A node of the tree of an expression. The checker limits the depth of the tree.
#[derive(Debug)]
pub(crate) enum Expression {
    Constant(Value<'static>),
    Variable(CelVariable),
    Local(usize),
    /// The policy's variable with this index.
    Composed(usize),
    Select(Box<Select>),
    Has(Box<Select>),
    Index(Box<IndexExpression>),
    And(Box<[Expression; 2]>),
    Or(Box<[Expression; 2]>),
    Conditional(Box<[Expression; 3]>),
    /// A call of `or` or `orValue`. The second operand is evaluated only if the first one has no value.
    OrElse(Box<OrElse>),
    Call(&'static CelFunction, Box<[Expression]>),
    List(Box<[ListItem]>),
    Map(Box<[MapEntry]>),
    /// A literal such as `Object.spec{...}` or `JSONPatch{...}`, by its type name and its fields.
    Part(Arc<str>, Box<[MapEntry]>),
    Each(Box<Comprehension>),
    /// The macros `x.optMap(v, body)` and `x.optFlatMap(v, body)`.
    WithValue(Box<WithValue>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CelVariable {
    Object,
    OldObject,
    Request,
    NamespaceObject,
    Authorizer,
    RequestResource,
    Params,
    /// The variable `exceptions` of a Kyverno policy: the images and values that its exceptions allow.
    Exceptions,
}

#[derive(Debug)]
pub(crate) struct VariableDefinition {
    pub(crate) name: Box<str>,
    pub(crate) text: Box<str>,
    pub(crate) expression: Expression,
}

impl PartialEq for VariableDefinition {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && self.text == other.text
    }
}

#[derive(Debug)]
pub(crate) struct OrElse {
    pub(crate) operand: Expression,
    pub(crate) otherwise: Expression,
    /// Whether the call is `orValue`, which returns the value itself, and not `or`, which returns an optional value.
    pub(crate) is_or_value: bool,
}

#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) operand: Expression,
    pub(crate) field: Box<str>,
    /// Whether the field is selected with `.?`, so that it may be absent.
    pub(crate) is_optional: bool,
}

#[derive(Debug)]
pub(crate) struct IndexExpression {
    pub(crate) operand: Expression,
    pub(crate) index: Expression,
    /// Whether the item is selected with `[?`, so that it may be missing.
    pub(crate) is_optional: bool,
}

#[derive(Debug)]
pub(crate) struct ListItem {
    pub(crate) value: Expression,
    pub(crate) is_optional: bool,
}

#[derive(Debug)]
pub(crate) struct MapEntry {
    pub(crate) key: Expression,
    pub(crate) value: Expression,
    pub(crate) is_optional: bool,
}

#[derive(Debug)]
pub(crate) struct Comprehension {
    pub(crate) kind: ComprehensionKind,
    pub(crate) range: Expression,
    /// The index of the macro's first variable in the machine's list `locals`, which has the variables of all macros
    /// that are being evaluated. The variables of enclosing macros come first in the list.
    pub(crate) slot: usize,
    pub(crate) binds_pairs: bool,
    pub(crate) test: Option<Expression>,
    /// The expression for the result of each item; `None` if the macro only tests items.
    pub(crate) result: Option<Expression>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComprehensionKind {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    TransformMap,
    /// The macro `transformMapEntry`. Its body returns a map for each item, and the result has the entries of all maps.
    TransformMapEntry,
    SortBy,
}

#[derive(Debug)]
pub(crate) struct WithValue {
    pub(crate) operand: Expression,
    pub(crate) body: Expression,
    /// Whether the body of the macro must be an optional value, as for `optFlatMap`.
    pub(crate) is_flat: bool,
}
