//! What one client was told, and what it is to be told next.

use std::collections::HashMap;
use std::sync::Arc;

use koord_usage_api::v1;
use koord_usage_api::v1::watch_response::Event;

use super::{object, part};
use crate::kind::Kind;
use crate::object::{GpuUser, Object};
use crate::pass::Pass;

/// The groups of series that a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts(u8);

impl Parts {
    /// All of them.
    pub const ALL: Parts = Parts(u8::MAX);

    /// Those of a request. Groups that this version does not know count for nothing; none named means all.
    pub fn of(request: &v1::WatchRequest) -> Parts {
        if request.parts.is_empty() {
            return Parts::ALL;
        }
        let known = request.parts.iter().filter_map(|part| v1::Part::try_from(*part).ok());
        Parts(known.filter(|part| *part != v1::Part::Unspecified).fold(0, |all, part| all | bit(part)))
    }

    /// Whether samples of this kind are wanted.
    pub fn has(self, kind: Kind) -> bool {
        self.0 & bit(part(kind)) != 0
    }
}

const fn bit(part: v1::Part) -> u8 {
    match part {
        v1::Part::Unspecified => 0,
        v1::Part::Node => 1,
        v1::Part::Pod => 2,
        v1::Part::Container => 4,
        v1::Part::HostApplication => 8,
        v1::Part::System => 16,
    }
}

/// Makes the messages for one client.
///
/// Changes of the inventory are found by comparing with what was told, so a client that misses something in between is
/// brought up to date by the next call.
#[derive(Debug)]
pub struct Teller {
    parts: Parts,
    pods: Option<HashMap<Arc<str>, Arc<v1::Pod>>>,
    numbers: HashMap<Object, Vec<(Kind, u32)>>,
    free: Vec<u32>,
    next: u32,
    forgotten: Vec<u32>,
}

impl Teller {
    /// One whose client was told nothing yet.
    pub fn new(parts: Parts) -> Teller {
        Teller {
            parts,
            pods: None,
            numbers: HashMap::new(),
            free: Vec::new(),
            next: 0,
            forgotten: Vec::new(),
        }
    }

    /// Tells who is measured: everybody the first time, then what has changed.
    pub fn inventory(&mut self, pods: &[Arc<v1::Pod>]) -> Vec<v1::WatchResponse> {
        let Some(told) = &mut self.pods else {
            let all = pods.iter().map(|pod| (Arc::from(pod.uid.as_str()), Arc::clone(pod))).collect();
            self.pods = Some(all);
            let pods = pods.iter().map(|pod| v1::Pod::clone(pod)).collect();
            return vec![response(Event::Inventory(v1::Inventory { pods }))];
        };
        let mut events = Vec::new();
        for pod in pods {
            match told.get(pod.uid.as_str()) {
                Some(known) if Arc::ptr_eq(known, pod) => {}
                Some(known) if known == pod => {
                    // Next time they are seen to be the same at once.
                    told.insert(Arc::from(pod.uid.as_str()), Arc::clone(pod));
                }
                _ => {
                    told.insert(Arc::from(pod.uid.as_str()), Arc::clone(pod));
                    events.push(response(Event::PodPut(v1::Pod::clone(pod))));
                }
            }
        }
        if told.len() > pods.len() {
            let live: std::collections::HashSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
            told.retain(|uid, _| {
                let lives = live.contains(&**uid);
                if !lives {
                    events.push(response(Event::PodGone(v1::PodGone { uid: uid.to_string() })));
                }
                lives
            });
        }
        if !events.is_empty() {
            self.forget_gone();
        }
        events
    }

    /// Gives up the numbers of pods and containers that are no more.
    fn forget_gone(&mut self) {
        let Some(told) = &self.pods else { return };
        let containers: std::collections::HashSet<&str> = told
            .values()
            .flat_map(|pod| pod.containers.iter().map(|container| container.id.as_str()))
            .collect();
        let forgotten = &mut self.forgotten;
        self.numbers.retain(|object, numbers| {
            let lives = match object {
                Object::Pod(uid)
                | Object::PodNuma { pod_uid: uid, .. }
                | Object::Gpu { user: GpuUser::Pod(uid), .. } => told.contains_key(uid),
                Object::Container { id, .. } | Object::Gpu { user: GpuUser::Container(id), .. } => {
                    containers.contains(&**id)
                }
                Object::Node
                | Object::Numa(_)
                | Object::Tier(_)
                | Object::HostApplication(_)
                | Object::Gpu { user: GpuUser::Node, .. }
                | Object::Resctrl { .. } => true,
            };
            if !lives {
                forgotten.extend(numbers.iter().map(|(_, number)| *number));
            }
            lives
        });
    }

    /// Tells what was measured. Call [`Teller::inventory`] before, so that its objects are known.
    pub fn pass(&mut self, pass: &Pass, is_backfill: bool) -> v1::WatchResponse {
        let mut message = v1::Pass {
            tick: pass.tick.0,
            forgotten: std::mem::take(&mut self.forgotten),
            numbers: Vec::with_capacity(pass.samples.len()),
            values: Vec::with_capacity(pass.samples.len()),
            is_backfill,
            ..v1::Pass::default()
        };
        self.free.extend(&message.forgotten);
        for sample in pass.samples.iter().filter(|sample| self.parts.has(sample.kind)) {
            if !self.numbers.contains_key(&sample.object) {
                self.numbers.insert(sample.object.clone(), Vec::new());
            }
            let Some(numbers) = self.numbers.get_mut(&sample.object) else { continue };
            let known = numbers.iter().find(|(kind, _)| *kind == sample.kind);
            let number = match known {
                Some((_, number)) => *number,
                None => {
                    let number = self.free.pop().unwrap_or_else(|| {
                        let number = self.next;
                        self.next = self.next.saturating_add(1);
                        number
                    });
                    numbers.push((sample.kind, number));
                    message.series.push(v1::Series {
                        number,
                        kind: sample.kind.code().into(),
                        object: Some(object::to_wire(&sample.object)),
                    });
                    number
                }
            };
            message.numbers.push(number);
            message.values.push(sample.value);
        }
        response(Event::Pass(message))
    }
}

fn response(event: Event) -> v1::WatchResponse {
    v1::WatchResponse { event: Some(event) }
}
