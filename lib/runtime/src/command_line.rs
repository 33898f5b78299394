//! Command lines as Go's `flag` and `pflag` packages read them.
//!
//! `--name value` and `--name=value` are accepted, with one dash as well; a switch takes its value after `=` only.
//! After `--` there are words only. All mistakes are found before any is reported.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use koord_extension::keys;

/// A flag that a program has.
pub trait Flag {
    /// Its name, without dashes.
    fn name(&self) -> &'static str;
    /// Whether it is on or off, and needs no value.
    fn is_switch(&self) -> bool;
    /// What it accepts, in words.
    fn accepted(&self) -> String;
}

impl<F: Flag> Flag for &F {
    fn name(&self) -> &'static str {
        (*self).name()
    }

    fn is_switch(&self) -> bool {
        (*self).is_switch()
    }

    fn accepted(&self) -> String {
        (*self).accepted()
    }
}

/// One mistake on a command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    /// No such flag.
    #[error("--{name}: unknown flag{}", suggestion.map(|near| format!("; did you mean --{near}?")).unwrap_or_default())]
    UnknownFlag {
        /// The flag as it was written.
        name: String,
        /// A flag with nearly that name.
        suggestion: Option<&'static str>,
    },
    /// A flag at the end of the line without its value.
    #[error("--{flag}: needs a value; accepted: {accepted}")]
    MissingValue {
        /// The flag.
        flag: &'static str,
        /// What it accepts.
        accepted: String,
    },
    /// A value that the flag does not accept.
    #[error("--{flag}={value}: {problem}; accepted: {accepted}")]
    BadValue {
        /// The flag.
        flag: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it.
        problem: String,
        /// What the flag accepts.
        accepted: String,
    },
    /// Two flags that contradict each other.
    #[error("--{flag}={value}: {problem}")]
    Conflict {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What it conflicts with.
        problem: String,
    },
    /// A word that is neither a flag nor a command.
    #[error("{word:?}: unexpected argument; {accepted}")]
    UnexpectedArgument {
        /// The word.
        word: String,
        /// Which words there are.
        accepted: &'static str,
    },
    /// An argument that is not text.
    #[error("{argument:?}: argument is not valid UTF-8")]
    NotText {
        /// The argument.
        argument: OsString,
    },
    /// A variable of the environment that is needed and is empty.
    #[error("{name}: the environment variable is empty; accepted: {accepted}")]
    EmptyVariable {
        /// Its name.
        name: &'static str,
        /// What is expected in it.
        accepted: &'static str,
    },
}

impl Mistake {
    /// That `flag` does not accept `value`.
    pub fn bad_value(flag: &impl Flag, value: &str, problem: impl Into<String>) -> Self {
        let accepted = flag.accepted();
        Self::BadValue { flag: flag.name(), value: value.to_owned(), problem: problem.into(), accepted }
    }

    /// The flag it is about, if that is known.
    pub fn flag(&self) -> Option<&'static str> {
        match self {
            Self::MissingValue { flag, .. } | Self::BadValue { flag, .. } | Self::Conflict { flag, .. } => {
                Some(flag)
            }
            Self::UnknownFlag { .. }
            | Self::UnexpectedArgument { .. }
            | Self::NotText { .. }
            | Self::EmptyVariable { .. } => None,
        }
    }
}

/// Everything wrong with a command line, one mistake a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mistake in &self.0 {
            writeln!(formatter, "{mistake}")?;
        }
        write!(formatter, "see --help for all flags")
    }
}

impl std::error::Error for Mistakes {}

/// A command line taken apart; values are texts, and not checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandLine {
    /// Values by the name of their flag; of one that is given twice the last. Those of switches are `true` or `false`.
    pub values: BTreeMap<&'static str, String>,
    /// What stands beside the flags, in its order. A dash alone is such a word.
    pub words: Vec<String>,
}

impl CommandLine {
    /// Takes arguments apart (without the program's name), and collects what cannot be.
    pub fn parse<F: Flag>(
        arguments: impl IntoIterator<Item = OsString>,
        flags: &[F],
    ) -> (Self, Vec<Mistake>) {
        let (mut line, mut mistakes) = (Self::default(), Vec::new());
        let mut only_words = false;
        let mut arguments = arguments
            .into_iter()
            .map(|argument| argument.into_string().map_err(|argument| Mistake::NotText { argument }));
        while let Some(argument) = arguments.next() {
            let text = match argument {
                Ok(text) => text,
                Err(mistake) => {
                    mistakes.push(mistake);
                    continue;
                }
            };
            if text == "--" && !only_words {
                only_words = true;
                continue;
            }
            let name = text.strip_prefix("--").or_else(|| text.strip_prefix('-'));
            let Some(name) = name.filter(|name| !only_words && !name.is_empty()) else {
                line.words.push(text);
                continue;
            };
            let (name, attached) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (name, None),
            };
            let name = if name == "h" { "help" } else { name };
            let Some(flag) = flags.iter().find(|flag| flag.name() == name) else {
                let suggestion = keys::nearest(name, flags.iter().map(Flag::name));
                mistakes.push(Mistake::UnknownFlag { name: name.to_owned(), suggestion });
                continue;
            };
            let value = match attached {
                attached if flag.is_switch() => match switch(attached.as_deref()) {
                    Some(on) => Ok(on.to_string()),
                    None => Err(Mistake::bad_value(flag, &attached.unwrap_or_default(), "not a truth value")),
                },
                Some(value) => Ok(value),
                None => arguments.next().unwrap_or_else(|| {
                    Err(Mistake::MissingValue { flag: flag.name(), accepted: flag.accepted() })
                }),
            };
            match value {
                Ok(value) => drop(line.values.insert(flag.name(), value)),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        (line, mistakes)
    }

    /// Whether a switch was given, and is on.
    pub fn is_on(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|value| value == "true")
    }
}

/// Go's `strconv.ParseBool`; a switch without a value is on.
fn switch(value: Option<&str>) -> Option<bool> {
    match value {
        None | Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Some(true),
        Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Some(false),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Known(&'static str, bool);

    impl Flag for Known {
        fn name(&self) -> &'static str {
            self.0
        }

        fn is_switch(&self) -> bool {
            self.1
        }

        fn accepted(&self) -> String {
            if self.1 { "true, or false" } else { "any text" }.to_owned()
        }
    }

    const FLAGS: [Known; 3] = [Known("help", true), Known("addr", false), Known("on", true)];

    fn parse(line: &str) -> (CommandLine, Vec<String>) {
        let (line, mistakes) = CommandLine::parse(line.split(' ').map(OsString::from), &FLAGS);
        (line, mistakes.iter().map(ToString::to_string).collect())
    }

    fn values(line: &str) -> Vec<(&'static str, String)> {
        let (line, mistakes) = parse(line);
        assert_eq!(mistakes, [""; 0]);
        line.values.into_iter().collect()
    }

    #[test]
    fn a_value_stands_behind_an_equals_sign_or_a_space() {
        for line in ["--addr=:1", "-addr=:1", "--addr :1", "-addr :1", "--addr=x --addr=:1"] {
            assert_eq!(values(line), [("addr", ":1".to_owned())], "{line}");
        }
        assert_eq!(values("--addr="), [("addr", String::new())]);
        assert_eq!(values("--addr=a=b"), [("addr", "a=b".to_owned())]);
        // A value may look like a flag.
        assert_eq!(values("--addr --on"), [("addr", "--on".to_owned())]);
    }

    #[test]
    fn a_switch_takes_no_word() {
        for (line, on) in [("--on", "true"), ("-on=T", "true"), ("--on=0", "false"), ("--on=False", "false")]
        {
            assert_eq!(values(line), [("on", on.to_owned())], "{line}");
        }
        let (line, mistakes) = parse("--on false");
        assert!(line.is_on("on") && !line.is_on("help") && mistakes.is_empty());
        assert_eq!(line.words, ["false"]);
        assert!(parse("-h").0.is_on("help"));
    }

    #[test]
    fn behind_two_dashes_are_words() {
        let (line, mistakes) = parse("a - --on -- --addr -- -x");
        assert_eq!(line.words, ["a", "-", "--addr", "--", "-x"]);
        assert!(line.is_on("on") && mistakes.is_empty());
    }

    #[test]
    fn every_mistake_is_told() {
        let (line, mistakes) = parse("--adr=:1 --on=yes --nothing-like-it --addr");
        assert_eq!(line, CommandLine::default());
        assert_eq!(
            mistakes,
            [
                "--adr: unknown flag; did you mean --addr?",
                "--on=yes: not a truth value; accepted: true, or false",
                "--nothing-like-it: unknown flag",
                "--addr: needs a value; accepted: any text",
            ]
        );
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_text_is_told() {
        use std::os::unix::ffi::OsStringExt;
        let odd = || OsString::from_vec(vec![b'x', 0xff]);
        let (_, mistakes) = CommandLine::parse([odd(), "--addr".into(), odd()], &FLAGS);
        assert_eq!(mistakes, [Mistake::NotText { argument: odd() }, Mistake::NotText { argument: odd() }]);
    }
}
