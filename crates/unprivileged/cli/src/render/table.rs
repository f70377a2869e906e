//! Aligned columns: spaces only, nothing cut off, so that a piped table can be read by programs too.
use super::{Paint, Style, clean};

/// Rows of cells under a heading.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<(String, Paint)>>,
}

impl Table {
    /// A table with these headings.
    pub(crate) fn new(headings: &[&str]) -> Self {
        let mut table = Self::default();
        table.rows.push(
            headings
                .iter()
                .map(|text| ((*text).to_owned(), Paint::Dim))
                .collect(),
        );
        table
    }

    /// Adds a row; its texts are escaped.
    pub(crate) fn row<const N: usize>(&mut self, cells: [(&str, Paint); N]) {
        self.rows.push(
            cells
                .into_iter()
                .map(|(text, paint)| (clean(text), paint))
                .collect(),
        );
    }

    /// Whether it has no row besides the headings.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() <= 1
    }

    /// The text, one line per row.
    pub(crate) fn render(&self, style: Style) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|(text, _)| text.chars().count())
                .max()
        };
        let widths: Vec<usize> = (0..columns)
            .map(|column| width(column).unwrap_or_default())
            .collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (index, (text, paint)) in row.iter().enumerate() {
                line.push_str(&style.paint(*paint, text));
                // Empty cells at the end of a row leave no trailing spaces.
                if row[index + 1..].iter().any(|(later, _)| !later.is_empty()) {
                    line.push_str(&" ".repeat(widths[index] - text.chars().count() + 2));
                }
            }
            out.push_str(&line);
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_hostile_cells_cannot_break_them() {
        let mut table = Table::new(&["A", "B"]);
        table.row([("long text", Paint::Plain), ("x\ny\x1b[1m", Paint::Plain)]);
        table.row([("é", Paint::Plain), ("", Paint::Plain)]);
        assert_eq!(
            table.render(Style::PLAIN),
            "A          B\nlong text  x\\ny\\x1b[1m\né\n"
        );
    }
}
