//! Which QoS class goes with which priority class, and what of a pod may change.

use std::collections::BTreeMap;

use crate::keys::{label, nearest, resource};
use crate::priority::{PriorityBands, PriorityClass, sub_priority};
use crate::qos::QosClass;
use crate::quantity::Quantity;

/// How combinations are judged that documentation forbids and Koordinator accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Strictness {
    /// Accepted with a warning, as by Koordinator.
    #[default]
    Compatible,
    /// Refused, except LS with batch or free: its maintainers accept that on purpose (issues 2270, 2280
    /// and 2595 of Koordinator), for applications that use reclaimed resources and rather be evicted than
    /// suppressed.
    Strict,
}

/// Whether a combination is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Legality {
    /// It is.
    Legal,
    /// It is, but documentation advises against it.
    Discouraged,
    /// It is not.
    Forbidden,
}

/// Judges the raw classes of a pod, both without defaults.
///
/// A pod of no QoS class, and a SYSTEM pod, may have any priority class: daemons of the system run with
/// priorities far above all bands.
pub const fn legality(
    qos: Option<QosClass>,
    priority: Option<PriorityClass>,
    strictness: Strictness,
) -> Legality {
    use PriorityClass::{Batch, Free, Mid, Prod};
    match (qos, priority) {
        (None | Some(QosClass::System), _)
        | (Some(QosClass::Lse | QosClass::Lsr), Some(Prod))
        | (Some(QosClass::Ls), Some(Prod | Mid) | None)
        | (Some(QosClass::Be), Some(Mid | Batch | Free)) => Legality::Legal,
        (Some(QosClass::Ls), Some(Batch | Free)) => Legality::Discouraged,
        (Some(QosClass::Lse), Some(Mid | Batch | Free) | None) => match strictness {
            Strictness::Compatible => Legality::Discouraged,
            Strictness::Strict => Legality::Forbidden,
        },
        (Some(QosClass::Lsr), Some(Mid | Batch | Free) | None) | (Some(QosClass::Be), Some(Prod) | None) => {
            Legality::Forbidden
        }
    }
}

/// Koordinator's words for a combination that is refused.
pub fn combination_message(qos: QosClass, priority: Option<PriorityClass>) -> String {
    let class = priority.map_or("", PriorityClass::as_str);
    format!("{}={qos} and priorityClass={class} cannot be used in combination", label::QOS_CLASS)
}

/// What the label of the QoS class says when it says nothing known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownQos {
    /// Its text.
    pub text: String,
    /// The class nearest to it.
    pub nearest: Option<QosClass>,
}

/// The label of the QoS class where it is there and names no class. Such a pod has no class; users should
/// hear of it.
pub fn unknown_qos(labels: &BTreeMap<String, String>) -> Option<UnknownQos> {
    let text = labels.get(label::QOS_CLASS)?;
    if QosClass::from_name(text).is_some() {
        return None;
    }
    let names = QosClass::ALL.map(QosClass::as_str);
    let nearest = nearest(text.trim(), names).and_then(QosClass::from_name);
    Some(UnknownQos { text: text.clone(), nearest })
}

/// Whether an amount of batch or mid CPU is probably meant as CPUs where it counts thousandths of one: a
/// fraction, or less than 10.
pub fn is_suspicious_amount(name: &str, amount: Quantity) -> bool {
    let counts_thousandths = matches!(name, resource::BATCH_CPU | resource::MID_CPU);
    let is_fraction = amount != Quantity::from_value(amount.value(), amount.format());
    counts_thousandths && amount.is_positive() && (is_fraction || amount.value() < 10)
}

/// Whether the sub-priority of a pod may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SubPriorityChange {
    /// It may not.
    #[default]
    Refused,
    /// As long as old and new value are of the same band of priorities.
    WithinBand,
    /// It may.
    Allowed,
}

/// A field of a pod that may not change and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ImmutableField {
    /// The raw QoS class.
    QosClass,
    /// The raw priority class.
    PriorityClass,
    /// The text of the sub-priority.
    SubPriority,
}

impl ImmutableField {
    /// Path of the field, as in an answer of the API server.
    pub const fn path(self) -> &'static str {
        match self {
            ImmutableField::QosClass => "labels.koordinator.sh/qosClass",
            ImmutableField::PriorityClass => "spec.priority",
            ImmutableField::SubPriority => "labels.koordinator.sh/priority",
        }
    }
}

/// What decides about the classes of a pod.
#[derive(Debug, Clone, Copy)]
pub struct PodClasses<'a> {
    /// Its labels.
    pub labels: &'a BTreeMap<String, String>,
    /// Its `spec.priority`.
    pub priority: Option<i32>,
}

/// The fields that changed between two versions of a pod and may not.
///
/// Raw classes are compared: a label with an unknown text is as good as none.
pub fn immutable_changes(
    old: PodClasses<'_>,
    new: PodClasses<'_>,
    bands: &PriorityBands,
    sub_priority_change: SubPriorityChange,
) -> Vec<ImmutableField> {
    let mut changed = Vec::new();
    if QosClass::raw(old.labels) != QosClass::raw(new.labels) {
        changed.push(ImmutableField::QosClass);
    }
    if bands.raw(old.labels, old.priority) != bands.raw(new.labels, new.priority) {
        changed.push(ImmutableField::PriorityClass);
    }
    let text = |pod: PodClasses<'_>| pod.labels.get(label::PRIORITY).cloned().unwrap_or_default();
    let band = |pod: PodClasses<'_>| sub_priority(pod.labels).ok().map(|value| bands.class_of(value));
    let allowed = match sub_priority_change {
        SubPriorityChange::Refused => false,
        SubPriorityChange::WithinBand => matches!(
            (band(old), band(new)),
            (Some(Some(old)), Some(Some(new))) if old == new
        ),
        SubPriorityChange::Allowed => true,
    };
    if !allowed && text(old) != text(new) {
        changed.push(ImmutableField::SubPriority);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use PriorityClass::{Batch, Free, Mid, Prod};

    fn labels(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn the_table_of_combinations() {
        use Legality::{Discouraged as Warn, Forbidden as No, Legal as Ok};
        let columns = [Some(Prod), Some(Mid), Some(Batch), Some(Free), None];
        for (qos, compatible, strict) in [
            (Some(QosClass::System), [Ok, Ok, Ok, Ok, Ok], [Ok, Ok, Ok, Ok, Ok]),
            (Some(QosClass::Lse), [Ok, Warn, Warn, Warn, Warn], [Ok, No, No, No, No]),
            (Some(QosClass::Lsr), [Ok, No, No, No, No], [Ok, No, No, No, No]),
            (Some(QosClass::Ls), [Ok, Ok, Warn, Warn, Ok], [Ok, Ok, Warn, Warn, Ok]),
            (Some(QosClass::Be), [No, Ok, Ok, Ok, No], [No, Ok, Ok, Ok, No]),
            (None, [Ok, Ok, Ok, Ok, Ok], [Ok, Ok, Ok, Ok, Ok]),
        ] {
            for (priority, (compatible, strict)) in
                columns.into_iter().zip(compatible.into_iter().zip(strict))
            {
                let judge = |strictness| legality(qos, priority, strictness);
                assert_eq!(judge(Strictness::Compatible), compatible, "{qos:?} {priority:?}");
                assert_eq!(judge(Strictness::Strict), strict, "{qos:?} {priority:?} strict");
            }
        }
    }

    #[test]
    fn pods_by_value() {
        let bands = PriorityBands::default();
        for (qos, priority, compatible, strict) in [
            (QosClass::Lsr, Some(9000), Legality::Legal, Legality::Legal),
            (QosClass::Be, Some(9500), Legality::Forbidden, Legality::Forbidden),
            (QosClass::Be, None, Legality::Forbidden, Legality::Forbidden),
            (QosClass::Be, Some(7000), Legality::Legal, Legality::Legal),
            (QosClass::Ls, Some(5500), Legality::Discouraged, Legality::Discouraged),
            (QosClass::Lsr, Some(5500), Legality::Forbidden, Legality::Forbidden),
            (QosClass::Lse, Some(7500), Legality::Discouraged, Legality::Forbidden),
            (QosClass::System, Some(2_000_001_000), Legality::Legal, Legality::Legal),
        ] {
            let class = bands.raw(&BTreeMap::new(), priority);
            assert_eq!(legality(Some(qos), class, Strictness::Compatible), compatible, "{qos} {priority:?}");
            assert_eq!(legality(Some(qos), class, Strictness::Strict), strict, "{qos} {priority:?}");
        }
        assert_eq!(
            combination_message(QosClass::Be, Some(Prod)),
            "koordinator.sh/qosClass=BE and priorityClass=koord-prod cannot be used in combination"
        );
    }

    #[test]
    fn unknown_classes_are_recognised() {
        let near = |text| unknown_qos(&labels(&[(label::QOS_CLASS, text)]));
        assert_eq!(near("LS"), None);
        assert_eq!(near("ls").unwrap().nearest, Some(QosClass::Ls));
        assert_eq!(near("LS ").unwrap().nearest, Some(QosClass::Ls));
        assert_eq!(near("Sytem").unwrap().nearest, Some(QosClass::System));
        assert_eq!(near("gold").unwrap().nearest, None);
        assert_eq!(unknown_qos(&BTreeMap::new()), None);
    }

    #[test]
    fn small_amounts_are_suspicious() {
        for (name, amount, suspicious) in [
            (resource::BATCH_CPU, "500m", true),
            (resource::BATCH_CPU, "1500m", true),
            (resource::MID_CPU, "9", true),
            (resource::MID_CPU, "10", false),
            (resource::BATCH_CPU, "1k", false),
            (resource::BATCH_CPU, "0", false),
            (resource::CPU, "500m", false),
            (resource::BATCH_MEMORY, "1", false),
        ] {
            let amount = Quantity::parse(amount).unwrap();
            assert_eq!(is_suspicious_amount(name, amount), suspicious, "{name} {amount}");
        }
    }

    #[test]
    fn classes_may_not_change() {
        let changes = |old: &[(&str, &str)], old_priority, new: &[(&str, &str)], new_priority, rule| {
            immutable_changes(
                PodClasses { labels: &labels(old), priority: old_priority },
                PodClasses { labels: &labels(new), priority: new_priority },
                &PriorityBands::default(),
                rule,
            )
        };
        use SubPriorityChange::*;
        let sub = |text| [(label::PRIORITY, text)];
        assert_eq!(changes(&sub("5300"), None, &sub("5400"), None, Refused), [ImmutableField::SubPriority]);
        assert_eq!(changes(&sub("5300"), None, &sub("5400"), None, Allowed), []);
        assert_eq!(changes(&sub("5300"), None, &sub("5400"), None, WithinBand), []);
        assert_eq!(
            changes(&sub("5300"), None, &sub("7400"), None, WithinBand),
            [ImmutableField::SubPriority]
        );
        assert_eq!(changes(&sub("1"), None, &sub("2"), None, WithinBand), [ImmutableField::SubPriority]);
        assert_eq!(changes(&sub("5300"), None, &sub("x"), None, WithinBand), [ImmutableField::SubPriority]);
        assert_eq!(changes(&sub(""), None, &[], None, Refused), []);
        // Both are no class.
        assert_eq!(changes(&[(label::QOS_CLASS, "foo")], None, &[], None, Refused), []);
        assert_eq!(
            changes(&[(label::QOS_CLASS, "LS")], None, &[], None, Refused),
            [ImmutableField::QosClass]
        );
        assert_eq!(changes(&[], Some(9000), &[], Some(9999), Refused), []);
        assert_eq!(changes(&[], Some(9000), &[], Some(5000), Refused), [ImmutableField::PriorityClass]);
        assert_eq!(ImmutableField::QosClass.path(), "labels.koordinator.sh/qosClass");
    }
}
