//! The help text.

use std::fmt::Write as _;

use koord_runtime::command_line::Flag as _;

use super::AgentMode;
use super::table::{FLAGS, Group, Kind};

pub(super) fn text() -> String {
    let mut text = String::from(
        "koordlet: measures a node, predicts its usage and reports to Kubernetes\n\
         \n\
         Usage:\n  \
           koordlet [FLAGS]                          run the agent; the environment names the node: NODE_NAME\n  \
           koordlet validate [FLAGS]                 check the flags, then end\n  \
           koordlet metrics dump [--explain] [OBJECT]  print the latest samples and the report of this moment\n",
    );
    for group in Group::ALL {
        // Writing to a String cannot fail, here and below.
        let _infallible = writeln!(text, "\n{}:", group.heading());
        for flag in FLAGS.iter().filter(|flag| flag.group == group) {
            let _infallible = match flag.kind {
                Kind::Switch => writeln!(text, "  --{}", flag.name),
                kind => writeln!(text, "  --{} {}", flag.name, kind.word()),
            };
            let _infallible = writeln!(text, "        {}", flag.meaning);
            if group == Group::Ignored {
                continue;
            }
            let shown = |mode| match flag.default(mode) {
                "" => "nothing".to_owned(),
                default => default.to_owned(),
            };
            let (in_container, on_host) = (shown(AgentMode::Container), shown(AgentMode::Host));
            let _infallible = if in_container == on_host {
                writeln!(text, "        accepted: {}; default: {in_container}", flag.accepted())
            } else {
                writeln!(
                    text,
                    "        accepted: {}; default: {in_container}, on the host {on_host}",
                    flag.accepted()
                )
            };
        }
    }
    text.push_str(
        "\nSignals: SIGTERM and SIGINT end in order (twice: at once), SIGUSR1 switches debug output on and off.\n\
         Exit codes: 0 ended as asked, 1 failed while running, 2 wrong command line or no NODE_NAME.\n",
    );
    text
}
