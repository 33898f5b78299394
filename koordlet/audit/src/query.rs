//! The HTTP interface of the audit log, `GET /events?size=&pageToken=&format=`, as functions.

use std::borrow::Cow;

use serde::Serialize;

use crate::event::Event;

/// Records of a page unless a size is asked for.
pub const DEFAULT_SIZE: usize = 256;

/// The header that names the next page where the body has no place for it.
pub const NEXT_PAGE_HEADER: &str = "Next-Page-Token";

/// How a page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One object `{"NextPageToken", "Events"}`.
    Json,
    /// One line of JSON for each record, called plain text.
    Text,
    /// The same lines under their own name.
    JsonLines,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Most records of the page.
    pub size: usize,
    /// Where to go on; none begins with the newest record.
    pub token: Option<String>,
    /// How the page is written.
    pub format: Format,
}

/// Why there is no page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The size is beyond the limit: 400.
    #[error("size {size} exceeds the limit {limit}")]
    TooLarge {
        /// What was asked for.
        size: i64,
        /// The limit.
        limit: usize,
    },
    /// The size is below zero: 400.
    #[error("size {0} is negative; wanted 0 or more")]
    Negative(i64),
    /// The format has an unknown name: 400.
    #[error("format {0:?} is unknown; wanted json, text or ndjson")]
    Format(String),
    /// The token was never given out, has expired or gave way to others: 409.
    #[error("page token {0:?} is unknown or has expired; begin without one")]
    Token(String),
    /// The log cannot be read: 500.
    #[error("the audit log cannot be read: {0}")]
    Unreadable(String),
}

impl Refusal {
    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Refusal::TooLarge { .. } | Refusal::Negative(_) | Refusal::Format(_) => 400,
            Refusal::Token(_) => 409,
            Refusal::Unreadable(_) => 500,
        }
    }

    /// The answer.
    pub fn reply(&self) -> Reply {
        Reply {
            status: self.status(),
            content_type: "text/plain; charset=utf-8",
            next_page_token: None,
            body: format!("{self}\n"),
        }
    }
}

/// Some records and where the next ones are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Newest first.
    pub events: Vec<Event>,
    /// None at the end of the log.
    pub next_token: Option<String>,
}

/// An HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// `Next-Page-Token`, if the header is to be there.
    pub next_page_token: Option<String>,
    /// The body.
    pub body: String,
}

impl Request {
    /// Reads a query (the part of the URL after `?`) and the values of the `Accept` headers.
    ///
    /// Of a parameter that is there twice the first counts, and pairs with broken escapes do not, as in Go. A size that
    /// is no number is the default one. JSON is what `Accept: application/json` asks for, with or without parameters, but
    /// not as one of several types; the parameter `format` wins over the header.
    pub fn parse(query: Option<&str>, accept: &[&str], limit: usize) -> Result<Request, Refusal> {
        let parameters = Parameters::of(query.unwrap_or_default());
        let size = match parameters.get("size").and_then(integer) {
            None => DEFAULT_SIZE.min(limit),
            Some(size) if size < 0 => return Err(Refusal::Negative(size)),
            Some(size) => match usize::try_from(size) {
                Ok(count) if count <= limit => count,
                _ => return Err(Refusal::TooLarge { size, limit }),
            },
        };
        let format = match parameters.get("format") {
            None | Some("") => of_accept(accept),
            Some("json") => Format::Json,
            Some("text") => Format::Text,
            Some("ndjson") => Format::JsonLines,
            Some(other) => return Err(Refusal::Format(other.chars().take(40).collect())),
        };
        let token = parameters.get("pageToken").filter(|token| !token.is_empty());
        Ok(Request { size, token: token.map(str::to_owned), format })
    }
}

fn of_accept(accept: &[&str]) -> Format {
    let is = |wanted: &str| {
        accept.iter().any(|value| {
            let (kind, parameters) = value.split_once(';').unwrap_or((value, ""));
            kind.trim() == wanted && !parameters.contains(',')
        })
    };
    if is("application/json") {
        Format::Json
    } else if is("application/x-ndjson") {
        Format::JsonLines
    } else {
        Format::Text
    }
}

/// A decimal number with an optional sign, as Go's `Atoi` reads it; none if it is no number or does not fit.
fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// Writes a page.
pub fn reply(page: &Page, format: Format) -> Reply {
    let lines = || {
        let mut text = String::new();
        for event in &page.events {
            text.push_str(&event.to_line());
            text.push('\n');
        }
        text
    };
    let (content_type, body, next_page_token) = match format {
        Format::Json => ("application/json; charset=utf-8", object(page), None),
        Format::Text => ("text/plain; charset=utf-8", lines(), page.next_token.clone()),
        Format::JsonLines => ("application/x-ndjson", lines(), page.next_token.clone()),
    };
    Reply { status: 200, content_type, next_page_token, body }
}

fn object(page: &Page) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "PascalCase")]
    struct Object<'a> {
        next_page_token: &'a str,
        events: &'a [Event],
    }
    let object =
        Object { next_page_token: page.next_token.as_deref().unwrap_or_default(), events: &page.events };
    // Texts are always representable.
    serde_json::to_string(&object).unwrap_or_default()
}

/// Parameters of a query in their order.
struct Parameters<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Parameters<'a> {
    fn of(query: &'a str) -> Parameters<'a> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        let decoded = pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((unescaped(name)?, unescaped(value)?))
        });
        Parameters(decoded.collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_ref())
    }
}

/// A part of a query without its escapes; none if one is broken or the octets are no text.
fn unescaped(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains(['%', '+']) {
        return Some(Cow::Borrowed(text));
    }
    let mut octets = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(octet) = rest.next() {
        octets.push(match octet {
            b'+' => b' ',
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(octets).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests;
