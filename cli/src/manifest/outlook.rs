//! What the webhook says about a pod, and makes of it.

use koord_extension::annotation::ExtendedResourceSpec;
use koord_extension::keys::label;
use koord_extension::legality::{self, Strictness, combination_message};
use koord_extension::priority::PriorityClass;
use koord_extension::qos::QosClass;
use koord_extension::translation::{ExtendedScope, PodResources, extended_resource_spec, translate_pod};

use super::report::{Legality, Verdict};

/// Whether QoS class and priority class go together, both without defaults.
pub fn legality(qos: Option<QosClass>, class: Option<PriorityClass>) -> Legality {
    let is_strict_about_it =
        legality::legality(qos, class, Strictness::Strict) == legality::Legality::Forbidden;
    let said = qos.map(|qos| combination_message(qos, class)).unwrap_or_default();
    match legality::legality(qos, class, Strictness::Compatible) {
        legality::Legality::Legal => Legality { verdict: Verdict::Ok, reason: String::new() },
        legality::Legality::Discouraged if is_strict_about_it => Legality {
            verdict: Verdict::Warning,
            reason: "accepted, but the documentation forbids it, and so does --strict-qos-priority"
                .to_owned(),
        },
        legality::Legality::Discouraged => Legality {
            verdict: Verdict::Warning,
            reason: "accepted for pods that use reclaimed resources and rather be evicted than suppressed"
                .to_owned(),
        },
        legality::Legality::Forbidden if class.is_none() => Legality {
            verdict: Verdict::Forbidden,
            reason: format!("{said}; set {} or priorityClassName", label::PRIORITY_CLASS),
        },
        legality::Legality::Forbidden => Legality { verdict: Verdict::Forbidden, reason: said },
    }
}

/// A pod's resources as a profile that matches has them translated.
#[derive(Debug, Clone, PartialEq)]
pub struct Translated {
    /// Resources in the spec.
    pub resources: PodResources,
    /// The annotation that tells them to readers without the spec.
    pub annotation: ExtendedResourceSpec,
}

/// What a profile that matches makes of a pod's resources; nothing if they stay as they are.
pub fn translated(resources: &PodResources, class: PriorityClass) -> Option<Translated> {
    let mut resources = resources.clone();
    let done = translate_pod(class, &mut resources);
    let annotation = extended_resource_spec(&resources, done.pod.as_ref(), ExtendedScope::Everything);
    done.changed.then_some(Translated { resources, annotation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        use PriorityClass::{Batch, Free, Mid, Prod};
        use QosClass::{Be, Ls, Lse, Lsr, System};
        use Verdict::{Forbidden, Ok, Warning};
        for (qos, class, verdict) in [
            (Some(System), None, Ok),
            (Some(Lse), Some(Prod), Ok),
            (Some(Lse), Some(Mid), Warning),
            (Some(Lsr), Some(Prod), Ok),
            (Some(Lsr), Some(Batch), Forbidden),
            (Some(Lsr), None, Forbidden),
            (Some(Ls), Some(Mid), Ok),
            (Some(Ls), Some(Batch), Warning),
            (Some(Ls), None, Ok),
            (Some(Be), Some(Prod), Forbidden),
            (Some(Be), Some(Free), Ok),
            (Some(Be), None, Forbidden),
            (None, Some(Batch), Ok),
        ] {
            let Legality { verdict: found, reason } = legality(qos, class);
            assert_eq!(found, verdict, "{qos:?} {class:?}");
            assert_eq!(reason.is_empty(), verdict == Ok, "{qos:?} {class:?}");
        }
        let reason = legality(Some(Be), None).reason;
        assert!(reason.ends_with("; set koordinator.sh/priority-class or priorityClassName"), "{reason}");
    }
}
