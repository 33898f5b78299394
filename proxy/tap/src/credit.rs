//! Flow-control credit of a relay that may hold, shrink, grow or drop a client's DATA (RFC 9113, section 5.2).
//!
//! A byte relay needs none of this: what the client sends is what the runtime receives, and every WINDOW_UPDATE of the
//! runtime is the client's. As soon as DATA is held back or changed, the two sides count differently. [`Level`] keeps
//! both counts for one flow-control level, the connection's or a stream's, and says what to grant and what to swallow.
//!
//! Invariants, for every order of events:
//! - `to_backend` never becomes negative by what the relay sends (only a smaller SETTINGS value may do that);
//! - the client never gets credit beyond `to_backend` while the relay holds its data ([`Level::grant`]);
//! - once nothing is held or queued, both counts are equal, or the client's is larger by a debt that later updates of the
//!   runtime repay.

/// Both sides' view of one window. All counts are octets of flow-controlled payload (padding included).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// What may still be sent to the runtime.
    pub to_backend: i64,
    /// What the client believes it may still send.
    pub client: i64,
    /// What the relay holds: received from the client, not yet sent on.
    pub queued: i64,
}

impl Level {
    /// A level on which both sides start with `window` octets.
    pub fn new(window: i64) -> Self {
        Self { to_backend: window, client: window, queued: 0 }
    }

    /// The client sent `octets` that pass at once.
    pub fn pass(&mut self, octets: i64) {
        self.client -= octets;
        self.to_backend -= octets;
    }

    /// The client sent `octets` that the relay keeps.
    pub fn keep(&mut self, octets: i64) {
        self.client -= octets;
        self.queued += octets;
    }

    /// `octets` of what the relay keeps become `changed` octets (an edited message, dropped padding, a reset stream).
    pub fn change(&mut self, octets: i64, changed: i64) {
        self.queued += changed - octets;
    }

    /// `octets` of what the relay keeps are sent on.
    pub fn send(&mut self, octets: i64) {
        self.queued -= octets;
        self.to_backend -= octets;
    }

    /// The runtime allows `octets` more.
    pub fn update(&mut self, octets: i64) {
        self.to_backend += octets;
    }

    /// What is the client's by right and it does not know of yet; it is given this. Called after every event.
    pub fn settle(&mut self) -> i64 {
        let surplus = (self.to_backend - self.queued - self.client).max(0);
        self.client += surplus;
        surplus
    }

    /// Credit lent to the client so that the rest of a held message can arrive: up to what the runtime would accept now,
    /// and only when the client has less than half of that left.
    pub fn grant(&mut self) -> i64 {
        if self.client * 2 >= self.to_backend {
            return 0;
        }
        let grant = self.to_backend - self.client;
        self.client = self.to_backend;
        grant
    }

    /// What the client may send beyond what the runtime accepts.
    pub fn debt(&self) -> i64 {
        (self.client + self.queued - self.to_backend).max(0)
    }
}

/// The stream window that the runtime announces in SETTINGS: when which value counts for whom.
///
/// The client uses a value once it has read it, which it tells by its acknowledgement. The relay may use the smallest of
/// the acknowledged value and all announced ones: a smaller value binds from its announcement, a larger one only once
/// the client's acknowledgement has reached the runtime.
#[derive(Clone, Debug)]
pub struct InitialWindow {
    /// What the client uses.
    client: i64,
    /// What the runtime knows to be in use: acknowledgements passed on.
    acknowledged: i64,
    /// Announced and not acknowledged by the client, oldest first; `None` where SETTINGS did not name the window.
    announced: std::collections::VecDeque<Option<i64>>,
    /// Acknowledged by the client, the acknowledgement not yet passed on.
    in_hand: std::collections::VecDeque<Option<i64>>,
}

impl Default for InitialWindow {
    fn default() -> Self {
        let window = crate::frame::DEFAULT_WINDOW;
        Self {
            client: window,
            acknowledged: window,
            announced: Default::default(),
            in_hand: Default::default(),
        }
    }
}

impl InitialWindow {
    /// The runtime's SETTINGS pass to the client.
    pub fn announce(&mut self, window: Option<i64>) {
        self.announced.push_back(window);
    }

    /// The client's acknowledgement was read.
    pub fn acknowledge(&mut self) {
        if let Some(window) = self.announced.pop_front() {
            self.client = window.unwrap_or(self.client);
            self.in_hand.push_back(window);
        }
    }

    /// The client's acknowledgement was passed on.
    pub fn acknowledgement_passed(&mut self) {
        if let Some(window) = self.in_hand.pop_front() {
            self.acknowledged = window.unwrap_or(self.acknowledged);
        }
    }

    /// What the client counts with.
    pub fn client(&self) -> i64 {
        self.client
    }

    /// What the relay may count with towards the runtime.
    pub fn usable(&self) -> i64 {
        let pending = self.in_hand.iter().chain(&self.announced).flatten();
        pending.copied().fold(self.acknowledged, i64::min)
    }

    /// SETTINGS of the runtime that the client has not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.announced.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_held_message_larger_than_the_window_is_let_in_by_grants_and_repaid() {
        let mut level = Level::new(100);
        level.keep(60);
        assert_eq!(level.grant(), 60); // 40 left is less than half of 100
        assert_eq!(level, Level { to_backend: 100, client: 100, queued: 60 });
        level.keep(50);
        assert_eq!(level.grant(), 0); // exactly half is left
        assert_eq!(level.settle(), 0);
        assert_eq!(level.debt(), 60);
        level.send(100);
        level.update(100);
        assert_eq!(level.settle(), 40); // 10 still queued and 50 with the client: of 100 new octets 60 are swallowed
        level.send(10);
        level.update(10);
        assert_eq!(level.settle(), 10);
        assert_eq!(level, Level { to_backend: 100, client: 100, queued: 0 });
    }

    #[test]
    fn a_shrunk_message_gives_the_difference_back_and_a_grown_one_swallows_updates() {
        let mut level = Level::new(1000);
        level.keep(600);
        level.change(600, 100);
        assert_eq!(level.settle(), 500);
        level.send(100);
        assert_eq!(level.settle(), 0);
        let mut level = Level::new(1000);
        level.keep(600);
        level.change(600, 700);
        assert_eq!((level.settle(), level.debt()), (0, 100));
        level.send(700);
        level.update(700);
        assert_eq!((level.settle(), level.debt()), (600, 0));
    }

    #[test]
    fn the_smallest_unacknowledged_window_binds() {
        let mut window = InitialWindow::default();
        window.announce(Some(3000));
        window.announce(Some(50));
        assert_eq!((window.client(), window.usable()), (65_535, 50));
        window.acknowledge();
        assert_eq!((window.client(), window.usable()), (3000, 50));
        window.acknowledge();
        window.acknowledgement_passed();
        assert_eq!((window.client(), window.usable()), (50, 50));
        window.announce(None);
        window.announce(Some(9000));
        window.acknowledge();
        window.acknowledge();
        assert_eq!((window.client(), window.usable()), (9000, 50));
        window.acknowledgement_passed();
        window.acknowledgement_passed();
        assert_eq!((window.usable(), window.unacknowledged()), (50, 0));
        window.acknowledgement_passed();
        assert_eq!((window.client(), window.usable()), (9000, 9000));
    }

    proptest! {
        /// Whatever happens, no side ever has more than it was given, and an idle level ends where it began.
        #[test]
        fn credit_is_conserved(window in 1i64..100_000, steps in prop::collection::vec((0u8..5, 1i64..70_000), 0..80)) {
            let mut level = Level::new(window);
            let (mut sent, mut allowed) = (0, window); // the runtime's own books
            let mut client_view = window; // the client's own books
            for (step, amount) in steps {
                match step {
                    0 => { let n = amount.min(client_view).min(level.to_backend); if n > 0 && level.queued == 0 { level.pass(n); client_view -= n; sent += n; } }
                    1 => { let n = amount.min(client_view); if n > 0 { level.keep(n); client_view -= n; } }
                    2 => { let n = amount.min(level.queued).min(level.to_backend); if n > 0 { level.send(n); sent += n; } }
                    3 => { let n = amount.min(level.queued); level.change(n, amount % 90_000); }
                    _ => { let n = amount.min(sent + window - allowed); if n > 0 { level.update(n); allowed += n; } }
                }
                client_view += level.settle();
                if level.queued > 0 { client_view += level.grant(); }
                prop_assert!(sent <= allowed);
                prop_assert_eq!(client_view, level.client);
                prop_assert!(level.to_backend - level.queued - level.client <= 0);
            }
            // Everything flows off and the runtime reads it all.
            for _ in 0..10_000_000 {
                let n = level.queued.min(level.to_backend);
                level.send(n); sent += n;
                let n = sent + window - allowed;
                level.update(n); allowed += n;
                level.settle();
                if level.queued == 0 && n == 0 { break; }
            }
            prop_assert_eq!(level, Level { to_backend: window, client: window, queued: 0 });
        }
    }
}
