//! Checks a parsed expression as kube-apiserver's compiler would, and makes what can be evaluated.

use std::sync::Arc;

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, operators};

use super::{
    expression::{Constant, Each, EachKind, Entry, Expression, Index, Item, Select, Variable, WithValue},
    functions::{Function, Style, find, is_known},
    machine::MOST_ARGUMENTS,
    pattern::Pattern,
    types::{AUTHORIZER, Bindings, RESOURCE_CHECK, Record, Type, join, list, map, optional},
    variables::Uses,
};

/// How deep an expression may be, in operators, calls and selects that hold each other.
const DEEPEST: usize = 200;

/// What is wrong.
#[derive(Debug)]
pub(crate) enum Mistake {
    At { node: u64, message: String },
    NotBool(String),
    TooDeep { limit: usize },
}

/// An expression that passed, and what it needs.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) expression: Expression,
    pub(crate) uses: Uses,
}

#[derive(Default)]
pub(crate) struct Checker {
    /// What macros bind at this point, outermost first.
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
        if self.depth >= DEEPEST {
            return Err(Mistake::TooDeep { limit: DEEPEST });
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
            Expr::Struct(made) => fail(
                node.id,
                format!(
                    "undeclared reference to '{}': objects cannot be made here",
                    made.type_name
                ),
            ),
            Expr::Comprehension(_) | Expr::Unspecified => fail(node.id, "this cannot be read"),
        }
    }

    fn local(&self, name: &str) -> Option<(usize, &Type)> {
        let place = self.locals.iter().rposition(|(local, _)| local == name)?;
        self.locals.get(place).map(|(_, kind)| (place, kind))
    }

    fn name(&mut self, node: u64, name: &str) -> Typed {
        let global = name.strip_prefix('.');
        if let (None, Some((place, kind))) = (global, self.local(name)) {
            return Ok((Expression::Local(place), kind.clone()));
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
                    Some(name) => Ok((Expression::Constant(Constant::Type(name)), Type::Kind)),
                    None => fail(
                        node,
                        format!(
                            "undeclared reference to '{name}': a match condition knows object, oldObject, request, \
                             authorizer and namespaceObject"
                        ),
                    ),
                };
            }
        };
        Ok((Expression::Variable(variable), kind))
    }

    /// Whether the node is this global name, not hidden by a macro's variable.
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
                    let made = if name == operators::LOGICAL_AND {
                        Expression::And(sides)
                    } else {
                        Expression::Or(sides)
                    };
                    return Ok((made, Type::Bool));
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
                    if self.local(space).is_none() && is_known(&qualified) {
                        return self.function(node, &qualified, None, arguments);
                    }
                }
            }
            _ => {}
        }
        self.function(node, name, call.target.as_deref(), &call.args)
    }

    /// A side of `&&` or `||`.
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
        let mut made = Vec::with_capacity(items.elements.len());
        for (place, item) in items.elements.iter().enumerate() {
            let is_optional = items.optional_indices.contains(&place);
            let (value, item_kind) = self.check(item)?;
            let item_kind = without_optional(item.id, item_kind, is_optional)?;
            kind = Some(one_type(item.id, kind, item_kind)?);
            made.push(Item {
                value,
                optional: is_optional,
            });
        }
        Ok((Expression::List(made.into()), list(kind.unwrap_or(Type::Dyn))))
    }

    fn map(&mut self, node: u64, entries: &MapExpr) -> Typed {
        let (mut key_kind, mut value_kind) = (None, None);
        let mut made = Vec::with_capacity(entries.entries.len());
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
            made.push(Entry {
                key,
                value,
                optional: entry.optional,
            });
        }
        let kind = map(key_kind.unwrap_or(Type::Dyn), value_kind.unwrap_or(Type::Dyn));
        Ok((Expression::Map(made.into()), kind))
    }

    /// A macro; none when the call is of something else.
    fn macro_call(
        &mut self,
        node: u64,
        name: &str,
        target: &IdedExpr,
        arguments: &[IdedExpr],
    ) -> Result<Option<(Expression, Type)>, Mistake> {
        let (variable, test, result) = match (name, arguments) {
            ("map", [variable, result]) => (variable, None, Some(result)),
            ("map", [variable, test, result]) => (variable, Some(test), Some(result)),
            ("all" | "exists" | "exists_one" | "existsOne" | "filter", [variable, test]) => {
                (variable, Some(test), None)
            }
            ("optMap" | "optFlatMap", [variable, body]) => {
                return self
                    .with_value(node, name == "optFlatMap", target, variable, body)
                    .map(Some);
            }
            _ => return Ok(None),
        };
        let kind = match name {
            "all" => EachKind::All,
            "exists" => EachKind::Exists,
            "map" => EachKind::Map,
            "filter" => EachKind::Filter,
            _ => EachKind::ExistsOne,
        };
        let variable = variable_name(variable)?;
        let (range, range_kind) = self.check(target)?;
        let item = match range_kind {
            Type::Dyn => Type::Dyn,
            Type::List(item) => *item,
            Type::Map(key, _) => *key,
            other => {
                return fail(
                    target.id,
                    format!(
                        "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                    ),
                );
            }
        };
        let place = self.locals.len();
        self.locals.push((variable.to_owned(), item.clone()));
        let test = test.map(|test| self.logical(name, test)).transpose()?;
        let result = result.map(|result| self.check(result)).transpose()?;
        self.locals.truncate(place);
        let (result, made) = match result {
            Some((result, kind)) => (Some(result), list(kind)),
            None if kind == EachKind::Filter => (None, list(item)),
            None => (None, Type::Bool),
        };
        let each = Each {
            kind,
            range,
            place,
            test,
            result,
        };
        Ok(Some((Expression::Each(Box::new(each)), made)))
    }

    fn with_value(
        &mut self,
        node: u64,
        flat: bool,
        target: &IdedExpr,
        variable: &IdedExpr,
        body: &IdedExpr,
    ) -> Typed {
        let variable = variable_name(variable)?;
        let (operand, kind) = self.check(target)?;
        let inner = match kind {
            Type::Optional(inner) => *inner,
            Type::Dyn => Type::Dyn,
            other => {
                return fail(
                    node,
                    format!("found no matching overload for 'optMap' applied to '{other}'"),
                );
            }
        };
        self.locals.push((variable.to_owned(), inner));
        let typed = self.check(body);
        self.locals.pop();
        let (body, kind) = typed?;
        let kind = match (flat, kind) {
            (false, kind) => optional(kind),
            (true, kind @ (Type::Optional(_) | Type::Dyn)) => kind,
            (true, other) => {
                return fail(
                    node,
                    format!("optFlatMap must give an optional value but gives '{other}'"),
                );
            }
        };
        let with = WithValue { operand, body, flat };
        Ok((Expression::WithValue(Box::new(with)), kind))
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
        let mut made = Vec::with_capacity(arguments.len() + 1);
        let mut kinds = Vec::with_capacity(arguments.len() + 1);
        for argument in target.into_iter().chain(arguments) {
            let (argument, kind) = self.check(argument)?;
            made.push(argument);
            kinds.push(kind);
        }
        let Some(kind) = resolve(function, &kinds).filter(|_| made.len() <= MOST_ARGUMENTS) else {
            return fail(
                node,
                format!(
                    "found no matching overload for '{name}' applied to '{}'",
                    applied(style, &kinds)
                ),
            );
        };
        if let Some(place) = function.pattern
            && let Some(argument) = made.get_mut(place)
            && let Expression::Constant(Constant::String(source)) = argument
        {
            match Pattern::literal(source) {
                Ok(pattern) => *argument = Expression::Constant(Constant::Pattern(pattern)),
                Err(error) => return fail(node, error),
            }
        }
        Ok((Expression::Call(function, made.into()), kind))
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
        LiteralValue::Boolean(value) => (Constant::Bool(*value.inner()), Type::Bool),
        LiteralValue::Bytes(value) => (Constant::Bytes(Arc::from(value.inner())), Type::Bytes),
        LiteralValue::Double(value) => (Constant::Double(*value.inner()), Type::Double),
        LiteralValue::Int(value) => (Constant::Int(*value.inner()), Type::Int),
        LiteralValue::Null => (Constant::Null, Type::Null),
        LiteralValue::String(value) => (Constant::String(value.inner().into()), Type::String),
        LiteralValue::UInt(value) => (Constant::Uint(*value.inner()), Type::Uint),
    };
    (Expression::Constant(constant), kind)
}

/// The types that an expression may name.
fn type_named(name: &str) -> Option<&'static str> {
    [
        "bool",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "list",
        "map",
        "null_type",
        "type",
        "optional_type",
    ]
    .into_iter()
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

fn variable_name(node: &IdedExpr) -> Result<&str, Mistake> {
    match &node.expr {
        Expr::Ident(name) if !name.starts_with('.') => Ok(name),
        _ => fail(node.id, "the first argument of a macro must be a simple name"),
    }
}

/// The one type of the values of a list or a map.
fn one_type(node: u64, so_far: Option<Type>, kind: Type) -> Result<Type, Mistake> {
    match so_far {
        None => Ok(kind),
        Some(so_far) => match join(&so_far, &kind) {
            Some(joined) => Ok(joined),
            None => fail(node, format!("expected type '{so_far}' but found '{kind}'")),
        },
    }
}

/// The type that an entry adds.
fn without_optional(node: u64, kind: Type, is_optional: bool) -> Result<Type, Mistake> {
    match (is_optional, kind) {
        (false, kind) => Ok(kind),
        (true, Type::Optional(inner)) => Ok(*inner),
        (true, Type::Dyn) => Ok(Type::Dyn),
        (true, other) => fail(node, format!("expected type 'optional_type' but found '{other}'")),
    }
}

/// The type that the function gives for these arguments; none when it takes none such.
fn resolve(function: &Function, kinds: &[Type]) -> Option<Type> {
    let mut result: Option<Type> = None;
    for overload in &function.overloads {
        if overload.arguments.len() != kinds.len() {
            continue;
        }
        let mut bindings = Bindings::default();
        let pairs = overload.arguments.iter().zip(kinds);
        if !pairs
            .into_iter()
            .all(|(wanted, given)| bindings.fits(wanted, given))
        {
            continue;
        }
        let kind = bindings.apply(&overload.result);
        result = match result {
            None => Some(kind),
            Some(other) if other == kind => Some(kind),
            Some(_) => Some(Type::Dyn),
        };
    }
    result
}

/// A call's types as messages show them.
fn applied(style: Style, kinds: &[Type]) -> String {
    let texts: Vec<String> = kinds.iter().map(Type::to_string).collect();
    match (style, texts.split_first()) {
        (Style::Member, Some((receiver, arguments))) => format!("{receiver}.({})", arguments.join(", ")),
        _ => format!("({})", texts.join(", ")),
    }
}
