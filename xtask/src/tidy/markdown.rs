//! What the rules need to know of a Markdown document.

/// A document taken apart.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// Anchors of its headings, as GitHub makes them.
    pub(super) anchors: Vec<String>,
    /// Where its links lead, with their lines.
    pub(super) links: Vec<(usize, String)>,
    /// Code inside of lines, with their lines.
    pub(super) codes: Vec<(usize, String)>,
    /// Blocks of code: line of the first text, language, text.
    pub(super) blocks: Vec<(usize, String, String)>,
    /// First cells of rows of tables.
    pub(super) cells: Vec<String>,
}

impl Document {
    /// Takes a text apart.
    pub(super) fn parse(text: &str) -> Document {
        let mut document = Document::default();
        let mut block: Option<(usize, String, String)> = None;
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                match block.take() {
                    Some(done) => document.blocks.push(done),
                    None => block = Some((number + 1, language.trim().to_owned(), String::new())),
                }
                continue;
            }
            if let Some((_, _, text)) = &mut block {
                text.push_str(line);
                text.push('\n');
                continue;
            }
            if let Some(heading) =
                line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#'))
            {
                document.heading(heading);
            }
            // Four spaces are code where no list goes on; none of the lists here are that deep.
            if !line.starts_with("    ") {
                document.line(number, line);
            }
        }
        document
    }

    fn heading(&mut self, heading: &str) {
        let text = without_links(heading);
        let slug: String = text
            .trim()
            .chars()
            .flat_map(char::to_lowercase)
            .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
            .map(|letter| if letter == ' ' { '-' } else { letter })
            .collect();
        let again = (1..).map(|number| format!("{slug}-{number}"));
        let anchor = std::iter::once(slug.clone()).chain(again).find(|anchor| !self.anchors.contains(anchor));
        self.anchors.extend(anchor);
    }

    fn line(&mut self, number: usize, line: &str) {
        let mut prose = String::new();
        for (index, part) in line.split('`').enumerate() {
            match index % 2 {
                0 => prose.push_str(part),
                _ => {
                    self.codes.push((number, part.to_owned()));
                    prose.push('`');
                }
            }
        }
        for part in prose.split("](").skip(1) {
            if let Some((target, _)) = part.split_once(')') {
                self.links.push((number, target.to_owned()));
            }
        }
        if let Some(rest) = line.strip_prefix("| ")
            && let Some((cell, _)) = rest.split_once(" |")
        {
            self.cells.push(cell.to_owned());
        }
    }
}

/// `[text](target)` as `text`.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        plain.push_str(before);
        match after.split_once("](").and_then(|(text, after)| Some((text, after.split_once(')')?.1))) {
            Some((text, after)) => {
                plain.push_str(text);
                rest = after;
            }
            None => rest = after,
        }
    }
    plain + rest
}
