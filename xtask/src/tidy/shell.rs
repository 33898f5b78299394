//! Commands of a shell script that people are told to type: words and where they are, enough to look names up. What is
//! filled in (`$name`, `$(command)`) stands as `$`; commands inside of it are commands too.

/// A command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    /// Its line in the script, from 0.
    pub(super) line: usize,
    /// Its words, without assignments before it and without files it writes to.
    pub(super) words: Vec<String>,
}

/// All commands of a script.
///
/// # Errors
/// What cannot be read, with its line.
pub(super) fn commands(script: &str) -> Result<Vec<Command>, (usize, &'static str)> {
    let mut reader = Reader { rest: script.chars().peekable(), line: 0, found: Vec::new() };
    reader.list(None)?;
    Ok(reader.found)
}

struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    line: usize,
    found: Vec<Command>,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let character = self.rest.next();
        self.line += usize::from(character == Some('\n'));
        character
    }

    /// Commands up to `end`, or to the end of the script.
    fn list(&mut self, end: Option<char>) -> Result<(), (usize, &'static str)> {
        let start = self.line;
        let (mut command, mut word, mut has_word) =
            (Command { line: self.line, words: Vec::new() }, String::new(), false);
        loop {
            let character = self.next();
            let ends_word =
                character.is_none_or(|c| c.is_whitespace() || "|&;<>".contains(c)) || character == end;
            if ends_word && has_word {
                if command.words.is_empty() {
                    command.line = self.line - usize::from(character == Some('\n'));
                }
                command.words.push(std::mem::take(&mut word));
                has_word = false;
            }
            match character {
                None if end.is_some() => return Err((start, "( without )")),
                None => break,
                Some(c) if Some(c) == end => break,
                Some('\n' | ';' | '|' | '&') => {
                    let next = Command { line: self.line, words: Vec::new() };
                    self.take(std::mem::replace(&mut command, next));
                }
                Some(c @ ('<' | '>')) => command.words.push(c.to_string()),
                Some('#') if !has_word => while self.rest.next_if(|c| *c != '\n').is_some() {},
                Some(c) if c.is_whitespace() => {}
                Some('\\') => match self.next() {
                    Some('\n') => {}
                    Some(other) => (word, has_word) = (word + &other.to_string(), true),
                    None => return Err((self.line, "\\ at the end")),
                },
                Some(quote @ ('\'' | '"')) => {
                    self.quoted(quote, &mut word)?;
                    has_word = true;
                }
                Some('$') => {
                    self.filled_in(&mut word)?;
                    has_word = true;
                }
                Some('(' | ')' | '`') => return Err((self.line, "( ) and ` are not for documents")),
                Some(other) => {
                    word.push(other);
                    has_word = true;
                }
            }
        }
        self.take(command);
        Ok(())
    }

    fn quoted(&mut self, quote: char, word: &mut String) -> Result<(), (usize, &'static str)> {
        let start = self.line;
        loop {
            match self.next() {
                None => return Err((start, "a quote without its end")),
                Some(c) if c == quote => return Ok(()),
                Some('$') if quote == '"' => self.filled_in(word)?,
                Some('\\') if quote == '"' => word.extend(self.next()),
                Some(other) => word.push(other),
            }
        }
    }

    fn filled_in(&mut self, word: &mut String) -> Result<(), (usize, &'static str)> {
        word.push('$');
        if self.rest.next_if_eq(&'(').is_some() {
            return self.list(Some(')'));
        }
        while self.rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '_').is_some() {}
        Ok(())
    }

    fn take(&mut self, mut command: Command) {
        let is_assignment = |word: &String| {
            word.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            })
        };
        while command.words.first().is_some_and(is_assignment) {
            command.words.remove(0);
        }
        while let Some(at) = command.words.iter().position(|word| word == "<" || word == ">") {
            command.words.drain(at..(at + 2).min(command.words.len()));
        }
        if !command.words.is_empty() {
            self.found.push(command);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(script: &str) -> Vec<(usize, String)> {
        let found = commands(script).unwrap();
        found.iter().map(|command| (command.line, command.words.join("|"))).collect()
    }

    #[test]
    fn commands_have_their_words() {
        let script = "a --b='c d' \"e $f\" \\\n  g # no\n\n# no\nh | i && j > out; k=$(l m 'n)') o\n";
        assert_eq!(
            words(script),
            [(0, "a|--b=c d|e $|g"), (4, "h"), (4, "i"), (4, "j"), (4, "l|m|n)"), (4, "o")]
                .map(|(line, text)| (line, text.to_owned()))
        );
    }

    #[test]
    fn what_is_not_closed_is_told() {
        for (script, line) in
            [("a 'b\n", 0), ("a\nb \"c\n", 1), ("a\n\nb $(c\n", 2), ("(a)\n", 0), ("a `b`\n", 0)]
        {
            assert_eq!(commands(script).map_err(|(line, _)| line), Err(line), "{script:?}");
        }
    }
}
