//! The client's side of a stream.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use koord_cgroup::error::CgroupError;
use koord_cgroup::layout::Layout;
use koord_cgroup::path::CgroupPath;
use koord_extension::qos::{KubeQos, QosClass};
use koord_extension::units::MilliCpu;
use koord_usage_api::v1;
use koord_usage_api::v1::watch_response::Event as Message;

use super::object;
use crate::inventory::{ContainerEntry, Inventory, PodEntry};
use crate::kind::Kind;
use crate::object::Object;
use crate::pass::{Pass, Sample};
use crate::time::Tick;

/// Most series of one stream: 100 for each of 10,000 objects.
const MOST_SERIES: usize = 1_000_000;

/// A message that breaks the rules of the protocol. The stream is of no use after it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The first message is something else.
    #[error("the stream does not begin with start")]
    NoStart,
    /// A second beginning.
    #[error("start came a second time")]
    SecondStart,
    /// Something that needs an inventory came before it.
    #[error("{0} came before the inventory")]
    NoInventory(&'static str),
    /// Numbers and values do not pair up.
    #[error("pass {tick} has {numbers} numbers and {values} values")]
    Unpaired {
        /// Time of the pass.
        tick: Tick,
        /// How many numbers.
        numbers: usize,
        /// How many values.
        values: usize,
    },
    /// A number that stands for no series.
    #[error("pass {tick} uses number {number}, which stands for no series")]
    UnknownNumber {
        /// Time of the pass.
        tick: Tick,
        /// The number.
        number: u32,
    },
    /// A number that stands for a series already.
    #[error("pass {tick} gives number {number}, which is in use, to another series")]
    UsedNumber {
        /// Time of the pass.
        tick: Tick,
        /// The number.
        number: u32,
    },
    /// More series than any node has.
    #[error("more than {MOST_SERIES} series")]
    TooManySeries,
    /// A pod without its UID.
    #[error("a pod has no UID")]
    NoUid,
}

/// A pod that cannot be in an inventory.
#[derive(Debug, Clone, thiserror::Error)]
#[error("pod {namespace}/{name} ({uid}) cannot be measured")]
pub struct RefusedPod {
    /// Its UID.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What is wrong with a cgroup of it.
    #[source]
    pub source: Arc<CgroupError>,
}

/// What a message brought.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Nothing that this version knows.
    Nothing,
    /// The stream has begun.
    Started,
    /// Who is measured has changed.
    InventoryChanged,
    /// A pass, and whether it is from before the request.
    Pass(Pass, Origin),
    /// The state of all collectors.
    Collectors(Vec<v1::CollectorState>),
    /// So many passes were left out.
    Dropped(u64),
}

/// When a pass was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Just now.
    Live,
    /// Before the request.
    Backfill,
}

/// Applies the messages of one stream. A new stream needs a new one.
#[derive(Debug, Default)]
pub struct Reader {
    start: Option<v1::Start>,
    pods: Option<BTreeMap<String, Arc<v1::Pod>>>,
    // Series that this version does not know are kept as nothing.
    series: HashMap<u32, Option<(Object, Kind)>>,
    texts: HashMap<Arc<str>, ()>,
    heard: Option<Tick>,
}

impl Reader {
    /// Silence of a stream that makes its client measure by itself.
    pub const GAP: Duration = Duration::from_secs(3);

    /// One that has read nothing.
    pub fn new() -> Reader {
        Reader::default()
    }

    /// About the stream; nothing before its first message.
    pub fn start(&self) -> Option<&v1::Start> {
        self.start.as_ref()
    }

    /// Applies the next message, which arrived at `now`.
    ///
    /// # Errors
    /// The message breaks the rules of the protocol.
    pub fn apply(&mut self, message: v1::WatchResponse, now: Tick) -> Result<Event, WireError> {
        let Some(event) = message.event else { return Ok(Event::Nothing) };
        if let Message::Start(start) = event {
            if self.start.is_some() {
                return Err(WireError::SecondStart);
            }
            self.start = Some(start);
            self.heard = Some(now);
            return Ok(Event::Started);
        }
        if self.start.is_none() {
            return Err(WireError::NoStart);
        }
        match event {
            Message::Start(_) => Err(WireError::SecondStart),
            Message::Inventory(v1::Inventory { pods }) => {
                let mut all = BTreeMap::new();
                for pod in pods {
                    let pod = named(pod)?;
                    all.insert(pod.uid.clone(), Arc::new(pod));
                }
                self.pods = Some(all);
                Ok(Event::InventoryChanged)
            }
            Message::PodPut(pod) => {
                let pod = named(pod)?;
                let pods = self.pods.as_mut().ok_or(WireError::NoInventory("a pod"))?;
                pods.insert(pod.uid.clone(), Arc::new(pod));
                Ok(Event::InventoryChanged)
            }
            Message::PodGone(v1::PodGone { uid }) => {
                let pods = self.pods.as_mut().ok_or(WireError::NoInventory("the end of a pod"))?;
                Ok(if pods.remove(&uid).is_some() { Event::InventoryChanged } else { Event::Nothing })
            }
            Message::Pass(pass) => {
                if self.pods.is_none() {
                    return Err(WireError::NoInventory("a pass"));
                }
                let origin = if pass.is_backfill { Origin::Backfill } else { Origin::Live };
                let pass = self.pass(pass)?;
                self.heard = Some(now);
                Ok(Event::Pass(pass, origin))
            }
            Message::Collectors(v1::CollectorStates { collectors }) => Ok(Event::Collectors(collectors)),
            Message::Dropped(v1::Dropped { passes }) => Ok(Event::Dropped(passes)),
        }
    }

    fn pass(&mut self, message: v1::Pass) -> Result<Pass, WireError> {
        let tick = Tick(message.tick);
        for number in &message.forgotten {
            self.series.remove(number);
        }
        for v1::Series { number, kind, object } in message.series {
            let object = object::from_wire(object).map(|object| self.shared(object));
            let kind = u16::try_from(kind).ok().and_then(Kind::from_code);
            let series = object.zip(kind).filter(|(object, kind)| kind.suits(object));
            if self.series.insert(number, series).is_some() {
                return Err(WireError::UsedNumber { tick, number });
            }
            if self.series.len() > MOST_SERIES {
                return Err(WireError::TooManySeries);
            }
        }
        if !message.forgotten.is_empty() {
            // Texts that nothing but this map holds are of objects that are gone.
            self.texts.retain(|text, ()| Arc::strong_count(text) > 1);
        }
        let (numbers, values) = (message.numbers, message.values);
        if numbers.len() != values.len() {
            return Err(WireError::Unpaired { tick, numbers: numbers.len(), values: values.len() });
        }
        let mut pass = Pass { tick, samples: Vec::with_capacity(numbers.len()) };
        for (number, value) in numbers.into_iter().zip(values) {
            let series = self.series.get(&number).ok_or(WireError::UnknownNumber { tick, number })?;
            if let Some((object, kind)) = series {
                pass.samples.push(Sample { object: object.clone(), kind: *kind, value });
            }
        }
        Ok(pass)
    }

    /// The object with its texts shared with those of earlier ones.
    fn shared(&mut self, object: Object) -> Object {
        match object {
            Object::Pod(uid) => Object::Pod(self.text(uid)),
            Object::PodNuma { pod_uid, numa } => Object::PodNuma { pod_uid: self.text(pod_uid), numa },
            Object::Container { pod_uid, id } => {
                Object::Container { pod_uid: self.text(pod_uid), id: self.text(id) }
            }
            other => other,
        }
    }

    fn text(&mut self, text: Arc<str>) -> Arc<str> {
        if let Some((known, ())) = self.texts.get_key_value(&text) {
            return Arc::clone(known);
        }
        self.texts.insert(Arc::clone(&text), ());
        text
    }

    /// The pods that are measured, by UID; none before the inventory came.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<v1::Pod>> {
        self.pods.iter().flat_map(BTreeMap::values)
    }

    /// The pods as an inventory, and those that cannot be in one because a cgroup of theirs is not below the kubelet's.
    pub fn inventory(&self, layout: &Layout) -> (Inventory, Vec<RefusedPod>) {
        let mut inventory = Inventory::default();
        let mut refused = Vec::new();
        for pod in self.pods() {
            match entry(pod, layout) {
                Ok(entry) => inventory.pods.push(Arc::new(entry)),
                Err(source) => refused.push(RefusedPod {
                    uid: pod.uid.clone(),
                    namespace: pod.namespace.clone(),
                    name: pod.name.clone(),
                    source: Arc::new(source),
                }),
            }
        }
        (inventory, refused)
    }

    /// How long the stream has been silent; zero before its first message.
    pub fn silence(&self, now: Tick) -> Duration {
        self.heard.map_or(Duration::ZERO, |heard| now.since(heard))
    }

    /// Whether the stream has been silent for longer than [`Reader::GAP`].
    pub fn is_gap(&self, now: Tick) -> bool {
        self.silence(now) > Reader::GAP
    }
}

fn named(pod: v1::Pod) -> Result<v1::Pod, WireError> {
    if pod.uid.is_empty() { Err(WireError::NoUid) } else { Ok(pod) }
}

fn entry(pod: &v1::Pod, layout: &Layout) -> Result<PodEntry, CgroupError> {
    let containers = pod
        .containers
        .iter()
        .map(|container| {
            Ok(ContainerEntry {
                id: container.id.as_str().into(),
                name: container.name.as_str().into(),
                cgroup: CgroupPath::new(&container.cgroup, layout)?,
                is_init: container.is_init,
            })
        })
        .collect::<Result<_, CgroupError>>()?;
    let kube_qos =
        KubeQos::from_name(&pod.kube_qos_class).unwrap_or_else(|| KubeQos::of_cgroup_path(&pod.cgroup));
    Ok(PodEntry {
        uid: pod.uid.as_str().into(),
        namespace: pod.namespace.as_str().into(),
        name: pod.name.as_str().into(),
        qos: QosClass::from_name(&pod.qos_class),
        kube_qos,
        cgroup: CgroupPath::new(&pod.cgroup, layout)?,
        batch_cpu_request: MilliCpu(pod.batch_milli_cpu_request.unwrap_or(0)),
        containers,
    })
}
