//! What the kubelet asked for, what was sent instead, and who wanted it: per pod, container and field.
//!
//! Values are texts as [`koord_admin::FieldEntry`] shows them. What the kernel has now is not kept here: it is
//! read when somebody asks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use koord_hook::v1alpha1::LinuxContainerResources;

/// Owner of values that nobody changed.
pub const KUBELET: &str = "kubelet";

/// Text of an entry. Fields, owners, reasons and many values are the same in many pods, so [`Ledger`] keeps each text once.
pub type Text = Arc<str>;

/// A field of one pod or container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// The kernel's or CRI's name of it.
    pub field: Text,
    /// What the kubelet asked for.
    pub asked: Option<Text>,
    /// What the runtime was told, or what was written.
    pub sent: Option<Text>,
    /// What the owner wants and was not sent.
    pub wished: Option<Text>,
    /// Rule, hook or [`KUBELET`].
    pub owner: Text,
    /// Why, in words.
    pub reason: Text,
    /// Whether a cgroup file carries the value, not a request to the runtime.
    pub by_file: bool,
}

impl Entry {
    /// Whether somebody other than the kubelet decides the field.
    pub fn is_owned(&self) -> bool {
        &*self.owner != KUBELET
    }

    /// Whether the value is, or in shadow mode would be, another one than the kubelet's.
    pub fn changes(&self) -> bool {
        self.is_owned() && self.wished.as_ref().or(self.sent.as_ref()) != self.asked.as_ref()
    }
}

/// Something a rule could not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The rule.
    pub rule: Box<str>,
    /// What is wrong.
    pub message: Box<str>,
}

/// The fields of one pod or container.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Level {
    /// Resources of a container as the kubelet wants them, its updates included.
    pub asked: Option<LinuxContainerResources>,
    /// In the order they are shown.
    pub entries: Vec<Entry>,
    /// What could not be done.
    pub problems: Vec<Problem>,
}

impl Level {
    /// The entry of a field.
    pub fn entry(&self, field: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| &*entry.field == field)
    }

    /// The entry of a field, made if there is none.
    pub fn entry_mut(&mut self, field: &str) -> &mut Entry {
        let at = match self.entries.iter().position(|entry| &*entry.field == field) {
            Some(at) => at,
            None => {
                self.entries.push(Entry { field: field.into(), owner: KUBELET.into(), ..Entry::default() });
                self.entries.len() - 1
            }
        };
        &mut self.entries[at]
    }
}

/// Sums over all levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Fields recorded.
    pub fields: u64,
    /// Fields whose value is another one than the kubelet's.
    pub changed: u64,
}

/// Everything recorded, at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Levels {
    /// By sandbox id.
    pub pods: BTreeMap<String, Arc<Level>>,
    /// By container id.
    pub containers: BTreeMap<String, Arc<Level>>,
}

/// Every text of the levels, once.
#[derive(Debug, Default)]
struct Texts {
    known: HashSet<Text, foldhash::fast::RandomState>,
    /// Texts that nobody else holds are dropped when there are so many.
    look_at: usize,
}

impl Texts {
    /// Texts below this number are never worth a look.
    const FEW: usize = 1024;

    fn share(&mut self, text: &mut Text) {
        match self.known.get(text) {
            Some(known) => *text = known.clone(),
            None => {
                if self.known.len() >= self.look_at.max(Self::FEW) {
                    self.known.retain(|known| Arc::strong_count(known) > 1);
                    self.look_at = self.known.len() * 2;
                }
                self.known.insert(text.clone());
            }
        }
    }

    fn share_all(&mut self, level: &mut Level) {
        level.entries.shrink_to_fit();
        for entry in &mut level.entries {
            let values = [&mut entry.asked, &mut entry.sent, &mut entry.wished].into_iter().flatten();
            for text in [&mut entry.field, &mut entry.owner, &mut entry.reason].into_iter().chain(values) {
                self.share(text);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Maps {
    pods: HashMap<String, Arc<Level>>,
    containers: HashMap<String, Arc<Level>>,
    texts: Texts,
}

/// The records of all pods and containers.
#[derive(Debug, Default)]
pub struct Ledger {
    maps: Mutex<Maps>,
    changes: tokio::sync::watch::Sender<u64>,
}

impl Ledger {
    fn maps(&self) -> MutexGuard<'_, Maps> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// A number that grows with each change.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The fields of a pod.
    pub fn pod(&self, pod_id: &str) -> Option<Arc<Level>> {
        self.maps().pods.get(pod_id).cloned()
    }

    /// The fields of a container.
    pub fn container(&self, container_id: &str) -> Option<Arc<Level>> {
        self.maps().containers.get(container_id).cloned()
    }

    /// Records a pod's fields.
    pub fn put_pod(&self, pod_id: &str, mut level: Level) {
        let mut maps = self.maps();
        if maps.pods.get(pod_id).is_some_and(|known| **known == level) {
            return;
        }
        maps.texts.share_all(&mut level);
        maps.pods.insert(pod_id.to_owned(), Arc::new(level));
        self.changed();
    }

    /// Records a container's fields.
    pub fn put_container(&self, container_id: &str, mut level: Level) {
        let mut maps = self.maps();
        if maps.containers.get(container_id).is_some_and(|known| **known == level) {
            return;
        }
        maps.texts.share_all(&mut level);
        maps.containers.insert(container_id.to_owned(), Arc::new(level));
        self.changed();
    }

    /// Forgets what `known` does not know.
    pub fn retain(&self, pod_known: impl Fn(&str) -> bool, container_known: impl Fn(&str) -> bool) {
        let mut maps = self.maps();
        let before = (maps.pods.len(), maps.containers.len());
        maps.pods.retain(|id, _| pod_known(id));
        maps.containers.retain(|id, _| container_known(id));
        if before != (maps.pods.len(), maps.containers.len()) {
            self.changed();
        }
    }

    /// Everything, sorted.
    pub fn levels(&self) -> Levels {
        let maps = self.maps();
        Levels {
            pods: maps.pods.iter().map(|(id, level)| (id.clone(), level.clone())).collect(),
            containers: maps.containers.iter().map(|(id, level)| (id.clone(), level.clone())).collect(),
        }
    }

    /// Takes what a predecessor recorded. Levels that are known already stay.
    pub fn restore(&self, levels: Levels) {
        let mut maps = self.maps();
        for (id, mut level) in levels.pods {
            maps.texts.share_all(Arc::make_mut(&mut level));
            maps.pods.entry(id).or_insert(level);
        }
        for (id, mut level) in levels.containers {
            maps.texts.share_all(Arc::make_mut(&mut level));
            maps.containers.entry(id).or_insert(level);
        }
        self.changed();
    }

    /// Sums over everything.
    pub fn sums(&self) -> Sums {
        let maps = self.maps();
        let mut sums = Sums::default();
        for level in maps.pods.values().chain(maps.containers.values()) {
            sums.fields += level.entries.len() as u64;
            sums.changed += level.entries.iter().filter(|entry| entry.changes()).count() as u64;
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(field: &str, asked: Option<&str>, sent: Option<&str>, owner: &str) -> Level {
        let mut level = Level::default();
        let entry = level.entry_mut(field);
        entry.asked = asked.map(Into::into);
        entry.sent = sent.map(Into::into);
        entry.owner = owner.into();
        level
    }

    #[test]
    fn a_change_is_another_value_of_another_owner() {
        let changes = |asked, sent, owner| level("f", asked, sent, owner).entries[0].changes();
        assert!(changes(Some("2"), Some("512"), "BatchResource"));
        assert!(changes(None, Some("512"), "BatchResource"));
        assert!(!changes(Some("2"), Some("2"), "BatchResource"));
        assert!(!changes(Some("2"), Some("512"), KUBELET));
        let mut shadow = level("f", Some("2"), Some("2"), "BatchResource");
        shadow.entry_mut("f").wished = Some("512".into());
        assert!(shadow.entries[0].changes());
    }

    #[test]
    fn equal_levels_are_no_change_and_unknown_ones_are_forgotten() {
        let ledger = Ledger::default();
        let mut changes = ledger.changes();
        ledger.put_container("c", level("f", None, Some("1"), "r"));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        ledger.put_container("c", level("f", None, Some("1"), "r"));
        ledger.retain(|_| true, |_| true);
        assert!(!changes.has_changed().unwrap());
        ledger.put_pod("p", level("f", Some("1"), Some("1"), KUBELET));
        assert_eq!(ledger.sums(), Sums { fields: 2, changed: 1 });
        ledger.retain(|id| id == "p", |id| id == "p");
        assert!(ledger.container("c").is_none() && ledger.pod("p").is_some());
    }

    #[test]
    fn equal_texts_are_kept_once_and_unused_ones_not_for_ever() {
        let ledger = Ledger::default();
        ledger.put_container("c", level("f", Some("2"), Some("512"), "r"));
        ledger.put_pod("p", level("f", Some("512"), None, "r"));
        let (container, pod) = (ledger.container("c").unwrap(), ledger.pod("p").unwrap());
        assert!(Arc::ptr_eq(&container.entries[0].field, &pod.entries[0].field));
        let (sent, asked) = (container.entries[0].sent.as_ref(), pod.entries[0].asked.as_ref());
        assert!(Arc::ptr_eq(sent.unwrap(), asked.unwrap()));
        for number in 0..10_000 {
            ledger.put_container("c", level("f", None, Some(&number.to_string()), "r"));
        }
        assert_eq!(ledger.container("c").unwrap().entries[0].sent.as_deref(), Some("9999"));
        let known = ledger.maps().texts.known.len();
        assert!(known <= Texts::FEW + 1, "{known}");
    }

    #[test]
    fn a_predecessors_levels_do_not_replace_known_ones() {
        let ledger = Ledger::default();
        ledger.put_pod("p", level("f", None, Some("new"), "r"));
        let old = Levels {
            pods: [
                ("p".to_owned(), Arc::new(level("f", None, Some("old"), "r"))),
                ("q".to_owned(), Arc::new(level("f", None, Some("old"), "r"))),
            ]
            .into(),
            containers: BTreeMap::new(),
        };
        ledger.restore(old);
        let sent = |id| ledger.pod(id).unwrap().entries[0].sent.clone().unwrap();
        assert_eq!((&*sent("p"), &*sent("q")), ("new", "old"));
    }
}
