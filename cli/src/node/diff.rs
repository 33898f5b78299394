//! `koordctl node diff`: what enforcing would change.

use koord_admin::selection::Selected;
use koord_admin::{FieldEntry, Mode, NodeStatus, PodEntry, path};
use serde::Serialize;

use crate::arguments::Which;
use crate::outcome::Failure;
use crate::output::table::Table;
use crate::output::{counted, or_dash, reason};
use crate::surroundings::Session;

/// One field whose wanted value was not sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// `NAMESPACE/NAME` of the pod.
    pub pod: String,
    /// `pod`, or `container NAME`.
    pub level: String,
    /// Id of the sandbox or container.
    pub id: String,
    /// Name of the field.
    pub field: String,
    /// What the kubelet asked for.
    pub asked: Option<String>,
    /// What the field has instead of it, as far as it is known.
    pub now: Option<String>,
    /// What the owner wants.
    pub wished: String,
    /// Who wants it.
    pub owner: String,
    /// Why.
    pub reason: String,
}

/// Shows the differences and gives their number.
///
/// # Errors
/// The proxy does not answer, there is no such pod, or the output cannot be written.
pub fn run(which: &Which, session: &mut Session<'_, '_>) -> Result<usize, Failure> {
    let status: NodeStatus = session.client.get(path::STATUS)?;
    let pods = super::pods(&session.client, which)?;
    let differences: Vec<Difference> =
        super::selected(&pods, which).into_iter().flat_map(differences_of).collect();
    session.print(&differences, |session| text(&differences, session))?;
    match status.mode {
        Mode::Shadow => {}
        Mode::Enforce => session.note("mode is enforce: a difference is a value that is still to be sent")?,
        Mode::Off => {
            session.note("mode is off: nothing is computed; `koordctl node mode shadow` computes")?
        }
    }
    Ok(differences.len())
}

fn differences_of(selected: Selected<'_>) -> Vec<Difference> {
    let (pod, own, containers) = match selected {
        Selected::Pod(pod) => (pod, pod.fields.as_slice(), pod.containers.as_slice()),
        Selected::Container(pod, container) => (pod, &[][..], std::slice::from_ref(container)),
    };
    let mut found = of_level(pod, "pod", &pod.id, own);
    for container in containers {
        let level = format!("container {}", container.name);
        found.extend(of_level(pod, &level, &container.id, &container.fields));
    }
    found
}

fn of_level(pod: &PodEntry, level: &str, id: &str, fields: &[FieldEntry]) -> Vec<Difference> {
    fields
        .iter()
        .filter_map(|field| {
            let now = field.sent.as_ref().or(field.asked.as_ref()).or(field.found.as_ref());
            let wished = field.wished.as_ref().filter(|wished| now != Some(*wished))?;
            Some(Difference {
                pod: format!("{}/{}", pod.namespace, pod.name),
                level: level.to_owned(),
                id: id.to_owned(),
                field: field.field.clone(),
                asked: field.asked.clone(),
                now: now.cloned(),
                wished: wished.clone(),
                owner: field.owner.clone(),
                reason: field.reason.clone(),
            })
        })
        .collect()
}

fn text(differences: &[Difference], session: &Session<'_, '_>) -> String {
    if differences.is_empty() {
        return "no differences\n".to_owned();
    }
    let mut table = if session.is_wide() {
        Table::new(&["POD", "LEVEL", "FIELD", "ASKED", "NOW", "WANTED", "BY", "ID", "WHY"])
    } else {
        Table::new(&["POD", "LEVEL", "FIELD", "ASKED", "WANTED", "BY", "WHY"])
    };
    for difference in differences {
        let mut row = vec![
            (&difference.pod).into(),
            (&difference.level).into(),
            (&difference.field).into(),
            or_dash(difference.asked.as_deref()).into(),
        ];
        if session.is_wide() {
            row.push(or_dash(difference.now.as_deref()).into());
        }
        row.push((&difference.wished).into());
        row.push((&difference.owner).into());
        if session.is_wide() {
            row.push((&difference.id).into());
        }
        row.push(reason(&difference.owner, &difference.reason).into());
        table.row(row);
    }
    let number = u64::try_from(differences.len()).unwrap_or(u64::MAX);
    table.text(session.style, session.width())
        + &format!("\n{}\n", counted(number, "difference", "differences"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(
        asked: Option<&str>,
        sent: Option<&str>,
        found: Option<&str>,
        wished: Option<&str>,
    ) -> FieldEntry {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        FieldEntry {
            field: "cpu.idle".to_owned(),
            asked: owned(asked),
            sent: owned(sent),
            found: owned(found),
            owner: "GroupIdentity".to_owned(),
            reason: "r".to_owned(),
            wished: owned(wished),
        }
    }

    #[test]
    fn what_counts_as_a_difference() {
        let pod: PodEntry = serde_json::from_str(
            r#"{"id":"i","namespace":"n","name":"p","uid":"u","qos":"","effectiveQos":"","kubeQos":"","priorityClass":"","cgroup":"","fields":[],"containers":[]}"#,
        )
        .unwrap();
        let now =
            |field: FieldEntry| of_level(&pod, "pod", "i", &[field]).pop().map(|difference| difference.now);
        // Nothing is wanted that was not sent.
        assert_eq!(now(field(Some("1"), Some("2"), Some("3"), None)), None);
        // What was sent counts, else what was asked, else what is there.
        assert_eq!(now(field(Some("1"), Some("2"), Some("3"), Some("2"))), None);
        assert_eq!(now(field(Some("1"), Some("2"), Some("3"), Some("1"))), Some(Some("2".to_owned())));
        assert_eq!(now(field(Some("1"), None, Some("3"), Some("1"))), None);
        assert_eq!(now(field(Some("1"), None, Some("3"), Some("3"))), Some(Some("1".to_owned())));
        assert_eq!(now(field(None, None, Some("0"), Some("0"))), None);
        assert_eq!(now(field(None, None, Some("0"), Some("1"))), Some(Some("0".to_owned())));
        assert_eq!(now(field(None, None, None, Some("1"))), Some(None));
    }
}
