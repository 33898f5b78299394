//! Columns for people.

use super::printable;
use super::style::{Style, Tone};
use super::wrap::{lines, width};

/// Columns stand this far apart.
const GAP: &str = "  ";

/// Narrowest last column; if there is less room, it goes on lines of its own.
const NARROWEST: usize = 24;

/// How far lines of their own are indented.
const INDENT: usize = 4;

/// One cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell in a tone.
    pub fn toned(tone: Tone, text: impl AsRef<str>) -> Cell {
        Cell { text: printable(text.as_ref()), tone }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell::toned(Tone::Plain, text)
    }
}

/// Rows of cells under headings. The last column is for texts: it is wrapped if the screen is too narrow.
#[derive(Debug, Clone)]
pub struct Table {
    headings: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
    indent: usize,
}

impl Table {
    /// A table without rows.
    pub fn new(headings: &[&str]) -> Table {
        Table {
            headings: headings.iter().map(|text| Cell::toned(Tone::Heading, text)).collect(),
            rows: Vec::new(),
            indent: 0,
        }
    }

    /// Indents every line by so many spaces.
    #[must_use]
    pub fn indented(mut self, indent: usize) -> Table {
        self.indent = indent;
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The table as lines, each with its line end. A screen of `limit` columns has the last column wrapped.
    pub fn text(&self, style: Style, limit: Option<usize>) -> String {
        let lines_of_cells = || std::iter::once(&self.headings).chain(&self.rows);
        let widths: Vec<usize> = (0..self.headings.len())
            .map(|column| {
                lines_of_cells()
                    .filter_map(|row| row.get(column))
                    .map(|cell| width(&cell.text))
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let before_last: usize =
            widths.iter().rev().skip(1).map(|width| width + GAP.len()).sum::<usize>() + self.indent;
        let mut text = String::new();
        if is_stacked(limit, before_last, widths.last().copied().unwrap_or(0)) {
            for row in lines_of_cells() {
                self.write_stacked(&mut text, row, &widths, style, limit);
            }
            return text;
        }
        for row in lines_of_cells() {
            let Some(last) = self.write_cells(&mut text, row, &widths, style) else { continue };
            let room = limit.map_or(usize::MAX, |limit| limit.saturating_sub(before_last));
            for (number, piece) in lines(&last.text, room).iter().enumerate() {
                if number > 0 {
                    text.push_str(&" ".repeat(before_last));
                }
                text.push_str(&style.paint(last.tone, piece));
                end_line(&mut text);
            }
        }
        text
    }

    /// Writes all cells but the last, and gives that one.
    fn write_cells<'a>(
        &self,
        text: &mut String,
        row: &'a [Cell],
        widths: &[usize],
        style: Style,
    ) -> Option<&'a Cell> {
        let (last, others) = row.split_last()?;
        text.push_str(&" ".repeat(self.indent));
        for (cell, column) in others.iter().zip(widths) {
            text.push_str(&style.paint(cell.tone, &cell.text));
            text.push_str(&" ".repeat(column.saturating_sub(width(&cell.text))));
            text.push_str(GAP);
        }
        Some(last)
    }

    /// Writes the last cell, unless it is empty or a heading, below the others.
    fn write_stacked(
        &self,
        text: &mut String,
        row: &[Cell],
        widths: &[usize],
        style: Style,
        limit: Option<usize>,
    ) {
        let Some(last) = self.write_cells(text, row, widths, style) else { return };
        end_line(text);
        if last.text.is_empty() || last.tone == Tone::Heading {
            return;
        }
        let indent = self.indent + INDENT;
        for piece in lines(&last.text, limit.map_or(usize::MAX, |limit| limit.saturating_sub(indent))) {
            text.push_str(&" ".repeat(indent));
            text.push_str(&style.paint(last.tone, &piece));
            end_line(text);
        }
    }
}

/// Whether texts of up to `longest` characters have too little room in a column of their own.
fn is_stacked(limit: Option<usize>, before_last: usize, longest: usize) -> bool {
    limit.is_some_and(|limit| {
        let room = limit.saturating_sub(before_last);
        room < longest && room < NARROWEST
    })
}

fn end_line(text: &mut String) {
    text.truncate(text.trim_end_matches(' ').len());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&["FIELD", "VALUE", "REASON"]);
        table.row(vec!["cpu.shares".into(), "2".into(), "one two three four five six seven".into()]);
        table.row(vec!["x".into(), Cell::toned(Tone::Bad, "1024"), "".into()]);
        table
    }

    #[test]
    fn columns_are_aligned_and_lines_have_no_trailing_space() {
        let expected = "\
FIELD       VALUE  REASON
cpu.shares  2      one two three four five six seven
x           1024
";
        assert_eq!(table().text(Style::Plain, None), expected);
        // The longest line has 52 characters.
        assert_eq!(table().text(Style::Plain, Some(52)), expected);
    }

    #[test]
    fn the_last_column_is_wrapped() {
        let expected = "\
FIELD       VALUE  REASON
cpu.shares  2      one two three four five six
                   seven
x           1024
";
        assert_eq!(table().text(Style::Plain, Some(51)), expected);
    }

    #[test]
    fn on_a_narrow_screen_texts_have_lines_of_their_own() {
        let expected = "\
FIELD       VALUE
cpu.shares  2
    one two three four five six
    seven
x           1024
";
        assert_eq!(table().text(Style::Plain, Some(32)), expected);
    }

    #[test]
    fn colors_do_not_move_columns() {
        let colored = table().text(Style::Color, None);
        assert!(colored.contains("x           \u{1b}[31m1024\u{1b}[0m\n"), "{colored:?}");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let mut table = Table::new(&["A"]).indented(2);
        table.row(vec!["x\u{1b}[2J".into()]);
        assert_eq!(table.text(Style::Plain, None), "  A\n  x\\u{1b}[2J\n");
    }
}
