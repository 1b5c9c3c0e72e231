//! Prints tables as plain text.

use std::fmt::Write as _;

use anstyle::Style;

use crate::output::{BOLD, DIM, sanitize_line};

#[derive(Debug)]
pub(crate) struct TextTable<const COLUMNS: usize> {
    headings: [&'static str; COLUMNS],
    rows: Vec<[TableCell; COLUMNS]>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TableCell {
    text: String,
    style: Style,
    is_number: bool,
}

impl TableCell {
    /// Returns a cell with this text. Control characters in it, such as line breaks, are replaced.
    pub(crate) fn text(text: impl AsRef<str>) -> Self {
        Self {
            text: sanitize_line(text.as_ref()),
            ..Self::default()
        }
    }

    pub(crate) fn number(number: impl ToString) -> Self {
        Self {
            text: number.to_string(),
            is_number: true,
            ..Self::default()
        }
    }

    /// Returns a cell with a number, coloured unless the number is 0.
    pub(crate) fn count(number: u64, style: Style) -> Self {
        Self::number(number).with_style(if number > 0 { style } else { Style::new() })
    }

    pub(crate) fn with_style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }
}

impl<const COLUMNS: usize> TextTable<COLUMNS> {
    pub(crate) fn new(headings: [&'static str; COLUMNS]) -> Self {
        Self {
            headings,
            rows: Vec::new(),
        }
    }

    pub(crate) fn push_row(&mut self, cells: [TableCell; COLUMNS]) {
        self.rows.push(cells);
    }

    pub(crate) fn text(&self) -> String {
        let headings = self.headings.map(|heading| TableCell::text(heading).with_style(BOLD));
        let dashed = self.rows.iter().map(|row| row.clone().map(TableCell::or_dash));
        let mut rows = vec![headings];
        rows.extend(dashed);
        let mut widths = [0; COLUMNS];
        let mut are_numbers = [false; COLUMNS];
        for row in &rows {
            for ((cell, width), is_number) in row.iter().zip(&mut widths).zip(&mut are_numbers) {
                *width = cell.width().max(*width);
                *is_number |= cell.is_number;
            }
        }
        let mut text = String::new();
        for row in &rows {
            let columns = row.iter().zip(widths).zip(are_numbers);
            for (index, ((cell, width), is_number)) in columns.enumerate() {
                let padding = " ".repeat(width.saturating_sub(cell.width()));
                let (before, after) = match is_number {
                    true => (padding.as_str(), ""),
                    false if index + 1 == COLUMNS => ("", ""),
                    false => ("", padding.as_str()),
                };
                let gap = if index > 0 { "  " } else { "" };
                let TableCell { text: own, style, .. } = cell;
                let _ = write!(text, "{gap}{before}{style}{own}{style:#}{after}");
            }
            text.push('\n');
        }
        text
    }
}

impl TableCell {
    fn width(&self) -> usize {
        self.text.chars().count()
    }

    fn or_dash(self) -> Self {
        if self.text.is_empty() {
            Self {
                text: "-".to_owned(),
                style: DIM,
                ..self
            }
        } else {
            self
        }
    }
}

pub(crate) fn strip_styles(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::BAD;

    #[test]
    fn a_column_is_as_wide_as_its_widest_cell() {
        let mut table = TextTable::new(["NAME", "CALLS", "WHY"]);
        table.push_row([
            TableCell::text("a"),
            TableCell::number(12_345),
            TableCell::text("because"),
        ]);
        table.push_row([
            TableCell::text("längere"),
            TableCell::number(1),
            TableCell::text("two\nlines").with_style(BAD),
        ]);
        table.push_row([TableCell::text("b"), TableCell::number(""), TableCell::default()]);
        assert_eq!(
            strip_styles(&table.text()),
            "NAME     CALLS  WHY\n\
             a        12345  because\n\
             längere      1  two lines\n\
             b            -  -\n"
        );
        assert!(table.text().contains(&format!("{BAD}two lines{BAD:#}")));
    }
}
