//! The signals a program of the product understands.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessSignal {
    /// SIGTERM: end in order.
    Terminate,
    /// SIGINT: end in order (a terminal's Ctrl-C).
    Interrupt,
    /// SIGHUP: reload.
    Reload,
    /// SIGUSR1: switch between the configured log level and debug.
    ToggleLogLevel,
}

impl ProcessSignal {
    /// True if it asks the process to end.
    pub fn ends_process(self) -> bool {
        matches!(self, ProcessSignal::Terminate | ProcessSignal::Interrupt)
    }
}

/// Receives signals from the moment it is created.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    user: Signal,
}

impl Signals {
    /// Takes the signals over. Call it before anything that takes time, so that none is lost to the
    /// default action. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The operating system refused a handler.
    pub fn install() -> std::io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined1())?,
        })
    }

    /// Waits for the next signal. Signals of one kind that arrive before the last was taken are one.
    pub async fn next(&mut self) -> ProcessSignal {
        tokio::select! {
            Some(()) = self.terminate.recv() => ProcessSignal::Terminate,
            Some(()) = self.interrupt.recv() => ProcessSignal::Interrupt,
            Some(()) = self.hangup.recv() => ProcessSignal::Reload,
            Some(()) = self.user.recv() => ProcessSignal::ToggleLogLevel,
            // tokio keeps its signal streams open for the life of the process.
            else => std::future::pending().await,
        }
    }

    /// Waits for the next signal that asks the process to end.
    pub async fn next_end(&mut self) -> ProcessSignal {
        loop {
            let signal = self.next().await;
            if signal.ends_process() {
                return signal;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Signal as Number, getpid, kill_process};

    #[tokio::test]
    async fn each_signal_is_told_apart() {
        let mut signals = Signals::install().expect("handlers are accepted");
        for (number, expected) in [
            (Number::USR1, ProcessSignal::ToggleLogLevel),
            (Number::HUP, ProcessSignal::Reload),
            (Number::TERM, ProcessSignal::Terminate),
            (Number::INT, ProcessSignal::Interrupt),
        ] {
            kill_process(getpid(), number).expect("own process");
            assert_eq!(signals.next().await, expected);
        }
        kill_process(getpid(), Number::HUP).expect("own process");
        kill_process(getpid(), Number::TERM).expect("own process");
        assert_eq!(signals.next_end().await, ProcessSignal::Terminate);
        assert!(!ProcessSignal::Reload.ends_process());
    }
}
