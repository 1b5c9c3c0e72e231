//! Checks the types of a parsed expression as kube-apiserver's compiler does.

use std::{collections::HashMap, fmt::Display, mem, sync::Arc, time::Duration};

use admittance_admission::{ClusterKind, Deadline, suggestion};
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, operators};

use crate::{
    expression::{Expression, ListItem, MapEntry, OrElse},
    functions::{
        CelFunction, Style, find, find_for_kyverno, format, http, lookup, names, refusal, regex::CompiledRegex,
    },
    machine::{Fault, MAX_ARGUMENTS, Machine},
    types::{Type, join, list, map},
    value::{CelText, Value},
    variables::{Uses, Variables},
};

mod attributes;
mod macros;
mod objects;

use self::objects::SetValue;

/// The maximum nesting of operators, calls and field selections in an expression.
const MAX_DEPTH: usize = 200;

#[derive(Debug)]
pub(crate) enum TypeMistake {
    At { node: u64, message: String },
    TooDeep { limit: usize },
}

#[derive(Debug)]
pub(crate) struct CheckedExpression {
    pub(crate) expression: Expression,
    pub(crate) kind: Type,
    pub(crate) uses: Uses,
    /// The number of nested operators and calls at the deepest point of an evaluation. If the expression uses a policy
    /// variable, such as `variables.a`, the variable's expression is evaluated there, so its depth is added.
    pub(crate) height: usize,
    pub(crate) set_values: Vec<SetValue>,
    pub(crate) lookups: Vec<ClusterKind>,
}

/// The variables and functions that an expression may use. They depend on the place of the expression.
#[derive(Debug, Default)]
pub(crate) struct CheckScope {
    /// The policy's variables that the expression may read. `None` for a stage's match condition.
    pub(crate) variables: Option<Vec<DeclaredVariable>>,
    /// The type of `object` and `oldObject`, if the schema is known.
    pub(crate) object: Option<Type>,
    /// Whether the expression may use `params`.
    pub(crate) has_params: bool,
    pub(crate) params_type: Option<Type>,
    /// The Kyverno policy to which the expression belongs. Such an expression may call Kyverno's functions.
    pub(crate) kyverno: Option<KyvernoScope>,
    /// Whether the expression is a mutation, which may use `Object{...}`, `JSONPatch{...}` and `jsonpatch.escapeKey`.
    pub(crate) mutates: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct KyvernoScope {
    pub(crate) namespace: Option<Arc<str>>,
}

#[derive(Debug)]
pub(crate) struct DeclaredVariable {
    pub(crate) name: Box<str>,
    pub(crate) kind: Type,
    pub(crate) height: usize,
}

pub(crate) struct Checker<'s> {
    scope: &'s CheckScope,
    /// The variables of the macros that enclose the current expression, outermost first.
    locals: Vec<(String, Type)>,
    /// The type of each item in a list literal. The key is the ID of the item's node in the tree. The arguments of
    /// `format` are checked with these types.
    item_types: HashMap<u64, Type>,
    uses: Uses,
    set_values: Vec<SetValue>,
    lookups: Vec<ClusterKind>,
    depth: usize,
    height: usize,
    /// Whether the items of a list or map literal may have different types, as in the arguments of `format`.
    allows_mixed: bool,
}

type TypedResult = Result<(Expression, Type), TypeMistake>;

impl<'s> Checker<'s> {
    pub(crate) fn new(scope: &'s CheckScope) -> Self {
        Self {
            scope,
            locals: Vec::new(),
            item_types: HashMap::new(),
            uses: Uses::default(),
            set_values: Vec::new(),
            lookups: Vec::new(),
            depth: 0,
            height: 0,
            allows_mixed: false,
        }
    }

    pub(crate) fn check_whole(mut self, node: &IdedExpr) -> Result<CheckedExpression, TypeMistake> {
        let (expression, kind) = self.check(node)?;
        Ok(CheckedExpression {
            expression,
            kind,
            uses: self.uses,
            height: self.height,
            set_values: self.set_values,
            lookups: self.lookups,
        })
    }

    fn check(&mut self, node: &IdedExpr) -> TypedResult {
        if self.depth >= MAX_DEPTH {
            return Err(TypeMistake::TooDeep { limit: MAX_DEPTH });
        }
        self.depth += 1;
        self.height = self.height.max(self.depth);
        let outcome = self.check_node(node);
        self.depth -= 1;
        outcome
    }

    fn check_node(&mut self, node: &IdedExpr) -> TypedResult {
        match &node.expr {
            Expr::Literal(literal) => Ok(literal_value(literal)),
            Expr::Ident(name) => self.check_identifier(node.id, name),
            Expr::Select(select) => self.check_select(node.id, &select.operand, &select.field, false),
            Expr::Call(call) => self.check_call(node.id, call),
            Expr::List(items) => self.check_list(items),
            Expr::Map(entries) => self.check_map(node.id, entries),
            Expr::Struct(object) => self.check_object(node.id, object),
            Expr::Comprehension(_) | Expr::Unspecified => fail(node.id, "this cannot be read"),
        }
    }

    fn find_local(&self, name: &str) -> Option<(usize, &Type)> {
        let index = self.locals.iter().rposition(|(local, _)| local == name)?;
        self.locals.get(index).map(|(_, kind)| (index, kind))
    }

    fn check_call(&mut self, node_id: u64, call: &CallExpr) -> TypedResult {
        let name = call.func_name.as_str();
        match (&call.target, call.args.as_slice()) {
            (None, [left, right]) => match name {
                operators::LOGICAL_AND | operators::LOGICAL_OR => {
                    let sides = Box::new([
                        self.check_logical_side(name, left)?,
                        self.check_logical_side(name, right)?,
                    ]);
                    let checked = if name == operators::LOGICAL_AND {
                        Expression::And(sides)
                    } else {
                        Expression::Or(sides)
                    };
                    return Ok((checked, Type::Bool));
                }
                operators::INDEX => return self.check_index(node_id, left, right, false),
                operators::OPT_INDEX => return self.check_index(node_id, left, right, true),
                operators::OPT_SELECT => {
                    if let Expr::Literal(LiteralValue::String(field)) = &right.expr {
                        return self.check_select(node_id, left, field.inner(), true);
                    }
                }
                _ => {}
            },
            (None, [test, then, otherwise]) if name == operators::CONDITIONAL => {
                return self.check_conditional(node_id, test, then, otherwise);
            }
            (None, [argument]) if name == operators::HAS => return self.check_has(node_id, argument),
            (Some(target), arguments) => {
                if let (Expr::Ident(space), Some(_)) = (&target.expr, &self.scope.kyverno)
                    && self.find_local(space).is_none()
                {
                    if let Some(why) = refusal(space, name) {
                        return fail(node_id, format!("'{space}.{name}' cannot be called here: {why}"));
                    }
                    if let ("cel", "bind", [variable, value, body]) = (space.as_str(), name, arguments) {
                        return self.check_bind(variable, value, body);
                    }
                }
                if let Some(typed) = self.check_macro_call(node_id, name, target, arguments)? {
                    return Ok(typed);
                }
                if let Expr::Ident(space) = &target.expr {
                    let qualified = format!("{space}.{name}");
                    if self.find_local(space).is_none() && self.find_function(&qualified, Style::Global).is_some() {
                        return self.check_function_call(node_id, &qualified, None, arguments);
                    }
                }
            }
            _ => {}
        }
        self.check_function_call(node_id, name, call.target.as_deref(), &call.args)
    }

    fn check_logical_side(&mut self, operator: &str, node: &IdedExpr) -> Result<Expression, TypeMistake> {
        let (side, kind) = self.check(node)?;
        if matches!(kind, Type::Bool | Type::Dyn | Type::Free) {
            Ok(side)
        } else {
            fail(
                node.id,
                format!("expected type 'bool' on both sides of '{operator}' but found '{kind}'"),
            )
        }
    }

    fn check_conditional(
        &mut self,
        node_id: u64,
        test: &IdedExpr,
        then: &IdedExpr,
        otherwise: &IdedExpr,
    ) -> TypedResult {
        let test = self.check_logical_side(operators::CONDITIONAL, test)?;
        let (then, then_kind) = self.check(then)?;
        let (otherwise, otherwise_kind) = self.check(otherwise)?;
        let Some(kind) = join(&then_kind, &otherwise_kind) else {
            return fail(
                node_id,
                format!(
                    "found no matching overload for '_?_:_' applied to '(bool, {then_kind}, {otherwise_kind})': both values must be of \
                     one type"
                ),
            );
        };
        Ok((Expression::Conditional(Box::new([test, then, otherwise])), kind))
    }

    fn check_list(&mut self, items: &ListExpr) -> TypedResult {
        let mut kind: Option<Type> = None;
        let mut checked = Vec::with_capacity(items.elements.len());
        for (index, item) in items.elements.iter().enumerate() {
            let is_optional = items.optional_indices.contains(&index);
            let (value, item_kind) = self.check(item)?;
            let item_kind = without_optional(item.id, item_kind, is_optional)?;
            self.item_types.insert(item.id, item_kind.clone());
            kind = Some(self.join_types(item.id, kind, item_kind)?);
            checked.push(ListItem { value, is_optional });
        }
        Ok((Expression::List(checked.into()), list(kind.unwrap_or(Type::Free))))
    }

    fn check_map(&mut self, node_id: u64, entries: &MapExpr) -> TypedResult {
        let (mut key_kind, mut value_kind) = (None, None);
        let mut checked = Vec::with_capacity(entries.entries.len());
        for entry in &entries.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return fail(node_id, "this cannot be read");
            };
            // Some types cannot be keys, for example lists. The type of the key is not checked here: an expression with
            // such a key fails only when it is evaluated.
            let (key, kind) = self.check(&entry.key)?;
            key_kind = Some(self.join_types(entry.key.id, key_kind, kind)?);
            let (value, kind) = self.check(&entry.value)?;
            let kind = without_optional(entry.value.id, kind, entry.optional)?;
            value_kind = Some(self.join_types(entry.value.id, value_kind, kind)?);
            checked.push(MapEntry {
                key,
                value,
                is_optional: entry.optional,
            });
        }
        let kind = map(key_kind.unwrap_or(Type::Free), value_kind.unwrap_or(Type::Free));
        Ok((Expression::Map(checked.into()), kind))
    }

    /// Returns the common type of several items, such as those of a list literal. `so_far` is the common type of the
    /// previous items (`None` if there are none), and `kind` is the type of the next item.
    fn join_types(&self, node_id: u64, so_far: Option<Type>, kind: Type) -> Result<Type, TypeMistake> {
        match so_far {
            None => Ok(kind),
            Some(so_far) if self.allows_mixed => Ok(join(&so_far, &kind).unwrap_or(Type::Dyn)),
            // As in kube-apiserver, a list must not mix items of dynamic type and items of a known type.
            Some(so_far) => match join(&so_far, &kind).filter(|_| so_far.may_be(&kind)) {
                Some(joined) => Ok(joined),
                None => fail(node_id, format!("expected type '{so_far}' but found '{kind}'")),
            },
        }
    }

    fn find_function(&self, name: &str, style: Style) -> Option<&'static CelFunction> {
        match self.scope.kyverno {
            Some(_) => find_for_kyverno(name, style),
            None => find(name, style),
        }
    }

    fn check_function_call(
        &mut self,
        node_id: u64,
        name: &str,
        target: Option<&IdedExpr>,
        arguments: &[IdedExpr],
    ) -> TypedResult {
        let style = match target {
            Some(_) => Style::Member,
            None => Style::Global,
        };
        let name = name.strip_prefix('.').unwrap_or(name);
        let is_known = name != ESCAPE_KEY || self.scope.mutates;
        let Some(function) = self.find_function(name, style).filter(|_| is_known) else {
            return fail(
                node_id,
                format!(
                    "undeclared reference to '{name}': there is no such function here{}",
                    suggestion_suffix(name, names(style, self.scope.kyverno.is_some()))
                ),
            );
        };
        let mut checked = Vec::with_capacity(arguments.len() + 1);
        let mut kinds = Vec::with_capacity(arguments.len() + 1);
        let allows_mixed = self.allows_mixed || name == "format";
        let outer_allows_mixed = mem::replace(&mut self.allows_mixed, allows_mixed);
        for argument in target.into_iter().chain(arguments) {
            let (argument, kind) = self.check(argument)?;
            checked.push(argument);
            kinds.push(kind);
        }
        self.allows_mixed = outer_allows_mixed;
        self.check_kyverno_call(node_id, name, &mut checked, &mut kinds)?;
        let Some(kind) = function.resolve(&kinds).filter(|_| checked.len() <= MAX_ARGUMENTS) else {
            return fail(
                node_id,
                format!(
                    "found no matching overload for '{name}' applied to '{}'",
                    signature_text(style, &kinds)
                ),
            );
        };
        if let Some(index) = function.pattern_index
            && let Some(argument) = checked.get_mut(index)
            && let Expression::Constant(Value::String(source)) = argument
        {
            match CompiledRegex::compile_literal(source) {
                Ok(pattern) => *argument = Expression::Constant(Value::Pattern(Arc::new(pattern))),
                Err(error) => return fail(node_id, error),
            }
        }
        if name == "format" && style == Style::Member {
            format::check_arguments(target, arguments, &kinds, &self.item_types)
                .or_else(|message| fail(node_id, message))?;
        }
        if let ("or" | "orValue", Style::Member) = (name, style) {
            let mut sides = checked.into_iter();
            let (Some(operand), Some(otherwise)) = (sides.next(), sides.next()) else {
                return fail(node_id, "this cannot be read");
            };
            let parts = OrElse {
                operand,
                otherwise,
                is_or_value: name == "orValue",
            };
            return Ok((Expression::OrElse(Box::new(parts)), kind));
        }
        if let (true, [Expression::Constant(argument)]) = (CONVERSIONS.contains(&name), checked.as_slice()) {
            return Ok((convert_constant(node_id, function, argument)?, kind));
        }
        Ok((Expression::Call(function, checked.into()), kind))
    }

    fn check_kyverno_call(
        &mut self,
        node_id: u64,
        name: &str,
        arguments: &mut Vec<Expression>,
        kinds: &mut Vec<Type>,
    ) -> Result<(), TypeMistake> {
        let Some(scope) = &self.scope.kyverno else {
            return Ok(());
        };
        if http::is_request(name) {
            if scope.namespace.is_some() {
                let why = "the grants of requests are for policies of the whole cluster";
                return fail(
                    node_id,
                    format!("'{name}' cannot be called in a policy of a namespace: {why}"),
                );
            }
            self.uses.http = true;
        }
        if lookup::is_lookup(name) {
            let cluster_kind = lookup::parse_kind(arguments.get(0..2).unwrap_or_default())
                .or_else(|message| fail(node_id, message))?;
            arguments.splice(
                0..2,
                [cluster_kind.api_version(), cluster_kind.kind()].map(text_constant),
            );
            self.lookups.push(cluster_kind);
            if let Some(namespace) = &scope.namespace {
                arguments.insert(2, text_constant(namespace));
                kinds.insert(2, Type::String);
            }
        }
        Ok(())
    }
}

/// Evaluates the conversion of a constant during compilation. As in kube-apiserver, a failure is a compilation error.
fn convert_constant(
    node_id: u64,
    function: &CelFunction,
    argument: &Value<'static>,
) -> Result<Expression, TypeMistake> {
    let mut machine = Machine::new(
        &NO_VARIABLES,
        &[],
        CONSTANT_COST_LIMIT,
        Deadline::after(CONSTANT_TIME_LIMIT),
    );
    match function.call(&mut machine, std::slice::from_ref(argument)) {
        Ok(value) => Ok(Expression::Constant(value)),
        Err(Fault::Error(why)) => fail(node_id, why),
        Err(Fault::Halt(_)) => fail(node_id, "the constant is too large"),
    }
}

/// The conversion functions that are evaluated during compilation if their argument is a constant.
const CONVERSIONS: [&str; 10] = [
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "string",
    "timestamp",
    "type",
    "uint",
];
static NO_VARIABLES: Variables<'static> = Variables::NONE;
const CONSTANT_COST_LIMIT: u64 = 1_000_000;
const CONSTANT_TIME_LIMIT: Duration = Duration::from_secs(60);
const ESCAPE_KEY: &str = "jsonpatch.escapeKey";

fn text_constant(text: &str) -> Expression {
    Expression::Constant(Value::string(text))
}

fn suggestion_suffix<T: Display>(name: &str, names: impl IntoIterator<Item = T>) -> String {
    suggestion(name, names).map_or_else(String::new, |text| format!(" ({text})"))
}

fn fail<T>(node_id: u64, message: impl Into<String>) -> Result<T, TypeMistake> {
    Err(TypeMistake::At {
        node: node_id,
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
        LiteralValue::String(value) => (Value::String(CelText::Shared(value.inner().into())), Type::String),
        LiteralValue::UInt(value) => (Value::Uint(*value.inner()), Type::Uint),
    };
    (Expression::Constant(constant), kind)
}

fn without_optional(node_id: u64, kind: Type, is_optional: bool) -> Result<Type, TypeMistake> {
    match (is_optional, kind) {
        (false, kind) => Ok(kind),
        (true, Type::Optional(inner)) => Ok(*inner),
        (true, Type::Dyn | Type::Free) => Ok(Type::Dyn),
        (true, other) => fail(node_id, format!("expected type 'optional_type' but found '{other}'")),
    }
}

fn signature_text(style: Style, kinds: &[Type]) -> String {
    let texts: Vec<String> = kinds.iter().map(Type::to_string).collect();
    match (style, texts.split_first()) {
        (Style::Member, Some((receiver, arguments))) => format!("{receiver}.({})", arguments.join(", ")),
        _ => format!("({})", texts.join(", ")),
    }
}
