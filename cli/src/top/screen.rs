//! Figures as tables with bars.

use koord_admin::usage::{ContainerUsage, GroupUsage, NodeUsage, PodUsage, QosUsage, UsageFigures};

use crate::arguments::TopPods;
use crate::output::style::Tone;
use crate::output::table::{Cell, Table};
use crate::output::{counted, or_dash};
use crate::surroundings::Session;

/// Length of bars about the node, and of those about pods.
const LONG: usize = 20;
const SHORT: usize = 10;

/// The node.
pub fn node(node: &NodeUsage, session: &Session<'_, '_>) -> String {
    let mut text = String::from("node: ");
    let mut facts = Vec::new();
    facts.extend(node.cpus.map(|cpus| counted(cpus.into(), "CPU", "CPUs")));
    facts.extend(node.memory_capacity_bytes.map(|bytes| format!("{} memory", binary(Some(bytes)))));
    facts.push(counted(node.pod_count, "pod", "pods"));
    text.push_str(&facts.join(", "));
    text.push('\n');
    let mut table = Table::new(&["", "CPU", "", "CPU 1M", "MEMORY", "", "WITH CACHE"]);
    let numa = node.numa_nodes.iter().map(|numa| (format!("numa {}", numa.numa_node), &numa.figures));
    let parts = [("node", &node.node), ("pods", &node.pods), ("system", &node.system)];
    for (name, figures) in parts.map(|(name, figures)| (name.to_owned(), figures)).into_iter().chain(numa) {
        let memory = share(
            figures.memory_bytes.map(|bytes| bytes as f64),
            node.memory_capacity_bytes.map(|bytes| bytes as f64),
        );
        table.row(vec![
            name.into(),
            cores(figures.cpu_cores).into(),
            bar(share(figures.cpu_cores, node.cpus.map(f64::from)), LONG),
            cores(figures.cpu_cores_average_1m).into(),
            binary(figures.memory_bytes).into(),
            bar(memory, LONG),
            binary(figures.memory_with_page_cache_bytes).into(),
        ]);
    }
    text.push_str(&table.text(session.style, None));
    let troubled = node.collectors.iter().filter(|collector| collector.state == "failed");
    for collector in troubled {
        let line = format!("collector {} failed: {}", collector.name, collector.reason);
        text.push_str(&session.style.paint(Tone::Bad, &crate::output::printable(&line)));
        text.push('\n');
    }
    text
}

/// Pods.
pub fn pods(pods: &[PodUsage], options: &TopPods, cpus: Option<u32>, session: &Session<'_, '_>) -> String {
    if pods.is_empty() {
        return "no pods\n".to_owned();
    }
    let wide = session.is_wide();
    let has_pressure = pods.iter().any(|pod| pod.usage.cpu_pressure_some_10s.is_some());
    let mut headings = vec!["POD", "QOS", "PRIORITY"];
    if wide {
        headings.push("KUBE QOS");
    }
    headings.extend(["CPU", "", "CPU 1M", "THROTTLED", "MEMORY", "WITH CACHE"]);
    if has_pressure {
        headings.push("CPU PSI");
        if wide {
            headings.extend(["MEMORY PSI", "IO PSI"]);
        }
    }
    if wide {
        headings.push("UID");
    }
    let mut table = Table::new(&headings);
    let figures = |cells: &mut Vec<Cell>, usage: &GroupUsage| {
        let UsageFigures { cpu_cores, cpu_cores_average_1m, memory_bytes, memory_with_page_cache_bytes } =
            usage.figures;
        cells.extend([
            cores(cpu_cores).into(),
            bar(share(cpu_cores, cpus.map(f64::from)), SHORT),
            cores(cpu_cores_average_1m).into(),
            throttled(usage.cpu_throttled_ratio),
            binary(memory_bytes).into(),
            binary(memory_with_page_cache_bytes).into(),
        ]);
        if has_pressure {
            cells.push(percent(usage.cpu_pressure_some_10s).into());
            if wide {
                cells.push(percent(usage.memory_pressure_some_10s).into());
                cells.push(percent(usage.io_pressure_some_10s).into());
            }
        }
    };
    for pod in pods {
        let mut cells: Vec<Cell> = vec![
            format!("{}/{}", pod.namespace, pod.name).into(),
            or_dash(Some(&pod.effective_qos)).into(),
            or_dash(Some(&pod.priority_class)).into(),
        ];
        if wide {
            cells.push(or_dash(Some(&pod.kube_qos)).into());
        }
        figures(&mut cells, &pod.usage);
        if wide {
            cells.push(pod.uid.as_str().into());
        }
        table.row(cells);
        for ContainerUsage { name, id, usage } in pod.containers.iter().filter(|_| options.containers) {
            let mut cells: Vec<Cell> = vec![format!("  {name}").into(), "".into(), "".into()];
            if wide {
                cells.push("".into());
            }
            figures(&mut cells, usage);
            if wide {
                cells.push(id.as_str().into());
            }
            table.row(cells);
        }
    }
    table.text(session.style, None)
}

/// QoS classes.
pub fn qos(usage: &QosUsage, cpus: Option<u32>, session: &Session<'_, '_>) -> String {
    let mut text = if usage.classes.is_empty() {
        "no pods\n".to_owned()
    } else {
        let mut table = Table::new(&["QOS", "PODS", "CPU", "", "CPU 1M", "MEMORY", "WITH CACHE"]);
        for class in &usage.classes {
            let figures = &class.figures;
            table.row(vec![
                class.qos.as_str().into(),
                class.pods.to_string().into(),
                cores(figures.cpu_cores).into(),
                bar(share(figures.cpu_cores, cpus.map(f64::from)), LONG),
                cores(figures.cpu_cores_average_1m).into(),
                binary(figures.memory_bytes).into(),
                binary(figures.memory_with_page_cache_bytes).into(),
            ]);
        }
        table.text(session.style, None)
    };
    if let Some(limit) = usage.best_effort_cpu_limit_cores {
        text.push_str(&format!("best-effort pods may use {} cores together", cores(Some(limit))));
        if let Some(request) = usage.best_effort_cpu_request_cores {
            text.push_str(&format!(" and ask for {}", cores(Some(request))));
        }
        text.push('\n');
    }
    text
}

fn cores(cores: Option<f64>) -> String {
    cores.map_or_else(|| "-".to_owned(), |cores| format!("{cores:.3}"))
}

fn percent(percent: Option<f64>) -> String {
    percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1}%"))
}

fn throttled(ratio: Option<f64>) -> Cell {
    let tone = if ratio.is_some_and(|ratio| ratio >= 0.25) { Tone::Warning } else { Tone::Plain };
    Cell::toned(tone, percent(ratio.map(|ratio| ratio * 100.0)))
}

/// A number of bytes in the largest binary unit that leaves at least one of it, with one decimal.
fn binary(bytes: Option<u64>) -> String {
    const UNITS: [(&str, u32); 5] = [("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    let Some(bytes) = bytes else { return "-".to_owned() };
    UNITS.iter().find(|(_, shift)| bytes >> shift > 0).map_or_else(
        || bytes.to_string(),
        |(unit, shift)| {
            let value = bytes as f64 / (1_u64 << shift) as f64;
            format!("{value:.1}{unit}")
        },
    )
}

fn share(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    let whole = whole.filter(|whole| *whole > 0.0)?;
    Some(part? / whole)
}

/// A share as a bar; nothing if it is not known.
fn bar(share: Option<f64>, length: usize) -> Cell {
    let Some(share) = share else { return "".into() };
    let tone = match share {
        share if share >= 0.9 => Tone::Bad,
        share if share >= 0.7 => Tone::Warning,
        _ => Tone::Good,
    };
    // Something is seen of whatever is there.
    let full = (1..=length).filter(|place| share * length as f64 >= *place as f64 - 0.5).count();
    Cell::toned(tone, format!("[{}{}]", "#".repeat(full), ".".repeat(length - full)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars() {
        for (share, bar_text) in [
            (0.0, "[..........]"),
            (0.049, "[..........]"),
            (0.05, "[#.........]"),
            (0.149, "[#.........]"),
            (0.15, "[##........]"),
            (0.5, "[#####.....]"),
            (0.95, "[##########]"),
            (7.0, "[##########]"),
            (-1.0, "[..........]"),
            (f64::NAN, "[..........]"),
        ] {
            let tone = bar(Some(share), SHORT);
            let expected_tone = if share >= 0.9 { Tone::Bad } else { Tone::Good };
            assert_eq!(tone, Cell::toned(expected_tone, bar_text), "{share}");
        }
        assert_eq!(bar(Some(0.7), 1), Cell::toned(Tone::Warning, "[#]"));
        assert_eq!(bar(None, SHORT), Cell::from(""));
    }

    #[test]
    fn numbers() {
        for (bytes, text) in
            [(0, "0"), (1023, "1023"), (1024, "1.0Ki"), (1_572_864, "1.5Mi"), (u64::MAX, "16384.0Pi")]
        {
            assert_eq!(binary(Some(bytes)), text);
        }
        assert_eq!([binary(None), cores(None), percent(None)], ["-", "-", "-"]);
        assert_eq!([cores(Some(0.5)), cores(Some(12.0004))], ["0.500", "12.000"]);
        assert_eq!(percent(Some(12.345)), "12.3%");
        assert_eq!(throttled(Some(0.25)), Cell::toned(Tone::Warning, "25.0%"));
        assert_eq!(throttled(Some(0.2)), Cell::from("20.0%"));
        assert_eq!(share(Some(1.0), Some(0.0)), None);
        assert_eq!(share(Some(1.0), Some(4.0)), Some(0.25));
    }
}
