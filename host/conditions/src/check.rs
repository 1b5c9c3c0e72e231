//! Checks the types of a parsed expression as kube-apiserver's compiler does.

use std::sync::Arc;

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, operators};

use crate::{
    expression::{Entry, Expression, Index, Item, Select, Variable},
    functions::{Style, find, regex::Pattern},
    machine::MOST_ARGUMENTS,
    types::{AUTHORIZER, RESOURCE_CHECK, Record, Type, join, list, map, optional},
    value::{Text, Value},
    variables::Uses,
};

mod macros;

/// How deep operators, calls and selects may nest.
const MAX_DEPTH: usize = 200;

#[derive(Debug)]
pub(crate) enum Mistake {
    At { node: u64, message: String },
    NotBool(String),
    TooDeep { limit: usize },
}

/// A checked expression, and the variables that it uses.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) expression: Expression,
    pub(crate) uses: Uses,
}

#[derive(Default)]
pub(crate) struct Checker {
    /// The variables of macros in scope, outermost first.
    locals: Vec<(String, Type)>,
    uses: Uses,
    depth: usize,
}

type Typed = Result<(Expression, Type), Mistake>;

impl Checker {
    /// Check a whole condition, which must be a bool.
    pub(crate) fn check_condition(mut self, node: &IdedExpr) -> Result<Checked, Mistake> {
        let (expression, kind) = self.check(node)?;
        if kind != Type::Bool {
            return Err(Mistake::NotBool(kind.to_string()));
        }
        Ok(Checked {
            expression,
            uses: self.uses,
        })
    }

    fn check(&mut self, node: &IdedExpr) -> Typed {
        if self.depth >= MAX_DEPTH {
            return Err(Mistake::TooDeep { limit: MAX_DEPTH });
        }
        self.depth += 1;
        let typed = self.check_one(node);
        self.depth -= 1;
        typed
    }

    fn check_one(&mut self, node: &IdedExpr) -> Typed {
        match &node.expr {
            Expr::Literal(literal) => Ok(literal_value(literal)),
            Expr::Ident(name) => self.name(node.id, name),
            Expr::Select(select) => self.select(node.id, &select.operand, &select.field, false),
            Expr::Call(call) => self.call(node.id, call),
            Expr::List(items) => self.list(items),
            Expr::Map(entries) => self.map(node.id, entries),
            Expr::Struct(object) => fail(
                node.id,
                format!(
                    "undeclared reference to '{}': objects cannot be made here",
                    object.type_name
                ),
            ),
            Expr::Comprehension(_) | Expr::Unspecified => fail(node.id, "this cannot be read"),
        }
    }

    fn local(&self, name: &str) -> Option<(usize, &Type)> {
        let index = self.locals.iter().rposition(|(local, _)| local == name)?;
        self.locals.get(index).map(|(_, kind)| (index, kind))
    }

    fn name(&mut self, node: u64, name: &str) -> Typed {
        let global = name.strip_prefix('.');
        if let (None, Some((index, kind))) = (global, self.local(name)) {
            return Ok((Expression::Local(index), kind.clone()));
        }
        let name = global.unwrap_or(name);
        let (variable, kind) = match name {
            "object" => (Variable::Object, Type::Dyn),
            "oldObject" => (Variable::OldObject, Type::Dyn),
            "request" => {
                self.uses.request = true;
                (Variable::Request, Type::Record(Record::Request))
            }
            "namespaceObject" => (Variable::NamespaceObject, Type::Record(Record::Namespace)),
            "authorizer" => {
                self.uses.authorizer = true;
                (Variable::Authorizer, AUTHORIZER)
            }
            _ => {
                return match type_named(name) {
                    Some(name) => Ok((Expression::Constant(Value::Type(name)), Type::Kind)),
                    None => fail(
                        node,
                        format!(
                            "undeclared reference to '{name}': a match condition can use object, oldObject, request, \
                             authorizer and namespaceObject"
                        ),
                    ),
                };
            }
        };
        Ok((Expression::Variable(variable), kind))
    }

    /// Whether the node is this global variable, not shadowed by a macro's.
    fn is_global(&self, node: &IdedExpr, wanted: &str) -> bool {
        matches!(&node.expr, Expr::Ident(name) if name == wanted) && self.local(wanted).is_none()
    }

    fn select(&mut self, node: u64, operand: &IdedExpr, field: &str, optional_select: bool) -> Typed {
        if !optional_select && field == "requestResource" && self.is_global(operand, "authorizer") {
            self.uses.authorizer = true;
            return Ok((Expression::Variable(Variable::RequestResource), RESOURCE_CHECK));
        }
        let (operand, kind) = self.check(operand)?;
        let mut field_kind = field_type(node, &kind, field)?;
        if optional_select && !matches!(field_kind, Type::Optional(_)) {
            field_kind = optional(field_kind);
        }
        let select = Select {
            operand,
            field: field.into(),
            optional: optional_select,
        };
        Ok((Expression::Select(Box::new(select)), field_kind))
    }

    fn call(&mut self, node: u64, call: &CallExpr) -> Typed {
        let name = call.func_name.as_str();
        match (&call.target, call.args.as_slice()) {
            (None, [one, other]) => match name {
                operators::LOGICAL_AND | operators::LOGICAL_OR => {
                    let sides = Box::new([self.logical(name, one)?, self.logical(name, other)?]);
                    let checked = if name == operators::LOGICAL_AND {
                        Expression::And(sides)
                    } else {
                        Expression::Or(sides)
                    };
                    return Ok((checked, Type::Bool));
                }
                operators::INDEX => return self.index(node, one, other, false),
                operators::OPT_INDEX => return self.index(node, one, other, true),
                operators::OPT_SELECT => {
                    if let Expr::Literal(LiteralValue::String(field)) = &other.expr {
                        return self.select(node, one, field.inner(), true);
                    }
                }
                _ => {}
            },
            (None, [test, then, otherwise]) if name == operators::CONDITIONAL => {
                return self.conditional(node, test, then, otherwise);
            }
            (None, [only]) if name == operators::HAS => return self.has(node, only),
            (Some(target), arguments) => {
                if let Some(typed) = self.macro_call(node, name, target, arguments)? {
                    return Ok(typed);
                }
                if let Expr::Ident(space) = &target.expr {
                    let qualified = format!("{space}.{name}");
                    if self.local(space).is_none() && find(&qualified, Style::Global).is_some() {
                        return self.function(node, &qualified, None, arguments);
                    }
                }
            }
            _ => {}
        }
        self.function(node, name, call.target.as_deref(), &call.args)
    }

    /// An operand of `&&`, `||` and the like.
    fn logical(&mut self, operator: &str, node: &IdedExpr) -> Result<Expression, Mistake> {
        let (side, kind) = self.check(node)?;
        if matches!(kind, Type::Bool | Type::Dyn) {
            Ok(side)
        } else {
            fail(
                node.id,
                format!("expected type 'bool' on both sides of '{operator}' but found '{kind}'"),
            )
        }
    }

    fn conditional(&mut self, node: u64, test: &IdedExpr, then: &IdedExpr, otherwise: &IdedExpr) -> Typed {
        let test = self.logical(operators::CONDITIONAL, test)?;
        let (then, one) = self.check(then)?;
        let (otherwise, other) = self.check(otherwise)?;
        let Some(kind) = join(&one, &other) else {
            return fail(
                node,
                format!(
                    "found no matching overload for '_?_:_' applied to '(bool, {one}, {other})': both values must be of \
                     one type"
                ),
            );
        };
        Ok((Expression::Conditional(Box::new([test, then, otherwise])), kind))
    }

    fn has(&mut self, node: u64, only: &IdedExpr) -> Typed {
        let (operand, field) = match &only.expr {
            Expr::Select(select) => (&select.operand, &select.field),
            _ => {
                return fail(
                    node,
                    "invalid argument to has() macro: name a field, as in has(object.spec)",
                );
            }
        };
        let (operand, kind) = self.check(operand)?;
        field_type(only.id, &kind, field)?;
        let select = Select {
            operand,
            field: field.as_str().into(),
            optional: false,
        };
        Ok((Expression::Has(Box::new(select)), Type::Bool))
    }

    fn index(&mut self, node: u64, operand: &IdedExpr, key: &IdedExpr, optional_index: bool) -> Typed {
        let (operand, kind) = self.check(operand)?;
        let (key, key_kind) = self.check(key)?;
        let (inner, is_optional) = match &kind {
            Type::Optional(inner) => (inner.as_ref(), true),
            kind => (kind, optional_index),
        };
        let item = match (inner, &key_kind) {
            (Type::Dyn, _) => Some(Type::Dyn),
            (Type::List(item), Type::Int | Type::Dyn) => Some(item.as_ref().clone()),
            (Type::Map(wanted, value), given) => join(wanted, given).map(|_| value.as_ref().clone()),
            _ => None,
        };
        let Some(item) = item else {
            return fail(
                node,
                format!("found no matching overload for '_[_]' applied to '({kind}, {key_kind})'"),
            );
        };
        let index = Index {
            operand,
            index: key,
            optional: optional_index,
        };
        Ok((
            Expression::Index(Box::new(index)),
            if is_optional { optional(item) } else { item },
        ))
    }

    fn list(&mut self, items: &ListExpr) -> Typed {
        let mut kind: Option<Type> = None;
        let mut checked = Vec::with_capacity(items.elements.len());
        for (index, item) in items.elements.iter().enumerate() {
            let is_optional = items.optional_indices.contains(&index);
            let (value, item_kind) = self.check(item)?;
            let item_kind = without_optional(item.id, item_kind, is_optional)?;
            kind = Some(one_type(item.id, kind, item_kind)?);
            checked.push(Item {
                value,
                optional: is_optional,
            });
        }
        Ok((Expression::List(checked.into()), list(kind.unwrap_or(Type::Dyn))))
    }

    fn map(&mut self, node: u64, entries: &MapExpr) -> Typed {
        let (mut key_kind, mut value_kind) = (None, None);
        let mut checked = Vec::with_capacity(entries.entries.len());
        for entry in &entries.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return fail(node, "this cannot be read");
            };
            let (key, kind) = self.check(&entry.key)?;
            if !matches!(
                kind,
                Type::Bool | Type::Int | Type::Uint | Type::String | Type::Dyn
            ) {
                return fail(entry.key.id, format!("a '{kind}' cannot be the key of a map"));
            }
            key_kind = Some(one_type(entry.key.id, key_kind, kind)?);
            let (value, kind) = self.check(&entry.value)?;
            let kind = without_optional(entry.value.id, kind, entry.optional)?;
            value_kind = Some(one_type(entry.value.id, value_kind, kind)?);
            checked.push(Entry {
                key,
                value,
                optional: entry.optional,
            });
        }
        let kind = map(key_kind.unwrap_or(Type::Dyn), value_kind.unwrap_or(Type::Dyn));
        Ok((Expression::Map(checked.into()), kind))
    }

    fn function(
        &mut self,
        node: u64,
        name: &str,
        target: Option<&IdedExpr>,
        arguments: &[IdedExpr],
    ) -> Typed {
        let style = match target {
            Some(_) => Style::Member,
            None => Style::Global,
        };
        let name = name.strip_prefix('.').unwrap_or(name);
        let Some(function) = find(name, style) else {
            return fail(
                node,
                format!("undeclared reference to '{name}': there is no such function here"),
            );
        };
        let mut checked = Vec::with_capacity(arguments.len() + 1);
        let mut kinds = Vec::with_capacity(arguments.len() + 1);
        for argument in target.into_iter().chain(arguments) {
            let (argument, kind) = self.check(argument)?;
            checked.push(argument);
            kinds.push(kind);
        }
        let Some(kind) = function
            .resolve(&kinds)
            .filter(|_| checked.len() <= MOST_ARGUMENTS)
        else {
            return fail(
                node,
                format!(
                    "found no matching overload for '{name}' applied to '{}'",
                    applied(style, &kinds)
                ),
            );
        };
        if let Some(index) = function.pattern
            && let Some(argument) = checked.get_mut(index)
            && let Expression::Constant(Value::String(source)) = argument
        {
            match Pattern::literal(source) {
                Ok(pattern) => *argument = Expression::Constant(Value::Pattern(Arc::new(pattern))),
                Err(error) => return fail(node, error),
            }
        }
        Ok((Expression::Call(function, checked.into()), kind))
    }
}

fn fail<T>(node: u64, message: impl Into<String>) -> Result<T, Mistake> {
    Err(Mistake::At {
        node,
        message: message.into(),
    })
}

fn literal_value(literal: &LiteralValue) -> (Expression, Type) {
    let (constant, kind) = match literal {
        LiteralValue::Boolean(value) => (Value::Bool(*value.inner()), Type::Bool),
        LiteralValue::Bytes(value) => (Value::Bytes(Arc::from(value.inner())), Type::Bytes),
        LiteralValue::Double(value) => (Value::Double(*value.inner()), Type::Double),
        LiteralValue::Int(value) => (Value::Int(*value.inner()), Type::Int),
        LiteralValue::Null => (Value::Null, Type::Null),
        LiteralValue::String(value) => (Value::String(Text::Shared(value.inner().into())), Type::String),
        LiteralValue::UInt(value) => (Value::Uint(*value.inner()), Type::Uint),
    };
    (Expression::Constant(constant), kind)
}

/// The types that an expression may name.
fn type_named(name: &str) -> Option<&'static str> {
    "bool int uint double string bytes list map null_type type optional_type"
        .split(' ')
        .find(|known| *known == name)
}

/// The type of a field of a value of this type.
fn field_type(node: u64, of: &Type, field: &str) -> Result<Type, Mistake> {
    match of {
        Type::Dyn => Ok(Type::Dyn),
        Type::Map(_, value) => Ok(value.as_ref().clone()),
        Type::Optional(inner) => match field_type(node, inner, field)? {
            kind @ Type::Optional(_) => Ok(kind),
            kind => Ok(optional(kind)),
        },
        Type::Record(record) => match record.field(field) {
            Some(kind) => Ok(kind),
            None => fail(node, format!("undefined field '{field}': {of} has no such field")),
        },
        other => fail(
            node,
            format!("type '{other}' does not support field selection: it has no field '{field}'"),
        ),
    }
}

/// The common type of the items of a list or a map.
fn one_type(node: u64, so_far: Option<Type>, kind: Type) -> Result<Type, Mistake> {
    match so_far {
        None => Ok(kind),
        Some(so_far) => match join(&so_far, &kind) {
            Some(joined) => Ok(joined),
            None => fail(node, format!("expected type '{so_far}' but found '{kind}'")),
        },
    }
}

/// The type of an entry's value.
fn without_optional(node: u64, kind: Type, is_optional: bool) -> Result<Type, Mistake> {
    match (is_optional, kind) {
        (false, kind) => Ok(kind),
        (true, Type::Optional(inner)) => Ok(*inner),
        (true, Type::Dyn) => Ok(Type::Dyn),
        (true, other) => fail(node, format!("expected type 'optional_type' but found '{other}'")),
    }
}

/// The argument types of a call, for messages.
fn applied(style: Style, kinds: &[Type]) -> String {
    let texts: Vec<String> = kinds.iter().map(Type::to_string).collect();
    match (style, texts.split_first()) {
        (Style::Member, Some((receiver, arguments))) => format!("{receiver}.({})", arguments.join(", ")),
        _ => format!("({})", texts.join(", ")),
    }
}
