//! Shows the errors of a form, with links to the lines of the form's texts in which the mistakes are.

use maud::{Markup, html};

use crate::error::ApiError;

/// (name by which error messages refer to a text, field of the form with that text)
const FIELDS: [(&str, &str); 4] = [
    ("chain", "definitions"),
    ("settings", "settings"),
    ("object", "object"),
    ("oldObject", "old_object"),
];

pub(super) fn problems_notice(error: &ApiError) -> Markup {
    let mistakes = match error {
        ApiError::CannotEvaluate(mistakes) => mistakes.as_slice(),
        _ => &[],
    };
    html! {
        div.notice.bad role="alert" {
            @match mistakes {
                [] => { p { (error) } }
                [mistake] => { p { (mistake_link(mistake)) } }
                mistakes => { ul { @for mistake in mistakes { li { (mistake_link(mistake)) } } } }
            }
        }
    }
}

fn mistake_link(mistake: &str) -> Markup {
    match MistakePosition::parse(mistake) {
        Some(MistakePosition {
            field,
            line,
            message: rest,
        }) => html! {
            a href={ "#" (field) } data-editor=(field) data-line=(line) title=(rest) { (field_label(field)) ", line " (line) }
            ": " (rest)
        },
        None => html! { (mistake) },
    }
}

fn field_label(field: &str) -> &'static str {
    match field {
        "definitions" => "Chain",
        "settings" => "Settings",
        "object" => "Object",
        _ => "Old object",
    }
}

#[derive(Debug, PartialEq, Eq)]
struct MistakePosition<'a> {
    field: &'static str,
    line: u32,
    message: &'a str,
}

impl<'a> MistakePosition<'a> {
    /// Parses a message that begins with a text's name, a line and a column: `chain:9:7: spec.stages: missing`.
    fn parse(mistake: &'a str) -> Option<Self> {
        let (location, rest) = mistake.split_once(": ")?;
        let mut parts = location.split(':');
        let (name, line, column) = (parts.next()?, parts.next()?, parts.next()?);
        let _: u32 = column.parse().ok()?;
        let (_, field) = FIELDS.into_iter().find(|(text_name, _)| *text_name == name)?;
        let position = Self {
            field,
            line: line.parse().ok()?,
            message: rest,
        };
        parts.next().is_none().then_some(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mistakes_with_a_position_in_a_form_field_become_links() {
        let position = |field, line, rest| {
            Some(MistakePosition {
                field,
                line,
                message: rest,
            })
        };
        for (mistake, expected) in [
            (
                "chain:9:7: spec.a: missing",
                position("definitions", 9, "spec.a: missing"),
            ),
            ("oldObject:1:1: no", position("old_object", 1, "no")),
            ("chain: it contains no definition", None),
            ("chain:9: no", None),
            ("other:9:7: no", None),
            ("no", None),
        ] {
            assert_eq!(MistakePosition::parse(mistake), expected, "{mistake}");
        }
    }
}
