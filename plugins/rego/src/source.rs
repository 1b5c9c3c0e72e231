//! Rewrites a module so that regorus gives it the same meaning as OPA.
//!
//! Five constructs are rewritten, each within its line, so that mistakes keep their line numbers:
//!
//! - `data.inventory` becomes a field of the input that no policy uses otherwise, because regorus analyses all modules
//!   again when data changes, but not when the input changes;
//! - a `(` at the start of a line begins an expression, and does not call what is above it: a `;` is inserted before
//!   it;
//! - a second body of a rule, `violation[...] { ... } { ... }`, gets its own head;
//! - `not f(x.y)` is false if `x.y` is undefined: references and calls in it are bound before the `not`. OPA does so
//!   for all negated calls and comparisons, but on the sides of `==` and `=`, it binds only calls;
//! - `any(x, result)` becomes `result = any(x)`, because regorus rejects the result as an argument of added functions.

use std::{collections::BTreeSet, num::NonZeroU32};

use regorus::unstable::{AssignOp, BoolOp, Expr, Lexer, Literal, Module, Query, Ref, Source, TokenKind};
use regorus::{Engine, PolicyLengthConfig};

use crate::{functions, policy, walk};

/// The maximum length of a line of a module, in characters. Lines of generated policies are long.
const MAX_LINE_LENGTH: NonZeroU32 = NonZeroU32::new(1 << 16).unwrap();

/// The field of the input that contains the inventory. `data.inventory` in a module is replaced by this field.
pub(crate) const INVENTORY_FIELD: &str = "__inventory";

/// Text that cannot be parsed is returned unchanged, so that the compiler reports the mistake.
pub(crate) fn rewrite(path: &str, text: &str, is_v0: bool) -> String {
    let text = with_inventory_in_input(path, text).unwrap_or_else(|| text.to_owned());
    let text = with_tokens_rewritten(path, &text).unwrap_or(text);
    let mut engine = new_engine(is_v0);
    if engine.add_policy(path.to_owned(), text.clone()).is_err() {
        return text;
    }
    match engine.get_modules().first() {
        Some(module) => with_bound_references(&text, module),
        None => text,
    }
}

pub(crate) fn new_engine(is_v0: bool) -> Engine {
    let mut engine = Engine::new();
    engine.set_rego_v0(is_v0);
    engine.set_policy_length_config(PolicyLengthConfig {
        max_col: MAX_LINE_LENGTH,
        ..PolicyLengthConfig::default()
    });
    engine
}

type Insertion = (usize, String);

fn with_insertions(text: &str, mut insertions: Vec<Insertion>) -> String {
    insertions.sort_by_key(|(at, _)| *at);
    let mut result = text.to_owned();
    for (at, new) in insertions.into_iter().rev() {
        result.insert_str(at, &new);
    }
    result
}

struct RegoToken {
    kind: TokenKind,
    line: u32,
    start: usize,
    end: usize,
}

fn tokenize(path: &str, text: &str) -> Option<Vec<RegoToken>> {
    let source = Source::from_contents(path.to_owned(), text.to_owned()).ok()?;
    let mut lexer = Lexer::new(&source);
    lexer.set_max_col(MAX_LINE_LENGTH);
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next_token().ok()?;
        if token.0 == TokenKind::Eof {
            return Some(tokens);
        }
        tokens.push(RegoToken {
            kind: token.0,
            line: token.1.line,
            start: usize::try_from(token.1.start).ok()?,
            end: usize::try_from(token.1.end).ok()?,
        });
    }
}

fn with_inventory_in_input(path: &str, text: &str) -> Option<String> {
    const QUOTED: &str = "[\"inventory\"]";
    let tokens = tokenize(path, text)?;
    let is_word = |index: Option<usize>, word: &str| {
        let token = index.and_then(|index| tokens.get(index));
        token.is_some_and(|token| text.get(token.start..token.end) == Some(word))
    };
    let mut result = text.to_owned();
    for (index, token) in tokens.iter().enumerate().rev() {
        let is_root = is_word(Some(index), "data") && !is_word(index.checked_sub(1), ".");
        let field_token = tokens.get(index + 2).filter(|_| is_word(Some(index + 1), "."));
        let quoted = token.end + QUOTED.len();
        let end = match field_token.filter(|_| is_word(Some(index + 2), "inventory")) {
            Some(name) => name.end,
            None if text.get(token.end..quoted) == Some(QUOTED) => quoted,
            None => continue,
        };
        if is_root {
            // `data.inventory` is replaced with a field of the input. If a policy imports `data.inventory`, it may use
            // the short name `inventory` from then on. So `as inventory` is added unless the policy gives another name.
            let has_name = !is_word(index.checked_sub(1), "import") || is_word(Some(index + 3), "as");
            let name = if has_name { "" } else { " as inventory" };
            result.replace_range(token.start..end, &format!("input.{INVENTORY_FIELD}{name}"));
        }
    }
    Some(result)
}

fn with_tokens_rewritten(path: &str, text: &str) -> Option<String> {
    let tokens = tokenize(path, text)?;
    let token_text = |token: &RegoToken| match token.kind {
        TokenKind::Symbol | TokenKind::Ident => text.get(token.start..token.end).unwrap_or_default(),
        _ => "",
    };
    let mut insertions = Vec::new();
    let mut open: Vec<&str> = Vec::new();
    let mut head: Option<(usize, usize)> = None;
    let mut start = None;
    let mut has_else = false;
    let mut previous: Option<&RegoToken> = None;
    for token in &tokens {
        let symbol = token_text(token);
        let before = previous.map(token_text).unwrap_or_default();
        let is_new_line = previous.is_none_or(|previous| previous.line < token.line);
        if open.is_empty() {
            let body_ended = before == "}" && head.is_some();
            match symbol {
                "else" => has_else = true,
                "{" if body_ended && !has_else => {
                    if let Some(head) = head.and_then(|(from, to)| text.get(from..to)) {
                        insertions.push((token.start, format!("{} ", head.trim().replace('\n', " "))));
                    }
                }
                "{" if matches!(before, "=" | ":=") => {}
                "{" if head.is_none() => head = start.map(|start| (start, token.start)),
                "{" => {}
                _ if is_new_line && (start.is_none() || !continues_statement(before, symbol)) => {
                    (start, head, has_else) = (Some(token.start), None, false);
                }
                _ => {}
            }
        }
        if symbol == "("
            && is_new_line
            && open.last() == Some(&"{")
            && previous.is_some_and(|p| ends_expression(p, before))
        {
            insertions.push((token.start, "; ".to_owned()));
        }
        match symbol {
            "{" | "[" | "(" => open.push(symbol),
            "}" | "]" | ")" => drop(open.pop()),
            _ => {}
        }
        previous = Some(token);
    }
    Some(with_insertions(text, insertions))
}

/// Returns whether a line continues the statement of the previous line. `before` is the last token of the previous
/// line, and `symbol` the first token of this line. Neither of them may be inside of brackets.
fn continues_statement(before: &str, symbol: &str) -> bool {
    matches!(before, "=" | ":=" | "." | "else" | "contains" | "if" | "default")
        || matches!(symbol, "=" | ":=" | "if" | "contains")
}

fn ends_expression(token: &RegoToken, text: &str) -> bool {
    match token.kind {
        TokenKind::Symbol => matches!(text, ")" | "]" | "}"),
        TokenKind::Ident => !matches!(text, "in" | "not" | "with" | "as" | "some" | "every" | "if" | "else"),
        _ => true,
    }
}

fn with_bound_references(text: &str, module: &Ref<Module>) -> String {
    let mut bindings = SourceEdits {
        text,
        defined_paths: policy::collect_defined_paths(std::slice::from_ref(module)),
        insertions: Vec::new(),
        replacements: Vec::new(),
        binding_count: 0,
    };
    walk::visit_queries(module, &mut |query| bindings.bind_arguments(query));
    let SourceEdits {
        insertions,
        replacements,
        ..
    } = bindings;
    let mut changes: Vec<(usize, usize, String)> = replacements;
    changes.extend(insertions.into_iter().map(|(at, new)| (at, at, new)));
    changes.sort_by_key(|(from, to, _)| (*from, *to));
    let mut result = text.to_owned();
    for (from, to, new) in changes.into_iter().rev() {
        result.replace_range(from..to, &new);
    }
    result
}

struct SourceEdits<'a> {
    text: &'a str,
    defined_paths: BTreeSet<String>,
    insertions: Vec<Insertion>,
    replacements: Vec<(usize, usize, String)>,
    binding_count: usize,
}

impl SourceEdits<'_> {
    fn bind_arguments(&mut self, query: &Query) {
        for statement in &query.stmts {
            let (span, expr) = match &statement.literal {
                Literal::NotExpr { span, expr } => (span, expr),
                Literal::Expr { expr, .. } => {
                    self.rewrite_as_equation(expr);
                    continue;
                }
                _ => continue,
            };
            // A statement with `with` is not rewritten. Rewriting would move its arguments into separate statements in
            // front of it, and `with` would not apply to them there.
            if !statement.with_mods.is_empty() {
                continue;
            }
            let (arguments, has_equal_sides): (Vec<&Ref<Expr>>, bool) = match &**expr {
                Expr::Call { params, .. } => (params.iter().collect(), false),
                Expr::BoolExpr { op, lhs, rhs, .. } => (vec![lhs, rhs], *op == BoolOp::Eq),
                Expr::AssignExpr { op, lhs, rhs, .. } => (vec![lhs, rhs], *op == AssignOp::Eq),
                _ => continue,
            };
            let mut bound = Vec::new();
            for argument in arguments {
                collect_hoisted(argument, &mut bound);
            }
            bound.retain(|bound| !has_equal_sides || matches!(bound, Expr::Call { .. }));
            let at = usize::try_from(span.start).unwrap_or(usize::MAX);
            for expression in bound {
                self.bind(at, expression);
            }
        }
    }

    /// Rewrites a call as an equation if its last argument receives the result. `plus(1, 2, x)`, for example, becomes
    /// `x = plus(1, 2)`.
    fn rewrite_as_equation(&mut self, expression: &Expr) {
        let Expr::Call { span, fcn, params, .. } = expression else {
            return;
        };
        let name = fcn.span().text();
        let is_own = |path: &String| path.rsplit('.').next() == Some(name);
        let arity = functions::arity(name).filter(|_| !self.defined_paths.iter().any(is_own));
        let [arguments @ .., result] = params.as_slice() else {
            return;
        };
        let (Some(last), true) = (arguments.last(), arity == Some(arguments.len())) else {
            return;
        };
        let ends = [span.start, last.span().end, result.span().end].map(|at| usize::try_from(at).ok());
        let [Some(start), Some(from), Some(to)] = ends else {
            return;
        };
        let removed_text = self.text.get(from..to).unwrap_or_default();
        self.insertions.push((start, format!("{} = ", result.span().text())));
        self.replacements
            .push((from, to, "\n".repeat(removed_text.matches('\n').count())));
    }

    fn bind(&mut self, at: usize, expression: &Expr) {
        let span = expression.span();
        let (Ok(from), Ok(to)) = (usize::try_from(span.start), usize::try_from(span.end)) else {
            return;
        };
        let Some(expression_text) = self.text.get(from..to) else {
            return;
        };
        // The inserted text must be on a single line. A line break in it would change the numbers of all later lines,
        // which appear in error messages.
        let single_line = expression_text.replace('\n', " ");
        if single_line.contains('#') {
            return;
        }
        self.binding_count += 1;
        let name = format!("__bound_{}", self.binding_count);
        self.insertions.push((at, format!("{name} := {single_line}; ")));
        let lines = self.text.get(from..to).unwrap_or_default().matches('\n').count();
        self.replacements
            .push((from, to, format!("{name}{}", "\n".repeat(lines))));
    }
}

/// Finds the references and calls in an argument, and adds them to `bound`. If a reference or call is inside of another
/// one, or inside of a comprehension, it is left out.
fn collect_hoisted<'a>(expression: &'a Ref<Expr>, bound: &mut Vec<&'a Expr>) {
    match &**expression {
        Expr::RefDot { .. } | Expr::RefBrack { .. } | Expr::Call { .. } => bound.push(expression),
        Expr::Array { items, .. } | Expr::Set { items, .. } => {
            for item in items {
                collect_hoisted(item, bound);
            }
        }
        Expr::Object { fields, .. } => {
            for (_, key, value) in fields {
                collect_hoisted(key, bound);
                collect_hoisted(value, bound);
            }
        }
        Expr::BinExpr { lhs, rhs, .. } | Expr::BoolExpr { lhs, rhs, .. } | Expr::ArithExpr { lhs, rhs, .. } => {
            collect_hoisted(lhs, bound);
            collect_hoisted(rhs, bound);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewritten_sources_keep_their_line_numbers() {
        for (text, expected) in [
            (
                "package a\nx {\n  y := 1\n  (y + 1) > 1\n}\n",
                "package a\nx {\n  y := 1\n  ; (y + 1) > 1\n}\n",
            ),
            (
                "package a\nimport data.inventory as all\nv { data.inventory.cluster[x]; data[\"inventory\"].y; input.data.inventory; data.lib.x }\n",
                "package a\nimport input.__inventory as all\nv { input.__inventory.cluster[x]; input.__inventory.y; input.data.inventory; data.lib.x }\n",
            ),
            (
                "package a\nimport data.inventory\nv { inventory.cluster }\n",
                "package a\nimport input.__inventory as inventory\nv { inventory.cluster }\n",
            ),
            (
                "package a\nx {\n  y := [1,\n  (2)]\n  z :=\n  (3)\n}\n",
                "package a\nx {\n  y := [1,\n  (2)]\n  z :=\n  (3)\n}\n",
            ),
            (
                "package a\nv[{\"msg\": m}] {\n  m := \"a\"\n} {\n  m := \"b\"\n}\nw { true }\n",
                "package a\nv[{\"msg\": m}] {\n  m := \"a\"\n} v[{\"msg\": m}] {\n  m := \"b\"\n}\nw { true }\n",
            ),
            (
                "package a\nf(x) = {\"a\": x} { x > 1 } else = {} { true }\ng = {1} { true }\n",
                "package a\nf(x) = {\"a\": x} { x > 1 } else = {} { true }\ng = {1} { true }\n",
            ),
            (
                "package a\nf(x) { x }\nv {\n  not f(input.a.b)\n}\n",
                "package a\nf(x) { x }\nv {\n  __bound_1 := input.a.b; not f(__bound_1)\n}\n",
            ),
            (
                "package a\nv { not startswith(lower(input.a), \"x\"); not input.b > 3; not input.c; not input.d == 2 }\n",
                "package a\nv { __bound_1 := lower(input.a); not startswith(__bound_1, \"x\"); \
                 __bound_2 := input.b; not __bound_2 > 3; not input.c; not input.d == 2 }\n",
            ),
            (
                "package a\nv { net.cidr_merge(input.a,\n  x); any([true]); count([1], y); any(all([z]), true) }\n",
                "package a\nv { x = net.cidr_merge(input.a\n); any([true]); count([1], y); true = any(all([z])) }\n",
            ),
            (
                "package a\nany(x, y) { x == y }\nv { any(1, 2) }\n",
                "package a\nany(x, y) { x == y }\nv { any(1, 2) }\n",
            ),
            (
                "package a\nv { not count(input.a) == count(input.b) }\n",
                "package a\nv { __bound_1 := count(input.a); __bound_2 := count(input.b); \
                 not __bound_1 == __bound_2 }\n",
            ),
        ] {
            assert_eq!(rewrite("a.rego", text, true), expected);
        }
    }
}
