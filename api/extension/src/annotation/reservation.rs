//! Reservations.

use std::collections::BTreeMap;

use super::{
    ControllerReference, LabelSelector, NodeSelectorTerm, ObjectReference, Toleration, json_annotation,
    json_newtype,
};
use crate::json_object;
use crate::keys::annotation;
use crate::quantity::ResourceList;

json_object! {
    /// Reservation a pod runs in.
    pub struct ReservationAllocated {
        /// Name.
        name: String = "name",
        /// Unique id.
        uid: String = "uid",
    }

    /// Reservations a pod wants. An empty text is an empty wish, which is not an absent one.
    pub struct ReservationAffinity {
        /// This one; everything else is passed over then.
        name: String = "name",
        /// The pod is placed in one of these only.
        required: Option<ReservationAffinitySelector> = "requiredDuringSchedulingIgnoredDuringExecution",
        /// Labels they must have.
        reservation_selector: BTreeMap<String, String> = "reservationSelector",
        /// Taints of theirs that are tolerated.
        tolerations: Vec<Toleration> = "tolerations",
    }

    /// Terms, one of which must hold.
    pub struct ReservationAffinitySelector {
        /// The terms.
        reservation_selector_terms: Vec<NodeSelectorTerm> = "reservationSelectorTerms",
    }

    /// Resources in which pod and reservation must be equal.
    pub struct ExactMatchReservation {
        /// Their names.
        resource_names: Vec<String> = "resourceNames",
    }

    /// Resources that a restricted reservation restricts.
    pub struct ReservationRestrictedOptions {
        /// Their names; empty is everything reserved.
        resources: Vec<String> = "resources",
    }

    /// Who may use a reservation.
    pub struct ReservationOwner {
        /// This object.
        object: Option<ObjectReference> = "object",
        /// Pods of this controller.
        controller: Option<ControllerReference> = "controller",
        /// Pods with these labels.
        label_selector: Option<LabelSelector> = "labelSelector",
    }
}

json_newtype! {
    /// Who may use an operating-mode pod as a reservation.
    pub struct ReservationOwners(Vec<ReservationOwner>);
}

json_newtype! {
    /// Who uses an operating-mode pod as a reservation.
    pub struct ReservationCurrentOwner(ObjectReference);
}

json_annotation!(ReservationAllocated, annotation::RESERVATION_ALLOCATED);
json_annotation!(ReservationAffinity, annotation::RESERVATION_AFFINITY, empty = default);
json_annotation!(ExactMatchReservation, annotation::EXACT_MATCH_RESERVATION, empty = absent);
json_annotation!(ReservationRestrictedOptions, annotation::RESERVATION_RESTRICTED_OPTIONS, empty = absent);
json_annotation!(ReservationOwners, annotation::RESERVATION_OWNERS);
json_annotation!(ReservationCurrentOwner, annotation::RESERVATION_CURRENT_OWNER);

impl ExactMatchReservation {
    /// Whether a pod's requests and a reservation's resources are equal in every name, or both lack it.
    ///
    /// Koordinator stops with "they match" at the first name both lack; this looks at all names.
    pub fn matches(&self, requests: &ResourceList, allocatable: &ResourceList) -> bool {
        self.resource_names.iter().all(|name| requests.get(name) == allocatable.get(name))
    }
}
