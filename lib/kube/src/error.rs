//! What can go wrong with a request.

use std::fmt;
use std::time::Duration;

/// What a request is to do, in the words of the API server's audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// One object.
    Get,
    /// A selection of objects.
    List,
    /// Changes as they happen.
    Watch,
    /// A new object.
    Create,
    /// A whole object in the place of another.
    Update,
    /// Parts of an object.
    Patch,
    /// An object is taken away.
    Delete,
    /// A selection of objects is taken away.
    DeleteCollection,
}

impl Verb {
    /// The word of the API server.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A request that did not succeed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} {object}")]
pub struct ApiError {
    /// What was to be done.
    pub verb: Verb,
    /// What it was to be done with: resource with its group, namespace and name as far as there are any, for example
    /// `nodemetrics.slo.koordinator.sh node-1`.
    pub object: String,
    /// Why it was not.
    #[source]
    pub failure: Failure,
}

/// Why a request did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The object, its subresource or the resource itself is not there (404). Where absence is a value it is returned
    /// as one.
    #[error("not found: {message}")]
    NotFound {
        /// What the server says.
        message: String,
    },
    /// An object of that name is there (409).
    #[error("already exists: {message}")]
    AlreadyExists {
        /// What the server says.
        message: String,
    },
    /// Somebody else changed the object, or owns the field (409).
    #[error("conflict: {message}")]
    Conflict {
        /// What the server says.
        message: String,
    },
    /// The object breaks a rule of its schema (400, 422).
    #[error("refused as invalid: {message}")]
    Invalid {
        /// What the server says.
        message: String,
    },
    /// The server does not know who asks (401).
    #[error("not authenticated: {message}")]
    Unauthenticated {
        /// What the server says.
        message: String,
    },
    /// Who asks may not do that (403).
    #[error("forbidden: {message}")]
    Forbidden {
        /// What the server says.
        message: String,
    },
    /// The server has too much to do (429).
    #[error("too many requests: {message}")]
    TooManyRequests {
        /// The pause that the server asks for.
        retry_after: Option<Duration>,
        /// What the server says.
        message: String,
    },
    /// The server is there but cannot answer now (500 and above).
    #[error("the server cannot answer ({code}): {message}")]
    Unavailable {
        /// HTTP status.
        code: u16,
        /// The pause that the server asks for.
        retry_after: Option<Duration>,
        /// What the server says.
        message: String,
    },
    /// Any other answer that means no.
    #[error("refused ({code} {reason}): {message}")]
    Refused {
        /// HTTP status.
        code: u16,
        /// The server's word for the reason.
        reason: String,
        /// What the server says.
        message: String,
    },
    /// No answer in time.
    #[error("no answer within {} ms", limit.as_millis())]
    Timeout {
        /// How long was waited.
        limit: Duration,
    },
    /// The server was not reached, or the connection broke.
    #[error("no answer")]
    NoAnswer(#[source] Box<kube::Error>),
    /// The answer is not what was asked for.
    #[error("the answer cannot be read")]
    Malformed(#[source] Box<kube::Error>),
    /// The request could not be made.
    #[error("the request cannot be made")]
    NotSent(#[source] Box<kube::Error>),
    /// The object to be sent cannot be written as JSON.
    #[error("the object cannot be written as JSON")]
    Unwritable(#[source] serde_json::Error),
}

impl Failure {
    /// Reads the client's error.
    pub fn of(error: kube::Error) -> Failure {
        match error {
            kube::Error::Api(status) => Failure::of_status(&status),
            error @ (kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_)) => {
                match timed_out(&error) {
                    Some(limit) => Failure::Timeout { limit },
                    None => Failure::NoAnswer(Box::new(error)),
                }
            }
            error @ (kube::Error::SerdeError(_)
            | kube::Error::FromUtf8(_)
            | kube::Error::LinesCodecMaxLineLengthExceeded) => Failure::Malformed(Box::new(error)),
            error => Failure::NotSent(Box::new(error)),
        }
    }

    /// Reads an answer that means no.
    pub fn of_status(status: &kube::core::Status) -> Failure {
        let message = status.message.clone();
        let retry_after = status
            .details
            .as_ref()
            .filter(|details| details.retry_after_seconds > 0)
            .map(|details| Duration::from_secs(details.retry_after_seconds.into()));
        match status.code {
            _ if status.is_already_exists() => Failure::AlreadyExists { message },
            404 => Failure::NotFound { message },
            409 => Failure::Conflict { message },
            400 | 422 => Failure::Invalid { message },
            401 => Failure::Unauthenticated { message },
            403 => Failure::Forbidden { message },
            429 => Failure::TooManyRequests { retry_after, message },
            code @ 500.. => Failure::Unavailable { code, retry_after, message },
            code => Failure::Refused { code, reason: status.reason.clone(), message },
        }
    }

    /// Whether the same request can succeed later without anybody doing anything about it.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Failure::TooManyRequests { .. }
                | Failure::Unavailable { .. }
                | Failure::Timeout { .. }
                | Failure::NoAnswer(_)
        )
    }

    /// The pause that the server asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Failure::TooManyRequests { retry_after, .. } | Failure::Unavailable { retry_after, .. } => {
                *retry_after
            }
            _ => None,
        }
    }

    /// Whether the object is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Failure::NotFound { .. })
    }

    /// Whether the server no longer has the version that was asked for (410).
    pub fn is_gone(&self) -> bool {
        matches!(self, Failure::Refused { code: 410, .. })
    }

    /// Whether somebody else changed the object or owns the field.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Failure::Conflict { .. })
    }

    /// A word for logs and metric labels, with few values.
    pub fn reason(&self) -> &'static str {
        match self {
            Failure::NotFound { .. } => "not_found",
            Failure::AlreadyExists { .. } => "already_exists",
            Failure::Conflict { .. } => "conflict",
            Failure::Invalid { .. } => "invalid",
            Failure::Unauthenticated { .. } => "unauthenticated",
            Failure::Forbidden { .. } => "forbidden",
            Failure::TooManyRequests { .. } => "too_many_requests",
            Failure::Unavailable { .. } => "unavailable",
            Failure::Refused { .. } => "refused",
            Failure::Timeout { .. } => "timeout",
            Failure::NoAnswer(_) => "no_answer",
            Failure::Malformed(_) => "malformed",
            Failure::NotSent(_) => "not_sent",
            Failure::Unwritable(_) => "unwritable",
        }
    }
}

/// The client's own limit, which arrives as an error of its transport.
fn timed_out(error: &kube::Error) -> Option<Duration> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(timeout) = error.downcast_ref::<crate::transport::NoAnswerInTime>() {
            return Some(timeout.limit);
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kube::core::response::StatusDetails;

    use super::*;

    fn status(code: u16, reason: &str, retry_after_seconds: u32) -> Status {
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds,
        };
        Status::failure("words of the server", reason).with_code(code).with_details(details)
    }

    #[test]
    fn answers_are_read_by_code() {
        for (code, reason, word, transient) in [
            (404, "NotFound", "not_found", false),
            (409, "AlreadyExists", "already_exists", false),
            (409, "Conflict", "conflict", false),
            (400, "BadRequest", "invalid", false),
            (422, "Invalid", "invalid", false),
            (401, "Unauthorized", "unauthenticated", false),
            (403, "Forbidden", "forbidden", false),
            (429, "TooManyRequests", "too_many_requests", true),
            (500, "InternalError", "unavailable", true),
            (503, "ServiceUnavailable", "unavailable", true),
            (410, "Expired", "refused", false),
        ] {
            let failure = Failure::of(kube::Error::Api(Box::new(status(code, reason, 0))));
            assert_eq!(failure.reason(), word, "{code} {reason}");
            assert_eq!(failure.is_transient(), transient, "{code} {reason}");
        }
    }

    #[test]
    fn the_pause_the_server_asks_for_is_kept() {
        let pause = |code, seconds| Failure::of_status(&status(code, "", seconds)).retry_after();
        assert_eq!(pause(429, 3), Some(Duration::from_secs(3)));
        assert_eq!(pause(503, 1), Some(Duration::from_secs(1)));
        assert_eq!(pause(429, 0), None);
        assert_eq!(pause(409, 3), None);
    }

    #[test]
    fn texts_name_verb_object_and_cause_once() {
        let error = ApiError {
            verb: Verb::Patch,
            object: "nodemetrics.slo.koordinator.sh node-1".into(),
            failure: Failure::of_status(&status(409, "Conflict", 0)),
        };
        assert_eq!(
            koord_runtime::error_chain::Chain(&error).to_string(),
            "cannot patch nodemetrics.slo.koordinator.sh node-1: conflict: words of the server"
        );
    }
}
