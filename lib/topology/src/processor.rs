//! The processor's name and abilities, from the text of `/proc/cpuinfo`.

use std::collections::BTreeSet;

/// What the first processor of `/proc/cpuinfo` says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Processor {
    /// `model name`, as in `Intel(R) Xeon(R) Platinum 8369B CPU @ 2.70GHz`.
    pub model: Option<String>,
    /// `vendor_id` (x86), as in `GenuineIntel` or `AuthenticAMD`; `CPU implementer` (ARM), as in `0x41`.
    pub vendor_id: Option<String>,
    /// `flags` (x86) or `Features` (ARM), as in `cat_l3`, `mba`, `cqm_occup_llc`.
    pub flags: BTreeSet<String>,
}

impl Processor {
    /// Reads the first processor of the text. Lines that are not of the form `name : value` are passed over.
    pub fn parse(cpuinfo: &str) -> Processor {
        let mut processor = Processor::default();
        for line in cpuinfo.lines() {
            let Some((name, value)) = line.split_once(':') else { continue };
            let (name, value) = (name.trim(), value.trim());
            match name {
                "model name" if processor.model.is_none() => processor.model = Some(value.to_owned()),
                "vendor_id" | "CPU implementer" if processor.vendor_id.is_none() => {
                    processor.vendor_id = Some(value.to_owned());
                }
                "flags" | "Features" if processor.flags.is_empty() => {
                    processor.flags = value.split_ascii_whitespace().map(str::to_owned).collect();
                }
                _ => {}
            }
        }
        processor
    }

    /// True if the processor has this flag.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.contains(flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processor_counts() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon @ 2.7GHz\nflags\t\t: fpu cat_l3 mba\n\
                    \nprocessor\t: 1\nvendor_id\t: Other\nmodel name\t: Second\nflags\t\t: fpu\n";
        let processor = Processor::parse(text);
        assert_eq!(processor.model.as_deref(), Some("Xeon @ 2.7GHz"));
        assert_eq!(processor.vendor_id.as_deref(), Some("GenuineIntel"));
        assert!(processor.has("cat_l3") && processor.has("mba") && !processor.has("cat"));
    }

    #[test]
    fn arm_says_it_in_other_words() {
        let processor = Processor::parse("processor : 0\nFeatures : fp asimd\nCPU implementer : 0x41\n");
        assert_eq!(processor.vendor_id.as_deref(), Some("0x41"));
        assert!(processor.has("asimd"));
        assert_eq!(processor.model, None);
        assert_eq!(Processor::parse("no colon here"), Processor::default());
    }
}
