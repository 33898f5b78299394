//! Emphasis.

/// How texts are emphasised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Not at all.
    Plain,
    /// With the escape sequences of terminals.
    Color,
}

/// What a text is to the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    Plain,
    /// A heading.
    Heading,
    /// As it should be.
    Good,
    /// To be looked at.
    Warning,
    /// Wrong.
    Bad,
}

impl Style {
    /// `text` in its tone. The text must be printable.
    pub fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            _ if self == Style::Plain || text.is_empty() => return text.to_owned(),
            Tone::Plain => return text.to_owned(),
            Tone::Heading => "1",
            Tone::Good => "32",
            Tone::Warning => "33",
            Tone::Bad => "31",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tones() {
        assert_eq!(Style::Plain.paint(Tone::Bad, "x"), "x");
        assert_eq!(Style::Color.paint(Tone::Plain, "x"), "x");
        assert_eq!(Style::Color.paint(Tone::Bad, ""), "");
        assert_eq!(Style::Color.paint(Tone::Bad, "x"), "\u{1b}[31mx\u{1b}[0m");
    }
}
