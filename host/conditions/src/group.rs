//! Compiles the expression of a group, which combines the verdicts of its members.

use admittance_admission::Formula;
use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};

use crate::{ConditionError, check::TypeMistake, compile};

/// A compiled expression over the members of a group. It is equal to another if the texts are equal.
#[derive(Clone, Debug)]
pub struct GroupExpression {
    text: Box<str>,
    formula: Formula,
}

impl GroupExpression {
    /// The maximum number of members of a group.
    pub const MAX_MEMBERS: usize = 64;

    /// Compiles an expression over the members with these names. As in Kubewarden, `name()` is a member's verdict, and
    /// the operators are `&&`, `||`, `!`, `==` and `!=`.
    ///
    /// # Errors
    ///
    /// Returns an error for invalid syntax, an unknown member, and any other construct of CEL.
    pub fn compile(text: &str, members: &[&str]) -> Result<Self, ConditionError> {
        let read_formula = |tree: &IdedExpr| parse_formula(tree, members, 0);
        let formula = compile::parse_with(text, read_formula)?;
        Ok(Self {
            text: text.into(),
            formula,
        })
    }

    /// Returns the text from which the expression was compiled.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the expression as a formula. The formula refers to a member by its index in the list of names from which
    /// the expression was compiled.
    pub fn formula(&self) -> &Formula {
        &self.formula
    }
}

impl PartialEq for GroupExpression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// The maximum nesting of operators. The parser balances a chain `a() && b() && ...`, so a long chain is not deep.
const MAX_DEPTH: usize = 64;

fn parse_formula(node: &IdedExpr, members: &[&str], depth: usize) -> Result<Formula, TypeMistake> {
    if depth >= MAX_DEPTH {
        return Err(TypeMistake::TooDeep { limit: MAX_DEPTH });
    }
    let fail = |message: String| Err(TypeMistake::At { node: node.id, message });
    let subformula = |operand: &IdedExpr| parse_formula(operand, members, depth + 1);
    let both = |one, other| Ok(Box::new([subformula(one)?, subformula(other)?]));
    match &node.expr {
        Expr::Literal(LiteralValue::Boolean(value)) => Ok(Formula::Constant(*value.inner())),
        Expr::Call(CallExpr {
            target: None,
            func_name,
            args,
        }) => match (func_name.as_str(), args.as_slice()) {
            (operators::LOGICAL_AND, [one, other]) => Ok(Formula::And(both(one, other)?)),
            (operators::LOGICAL_OR, [one, other]) => Ok(Formula::Or(both(one, other)?)),
            (operators::EQUALS, [one, other]) => Ok(Formula::Equal(both(one, other)?)),
            (operators::NOT_EQUALS, [one, other]) => Ok(Formula::Not(Box::new(Formula::Equal(both(one, other)?)))),
            (operators::LOGICAL_NOT, [operand]) => Ok(Formula::Not(Box::new(subformula(operand)?))),
            (name, arguments) => match members.iter().position(|member| *member == name) {
                Some(member) if arguments.is_empty() => Ok(Formula::Member(member)),
                Some(_) => fail(format!("`{name}` takes no arguments; write `{name}()`")),
                None if is_name(name) => fail(format!("there is no `{name}` in the group{}", known_members(members))),
                None => fail(NOT_BOOLEAN.to_owned()),
            },
        },
        Expr::Ident(name) if members.contains(&name.as_str()) => fail(format!("write `{name}()`")),
        Expr::Ident(name) => fail(format!("there is no `{name}` in the group{}", known_members(members))),
        _ => fail(NOT_BOOLEAN.to_owned()),
    }
}

const NOT_BOOLEAN: &str = "an expression of a group is boolean: the names of its members, as `name()`, with `&&`, `||`, \
                           `!`, `==`, `!=` and parentheses";

fn is_name(text: &str) -> bool {
    text.chars()
        .all(|character| character.is_alphanumeric() || character == '_')
}

fn known_members(members: &[&str]) -> String {
    if members.is_empty() {
        return String::new();
    }
    let names: Vec<String> = members.iter().map(|name| format!("`{name}()`")).collect();
    format!("; there is {}", names.join(", "))
}
