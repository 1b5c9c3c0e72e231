//! Implements `sprintf` with the output of Go's, as in OPA: a wrong verb or number of arguments is not an error.

use std::fmt::Write as _;

use regorus::Value;

/// The maximum width and precision that a verb may have. Go limits them too.
const MAX_WIDTH: usize = 10_000;

pub(crate) fn sprintf(format: &str, arguments: &[Value]) -> String {
    let mut arguments = arguments.iter();
    let mut text = String::with_capacity(format.len());
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        let (before, directive) = rest.split_at(at);
        text.push_str(before);
        let (spec, verb, after) = VerbFormat::read(directive.get(1..).unwrap_or_default());
        rest = after;
        match verb {
            None => text.push_str("%!(NOVERB)"),
            Some('%') => text.push('%'),
            Some(verb) => match arguments.next() {
                None => {
                    let _ = write!(text, "%!{verb}(MISSING)");
                }
                Some(argument) => {
                    let formatted = spec.format_argument(verb, &SprintfArgument::from_value(argument));
                    text.push_str(&formatted);
                }
            },
        }
    }
    text.push_str(rest);
    let extra: Vec<String> = arguments
        .map(|argument| SprintfArgument::from_value(argument).description())
        .collect();
    if !extra.is_empty() {
        let _ = write!(text, "%!(EXTRA {})", extra.join(", "));
    }
    text
}

/// Formats a value as OPA does when the value is inserted into text. Strings inside the value are in quotes.
pub(crate) fn value_text(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, &mut text);
    text
}

fn write_value(value: &Value, text: &mut String) {
    match value {
        Value::Array(items) => write_values(items.iter(), ("[", "]"), text),
        Value::Set(items) if items.is_empty() => text.push_str("set()"),
        Value::Set(items) => write_values(items.iter(), ("{", "}"), text),
        Value::Object(fields) => {
            text.push('{');
            for (index, (key, value)) in fields.iter().enumerate() {
                if index > 0 {
                    text.push_str(", ");
                }
                write_value(key, text);
                text.push_str(": ");
                write_value(value, text);
            }
            text.push('}');
        }
        Value::String(string) => text.push_str(&quote(string)),
        other => text.push_str(&other.to_json_str().unwrap_or_default()),
    }
}

fn write_values<'a>(items: impl Iterator<Item = &'a Value>, (open, close): (&str, &str), text: &mut String) {
    text.push_str(open);
    for (index, item) in items.enumerate() {
        if index > 0 {
            text.push_str(", ");
        }
        write_value(item, text);
    }
    text.push_str(close);
}

/// Quotes a string as Go's `strconv.Quote` does.
fn quote(string: &str) -> String {
    let mut text = String::with_capacity(string.len() + 2);
    text.push('"');
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{7}' => text.push_str("\\a"),
            '\u{8}' => text.push_str("\\b"),
            '\u{b}' => text.push_str("\\v"),
            '\u{c}' => text.push_str("\\f"),
            control if control < ' ' || control == '\u{7f}' => {
                let _ = write!(text, "\\x{:02x}", u32::from(control));
            }
            other => text.push(other),
        }
    }
    text.push('"');
    text
}

/// An argument of `sprintf`, by the type with which OPA passes it to Go.
enum SprintfArgument {
    /// An integer in decimal digits with an optional sign. It may be too large for an `i64`.
    Int(String),
    Float(f64),
    Text(String),
}

impl SprintfArgument {
    fn from_value(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text.to_string()),
            Value::Number(number) if number.is_integer() => Self::Int(value.to_json_str().unwrap_or_default()),
            Value::Number(number) => number
                .as_f64()
                .map_or_else(|| Self::Text(value_text(value)), Self::Float),
            other => Self::Text(value_text(other)),
        }
    }

    fn type_name(&self) -> &'static str {
        match self {
            Self::Int(_) => "int",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
        }
    }

    fn plain_text(&self) -> String {
        match self {
            Self::Int(digits) => digits.clone(),
            Self::Float(number) => format_general(*number),
            Self::Text(text) => text.clone(),
        }
    }

    fn description(&self) -> String {
        format!("{}={}", self.type_name(), self.plain_text())
    }
}

#[derive(Default)]
struct VerbFormat {
    is_left_aligned: bool,
    shows_plus: bool,
    shows_space: bool,
    pads_with_zeros: bool,
    has_alternate_form: bool,
    width: usize,
    precision: Option<usize>,
}

impl VerbFormat {
    fn read(text: &str) -> (Self, Option<char>, &str) {
        let mut spec = Self::default();
        let mut rest = text;
        while let Some(flag) = rest.chars().next() {
            match flag {
                '-' => spec.is_left_aligned = true,
                '+' => spec.shows_plus = true,
                ' ' => spec.shows_space = true,
                '0' => spec.pads_with_zeros = true,
                '#' => spec.has_alternate_form = true,
                _ => break,
            }
            rest = rest.get(1..).unwrap_or_default();
        }
        (spec.width, rest) = read_number(rest);
        if let Some(after) = rest.strip_prefix('.') {
            let (precision, after) = read_number(after);
            spec.precision = Some(precision);
            rest = after;
        }
        let mut characters = rest.chars();
        let verb = characters.next();
        (spec, verb, characters.as_str())
    }

    fn format_argument(&self, verb: char, argument: &SprintfArgument) -> String {
        let formatted = match argument {
            SprintfArgument::Text(text) => self.format_text(verb, text),
            SprintfArgument::Int(digits) => self.format_int(verb, digits),
            SprintfArgument::Float(number) => self.format_float(verb, *number),
        };
        match formatted {
            Some(printed) => self.pad(printed, !matches!(argument, SprintfArgument::Text(_))),
            None => format!("%!{verb}({})", argument.description()),
        }
    }

    fn format_text(&self, verb: char, text: &str) -> Option<String> {
        let cut: String = match self.precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text.to_owned(),
        };
        match verb {
            'v' if self.has_alternate_form => Some(quote(&cut)),
            'v' | 's' => Some(cut),
            'q' => Some(quote(&cut)),
            'x' => Some(cut.bytes().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))),
            'X' => Some(cut.bytes().fold(String::new(), |hex, byte| format!("{hex}{byte:02X}"))),
            _ => None,
        }
    }

    fn format_int(&self, verb: char, digits: &str) -> Option<String> {
        let small = || digits.parse::<i128>().ok();
        let magnitude = || small().map(i128::unsigned_abs);
        let unsigned = match verb {
            'v' | 'd' => digits.trim_start_matches('-').to_owned(),
            'b' => format!("{:b}", magnitude()?),
            'o' => format!("{:o}", magnitude()?),
            'O' => format!("0o{:o}", magnitude()?),
            'x' => format!("{}{:x}", if self.has_alternate_form { "0x" } else { "" }, magnitude()?),
            'X' => format!("{}{:X}", if self.has_alternate_form { "0X" } else { "" }, magnitude()?),
            'c' => return char::from_u32(u32::try_from(small()?).ok()?).map(String::from),
            'q' => {
                return char::from_u32(u32::try_from(small()?).ok()?).map(|character| format!("'{character}'"));
            }
            'U' => return Some(format!("U+{:04X}", magnitude()?)),
            _ => return None,
        };
        Some(self.add_sign(digits.starts_with('-'), unsigned))
    }

    fn format_float(&self, verb: char, number: f64) -> Option<String> {
        let magnitude = number.abs();
        let unsigned = match (verb, self.precision) {
            ('v' | 'g' | 'G', None) => format_general(magnitude),
            // The precision of the verbs `%v` and `%g` is the number of significant digits.
            ('v' | 'g' | 'G', Some(precision)) => format_rounded(magnitude, precision.max(1)),
            ('f' | 'F', precision) => format!("{magnitude:.*}", precision.unwrap_or(6)),
            ('e' | 'E', precision) => format_exponential(magnitude, Some(precision.unwrap_or(6))),
            _ => return None,
        };
        let unsigned = if verb.is_ascii_uppercase() {
            unsigned.to_uppercase()
        } else {
            unsigned
        };
        Some(self.add_sign(number.is_sign_negative(), unsigned))
    }

    fn add_sign(&self, is_negative: bool, unsigned: String) -> String {
        let sign = match is_negative {
            true => "-",
            false if self.shows_plus => "+",
            false if self.shows_space => " ",
            false => "",
        };
        format!("{sign}{unsigned}")
    }

    fn pad(&self, text: String, is_number: bool) -> String {
        let missing = self.width.saturating_sub(text.chars().count());
        if missing == 0 {
            return text;
        }
        if self.is_left_aligned {
            return format!("{text}{}", " ".repeat(missing));
        }
        if !self.pads_with_zeros {
            return format!("{}{text}", " ".repeat(missing));
        }
        let at = usize::from(is_number && text.starts_with(['-', '+', ' ']));
        let (sign, digits) = text.split_at(at);
        format!("{sign}{}{digits}", "0".repeat(missing))
    }
}

fn read_number(text: &str) -> (usize, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    (digits.parse().unwrap_or(0).min(MAX_WIDTH), rest)
}

/// Formats a number as Go's `%g` does: as the shortest text, with an exponent if the exponent is below -4 or above 5.
fn format_general(number: f64) -> String {
    let exponent = exponent_of(number);
    if number == 0.0 || (-4..6).contains(&exponent) {
        format!("{number}")
    } else {
        format_exponential(number, None)
    }
}

/// Formats a number as `%.3g` does: with this number of significant digits, but without zeros at the end.
fn format_rounded(number: f64, digits: usize) -> String {
    let short: f64 = format!("{number:.*e}", digits - 1).parse().unwrap_or(number);
    let exponent = exponent_of(short);
    let exponent_limit = i32::try_from(digits).unwrap_or(i32::MAX);
    if short == 0.0 || (-4..exponent_limit).contains(&exponent) {
        format!("{short}")
    } else {
        format_exponential(short, None)
    }
}

fn exponent_of(number: f64) -> i32 {
    let text = format!("{number:e}");
    text.split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(0)
}

/// Formats a number in the form `1.5e+06`, with a sign and at least two digits in the exponent.
fn format_exponential(number: f64, precision: Option<usize>) -> String {
    let text = match precision {
        Some(precision) => format!("{number:.precision$e}"),
        None => format!("{number:e}"),
    };
    let Some((mantissa, exponent)) = text.split_once('e') else {
        return text;
    };
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{digits:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_formatted_as_in_go() {
        let value = |json: &str| Value::from_json_str(json).expect("it is JSON");
        for (format, arguments, expected) in [
            ("%v and %v", r#"["a", 1]"#, "a and 1"),
            ("%s", r#"[["a", 1, null, true]]"#, r#"["a", 1, null, true]"#),
            ("%v", r#"[{"b": "x\"y", "a": [1.5]}]"#, r#"{"a": [1.5], "b": "x\"y"}"#),
            ("%d%%", "[50]", "50%"),
            ("%5d|%-5d|%05d|%+d", "[42, 42, -42, 42]", "   42|42   |-0042|+42"),
            (
                "%.2f %6.1f %e %g",
                "[3.14159, 2.25, 1234.5, 1e-7]",
                "3.14    2.2 1.234500e+03 1e-07",
            ),
            ("%x %X %x", r#"[255, 255, "hi"]"#, "ff FF 6869"),
            (
                "%q %.2s|%4s|%-4s|",
                r#"["a\n", "abc", "x", "x"]"#,
                "\"a\\n\" ab|   x|x   |",
            ),
            ("%s", "[5]", "%!s(int=5)"),
            ("%d", r#"["a"]"#, "%!d(string=a)"),
            ("%t", "[true]", "%!t(string=true)"),
            ("%d", "[1.5]", "%!d(float64=1.5)"),
            ("%v %v", r#"["a"]"#, "a %!v(MISSING)"),
            ("%v", r#"["a", "b", 1]"#, "a%!(EXTRA string=b, int=1)"),
            ("%", "[]", "%!(NOVERB)"),
            ("100", "[]", "100"),
        ] {
            let argument_list = value(arguments);
            let arguments: Vec<Value> = argument_list.as_array().expect("a list").iter().cloned().collect();
            assert_eq!(sprintf(format, &arguments), expected, "{format}");
        }
    }

    #[test]
    fn sets_are_shown_as_in_rego() {
        assert_eq!(value_text(&Value::new_set()), "set()");
        let set: Value = std::collections::BTreeSet::from([Value::from("b"), Value::from("a")]).into();
        assert_eq!(sprintf("%v", &[set]), r#"{"a", "b"}"#);
    }
}
