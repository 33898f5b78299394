//! The text of `schemata` files.
//!
//! Lines of the form `RESOURCE:ID=VALUE;ID=VALUE`, values of `L3` in hexadecimal, of `MB` in decimal. The kernel pads
//! with spaces and zeros. Ids are those of cache domains: they need not start at 0 or be without gaps, and those of
//! the two lines may differ.

use std::collections::BTreeMap;

/// Values of a group, by id of the domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schemata {
    /// Bits of the L3 cache.
    pub cache: BTreeMap<u32, u64>,
    /// Memory bandwidth, in the unit of the machine.
    pub bandwidth: BTreeMap<u32, u64>,
    /// Lines of other resources (`L2`, `SMBA`, `L3CODE`), without padding.
    pub other: Vec<String>,
}

/// Why a text is no schemata.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemataError {
    /// A line without a colon.
    #[error("line {line:?} has no colon; expected RESOURCE:ID=VALUE;...")]
    NoResource {
        /// The line.
        line: String,
    },
    /// An entry of a line that is known to hold ids and values.
    #[error("entry {entry:?} of line {line:?}; expected ID=VALUE, the value {expected}")]
    Entry {
        /// The line.
        line: String,
        /// The entry.
        entry: String,
        /// How values of the line are written.
        expected: &'static str,
    },
    /// An id twice.
    #[error("id {id} is twice in line {line:?}")]
    Duplicate {
        /// The line.
        line: String,
        /// The id.
        id: u32,
    },
}

const CACHE: &str = "L3";
const BANDWIDTH: &str = "MB";

impl Schemata {
    /// Reads the text of a file.
    pub fn parse(text: &str) -> Result<Schemata, SchemataError> {
        let mut schemata = Schemata::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let Some((resource, entries)) = line.split_once(':') else {
                return Err(SchemataError::NoResource { line: line.to_owned() });
            };
            match resource.trim_end() {
                CACHE => read_entries(line, entries, Base::Hexadecimal, &mut schemata.cache)?,
                BANDWIDTH => read_entries(line, entries, Base::Decimal, &mut schemata.bandwidth)?,
                _ => schemata.other.push(line.to_owned()),
            }
        }
        Ok(schemata)
    }

    /// The line of the cache with its line end, ids ascending; empty without values.
    pub fn cache_line(&self) -> String {
        line(CACHE, &self.cache, |mask| format!("{mask:x}"))
    }

    /// The line of memory bandwidth with its line end, ids ascending; empty without values.
    pub fn bandwidth_line(&self) -> String {
        line(BANDWIDTH, &self.bandwidth, |value| value.to_string())
    }

    /// Both lines, as they are written. Other resources are not written: they are somebody else's.
    pub fn to_text(&self) -> String {
        self.cache_line() + &self.bandwidth_line()
    }

    /// True if every value of `wanted` is what this has, by id. Other lines do not count.
    pub fn holds(&self, wanted: &Schemata) -> bool {
        holds(&self.cache, &wanted.cache) && holds(&self.bandwidth, &wanted.bandwidth)
    }
}

/// True if each id of `wanted` has the same value in `found`.
pub(super) fn holds(found: &BTreeMap<u32, u64>, wanted: &BTreeMap<u32, u64>) -> bool {
    wanted.iter().all(|(id, value)| found.get(id) == Some(value))
}

#[derive(Clone, Copy)]
enum Base {
    Decimal,
    Hexadecimal,
}

impl Base {
    fn read(self, text: &str) -> Option<u64> {
        let (radix, is_digit): (u32, fn(&u8) -> bool) = match self {
            Base::Decimal => (10, u8::is_ascii_digit),
            Base::Hexadecimal => (16, u8::is_ascii_hexdigit),
        };
        // The parser of numbers would take a sign as well.
        text.as_bytes().iter().all(is_digit).then(|| u64::from_str_radix(text, radix).ok()).flatten()
    }

    const fn name(self) -> &'static str {
        match self {
            Base::Decimal => "in decimal",
            Base::Hexadecimal => "in hexadecimal",
        }
    }
}

fn read_entries(
    line: &str,
    entries: &str,
    base: Base,
    values: &mut BTreeMap<u32, u64>,
) -> Result<(), SchemataError> {
    for entry in entries.split(';').map(str::trim).filter(|entry| !entry.is_empty()) {
        let read = entry.split_once('=').and_then(|(id, value)| {
            let id = u32::try_from(Base::Decimal.read(id.trim())?).ok()?;
            Some((id, base.read(value.trim())?))
        });
        let Some((id, value)) = read else {
            return Err(SchemataError::Entry {
                line: line.to_owned(),
                entry: entry.to_owned(),
                expected: base.name(),
            });
        };
        if values.insert(id, value).is_some() {
            return Err(SchemataError::Duplicate { line: line.to_owned(), id });
        }
    }
    Ok(())
}

fn line(resource: &str, values: &BTreeMap<u32, u64>, text: impl Fn(u64) -> String) -> String {
    if values.is_empty() {
        return String::new();
    }
    let entries: String = values.iter().map(|(id, value)| format!("{id}={};", text(*value))).collect();
    format!("{resource}:{entries}\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_the_kernel_prints() {
        let schemata = Schemata::parse("L3:0=07ff;4=07ff\nMB:0= 100;4= 100\n").expect("a schemata");
        assert_eq!(schemata.cache, BTreeMap::from([(0, 0x7ff), (4, 0x7ff)]));
        assert_eq!(schemata.bandwidth, BTreeMap::from([(0, 100), (4, 100)]));
        assert_eq!(schemata.other, Vec::<String>::new());

        // Names are padded to the longest; other resources are kept aside.
        let text = "    L2:0=ff;1=ff\n  SMBA:0=2048\n    MB:8=2048\n    L3:8=ffff\n";
        let schemata = Schemata::parse(text).expect("a schemata");
        assert_eq!(schemata.cache, BTreeMap::from([(8, 0xffff)]));
        assert_eq!(schemata.bandwidth, BTreeMap::from([(8, 2048)]));
        assert_eq!(schemata.other, ["L2:0=ff;1=ff", "SMBA:0=2048"]);
        assert_eq!(Schemata::parse("\n"), Ok(Schemata::default()));
    }

    #[test]
    fn lines_as_they_are_written() {
        let schemata = Schemata {
            cache: BTreeMap::from([(1, 0xf), (0, 0xf)]),
            bandwidth: BTreeMap::from([(0, 100), (1, 100)]),
            other: vec!["L2:0=f".to_owned()],
        };
        assert_eq!(schemata.cache_line(), "L3:0=f;1=f;\n");
        assert_eq!(schemata.bandwidth_line(), "MB:0=100;1=100;\n");
        assert_eq!(schemata.to_text(), "L3:0=f;1=f;\nMB:0=100;1=100;\n");
        assert_eq!(Schemata::default().to_text(), "");
    }

    #[test]
    fn what_is_no_schemata() {
        let error = |text: &str| Schemata::parse(text).expect_err("an error");
        assert_eq!(error("L3 0=f"), SchemataError::NoResource { line: "L3 0=f".to_owned() });
        for (text, entry, expected) in [
            ("L3:0=xyz", "0=xyz", "in hexadecimal"),
            ("L3:0", "0", "in hexadecimal"),
            ("L3:=f", "=f", "in hexadecimal"),
            ("L3:0=", "0=", "in hexadecimal"),
            ("L3:+0=f", "+0=f", "in hexadecimal"),
            ("L3:4294967296=f", "4294967296=f", "in hexadecimal"),
            ("MB:0=-1", "0=-1", "in decimal"),
            ("MB:0=10;1=ff", "1=ff", "in decimal"),
            ("MB:0=18446744073709551616", "0=18446744073709551616", "in decimal"),
        ] {
            let (line, entry) = (text.to_owned(), entry.to_owned());
            assert_eq!(error(text), SchemataError::Entry { line, entry, expected });
        }
        assert_eq!(error("L3:0=1;0=1"), SchemataError::Duplicate { line: "L3:0=1;0=1".to_owned(), id: 0 });
    }

    #[test]
    fn values_are_compared_by_id() {
        let found = Schemata::parse("L3:0=f;4=ff\nMB:0=100;4=50").expect("a schemata");
        let holds = |text| found.holds(&Schemata::parse(text).expect("a schemata"));
        assert!(holds("") && holds("L3:4=ff") && holds("MB:4=50;0=100\nL2:0=1"));
        assert!(!holds("L3:1=ff") && !holds("L3:4=f") && !holds("MB:0=50"));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            cache in proptest::collection::btree_map(any::<u32>(), any::<u64>(), 0..6),
            bandwidth in proptest::collection::btree_map(any::<u32>(), any::<u64>(), 0..6),
        ) {
            let schemata = Schemata { cache, bandwidth, other: Vec::new() };
            prop_assert_eq!(Schemata::parse(&schemata.to_text()), Ok(schemata));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[LMB3 :;=0-9a-fx\\n-]{0,80}") {
            let _ = Schemata::parse(&text);
        }
    }
}
