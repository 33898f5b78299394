//! Where samples come from: the proxy's stream, or the agent's own sampler.

use std::time::Duration;

use koord_usage::time::Tick;
use koord_usage::wire::Reader;

/// How long the stream must flow again before it is relied on.
pub const RELIED_ON_AFTER: Duration = Duration::from_secs(10);

/// Where samples come from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The start: the stream may still come.
    Waiting,
    /// The proxy's stream.
    Proxy,
    /// The agent's own sampler.
    Own,
}

impl Source {
    /// A word for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Source::Waiting => "waiting",
            Source::Proxy => "proxy",
            Source::Own => "own",
        }
    }
}

/// Chooses the source. After a silence of more than [`Reader::GAP`] the agent samples by itself, until the stream has
/// flowed for [`RELIED_ON_AFTER`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    current: Source,
    started: Tick,
    /// The last pass of the stream.
    heard: Option<Tick>,
    /// Since when it has flowed without a gap.
    flows_since: Option<Tick>,
}

impl Choice {
    /// At the start. Without a proxy there is nothing to wait for.
    pub fn new(may_have_proxy: bool, now: Tick) -> Choice {
        let current = if may_have_proxy { Source::Waiting } else { Source::Own };
        Choice { current, started: now, heard: None, flows_since: None }
    }

    /// A pass came.
    pub fn pass(&mut self, now: Tick) {
        let flowed =
            self.flows_since.is_some() && self.heard.is_some_and(|heard| now.since(heard) <= Reader::GAP);
        if !flowed {
            self.flows_since = Some(now);
        }
        self.heard = Some(now);
    }

    /// The stream ended. It may come again before anybody misses it.
    pub fn lost(&mut self) {
        self.flows_since = None;
    }

    /// There is no socket to connect to: nothing is worth waiting for.
    pub fn absent(&mut self) {
        self.lost();
        if self.current == Source::Waiting {
            self.current = Source::Own;
        }
    }

    /// The source at `now`.
    pub fn at(&mut self, now: Tick) -> Source {
        let is_heard = self.heard.is_some_and(|heard| now.since(heard) <= Reader::GAP);
        let next = match self.current {
            Source::Waiting if is_heard => Source::Proxy,
            Source::Waiting if now.since(self.started) > Reader::GAP => Source::Own,
            Source::Proxy if !is_heard => Source::Own,
            Source::Own
                if is_heard && self.flows_since.is_some_and(|since| now.since(since) >= RELIED_ON_AFTER) =>
            {
                Source::Proxy
            }
            current => current,
        };
        if next != self.current {
            tracing::info!(from = self.current.as_str(), to = next.as_str(), "samples come from elsewhere");
            self.current = next;
        }
        next
    }

    /// The source as of the last question.
    pub fn current(&self) -> Source {
        self.current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many seconds and milliseconds after boot.
    fn at(seconds: u64, milliseconds: u64) -> Tick {
        Tick(seconds * 1000 + milliseconds)
    }

    #[test]
    fn without_a_proxy_it_samples_at_once() {
        assert_eq!(Choice::new(false, at(5, 0)).at(at(5, 0)), Source::Own);
        let mut absent = Choice::new(true, at(5, 0));
        absent.absent();
        assert_eq!(absent.at(at(5, 0)), Source::Own);
    }

    #[test]
    fn at_the_start_it_waits_for_the_stream_a_little() {
        let mut choice = Choice::new(true, at(5, 0));
        assert_eq!(choice.at(at(8, 0)), Source::Waiting);
        assert_eq!(choice.at(at(8, 1)), Source::Own);
        let mut choice = Choice::new(true, at(5, 0));
        choice.pass(at(6, 0));
        assert_eq!(choice.at(at(6, 0)), Source::Proxy);
    }

    #[test]
    fn a_gap_of_three_seconds_and_ten_seconds_back() {
        let mut choice = Choice::new(true, at(0, 0));
        choice.pass(at(1, 0));
        assert_eq!(choice.at(at(4, 0)), Source::Proxy, "exactly three seconds are no gap");
        assert_eq!(choice.at(at(4, 1)), Source::Own);
        for second in 10..20 {
            choice.pass(at(second, 0));
            assert_eq!(choice.at(at(second, 0)), Source::Own, "{second}");
        }
        choice.pass(at(20, 0));
        assert_eq!(choice.at(at(20, 0)), Source::Proxy);
    }

    #[test]
    fn another_gap_begins_the_ten_seconds_anew() {
        let mut choice = Choice::new(false, at(0, 0));
        for second in
            [1000, 2000, 3000, 4000, 5000, 6000, 7000, 10_500, 11_000, 13_000, 15_000, 17_000, 19_000]
        {
            choice.pass(Tick(second));
            assert_eq!(choice.at(Tick(second)), Source::Own, "{second}");
        }
        choice.pass(at(20, 500));
        assert_eq!(choice.at(at(20, 500)), Source::Proxy);
    }

    #[test]
    fn a_stream_that_is_back_at_once_is_not_missed() {
        let mut choice = Choice::new(true, at(0, 0));
        choice.pass(at(1, 0));
        assert_eq!(choice.at(at(1, 0)), Source::Proxy);
        choice.lost();
        assert_eq!(choice.at(at(3, 0)), Source::Proxy);
        choice.pass(at(3, 500));
        assert_eq!(choice.at(at(6, 0)), Source::Proxy);
    }
}
