//! The values of labels that have a fixed set of them.

/// What the proxy did with a call; label `kind` of `cri_requests_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// A hook was asked.
    Hooked,
    /// Relayed byte for byte while the store followed it.
    Observed,
    /// Relayed without a look inside.
    Passthrough,
}

impl CallKind {
    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hooked => "hooked",
            Self::Observed => "observed",
            Self::Passthrough => "passthrough",
        }
    }
}

/// A part of a call's time; label `phase` of `cri_request_duration_seconds`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// From the first request byte to the last response byte.
    Total,
    /// The hooks before the backend call.
    Pre,
    /// The backend's own time.
    Backend,
    /// The hooks after the backend call.
    Post,
    /// Everything the proxy added: total minus backend.
    Added,
}

impl Phase {
    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Pre => "pre",
            Self::Backend => "backend",
            Self::Post => "post",
            Self::Added => "added",
        }
    }
}

/// Why an interceptable call went through without its hooks; label `reason` of
/// `intercept_bypassed_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BypassReason {
    /// The message is larger than `--max-message-bytes`.
    Size,
    /// The message is malformed, or the code that reads it failed.
    Decode,
    /// The message uses a compression the proxy does not read.
    Encoding,
    /// The pod carries the skip label.
    SkipLabel,
    /// Neither the store nor the backend knows the pod or container.
    UnknownId,
}

impl BypassReason {
    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Decode => "decode",
            Self::Encoding => "encoding",
            Self::SkipLabel => "skip_label",
            Self::UnknownId => "unknown_id",
        }
    }
}

/// Where the record of an object came from after a restart; label `source` of
/// `failover_objects_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailoverSource {
    /// The checkpoint file.
    Checkpoint,
    /// The verbose status of the runtime.
    Status,
    /// The kubelet's cgroup layout.
    Cgroup,
    /// Nowhere: only what the list says is known, or the object could not be used at all.
    Missing,
}

impl FailoverSource {
    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Checkpoint => "checkpoint",
            Self::Status => "status",
            Self::Cgroup => "cgroup",
            Self::Missing => "missing",
        }
    }
}

/// A way through the proxy; label `direction` of `bytes_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Client to backend.
    Request,
    /// Backend to client.
    Response,
}

impl Direction {
    /// The label value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}
