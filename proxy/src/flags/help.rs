//! The help text.

use std::fmt::Write as _;

use super::table::{FLAGS, Group, Kind};

pub(super) fn text() -> String {
    let mut text = String::from(
        "koord-runtime-proxy: relays the CRI between kubelet and container runtime, and asks hook servers\n\
         \n\
         Usage:\n  \
           koord-runtime-proxy [FLAGS]                   run the proxy\n  \
           koord-runtime-proxy serve FILE [FLAGS]        run it with the flags of FILE too, read at each start and reload\n  \
           koord-runtime-proxy validate [FILE] [FLAGS]   check FILE of variables (such as\n      \
               /etc/default/koord-runtime-proxy), flags, node policy, registrations and plugins, then end\n",
    );
    for group in Group::ALL {
        // Writing to a String cannot fail, here and below.
        let _infallible = writeln!(text, "\n{}:", group.heading());
        for flag in FLAGS.iter().filter(|flag| flag.group == group) {
            let _infallible = match flag.kind {
                Kind::Value(word) => writeln!(text, "  --{} {word}", flag.name),
                Kind::Switch => writeln!(text, "  --{}", flag.name),
            };
            let _infallible = writeln!(text, "        {}", flag.meaning);
            if let Kind::Value(_) = flag.kind {
                let default = if flag.default.is_empty() { "nothing" } else { flag.default };
                let _infallible = writeln!(text, "        accepted: {}; default: {default}", flag.accepted);
            }
        }
    }
    text.push_str(
        "\nSignals: SIGTERM and SIGINT end in order (twice: at once), SIGHUP hands over to a new process,\n\
         SIGUSR1 switches debug output on and off.\n\
         Exit codes: 0 ended as asked, 1 failed while running, 2 wrong command line or files.\n",
    );
    text
}
