//! `koordctl top`.

pub mod figures;
pub mod screen;
mod stream;

use std::time::Duration;

use koord_runtime::error_chain::Chain;
use koord_usage::wire::{Event, Origin};

use crate::arguments::{Format, Refresh, TopAction};
use crate::client::ClientError;
use crate::outcome::{Failure, Outcome};
use crate::surroundings::Session;
use figures::Figures;
use stream::Stream;

/// The span of the averages.
pub const AVERAGED: Duration = Duration::from_secs(60);

/// Passes to wait for, when the sampling has just begun, until there are rates.
const FIRST_PASSES: u32 = 3;

/// Pause before a stream that broke is asked for again.
const AGAIN: Duration = Duration::from_secs(1);

/// Puts the cursor to the first place; lines that are too long are cut until a frame is done.
const BEGIN: &str = "\u{1b}[H\u{1b}[?7l";
const END: &str = "\u{1b}[J\u{1b}[?7h";
const CLEAR: &str = "\u{1b}[2J";
const END_OF_LINE: &str = "\u{1b}[K";

/// Shows usage.
///
/// # Errors
/// The proxy does not answer or does not sample, or the output cannot be written.
pub fn run(action: &TopAction, session: &mut Session<'_, '_>) -> Result<Outcome, Failure> {
    let refresh = match action {
        TopAction::Node { refresh } | TopAction::Qos { refresh } => refresh,
        TopAction::Pods(pods) => &pods.refresh,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|source| {
        ClientError::Request { request: stream::REQUEST.to_owned(), source: source.into() }
    })?;
    runtime.block_on(async {
        match live(*refresh, session) {
            Some(height) => follow(action, session, height).await,
            None => once(action, session).await,
        }
    })?;
    Ok(Outcome::Success)
}

/// The height of the screen to draw on again and again.
fn live(refresh: Refresh, session: &Session<'_, '_>) -> Option<usize> {
    let for_people = matches!(session.format, Format::Table | Format::Wide);
    session.surroundings.terminal.height.filter(|_| for_people && !refresh.once)
}

async fn once(action: &TopAction, session: &mut Session<'_, '_>) -> Result<(), Failure> {
    let figures = tokio::time::timeout(session.client.limit(), async {
        let mut stream = Stream::open(&session.client).await?;
        first(&mut stream).await
    })
    .await
    .unwrap_or_else(|_elapsed| {
        Err(ClientError::Timeout {
            socket: session.client.socket().to_owned(),
            request: stream::REQUEST.to_owned(),
            limit: session.client.limit(),
        })
    })?;
    show(action, &figures, session)
}

/// The figures of the first pass that has rates.
async fn first(stream: &mut Stream) -> Result<Figures, ClientError> {
    let mut figures = Figures::default();
    let mut passes = 0;
    loop {
        let event = stream.next().await?;
        let is_live = matches!(event, Event::Pass(_, Origin::Live));
        figures.take(event, stream.reader());
        if is_live {
            passes += 1;
            if figures.has_rates() || passes >= FIRST_PASSES {
                return Ok(figures);
            }
        }
    }
}

fn show(action: &TopAction, figures: &Figures, session: &mut Session<'_, '_>) -> Result<(), Failure> {
    match action {
        TopAction::Node { .. } => {
            let node = figures.node();
            session.print(&node, |session| screen::node(&node, session))
        }
        TopAction::Pods(options) => {
            let pods = figures.pods(options);
            session.print(&pods, |session| screen::pods(&pods, options, figures.cpus(), session))
        }
        TopAction::Qos { .. } => {
            let classes = figures.qos();
            session.print(&classes, |session| screen::qos(&classes, figures.cpus(), session))
        }
    }
}

/// Draws each pass until somebody interrupts. A proxy that goes is waited for.
async fn follow(action: &TopAction, session: &mut Session<'_, '_>, height: usize) -> Result<(), Failure> {
    let mut begun = false;
    loop {
        match follow_stream(action, session, height, &mut begun).await {
            Err(Failure::Client(error)) if begun => {
                draw(&format!("waiting for the proxy: {}\n", Chain(&error)), session, height)?;
                tokio::time::sleep(AGAIN).await;
            }
            other => return other,
        }
    }
}

async fn follow_stream(
    action: &TopAction,
    session: &mut Session<'_, '_>,
    height: usize,
    begun: &mut bool,
) -> Result<(), Failure> {
    let opening = tokio::time::timeout(session.client.limit(), Stream::open(&session.client));
    let mut stream = opening.await.unwrap_or_else(|_elapsed| {
        Err(ClientError::Timeout {
            socket: session.client.socket().to_owned(),
            request: stream::REQUEST.to_owned(),
            limit: session.client.limit(),
        })
    })?;
    let mut figures = Figures::default();
    loop {
        let event = stream.next().await?;
        let is_live = matches!(event, Event::Pass(_, Origin::Live));
        figures.take(event, stream.reader());
        if !is_live {
            continue;
        }
        if !*begun {
            write(CLEAR, session)?;
            *begun = true;
        }
        let text = match action {
            TopAction::Node { .. } => screen::node(&figures.node(), session),
            TopAction::Pods(options) => {
                screen::pods(&figures.pods(options), options, figures.cpus(), session)
            }
            TopAction::Qos { .. } => screen::qos(&figures.qos(), figures.cpus(), session),
        };
        draw(&text, session, height)?;
    }
}

/// Draws over what was there; lines that the screen has no room for are left out.
fn draw(text: &str, session: &mut Session<'_, '_>, height: usize) -> Result<(), Failure> {
    let mut frame = String::from(BEGIN);
    // A line end after the last line would scroll.
    let lines: Vec<&str> = text.lines().take(height.saturating_sub(1)).collect();
    for line in lines {
        frame.push_str(line);
        frame.push_str(END_OF_LINE);
        frame.push_str("\r\n");
    }
    frame.push_str(END);
    write(&frame, session)
}

fn write(text: &str, session: &mut Session<'_, '_>) -> Result<(), Failure> {
    let output = &mut session.surroundings.output;
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(Failure::Output)
}
