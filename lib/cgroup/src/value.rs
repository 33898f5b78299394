//! What a file of a control group holds, whatever the kernel's way to write it.

use std::fmt;

use koord_extension::cpuset::CpuSet;

/// Says "no limit" in [`Value::Integer`] of resources that are limits.
pub const UNLIMITED: i64 = -1;

/// A value in the words of the CRI and of version 1: shares, microseconds, bytes. Files of version 2 that use other
/// units (`cpu.weight`) or other words (`max`) are converted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Value {
    /// A number; [`UNLIMITED`] where a resource is a limit and there is none.
    Integer(i64),
    /// A set of CPUs; an empty one stands for "as the parent".
    Cpus(CpuSet),
    /// Text in the kernel's own format, for files with several words.
    Text(String),
}

impl Value {
    /// The number, if it is one.
    pub const fn integer(&self) -> Option<i64> {
        match self {
            Value::Integer(number) => Some(*number),
            Value::Cpus(_) | Value::Text(_) => None,
        }
    }

    /// The set of CPUs, if it is one.
    pub const fn cpus(&self) -> Option<&CpuSet> {
        match self {
            Value::Cpus(cpus) => Some(cpus),
            Value::Integer(_) | Value::Text(_) => None,
        }
    }

    /// The name of the kind, for messages.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Value::Integer(_) => "a number",
            Value::Cpus(_) => "a set of CPUs",
            Value::Text(_) => "text",
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Integer(number) => write!(formatter, "{number}"),
            Value::Cpus(cpus) => write!(formatter, "{cpus}"),
            Value::Text(text) => formatter.write_str(text),
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Integer(number)
    }
}

impl From<CpuSet> for Value {
    fn from(cpus: CpuSet) -> Value {
        Value::Cpus(cpus)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}
