use proptest::prelude::*;

use super::*;
use crate::event::Subject;

fn parsed(query: &str, accept: &[&str]) -> Result<Request, Refusal> {
    Request::parse(Some(query), accept, 2048)
}

fn size(query: &str) -> Result<usize, u16> {
    parsed(query, &[]).map(|request| request.size).map_err(|refusal| refusal.status())
}

#[test]
fn sizes() {
    for (query, wanted) in [
        ("", Ok(256)),
        ("size=", Ok(256)),
        ("size=abc", Ok(256)),
        ("size=1e3", Ok(256)),
        // Beyond 64 bits it is no number.
        ("size=99999999999999999999", Ok(256)),
        ("size=0", Ok(0)),
        ("size=1", Ok(1)),
        ("size=%2B7", Ok(7)),
        ("size=2048", Ok(2048)),
        ("size=2049", Err(400)),
        ("size=9223372036854775807", Err(400)),
        ("size=-1", Err(400)),
        ("size=-0", Ok(0)),
        ("size=5&size=-1", Ok(5)),
    ] {
        assert_eq!(size(query), wanted, "{query}");
    }
    assert_eq!(Request::parse(None, &[], 2048).map(|request| request.size), Ok(256));
    assert_eq!(Request::parse(None, &[], 100).map(|request| request.size), Ok(100));
    assert_eq!(
        parsed("size=2049", &[]).map_err(|refusal| refusal.reply()),
        Err(Reply {
            status: 400,
            content_type: "text/plain; charset=utf-8",
            next_page_token: None,
            body: "size 2049 exceeds the limit 2048\n".to_owned(),
        })
    );
}

#[test]
fn tokens() {
    let token = |query| parsed(query, &[]).expect("a request").token;
    assert_eq!(token(""), None);
    assert_eq!(token("pageToken="), None);
    assert_eq!(token("pageToken=a-b"), Some("a-b".to_owned()));
    assert_eq!(token("size=3&pageToken=a%20b+c"), Some("a b c".to_owned()));
    assert_eq!(token("pagetoken=a"), None);
    // A broken escape, an octet that is no text, and a semicolon make a pair that does not count.
    assert_eq!(token("pageToken=a%2"), None);
    assert_eq!(token("pageToken=%ff"), None);
    assert_eq!(token("pageToken=a;b&pageToken=c"), Some("c".to_owned()));
    assert_eq!(Refusal::Token("x".to_owned()).status(), 409);
}

#[test]
fn formats() {
    let format = |query, accept: &[&str]| parsed(query, accept).map(|request| request.format);
    assert_eq!(format("", &[]), Ok(Format::Text));
    assert_eq!(format("", &["application/json"]), Ok(Format::Json));
    assert_eq!(format("", &["text/html", "application/json"]), Ok(Format::Json));
    assert_eq!(format("", &["application/json; charset=utf-8"]), Ok(Format::Json));
    assert_eq!(format("", &["application/json;q=0.9"]), Ok(Format::Json));
    assert_eq!(format("", &["application/x-ndjson"]), Ok(Format::JsonLines));
    for accept in [
        "*/*",
        "text/plain",
        "application/json, text/plain",
        "application/json;q=0.5,text/plain",
        "application/jsonx",
        "Application/JSON",
    ] {
        assert_eq!(format("", &[accept]), Ok(Format::Text), "{accept}");
    }
    assert_eq!(format("format=json", &["*/*"]), Ok(Format::Json));
    assert_eq!(format("format=ndjson", &["*/*"]), Ok(Format::JsonLines));
    assert_eq!(format("format=text", &["application/json"]), Ok(Format::Text));
    assert_eq!(format("format=", &["application/json"]), Ok(Format::Json));
    assert_eq!(format("format=yaml", &[]), Err(Refusal::Format("yaml".to_owned())));
    assert_eq!(Refusal::Format(String::new()).status(), 400);
}

fn page(next_token: Option<&str>) -> Page {
    let events = ["b", "a"].map(|name| Event::about(Subject::Group(name.to_owned())));
    Page { events: events.into(), next_token: next_token.map(str::to_owned) }
}

#[test]
fn pages_as_json() {
    let answer = reply(&page(Some("t")), Format::Json);
    assert_eq!(
        answer.body,
        r#"{"NextPageToken":"t","Events":[{"type":"group","name":"b"},{"type":"group","name":"a"}]}"#
    );
    assert_eq!((answer.status, answer.content_type), (200, "application/json; charset=utf-8"));
    assert_eq!(answer.next_page_token, None);
    let end = reply(&Page::default(), Format::Json);
    assert_eq!(end.body, r#"{"NextPageToken":"","Events":[]}"#);
}

#[test]
fn pages_as_lines() {
    let lines = "{\"type\":\"group\",\"name\":\"b\"}\n{\"type\":\"group\",\"name\":\"a\"}\n";
    let answer = reply(&page(Some("t")), Format::Text);
    assert_eq!((answer.status, answer.content_type), (200, "text/plain; charset=utf-8"));
    assert_eq!((answer.body.as_str(), answer.next_page_token.as_deref()), (lines, Some("t")));
    let answer = reply(&page(None), Format::JsonLines);
    assert_eq!((answer.content_type, answer.body.as_str()), ("application/x-ndjson", lines));
    assert_eq!(answer.next_page_token, None);
}

proptest! {
    #[test]
    fn any_query_is_a_request_or_a_refusal(query in "\\PC{0,80}", accept in "\\PC{0,40}") {
        match parsed(&query, &[&accept]) {
            Ok(request) => prop_assert!(request.size <= 2048),
            Err(refusal) => prop_assert_eq!(refusal.status(), 400),
        }
    }

    #[test]
    fn queries_with_our_names(
        size in "[-+]?[0-9]{0,21}", token in "[ -~]{0,20}", format in "(json|text|ndjson|x)?",
    ) {
        let query = format!("size={size}&pageToken={token}&format={format}");
        match parsed(&query, &[]) {
            Ok(request) => prop_assert!(request.size <= 2048 && format != "x"),
            Err(refusal) => prop_assert_eq!(refusal.status(), 400),
        }
    }

    #[test]
    fn an_escaped_token_comes_back(token in "\\PC{1,20}") {
        let escaped: String = token.bytes().map(|octet| format!("%{octet:02x}")).collect();
        let request = parsed(&format!("pageToken={escaped}"), &[]).expect("a request");
        prop_assert_eq!(request.token, Some(token));
    }
}
