//! Unified differences of small texts, for people.

use std::path::Path;

/// Lines of context.
const CONTEXT: usize = 3;

/// Longest file, in lines, whose lines are compared one by one; of a longer one everything between the first and the
/// last difference is shown as changed.
const MOST_LINES: usize = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    Same(&'a str),
    Removed(&'a str),
    Added(&'a str),
}

/// The difference as `diff -u` writes it; empty if there is none. A text that is not there is `/dev/null`.
pub fn unified(path: &Path, before: Option<&str>, after: Option<&str>) -> String {
    let lines = compared(before.unwrap_or_default(), after.unwrap_or_default());
    let changes: Vec<usize> =
        lines.iter().enumerate().filter(|(_, line)| !matches!(line, Line::Same(_))).map(|(i, _)| i).collect();
    let (Some(first), Some(last)) = (changes.first(), changes.last()) else { return String::new() };
    let name = |text: Option<&str>| match text {
        Some(_) => path.display().to_string(),
        None => "/dev/null".to_owned(),
    };
    let mut result = format!("--- {}\n+++ {}\n", name(before), name(after));
    // Hunks: runs of changes with no more than twice the context between them.
    let (mut start, mut end) = (*first, *first);
    for &change in &changes {
        if change > end + 2 * CONTEXT {
            hunk(&lines, start, end, &mut result);
            start = change;
        }
        end = change;
    }
    hunk(&lines, start, *last, &mut result);
    result
}

fn hunk(lines: &[Line<'_>], first: usize, last: usize, result: &mut String) {
    let begin = first.saturating_sub(CONTEXT);
    let end = (last + CONTEXT + 1).min(lines.len());
    let count = |part: &[Line<'_>]| {
        let old = part.iter().filter(|line| !matches!(line, Line::Added(_))).count();
        let new = part.iter().filter(|line| !matches!(line, Line::Removed(_))).count();
        (old, new)
    };
    let (old_before, new_before) = count(lines.get(..begin).unwrap_or_default());
    let part = lines.get(begin..end).unwrap_or_default();
    let (old, new) = count(part);
    // A hunk without lines is named by the line before it.
    let place = |before: usize, length: usize| if length == 0 { before } else { before + 1 };
    result.push_str(&format!("@@ -{},{old} +{},{new} @@\n", place(old_before, old), place(new_before, new)));
    for line in part {
        let (sign, text) = match line {
            Line::Same(text) => (' ', text),
            Line::Removed(text) => ('-', text),
            Line::Added(text) => ('+', text),
        };
        result.push(sign);
        result.push_str(text);
        if !text.ends_with('\n') {
            result.push_str("\n\\ No newline at end of file\n");
        }
    }
}

/// All lines, by a longest common subsequence between the common start and the common end.
fn compared<'a>(before: &'a str, after: &'a str) -> Vec<Line<'a>> {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let room = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take(room).take_while(|(a, b)| a == b).count();
    let middle_old = old.get(head..old.len() - tail).unwrap_or_default();
    let middle_new = new.get(head..new.len() - tail).unwrap_or_default();
    let mut lines: Vec<Line<'a>> = old.iter().take(head).map(|line| Line::Same(line)).collect();
    lines.extend(middle(middle_old, middle_new));
    lines.extend(old.iter().skip(old.len() - tail).map(|line| Line::Same(line)));
    lines
}

fn middle<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    if old.len() > MOST_LINES || new.len() > MOST_LINES {
        let removed = old.iter().map(|line| Line::Removed(line));
        return removed.chain(new.iter().map(|line| Line::Added(line))).collect();
    }
    // lengths[i * width + j]: of the longest common subsequence of old[i..] and new[j..].
    let width = new.len() + 1;
    let mut lengths = vec![0_usize; (old.len() + 1) * width];
    let at = |lengths: &[usize], i: usize, j: usize| lengths.get(i * width + j).copied().unwrap_or(0);
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            let length = if a == b {
                at(&lengths, i + 1, j + 1) + 1
            } else {
                at(&lengths, i + 1, j).max(at(&lengths, i, j + 1))
            };
            if let Some(cell) = lengths.get_mut(i * width + j) {
                *cell = length;
            }
        }
    }
    let (mut lines, mut i, mut j) = (Vec::new(), 0, 0);
    loop {
        match (old.get(i), new.get(j)) {
            (Some(a), Some(b)) if a == b => {
                lines.push(Line::Same(a));
                (i, j) = (i + 1, j + 1);
            }
            (Some(a), Some(_)) if at(&lengths, i + 1, j) >= at(&lengths, i, j + 1) => {
                lines.push(Line::Removed(a));
                i += 1;
            }
            (_, Some(b)) => {
                lines.push(Line::Added(b));
                j += 1;
            }
            (Some(a), None) => {
                lines.push(Line::Removed(a));
                i += 1;
            }
            (None, None) => return lines,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn diff(before: &str, after: &str) -> String {
        unified(Path::new("/f"), Some(before), Some(after))
    }

    #[test]
    fn as_the_tool_writes_it() {
        let before = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\n";
        let after = "a\nb\nC\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\n";
        assert_eq!(
            diff(before, after),
            "--- /f\n+++ /f\n@@ -1,6 +1,6 @@\n a\n b\n-c\n+C\n d\n e\n f\n@@ -10,3 +10,4 @@\n j\n k\n l\n+m\n"
        );
        assert_eq!(diff("a\n", "a\n"), "");
        assert_eq!(
            unified(Path::new("/f"), None, Some("x\n")),
            "--- /dev/null\n+++ /f\n@@ -0,0 +1,1 @@\n+x\n"
        );
        assert_eq!(
            unified(Path::new("/f"), Some("x"), None),
            "--- /f\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n\\ No newline at end of file\n"
        );
    }

    proptest! {
        #[test]
        fn both_sides_can_be_had_back(
            before in proptest::collection::vec("[ab]", 0..12), after in proptest::collection::vec("[ab]", 0..12)
        ) {
            let join = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let (before, after) = (join(&before), join(&after));
            let lines = compared(&before, &after);
            let pick = |removed: bool| lines.iter().filter_map(|line| match line {
                Line::Same(text) => Some(*text),
                Line::Removed(text) if removed => Some(*text),
                Line::Added(text) if !removed => Some(*text),
                _ => None,
            }).collect::<String>();
            prop_assert_eq!((pick(true), pick(false)), (before, after));
        }
    }
}
