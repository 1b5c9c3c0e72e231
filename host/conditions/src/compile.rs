//! Checks the names of conditions, and parses expressions.

use std::thread;

use admittance_admission::{NAME_PART_LENGTH, is_dns_subdomain, is_name_part};
use cel::{Env, common::ast::IdedExpr, parser::ParseErrors};

use crate::{
    ConditionError,
    check::{CheckScope, CheckedExpression, Checker, TypeMistake},
    types::Type,
};

/// The maximum length of an expression, in bytes.
pub(crate) const MAX_LENGTH: usize = 16 << 10;
/// The stack size of the parser's thread, in bytes. It is several times as large as any expression needs. Unused pages
/// of a stack take no memory.
const STACK_SIZE: usize = 64 << 20;

pub(crate) fn compile(
    source: &str,
    scope: &CheckScope,
    expected_types: &[Type],
) -> Result<CheckedExpression, ConditionError> {
    let checked = parse_with(source, |tree| Checker::new(scope).check_whole(tree))?;
    if expected_types.is_empty() || expected_types.contains(&checked.kind) {
        return Ok(checked);
    }
    let kind = checked.kind.to_string();
    let type_names = match expected_types {
        [Type::Bool] => {
            return refuse(format!(
                "must evaluate to bool but got {kind}; compare it with what you expect"
            ));
        }
        types => types.iter().map(Type::to_string).collect::<Vec<_>>(),
    };
    refuse(format!("must evaluate to {} but got {kind}", type_names.join(" or ")))
}

fn refuse<T>(message: impl Into<String>) -> Result<T, ConditionError> {
    Err(ConditionError::Refused(message.into()))
}

pub(crate) fn parse_with<T: Send>(
    source: &str,
    read_tree: impl FnOnce(&IdedExpr) -> Result<T, TypeMistake> + Send,
) -> Result<T, ConditionError> {
    if source.trim().is_empty() {
        return refuse("the expression is empty; write one that is true for the requests that the hook is for");
    }
    if source.len() > MAX_LENGTH {
        return refuse(format!(
            "the expression has {} bytes; make it shorter than {MAX_LENGTH}, or split it into several conditions",
            source.len()
        ));
    }
    #[allow(clippy::disallowed_methods, reason = "it ends with the expression")]
    // A deeply nested expression would overflow the stack of a worker thread while it is parsed, or while its tree is
    // dropped. So a new thread with a larger stack does both.
    let outcome = thread::scope(|threads| {
        thread::Builder::new()
            .name("condition-parser".to_owned())
            .stack_size(STACK_SIZE)
            .spawn_scoped(threads, || parse_and_read(source, read_tree))
            .map(|thread| thread.join())
    });
    match outcome {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => refuse("the parser failed: it cannot parse this expression"),
        Err(error) => refuse(format!("the parser failed: it could not start: {error}")),
    }
}

fn parse_and_read<T>(
    source: &str,
    read_tree: impl FnOnce(&IdedExpr) -> Result<T, TypeMistake>,
) -> Result<T, ConditionError> {
    // The parser does not expand macros. So the checker sees `has`, `all` and other macros as calls.
    let (tree, positions) = Env::default()
        .parser()
        .parse_with_source_info(source)
        .map_err(|errors| first_error(source, errors))?;
    read_tree(&tree).map_err(|mistake| match mistake {
        TypeMistake::At { node, message } => {
            let start = positions.offset_for(node).map_or(0, |(start, _)| start);
            let (line, column) = position(source, start as usize);
            ConditionError::Compile { line, column, message }
        }
        TypeMistake::TooDeep { limit } => ConditionError::TooDeep(limit),
    })
}

fn first_error(source: &str, errors: ParseErrors) -> ConditionError {
    let mut errors = errors.errors;
    // Syntax errors come first, because they often cause the rest of the errors.
    errors.sort_by_key(|error| (!error.msg.starts_with("Syntax error"), error.pos));
    if errors.iter().any(|error| error.msg.contains("Recursion limit")) {
        return ConditionError::TooDeep(PARSER_DEPTH);
    }
    let Some(error) = errors.into_iter().next() else {
        return ConditionError::Refused("the parser failed: it gave no reason".to_owned());
    };
    let one_based = |number: isize| usize::try_from(number).unwrap_or(1).max(1);
    let (line, column) = (one_based(error.pos.0), one_based(error.pos.1));
    let at_end = source.lines().count() <= line && error.msg.contains("'<EOF>' expecting");
    ConditionError::Compile {
        line,
        column,
        message: if at_end {
            format!("{}: the expression ends too early", shorten_message(&error.msg))
        } else {
            shorten_message(&error.msg)
        },
    }
}

/// The maximum nesting of parentheses, brackets and arguments that the parser accepts.
const PARSER_DEPTH: usize = 96;

fn shorten_message(message: &str) -> String {
    message
        .split(" expecting ")
        .next()
        .unwrap_or(message)
        .chars()
        .take(200)
        .collect()
}

fn position(source: &str, offset: usize) -> (usize, usize) {
    let before = source.chars().take(offset);
    before.fold((1, 1), |(line, column), character| {
        if character == '\n' {
            (line + 1, 1)
        } else {
            (line, column + 1)
        }
    })
}

/// Checks that a condition's name is a qualified name, as Kubernetes defines it.
pub(crate) fn check_name(name: &str) -> Result<(), ConditionError> {
    let wrong = |why: &str| {
        Err(ConditionError::Name {
            name: name.to_owned(),
            why: why.to_owned(),
        })
    };
    if name.is_empty() {
        return wrong("it is empty");
    }
    let part = match name.split_once('/') {
        Some((prefix, part)) => {
            if !is_dns_subdomain(prefix) {
                return wrong("the part before the `/` must be a DNS name in lower case, of at most 253 characters");
            }
            part
        }
        None => name,
    };
    if part.is_empty() {
        return wrong("nothing follows the `/`");
    }
    if part.len() > NAME_PART_LENGTH {
        return wrong("the name part is longer than 63 characters");
    }
    if !is_name_part(part) {
        return wrong(
            "the name part may have letters, digits, `-`, `_` and `.`, and must begin and end with a letter or a digit",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_condition_must_be_a_qualified_name() {
        // The cases are from kube-apiserver's validation of qualified names.
        let longest = "a".repeat(63);
        for (name, good) in [
            ("exclude-leases", true),
            ("a", true),
            ("Upper_and.dots-1", true),
            ("example.com/my-condition", true),
            (longest.as_str(), true),
            ("", false),
            ("/a", false),
            ("a/", false),
            ("a/b/c", false),
            ("Example.com/a", false),
            ("example..com/a", false),
            ("-a", false),
            ("a-", false),
            (".a", false),
            ("a b", false),
            ("ä", false),
            (
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                false,
            ),
        ] {
            assert_eq!(check_name(name).is_ok(), good, "{name}");
        }
        let error = check_name("a b").unwrap_err().to_string();
        assert_eq!(
            error,
            "the name of a match condition cannot be `a b`: the name part may have letters, digits, `-`, `_` \
             and `.`, and must begin and end with a letter or a digit"
        );
    }
}
