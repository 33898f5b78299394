//! Prints an error with its causes, once, at the edge of the program.
//!
//! Every error type of the product displays its own layer only and names its cause by `source()`.

use std::error::Error;
use std::fmt;

/// Displays an error and all its causes on one line, joined by `: `.
///
/// A cause whose text the layer above already ends with is left out, since some foreign error types
/// repeat their cause in their own text.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = self.0.to_string();
        formatter.write_str(&shown)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !shown.ends_with(&text) {
                write!(formatter, ": {text}")?;
            }
            shown = text;
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open {0}")]
    struct Outer(&'static str, #[source] Middle);

    #[derive(Debug, thiserror::Error)]
    #[error("layer that repeats: {0}")]
    struct Middle(#[source] std::io::Error);

    #[test]
    fn joins_layers_and_leaves_out_repeats() {
        let error = Outer("/x", Middle(std::io::Error::other("no room")));
        assert_eq!(Chain(&error).to_string(), "cannot open /x: layer that repeats: no room");
    }
}
