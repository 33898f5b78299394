//! `koordctl node pods`.

use std::collections::BTreeSet;

use koord_admin::{ContainerEntry, FieldEntry, PodEntry};

use crate::arguments::Which;
use crate::outcome::{Failure, Outcome};
use crate::output::or_dash;
use crate::output::table::{Cell, Table};
use crate::surroundings::Session;

/// Names of the fields shown, of cgroup v1 and v2.
const SHARES: [&str; 2] = ["cpu.shares", "cpu.weight"];
const QUOTA: [&str; 2] = ["cpu.cfs_quota_us", "cpu.max"];
const CPUSET: [&str; 1] = ["cpuset.cpus"];
const MEMORY: [&str; 2] = ["memory.limit_in_bytes", "memory.max"];

/// Who decides when no rule or hook does.
const KUBELET: &str = "kubelet";

/// Shows pods with their values.
///
/// # Errors
/// The proxy does not answer, there is no such pod, or the output cannot be written.
pub fn run(which: &Which, session: &mut Session<'_, '_>) -> Result<Outcome, Failure> {
    let pods = super::pods(&session.client, which)?;
    session.print(&pods, |session| text(&pods, session))?;
    Ok(Outcome::Success)
}

fn text(pods: &[PodEntry], session: &Session<'_, '_>) -> String {
    if pods.is_empty() {
        return "no pods\n".to_owned();
    }
    let mut table = if session.is_wide() {
        Table::new(&[
            "POD",
            "QOS",
            "LABEL",
            "KUBE QOS",
            "PRIORITY",
            "CONTAINERS",
            "CPU SHARES",
            "CPU QUOTA",
            "CPUSET",
            "MEMORY LIMIT",
            "OWNERS",
            "ID",
            "CGROUP",
        ])
    } else {
        Table::new(&[
            "POD",
            "QOS",
            "KUBE QOS",
            "CONTAINERS",
            "CPU SHARES",
            "CPU QUOTA",
            "CPUSET",
            "MEMORY LIMIT",
            "OWNERS",
        ])
    };
    for pod in pods {
        let name = format!("{}/{}", pod.namespace, pod.name);
        let count = pod.containers.len().to_string();
        let values = |names: &[&str]| pod_value(pod, names);
        let owners = owners(pod.fields.iter().chain(pod.containers.iter().flat_map(|c| &c.fields)));
        let memory = memory(&values(&MEMORY));
        if !session.is_wide() {
            table.row(vec![
                name.into(),
                or_dash(Some(&pod.effective_qos)).into(),
                or_dash(Some(&pod.kube_qos)).into(),
                count.into(),
                values(&SHARES).into(),
                values(&QUOTA).into(),
                values(&CPUSET).into(),
                memory.into(),
                owners.into(),
            ]);
            continue;
        }
        table.row(vec![
            name.clone().into(),
            or_dash(Some(&pod.effective_qos)).into(),
            or_dash(Some(&pod.qos)).into(),
            or_dash(Some(&pod.kube_qos)).into(),
            or_dash(Some(&pod.priority_class)).into(),
            count.into(),
            values(&SHARES).into(),
            values(&QUOTA).into(),
            values(&CPUSET).into(),
            memory.into(),
            owners.into(),
            pod.id.as_str().into(),
            or_dash(Some(&pod.cgroup)).into(),
        ]);
        for container in &pod.containers {
            table.row(container_row(&name, container));
        }
    }
    // The last column is a list of owners or a directory; broken up it would be hard to read.
    table.text(session.style, None)
}

fn container_row(pod: &str, container: &ContainerEntry) -> Vec<Cell> {
    let values = |names: &[&str]| or_dash(value(&container.fields, names)).to_owned();
    vec![
        format!("{pod}/{}", container.name).into(),
        "".into(),
        "".into(),
        "".into(),
        "".into(),
        container.state.to_string().into(),
        values(&SHARES).into(),
        values(&QUOTA).into(),
        values(&CPUSET).into(),
        memory(&values(&MEMORY)).into(),
        owners(container.fields.iter()).into(),
        container.id.as_str().into(),
        or_dash(Some(&container.cgroup)).into(),
    ]
}

/// The value in force as far as it is known.
fn value<'a>(fields: &'a [FieldEntry], names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| {
        let field = fields.iter().find(|field| field.field == *name)?;
        field.found.as_deref().or(field.sent.as_deref()).or(field.asked.as_deref())
    })
}

/// The pod's own value; without one, the different values of its containers.
fn pod_value(pod: &PodEntry, names: &[&str]) -> String {
    if let Some(value) = value(&pod.fields, names) {
        return value.to_owned();
    }
    let mut values: Vec<&str> = Vec::new();
    for found in pod.containers.iter().filter_map(|container| value(&container.fields, names)) {
        if !values.contains(&found) {
            values.push(found);
        }
    }
    // A cpuset has commas of its own.
    or_dash(Some(&values.join(" | "))).to_owned()
}

/// Everyone beside the kubelet who decided a value.
fn owners<'a>(fields: impl Iterator<Item = &'a FieldEntry>) -> String {
    let owners: BTreeSet<&str> = fields
        .map(|field| field.owner.as_str())
        .filter(|owner| !owner.is_empty() && *owner != KUBELET)
        .collect();
    or_dash(Some(&Vec::from_iter(owners).join(","))).to_owned()
}

/// A number of bytes in the largest binary unit that leaves it whole; other texts as they are.
fn memory(text: &str) -> String {
    const UNITS: [(&str, u32); 4] = [("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    let Ok(bytes) = text.parse::<u64>() else { return text.to_owned() };
    UNITS
        .iter()
        .find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift)
        .map_or_else(|| text.to_owned(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_exact() {
        for (text, shown) in [
            ("0", "0"),
            ("1023", "1023"),
            ("1024", "1Ki"),
            ("1025", "1025"),
            ("1572864", "1536Ki"),
            ("1073741824", "1Gi"),
            ("1099511627776", "1Ti"),
            ("-1", "-1"),
            ("max", "max"),
            ("-", "-"),
            ("104857600 | 209715200", "104857600 | 209715200"),
        ] {
            assert_eq!(memory(text), shown);
        }
    }
}
