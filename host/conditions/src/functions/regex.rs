//! The regular expressions of `matches`, `find` and `findAll`, in Go's syntax, translated for the crate `regex`.

use std::sync::Arc;

use ::regex::{Regex, RegexBuilder};

use super::{
    Library, Style,
    strings::occurrence_limit,
    typed::{CelType, ListOf, OptionalOf, Str},
};
use crate::{
    machine::{Fault, Machine},
    types::Type,
    value::{CelList, CelText, Value},
};

/// The cost of compiling a regular expression during an evaluation, because it is not a literal.
const COMPILE_COST: u64 = 10_000;

/// The type of a regular expression argument: a string, or a pattern that was compiled with the expression.
struct Re;

impl CelType for Re {
    type Rust<'a> = Value<'a>;
    const IS_PATTERN: bool = true;

    fn cel() -> Type {
        Type::String
    }

    fn read<'a>(value: &Value<'a>) -> Option<Value<'a>> {
        matches!(value, Value::Pattern(_) | Value::String(_)).then(|| value.clone())
    }

    fn write<'a>(value: Value<'a>) -> Value<'a>
    where
        'a: 'a,
    {
        value
    }
}

pub(super) fn register(library: &mut Library) {
    for style in [Style::Global, Style::Member] {
        library.add::<(Str, Re), bool>("matches", style, |machine, (text, pattern)| {
            Ok(compile_and_charge(machine, &text, &pattern)?.regex.is_match(&text))
        });
    }
    library.add_member::<(Str, Re), Str>("find", |machine, (text, pattern)| {
        let pattern = compile_and_charge(machine, &text, &pattern)?;
        let first_match = pattern.regex.find(&text);
        Ok(first_match
            .map(|text_match| text_match.as_str().to_owned())
            .unwrap_or_default()
            .into())
    });
    library.add_member::<(Str, Re), ListOf<Str>>("findAll", |machine, (text, pattern)| {
        find_all(machine, &text, &pattern, usize::MAX)
    });
    library.add_member::<(Str, Re, i64), ListOf<Str>>("findAll", |machine, (text, pattern, times)| {
        find_all(machine, &text, &pattern, occurrence_limit(times))
    });
}

/// Registers the functions of cel-go's library `regex`, which Kyverno supports.
pub(super) fn register_for_kyverno(library: &mut Library) {
    library.add_global::<(Str, Re, Str), Str>("regex.replace", |machine, (text, pattern, template)| {
        replace(machine, &text, &pattern, &template, usize::MAX)
    });
    library.add_global::<(Str, Re, Str, i64), Str>("regex.replace", |machine, (text, pattern, template, times)| {
        replace(machine, &text, &pattern, &template, occurrence_limit(times))
    });
    library.add_global::<(Str, Re), OptionalOf<Str>>("regex.extract", |machine, (text, pattern)| {
        let extracts = extract_all(machine, &text, &pattern, 1)?;
        Ok(extracts.get(0).map(Arc::new))
    });
    library.add_global::<(Str, Re), ListOf<Str>>("regex.extractAll", |machine, (text, pattern)| {
        extract_all(machine, &text, &pattern, usize::MAX)
    });
}

/// Replaces up to `times` matches of a pattern in the text. In the replacement, `\1` is the match's first group.
fn replace<'a>(
    machine: &mut Machine<'_>,
    text: &str,
    pattern: &Value<'_>,
    template: &str,
    times: usize,
) -> Result<CelText<'a>, Fault> {
    let max_match_count = text.len().saturating_add(1).min(times);
    // A replacement may contain `\1`, which stands for a part of the match. Such a part may be as long as the whole
    // text. So the cost assumes that each replacement is as long as `template` and `text` together.
    machine.charge_bytes(max_match_count.saturating_mul(template.len().saturating_add(text.len())))?;
    let pattern = compile_and_charge(machine, text, pattern)?;
    let mut replacement = String::with_capacity(template.len());
    let mut characters = template.chars();
    while let Some(character) = characters.next() {
        match (character, character == '\\') {
            ('$', _) => replacement.push_str("$$"),
            (_, false) => replacement.push(character),
            (_, true) => match characters.next() {
                Some('\\') => replacement.push('\\'),
                Some(digit) if digit.is_ascii_digit() => replacement.push_str(&format!("${{{digit}}}")),
                _ => {
                    return Err(Fault::error(
                        "invalid replacement string: \\ must be followed by a digit or \\",
                    ));
                }
            },
        }
    }
    // In the crate `regex`, the count 0 means that there is no limit.
    let count = if times == usize::MAX { 0 } else { times };
    Ok(match times {
        0 => text.to_owned().into(),
        _ => pattern
            .regex
            .replacen(text, count, replacement.as_str())
            .into_owned()
            .into(),
    })
}

fn extract_all<'a>(
    machine: &mut Machine<'_>,
    text: &str,
    pattern: &Value<'_>,
    times: usize,
) -> Result<CelList<'a>, Fault> {
    machine.charge_items(text.len().saturating_add(1).min(times).saturating_mul(3))?;
    let pattern = compile_and_charge(machine, text, pattern)?;
    if pattern.regex.captures_len() > 2 {
        return Err(Fault::error("regular expression has more than one capturing group"));
    }
    let captures = pattern.regex.captures_iter(text).take(times);
    let extracts = captures.filter_map(|groups| groups.get(groups.len() - 1));
    Ok(extracts.map(|group| Value::string(group.as_str())).collect())
}

fn compile_and_charge(machine: &mut Machine<'_>, text: &str, pattern: &Value<'_>) -> Result<Arc<CompiledRegex>, Fault> {
    let pattern = match pattern {
        Value::Pattern(pattern) => Arc::clone(pattern),
        Value::String(source) => {
            machine.charge(COMPILE_COST)?;
            machine.charge_bytes(source.len())?;
            Arc::new(CompiledRegex::compile_dynamic(source).map_err(Fault::Error)?)
        }
        _ => return Err(Fault::no_overload()),
    };
    machine.charge(pattern.cost(text.len()))?;
    Ok(pattern)
}

fn find_all<'a>(
    machine: &mut Machine<'_>,
    text: &str,
    pattern: &Value<'_>,
    times: usize,
) -> Result<CelList<'a>, Fault> {
    // A pattern matches at most once at each character of the text, and once more at the end. The cost of this many
    // matches is charged in advance. A match costs as much as three list items.
    machine.charge_items(text.len().saturating_add(1).min(times).saturating_mul(3))?;
    let pattern = compile_and_charge(machine, text, pattern)?;
    let matches = pattern.regex.find_iter(text).take(times);
    Ok(matches.map(|text_match| Value::string(text_match.as_str())).collect())
}

#[derive(derive_more::Debug)]
#[debug("CompiledRegex({:?})", regex.as_str())]
pub(crate) struct CompiledRegex {
    regex: Regex,
    weight: u64,
}

/// The size limits for compiled patterns, in bytes. A literal pattern is compiled with the smallest of these limits
/// that is large enough for it. A pattern that needs a larger limit may make a search cost more.
const SIZE_LIMITS: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// The size limit of a pattern that is compiled during an evaluation, in bytes.
const DYNAMIC_SIZE_LIMIT: usize = 64 << 10;
const NESTING_LIMIT: u32 = 64;

impl CompiledRegex {
    pub(crate) fn compile_literal(source: &str) -> Result<Self, String> {
        Self::compile_within(source, &SIZE_LIMITS)
    }

    fn compile_dynamic(source: &str) -> Result<Self, String> {
        Self::compile_within(source, &[DYNAMIC_SIZE_LIMIT])
    }

    fn compile_within(source: &str, sizes: &[usize]) -> Result<Self, String> {
        let parse_error = |why: String| format!("error parsing regexp: {why}");
        let translated = translate_go_pattern(source).map_err(parse_error)?;
        let mut outcome = Err("it is too large".to_owned());
        for size in sizes {
            outcome = RegexBuilder::new(&translated)
                .size_limit(*size)
                .dfa_size_limit(1 << 20)
                .nest_limit(NESTING_LIMIT)
                .build()
                .map(|regex| {
                    // kube-apiserver charges for the length of the pattern. A short pattern may be large when it is
                    // compiled, so this program charges for the compiled size if that costs more.
                    let weight = (source.len() as u64).div_ceil(4).max((*size as u64) >> 10);
                    Self { regex, weight }
                })
                .map_err(|error| error.to_string());
            if outcome.is_ok() {
                break;
            }
        }
        outcome.map_err(|error| parse_error(in_words_of_go(source, &error)))
    }

    pub(crate) fn cost(&self, length: usize) -> u64 {
        ((length as u64 + 1).div_ceil(10)).saturating_mul(self.weight)
    }
}

/// Translates a regular expression from Go's syntax to the syntax of the crate `regex`. For example, `\d` is ASCII in
/// Go, and a brace that begins no count is literal.
fn translate_go_pattern(source: &str) -> Result<String, String> {
    let mut out = String::with_capacity(source.len() + 16);
    let mut rest = source;
    let mut is_in_class = false;
    // The rest of the pattern from the last repetition on, such as `*b` in `a*b`; `None` if something else came after
    // the repetition. With it, a second repetition directly after the first, as in `a**`, is refused, as in Go.
    let mut last_repetition: Option<&str> = None;
    while let Some(character) = rest.chars().next() {
        let after = rest.get(character.len_utf8()..).unwrap_or_default();
        if !is_in_class && let Some((operator, after)) = repetition_at(rest)? {
            if let Some(before) = last_repetition {
                let nested = before.strip_suffix(after).unwrap_or(operator);
                return Err(format!("invalid nested repetition operator: `{nested}`"));
            }
            out.push_str(rest.strip_suffix(after).unwrap_or(operator));
            last_repetition = Some(rest);
            rest = after;
            continue;
        }
        last_repetition = None;
        rest = match character {
            '\\' => escape(after, &mut out),
            '[' if !is_in_class => {
                is_in_class = true;
                out.push('[');
                let (negated, after) = strip(after, '^');
                if negated {
                    out.push('^');
                }
                // A closing bracket directly after the opening one belongs to the class, and does not end it.
                let (bracket, after) = strip(after, ']');
                if bracket {
                    out.push_str(r"\]");
                }
                after
            }
            '[' if after.starts_with(':') => match after.split_once(":]") {
                Some((name, after)) => {
                    out.push('[');
                    out.push_str(name);
                    out.push_str(":]");
                    after
                }
                None => {
                    out.push_str(r"\[");
                    after
                }
            },
            ']' if is_in_class => {
                is_in_class = false;
                out.push(']');
                after
            }
            '[' | '&' | '~' if is_in_class => {
                out.push('\\');
                out.push(character);
                after
            }
            '{' if !is_in_class => {
                out.push_str(r"\{");
                after
            }
            // The `?` after the parenthesis repeats nothing: it begins the flags of a group, as in `(?i)` or `(?:`.
            '(' if !is_in_class && after.starts_with('?') => {
                out.push_str("(?");
                after.strip_prefix('?').unwrap_or(after)
            }
            other => {
                out.push(other);
                after
            }
        };
    }
    Ok(out)
}

/// The largest count in a repetition that Go accepts.
const MAX_REPEAT_COUNT: u32 = 1000;

/// Splits a repetition such as `*` or `{2,3}` off the beginning of a text. Returns both parts.
fn repetition_at(rest: &str) -> Result<Option<(&str, &str)>, String> {
    let length = match rest.as_bytes().first() {
        Some(b'*' | b'+' | b'?') => 1,
        Some(b'{') => match parse_repeat_count(rest.get(1..).unwrap_or_default()) {
            Some((length, maximum)) if maximum > MAX_REPEAT_COUNT => {
                let operator = rest.get(..length + 2).unwrap_or(rest);
                return Err(format!("invalid repeat count: `{operator}`"));
            }
            Some((length, _)) => length + 2,
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let (operator, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
    Ok(Some((operator, after.strip_prefix('?').unwrap_or(after))))
}

/// Translates an error of the crate `regex` into the error that Go has for the same mistake. If Go has no such error,
/// the text stays as it is.
fn in_words_of_go(source: &str, error: &str) -> String {
    let mut lines = error.lines().rev();
    let why = lines.next().unwrap_or_default();
    let caret_line = lines.next().unwrap_or_default();
    let marked_text = lines
        .next()
        .zip(caret_line.find('^'))
        .and_then(|(pattern, start)| pattern.get(start..(start + caret_line.matches('^').count()).min(pattern.len())));
    match (why.strip_prefix("error: "), marked_text) {
        (Some("unclosed group"), _) => format!("missing closing ): `{source}`"),
        (Some("unrecognized escape sequence" | "backreferences are not supported"), Some(marked)) => {
            format!("invalid escape sequence: `{marked}`")
        }
        (Some(why), Some(marked)) if why.starts_with("look-around") => {
            format!("invalid or unsupported Perl syntax: `{marked}`")
        }
        _ => format!("`{source}`: {error}"),
    }
}

fn strip(text: &str, character: char) -> (bool, &str) {
    match text.strip_prefix(character) {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}

fn escape<'s>(after: &'s str, out: &mut String) -> &'s str {
    let Some(character) = after.chars().next() else {
        out.push('\\');
        return after;
    };
    let rest = after.get(character.len_utf8()..).unwrap_or_default();
    match character {
        'd' => out.push_str("[0-9]"),
        'D' => out.push_str("[^0-9]"),
        'w' => out.push_str("[0-9A-Za-z_]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        's' => out.push_str(r"[\t\n\f\r ]"),
        'S' => out.push_str(r"[^\t\n\f\r ]"),
        'b' => out.push_str(r"(?-u:\b)"),
        'Q' => {
            let (quoted, rest) = rest.split_once(r"\E").unwrap_or((rest, ""));
            out.push_str(&::regex::escape(quoted));
            return rest;
        }
        other => {
            out.push('\\');
            out.push(other);
            // Braces after `\p`, `\P` and `\x` are not the count of a repetition. They contain the name of a class as
            // in `\p{Greek}`, or a code point as in `\x{263a}`.
            if matches!(other, 'p' | 'P' | 'x')
                && rest.starts_with('{')
                && let Some(end) = rest.find('}')
                && let Some((name, rest)) = rest.split_at_checked(end + 1)
            {
                out.push_str(name);
                return rest;
            }
        }
    }
    rest
}

/// Parses the count of a repetition, such as `2}` or `2,3}`. Returns its length without `}`, and its largest number.
fn parse_repeat_count(after: &str) -> Option<(usize, u32)> {
    let (inside, _) = after.split_once('}')?;
    let (minimum, maximum) = inside.split_once(',').unwrap_or((inside, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if minimum.is_empty() || !digits(minimum) || !digits(maximum) {
        return None;
    }
    let number = |text: &str| match text {
        "" => 0,
        text => text.parse().unwrap_or(u32::MAX),
    };
    Some((inside.len(), number(minimum).max(number(maximum))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_and_fail_as_in_go() {
        // (pattern, text, whether the pattern matches the text in Go)
        for (pattern, text, expected) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "\u{663}", false),
            (r"^[\d.]+$", "1.2", true),
            (r"^[^\d]$", "a", true),
            (r"^\w$", "é", false),
            (r"\bcat\b", "écaté", true),
            (r"^[[]$", "[", true),
            (r"^[]]$", "]", true),
            (r"^[^]]$", "]", false),
            (r"^[a&&b]$", "&", true),
            (r"^[[:alpha:]]+$", "abc", true),
            (r"^a{2}$", "aa", true),
            (r"^a{$", "a{", true),
            (r"^{,2}$", "{,2}", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"(?i)ABC", "xabcx", true),
            (r"^\p{Greek}\pL[\p{Greek}]$", "αbγ", true),
            (r"^\x{263a}$", "\u{263a}", true),
            (r"^.$", "é", true),
            (r"^(?i:A)+?b{2,3}?$", "aabb", true),
            ("", "anything", true),
        ] {
            let compiled = CompiledRegex::compile_literal(pattern).unwrap();
            assert_eq!(compiled.regex.is_match(text), expected, "{pattern} on {text}");
        }
        for (pattern, why) in [
            (r"(", "missing closing ): `(`"),
            (r"a\Z", r"invalid escape sequence: `\Z`"),
            (r"(a)\1", r"invalid escape sequence: `\1`"),
            (r"(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("a++", "invalid nested repetition operator: `++`"),
            ("a*?{2}", "invalid nested repetition operator: `*?{2}`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
        ] {
            let error = CompiledRegex::compile_literal(pattern).unwrap_err();
            assert_eq!(error, format!("error parsing regexp: {why}"), "{pattern}");
        }
        for pattern in [r"(", r"(?=a)", r"\1", r"[z-a]", r"\", r"(?P<a", r"[", r"\xZZ"] {
            assert!(CompiledRegex::compile_literal(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn a_larger_pattern_costs_more() {
        let small = CompiledRegex::compile_literal("^[a-z]+$").unwrap();
        let large = CompiledRegex::compile_literal("(a{50}){50}").unwrap();
        assert!(small.cost(1000) * 10 < large.cost(1000));
        assert!(CompiledRegex::compile_literal("((a{100}){100}){100}").is_err());
        assert!(CompiledRegex::compile_literal(&"(".repeat(10_000)).is_err());
    }
}
