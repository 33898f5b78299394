//! The time that packages are of, in place of the time they are made at.

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

use super::output;

/// Seconds since 1970.
pub(super) struct SourceDate(u32);

impl SourceDate {
    /// `SOURCE_DATE_EPOCH` if it is set (<https://reproducible-builds.org/specs/source-date-epoch/>), else the time of the
    /// commit.
    pub(super) fn of(root: &Path) -> anyhow::Result<SourceDate> {
        let text = match env::var("SOURCE_DATE_EPOCH") {
            Ok(text) => text,
            Err(_) => output(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root))
                .context("set SOURCE_DATE_EPOCH where there is no repository")?,
        };
        let seconds = text.trim().parse().with_context(|| format!("seconds since 1970, but {text:?}"))?;
        Ok(SourceDate(seconds))
    }

    /// As `SOURCE_DATE_EPOCH` has it.
    pub(super) fn seconds(&self) -> String {
        self.0.to_string()
    }

    /// As manual pages have it, `2026-11-30`.
    pub(super) fn day(&self) -> anyhow::Result<String> {
        self.formatted("+%Y-%m-%d")
    }

    /// As mail and changelogs of Debian have it, `Mon, 30 Nov 2026 03:50:06 +0000`.
    pub(super) fn mail(&self) -> anyhow::Result<String> {
        self.formatted("+%a, %d %b %Y %H:%M:%S +0000")
    }

    fn formatted(&self, form: &str) -> anyhow::Result<String> {
        let seconds = format!("--date=@{}", self.0);
        let text = output(Command::new("date").args(["--utc", &seconds, form]).env("LC_ALL", "C"))?;
        Ok(text.trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let date = SourceDate(1_796_010_606);
        assert_eq!(date.seconds(), "1796010606");
        assert_eq!(date.day().unwrap(), "2026-11-30");
        assert_eq!(date.mail().unwrap(), "Mon, 30 Nov 2026 03:50:06 +0000");
        assert_eq!(SourceDate(0).mail().unwrap(), "Thu, 01 Jan 1970 00:00:00 +0000");
    }
}
