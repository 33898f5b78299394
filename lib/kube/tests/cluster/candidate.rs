//! One candidate of an election. Prints who leads as it changes; SIGTERM gives the lease back.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use koord_kube::election::{Election, Leadership, Timing};
use koord_runtime::CancellationToken;

use crate::bed::Bed;

/// Short, so that the test is.
const TIMING: Timing = Timing {
    lease: Duration::from_secs(4),
    renew_deadline: Duration::from_secs(3),
    retry: Duration::from_millis(500),
};

/// Stands until SIGTERM.
pub(crate) async fn run(kubeconfig: PathBuf, name: &str) -> ExitCode {
    let (client, _requests) = Bed::new(kubeconfig).client(None).await;
    let election = Election::new(&client, "default", "koord-test", name, TIMING).unwrap();
    let mut leadership = election.subscribe();
    let token = CancellationToken::new();
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
    let print = async {
        loop {
            let line = match &*leadership.borrow_and_update() {
                Leadership::Unknown => "unknown".to_owned(),
                Leadership::Follower { leader } => format!("follows {leader}"),
                Leadership::Leader { term } => format!("leads {term}"),
            };
            println!("{line}");
            std::io::stdout().flush().unwrap();
            if leadership.changed().await.is_err() {
                return;
            }
        }
    };
    let stop = async {
        terminate.recv().await;
        token.cancel();
    };
    tokio::select! {
        () = election.run(token.clone()) => {}
        ((), ()) = async { tokio::join!(print, stop) } => {}
    }
    println!("ended");
    ExitCode::SUCCESS
}
