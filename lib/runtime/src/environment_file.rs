//! Files of variables, as a service manager reads them (`EnvironmentFile=` of `systemd.exec(5)`).
//!
//! systemd drops what it cannot read without a word that reaches anybody. A program that is asked to check its
//! configuration reads such a file here, by the same rules, and hears of every line that means nothing.

/// A variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value, quotes and escapes resolved.
    pub value: String,
    /// The line it begins in, from 1.
    pub line: usize,
}

/// A line that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {text:?}: {problem}; accepted: NAME=VALUE, or a comment that starts with # or ;")]
pub struct LineMistake {
    /// The line, from 1.
    pub line: usize,
    /// What it says.
    pub text: String,
    /// What is wrong.
    pub problem: &'static str,
}

/// Takes a file apart. A name that comes twice is there twice; the last one counts.
pub fn parse(text: &str) -> (Vec<Variable>, Vec<LineMistake>) {
    let (mut variables, mut mistakes) = (Vec::new(), Vec::new());
    let mut letters = text.chars().peekable();
    let mut line = 1;
    while letters.peek().is_some() {
        let first_line = line;
        let mut shown = String::new();
        let mut name = None;
        let mut value = Value::default();
        // Up to the end of the line that is not escaped and not within quotes.
        for letter in letters.by_ref() {
            if letter == '\n' {
                line += 1;
            }
            let in_comment = matches!(shown.trim_start().as_bytes().first(), Some(b'#' | b';'));
            if name.is_none() {
                match letter {
                    '\n' => break,
                    '=' if !in_comment => name = Some(shown.trim().to_owned()),
                    _ => {}
                }
                shown.push(letter);
                continue;
            }
            if !value.push(letter) {
                break;
            }
            if letter != '\n' {
                shown.push(letter);
            }
        }
        let mut complain = |problem| {
            let text = shown.trim().to_owned();
            mistakes.push(LineMistake { line: first_line, text, problem });
        };
        match name {
            None => {
                let text = shown.trim_start();
                if !text.is_empty() && !text.starts_with(['#', ';']) {
                    complain("not an assignment");
                }
            }
            Some(name) if !is_name(&name) => complain("not the name of a variable"),
            Some(_) if value.is_open() => complain("a quote is not closed"),
            Some(name) => variables.push(Variable { name, value: value.finish(), line: first_line }),
        }
    }
    (variables, mistakes)
}

fn is_name(name: &str) -> bool {
    !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A value while it is read.
#[derive(Default)]
struct Value {
    text: String,
    /// Length of the text up to its last letter that is no white space outside of quotes.
    solid: usize,
    quote: Option<char>,
    escaped: bool,
    /// Within a part without quotes, in which a quote is a letter like any other.
    bare: bool,
}

impl Value {
    /// Takes a letter; false at the end of the line.
    fn push(&mut self, letter: char) -> bool {
        match (self.quote, std::mem::take(&mut self.escaped), letter) {
            // A line break that is escaped joins lines.
            (_, true, '\n') => {}
            (Some('"'), true, letter) => {
                if !matches!(letter, '"' | '\\' | '`' | '$') {
                    self.keep('\\');
                }
                self.keep(letter);
            }
            (_, true, letter) => self.keep(letter),
            (None, false, '\\') => {
                self.escaped = true;
                self.bare = true;
            }
            (Some('"'), false, '\\') => self.escaped = true,
            (Some(open), false, letter) if letter == open => self.quote = None,
            (Some(_), false, letter) => self.keep(letter),
            (None, false, '\n') => return false,
            (None, false, '"' | '\'') if !self.bare => self.quote = Some(letter),
            (None, false, letter) if letter.is_ascii_whitespace() => {
                if self.bare {
                    self.text.push(letter);
                }
            }
            (None, false, letter) => {
                self.bare = true;
                self.keep(letter);
            }
        }
        true
    }

    fn keep(&mut self, letter: char) {
        self.text.push(letter);
        self.solid = self.text.len();
    }

    fn is_open(&self) -> bool {
        self.quote.is_some()
    }

    fn finish(mut self) -> String {
        self.text.truncate(self.solid);
        self.text
    }
}

/// The words that a variable stands for when a unit names it as `$NAME`: split at white space, quotes honoured and
/// removed.
pub fn words(value: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (_, '\\') if quote != Some('\'') => {
                word.get_or_insert_default().extend(letters.next());
            }
            (Some(open), letter) if letter == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, letter) if letter.is_ascii_whitespace() => words.extend(word.take()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(text: &str) -> Vec<(String, String, usize)> {
        let (variables, mistakes) = parse(text);
        assert_eq!(mistakes, Vec::new());
        variables.into_iter().map(|variable| (variable.name, variable.value, variable.line)).collect()
    }

    #[test]
    fn values_are_read_as_systemd_does() {
        for (text, expected) in [
            ("A=b", "b"),
            ("  A=b  \n", "b"),
            ("A= b c \n", "b c"),
            ("A=\"b  c\"\n", "b  c"),
            ("A=' b '\n", " b "),
            ("A=\"say \\\"x\\\" \\n\"\n", "say \"x\" \\n"),
            ("A='say \"x\"'\n", "say \"x\""),
            ("A='back\\slash'\n", "back\\slash"),
            ("A=one \\\ntwo\n", "one two"),
            ("A=\"one\ntwo\"\n", "one\ntwo"),
            ("A=a\\ \n", "a "),
            ("A=it's\n", "it's"),
            ("A=x=y#z\n", "x=y#z"),
            ("A=\n", ""),
            ("A=''\n", ""),
            ("A='a' \"b\" c \"d\"\n", "abc \"d\""),
            ("A=\\\nb\n", "b"),
        ] {
            assert_eq!(values(text), [("A".to_owned(), expected.to_owned(), 1)], "{text:?}");
        }
    }

    #[test]
    fn comments_and_empty_lines_mean_nothing_and_lines_are_counted() {
        let text = "# a=b\n;c=d\n\n \t\nA=1\\\n2\nB=3\nA=4";
        assert_eq!(
            values(text),
            [
                ("A".to_owned(), "12".to_owned(), 5),
                ("B".to_owned(), "3".to_owned(), 7),
                ("A".to_owned(), "4".to_owned(), 8)
            ]
        );
    }

    #[test]
    fn every_line_that_means_nothing_is_told() {
        let (variables, mistakes) = parse("--v=4\nflags\nexport A=1\n1A=2\nB=3\nC=\"open\n");
        assert_eq!(variables, [Variable { name: "B".to_owned(), value: "3".to_owned(), line: 5 }]);
        let told: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        let accepted = "accepted: NAME=VALUE, or a comment that starts with # or ;";
        assert_eq!(
            told,
            [
                format!("line 1: \"--v=4\": not the name of a variable; {accepted}"),
                format!("line 2: \"flags\": not an assignment; {accepted}"),
                format!("line 3: \"export A=1\": not the name of a variable; {accepted}"),
                format!("line 4: \"1A=2\": not the name of a variable; {accepted}"),
                format!("line 6: \"C=\\\"open\": a quote is not closed; {accepted}"),
            ]
        );
    }

    #[test]
    fn words_are_split_as_for_a_command() {
        for (value, expected) in [
            ("", vec![]),
            ("  ", vec![]),
            ("--v=2 --mode=shadow", vec!["--v=2", "--mode=shadow"]),
            (" a\t\nb ", vec!["a", "b"]),
            ("--a='x y' \"z\"", vec!["--a=x y", "z"]),
            ("''", vec![""]),
            ("a\\ b", vec!["a b"]),
            ("'a\\b'", vec!["a\\b"]),
            ("\"a b", vec!["a b"]),
        ] {
            assert_eq!(words(value), expected, "{value:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_read_back(value in "[^'\\x00]*", name in "[A-Z_][A-Z0-9_]{0,9}") {
            let (variables, mistakes) = parse(&format!("# first\n{name}='{value}'\nLAST=1\n"));
            prop_assert_eq!(mistakes, Vec::new());
            prop_assert_eq!(variables.len(), 2);
            prop_assert_eq!(&variables[0].name, &name);
            prop_assert_eq!(&variables[0].value, &value);
        }

        #[test]
        fn any_text_is_taken_apart(text in "([A-Z= \n\\\\\"'#;a$]|\\PC){0,60}") {
            let (variables, _mistakes) = parse(&text);
            prop_assert!(variables.iter().all(|variable| is_name(&variable.name)));
            let _words = words(&text);
        }

        #[test]
        fn words_without_quotes_are_those_between_white_space(list in prop::collection::vec("[a-z=,./-]{1,8}", 0..6)) {
            prop_assert_eq!(words(&list.join("  ")), list);
        }
    }
}
