//! Manual pages and completions of programs, made from their help texts.
//!
//! A help text is a line with name and summary, a part `Usage:` with one line for each form, parts with a heading and flags
//! (`  --name WORD`, further in what it means), and paragraphs that begin with a word and a colon.

use anyhow::Context;

/// The page of a program, for section 8. `files` are paths and what they hold.
pub(super) fn page(
    program: &str,
    help: &str,
    files: &[(&str, &str)],
    version: &str,
    day: &str,
) -> anyhow::Result<String> {
    let first = help.lines().next().unwrap_or_default();
    let summary =
        first.strip_prefix(program).and_then(|rest| rest.strip_prefix(": ")).with_context(|| {
            format!("help of {program} does not begin with its name and a summary: {first:?}")
        })?;
    let title = program.to_uppercase();
    let mut page = format!(".TH {title} 8 \"{day}\" \"{program} {version}\" \"System administration\"\n");
    page.push_str(&format!(".SH NAME\n{program} \\- {}\n", escaped(summary)));
    let mut part = Part::None;
    for line in help.lines().skip(1) {
        if line.trim().is_empty() {
            continue;
        }
        if let Some(heading) = line.strip_suffix(':').filter(|heading| !heading.starts_with(' ')) {
            part = if heading == "Usage" { Part::Usage } else { Part::Flags };
            let heading = if heading == "Usage" { "SYNOPSIS".to_owned() } else { heading.to_uppercase() };
            page.push_str(&format!(".SH \"{heading}\"\n"));
        } else if !line.starts_with(' ') {
            if part != Part::Notes {
                page.push_str(".SH NOTES\n");
                part = Part::Notes;
            }
            // What goes on does not begin with a word and a colon.
            let begins = line.split_once(": ").is_some_and(|(word, _)| word.len() < 16);
            page.push_str(&format!("{}{}\n", if begins { ".PP\n" } else { "" }, escaped(line)));
        } else {
            page.push_str(&inner(part, line));
        }
    }
    page.push_str(".SH FILES\n");
    for (path, holds) in files {
        page.push_str(&format!(".TP\n.I {}\n{}\n", escaped(path), escaped(holds)));
    }
    page.push_str(".SH \"SEE ALSO\"\n");
    page.push_str("koordctl(1), koord\\-runtime\\-proxy(8), koordlet(8), /usr/share/doc/koord\\-node\n");
    Ok(page)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    None,
    Usage,
    Flags,
    Notes,
}

/// A line that is indented.
fn inner(part: Part, line: &str) -> String {
    let text = line.trim();
    match part {
        Part::Usage => {
            let (command, does) = text.split_once("  ").unwrap_or((text, ""));
            format!(".TP\n.B {}\n{}\n", escaped(command), escaped(does.trim()))
        }
        _ if text.starts_with("--") => {
            let (flag, word) = text.split_once(' ').unwrap_or((text, ""));
            let word = if word.is_empty() { String::new() } else { format!(" \\fI{}\\fR", escaped(word)) };
            format!(".TP\n\\fB{}\\fR{word}\n", escaped(flag))
        }
        _ if text.starts_with("accepted: ") => format!(".br\n{}\n", escaped(text)),
        _ => format!("{}\n", escaped(text)),
    }
}

/// Text that roff prints as it is.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

/// The names of all flags of a help text, with their dashes.
fn flags(help: &str) -> Vec<&str> {
    let is_flag = |line: &&str| line.starts_with("  --");
    help.lines().filter(is_flag).filter_map(|line| line.split_whitespace().next()).collect()
}

/// Completion of flags in bash; of values, bash's own.
pub(super) fn bash_completion(program: &str, help: &str) -> String {
    let mut words = flags(help);
    let has_validate =
        help.lines().any(|line| line.trim_start().starts_with(&format!("{program} validate ")));
    words.extend(has_validate.then_some("validate"));
    format!("# bash completion of {program}\ncomplete -o default -W \"{}\" {program}\n", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "\
tool: does things, well

Usage:
  tool [FLAGS]            run
  tool validate [FLAGS]   check

Sockets:
  --listen SOCKET
        where
        accepted: a path; default: .x
  --on
        .dotted \\ text

Signals: SIGTERM ends,
twice at once.
Exit codes: 0 done.
";

    #[test]
    fn a_help_text_becomes_a_page() {
        let wanted = "\
.TH TOOL 8 \"2026-11-30\" \"tool 0.1.0\" \"System administration\"
.SH NAME
tool \\- does things, well
.SH \"SYNOPSIS\"
.TP
.B tool [FLAGS]
run
.TP
.B tool validate [FLAGS]
check
.SH \"SOCKETS\"
.TP
\\fB\\-\\-listen\\fR \\fISOCKET\\fR
where
.br
accepted: a path; default: .x
.TP
\\fB\\-\\-on\\fR
\\&.dotted \\e text
.SH NOTES
.PP
Signals: SIGTERM ends,
twice at once.
.PP
Exit codes: 0 done.
.SH FILES
.TP
.I /a\\-b
things
.SH \"SEE ALSO\"
koordctl(1), koord\\-runtime\\-proxy(8), koordlet(8), /usr/share/doc/koord\\-node
";
        assert_eq!(page("tool", HELP, &[("/a-b", "things")], "0.1.0", "2026-11-30").unwrap(), wanted);
        assert!(page("other", HELP, &[], "0.1.0", "2026-11-30").is_err());
    }

    #[test]
    fn flags_are_completed() {
        assert_eq!(
            bash_completion("tool", HELP),
            "# bash completion of tool\ncomplete -o default -W \"--listen --on validate\" tool\n"
        );
    }
}
