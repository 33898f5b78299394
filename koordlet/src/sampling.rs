//! The agent's own sampler: for nodes without a proxy, while its stream is away, and for what the proxy does not measure.

use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use koord_cgroup::layout::Layout;
use koord_cgroup::system_file::SystemRoots;
use koord_extension::gates::Gate;
use koord_runtime::CancellationToken;
use koord_usage::collect::text::NumaMemory;
use koord_usage::inventory::Inventory;
use koord_usage::kind::Kind;
use koord_usage::object::Object;
use koord_usage::pass::{Pass, Sample};
use koord_usage::sampler::{CollectorStatus, CpiOptions, Sampler, SamplerOptions, Stop};
use koord_usage::time::Tick;

use crate::flags::{Config, PodMetrics};
use crate::metrics::internal;
use crate::source::Source;
use crate::state::{CollectorView, State};

/// How often the source is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What the sampler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Nothing.
    Rest,
    /// Measures what the proxy does not: host applications only.
    HostApplications,
    /// Measures what the proxy does not: what gates ask for, of all pods.
    Extras,
    /// Measures everything.
    Everything,
    /// Ends.
    End,
}

/// Whether the proxy's stream has the kinds that gates ask for, or the agent must measure them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Pressure.
    pub pressure: bool,
    /// Cycles and instructions.
    pub cpi: bool,
    /// Page cache that is not in use.
    pub cold_memory: bool,
    /// Caches and memory bandwidth.
    pub resctrl: bool,
}

impl Wanted {
    /// By gates and flags.
    pub fn of(config: &Config) -> Wanted {
        let on = |gate| config.gates.enabled(gate);
        Wanted {
            pressure: on(Gate::PsiCollector),
            cpi: on(Gate::CpiCollector),
            cold_memory: on(Gate::ColdPageCollector),
            resctrl: on(Gate::ResctrlCollector) && config.collect.resctrl,
        }
    }

    /// Without those that collectors of the proxy give.
    #[must_use]
    pub fn without(self, collectors: &[CollectorView]) -> Wanted {
        let gives = |name: &str| collectors.iter().any(|view| view.name == name && view.state == "ready");
        Wanted {
            pressure: self.pressure && !gives("pressure"),
            cpi: self.cpi && !gives("cpi"),
            cold_memory: self.cold_memory && !gives("cold-memory"),
            resctrl: self.resctrl && !gives("resctrl"),
        }
    }

    fn any(self) -> bool {
        self != Wanted::default()
    }

    /// Whether a sample is of these kinds.
    fn has(self, sample: &Sample) -> bool {
        match sample.kind {
            Kind::PodPsi(_)
            | Kind::ContainerPsi(_)
            | Kind::PodPsiCpuFullSupported
            | Kind::ContainerPsiCpuFullSupported => self.pressure,
            Kind::ContainerCpi(_) => self.cpi,
            Kind::NodeMemoryWithHotPageUsage
            | Kind::NodeMemoryColdPageSize
            | Kind::PodMemoryWithHotPageUsage
            | Kind::PodMemoryColdPageSize
            | Kind::ContainerMemoryWithHotPageUsage
            | Kind::ContainerMemoryColdPageSize => self.cold_memory,
            _ => matches!(sample.object, Object::Resctrl { .. }) && self.resctrl,
        }
    }
}

/// What the sampler is to do.
pub fn task(source: Source, extras: Wanted, has_host_applications: bool) -> Task {
    match source {
        Source::Own => Task::Everything,
        Source::Proxy if extras.any() => Task::Extras,
        Source::Proxy if has_host_applications => Task::HostApplications,
        Source::Proxy | Source::Waiting => Task::Rest,
    }
}

/// The samples that go beside the proxy's stream.
pub fn beside(samples: Vec<Sample>, extras: Wanted) -> Vec<Sample> {
    samples
        .into_iter()
        .filter(|sample| matches!(sample.object, Object::HostApplication(_)) || extras.has(sample))
        .collect()
}

/// Options of the sampler by flags and gates.
pub fn options(config: &Config) -> SamplerOptions {
    let collect = &config.collect;
    let wanted = Wanted::of(config);
    SamplerOptions {
        interval: collect.interval,
        memory_interval: collect.memory_stat_interval,
        numa_interval: collect.numa_interval,
        numa_memory: if config.gates.enabled(Gate::NumaMemoryWithoutCache) {
            NumaMemory::WithoutCache
        } else {
            NumaMemory::Compatible
        },
        page_cache: collect.page_cache,
        containers: collect.pod_metrics >= PodMetrics::Container,
        pressure_interval: wanted.pressure.then_some(collect.psi_interval),
        cold_memory_interval: wanted.cold_memory.then_some(collect.cold_page_interval),
        resctrl_interval: wanted.resctrl.then_some(collect.resctrl_interval),
        cpi: wanted.cpi.then(|| CpiOptions {
            interval: collect.cpi_interval,
            window: collect.cpi_window,
            max_descriptors: collect.cpi_descriptors,
            ..CpiOptions::default()
        }),
        layout_interval: collect.node_facts_interval,
        ..SamplerOptions::default()
    }
}

/// The state of a collector, as it is shown.
pub fn view(status: &CollectorStatus) -> CollectorView {
    CollectorView {
        name: status.collector.as_str().to_owned(),
        state: status.state.as_str().to_owned(),
        reason: status.state.reason().unwrap_or_default().to_owned(),
        last_success: status.last_success.map(Tick::milliseconds),
        duration_microseconds: u64::try_from(status.duration.as_micros()).unwrap_or(u64::MAX),
        errors: status.errors,
        open_descriptors: status.open_descriptors as u64,
    }
}

/// What is told to the sampler's thread.
#[derive(Debug)]
struct Order {
    task: Task,
    extras: Wanted,
    layout: Option<Arc<Layout>>,
    stop: Stop,
}

/// The thread's desk: what it is to do.
#[derive(Debug)]
pub struct Desk {
    order: Mutex<Order>,
    changed: Condvar,
}

impl Default for Desk {
    fn default() -> Desk {
        let order =
            Order { task: Task::Rest, extras: Wanted::default(), layout: None, stop: Stop::default() };
        Desk { order: Mutex::new(order), changed: Condvar::new() }
    }
}

impl Desk {
    /// An order is replaced as a whole.
    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, task: Task, extras: Wanted, layout: &Arc<Layout>) {
        let mut order = self.order();
        let same_layout = order.layout.as_ref().is_some_and(|known| Arc::ptr_eq(known, layout));
        if order.task == task && order.extras == extras && same_layout || order.task == Task::End {
            return;
        }
        order.stop.stop();
        *order = Order { task, extras, layout: Some(Arc::clone(layout)), stop: Stop::default() };
        self.changed.notify_all();
    }

    fn take(&self) -> (Task, Wanted, Option<Arc<Layout>>, Stop) {
        let order = self.order();
        let resting = |order: &mut Order| order.task == Task::Rest;
        let order = self.changed.wait_while(order, resting).unwrap_or_else(PoisonError::into_inner);
        (order.task, order.extras, order.layout.clone(), order.stop.clone())
    }
}

/// The sampler's thread. It holds descriptors only while it has something to do.
pub fn thread(state: &State, desk: &Desk) {
    loop {
        let (task, extras, layout, stop) = desk.take();
        let Some(layout) = layout.filter(|_| task != Task::End) else { return };
        let config = &state.config;
        let mut options = options(config);
        if task == Task::HostApplications {
            options.containers = false;
            options.pressure_interval = None;
            options.cpi = None;
        }
        let roots = SystemRoots { proc_root: config.paths.proc.clone(), sys_root: config.paths.sys.clone() };
        let mut sampler = Sampler::new(options, Layout::clone(&layout), roots);
        let mut told = Told::default();
        let inventory = || {
            let all = Arc::clone(&state.inventory.borrow());
            match task {
                Task::HostApplications => {
                    Arc::new(Inventory { pods: Vec::new(), host_applications: all.host_applications.clone() })
                }
                _ => all,
            }
        };
        sampler.run(&stop, inventory, |pass, live, sampler| {
            deliver(state, task, extras, pass, live);
            told.tell(state, sampler);
            if stop.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
}

fn deliver(state: &State, task: Task, extras: Wanted, pass: Pass, live: &Inventory) {
    if task == Task::Everything {
        state.intake.own(pass, live);
    } else {
        state.intake.beside(beside(pass.samples, extras));
    }
}

/// What of a sampler's figures metrics were told.
#[derive(Debug, Default)]
struct Told {
    skipped: u64,
    errors: std::collections::BTreeMap<&'static str, u64>,
}

impl Told {
    fn tell(&mut self, state: &State, sampler: &Sampler) {
        let skipped = sampler.ticks().skipped;
        state.internal.add(&internal::SKIPPED_TICKS, &[], (skipped - self.skipped) as f64);
        self.skipped = skipped;
        for status in sampler.status() {
            let name = status.collector.as_str();
            let labels = [("collector", name)];
            state.internal.observe(&internal::COLLECT_DURATION, &labels, status.duration.as_secs_f64());
            let before = self.errors.insert(name, status.errors).unwrap_or(0);
            if status.errors > before {
                let labels = [("collector", name), ("class", "read")];
                state.internal.add(&internal::COLLECT_ERRORS, &labels, (status.errors - before) as f64);
            }
        }
        state.own_collectors(sampler.status().iter().map(view).collect());
    }
}

/// Gives orders to the thread until `token` is cancelled.
pub async fn conduct(state: &State, desk: &Desk, token: CancellationToken) {
    let wanted = Wanted::of(&state.config);
    loop {
        let source = state.choice(|choice| choice.at(Tick::now()));
        let extras = wanted.without(&state.proxy_views());
        let has_host_applications = !state.inventory.borrow().host_applications.is_empty();
        let layout = Arc::clone(&state.layout.borrow());
        desk.put(task(source, extras, has_host_applications), extras, &layout);
        tokio::select! {
            () = token.cancelled() => break,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
    let layout = Arc::clone(&state.layout.borrow());
    desk.put(Task::End, Wanted::default(), &layout);
}

#[cfg(test)]
mod tests {
    use koord_usage::kind::CpiResource;

    use super::*;

    fn ready(name: &str) -> CollectorView {
        CollectorView {
            name: name.to_owned(),
            state: "ready".to_owned(),
            reason: String::new(),
            last_success: None,
            duration_microseconds: 0,
            errors: 0,
            open_descriptors: 0,
        }
    }

    #[test]
    fn the_sampler_rests_while_the_proxy_measures() {
        let none = Wanted::default();
        let pressure = Wanted { pressure: true, ..none };
        assert_eq!(task(Source::Own, none, false), Task::Everything);
        assert_eq!(task(Source::Waiting, pressure, true), Task::Rest);
        assert_eq!(task(Source::Proxy, none, false), Task::Rest);
        assert_eq!(task(Source::Proxy, none, true), Task::HostApplications);
        assert_eq!(task(Source::Proxy, pressure, true), Task::Extras);
        assert_eq!(task(Source::Proxy, pressure.without(&[ready("pressure")]), false), Task::Rest);
        assert_eq!(task(Source::Proxy, pressure.without(&[ready("cpi")]), false), Task::Extras);
    }

    #[test]
    fn only_what_the_proxy_lacks_goes_beside_the_stream() {
        let sample = |object, kind| Sample { object, kind, value: 1.0 };
        let container = Object::Container { pod_uid: "u".into(), id: "c".into() };
        let samples = vec![
            sample(Object::Node, Kind::NodeCpuUsage),
            sample(Object::HostApplication("a".into()), Kind::HostApplicationCpuUsage),
            sample(container.clone(), Kind::ContainerCpuUsage),
            sample(container.clone(), Kind::ContainerCpi(CpiResource::Cycle)),
            sample(Object::Pod("u".into()), Kind::PodPsiCpuFullSupported),
        ];
        let kinds = |extras| -> Vec<Kind> {
            beside(samples.clone(), extras).iter().map(|sample| sample.kind).collect()
        };
        assert_eq!(kinds(Wanted::default()), [Kind::HostApplicationCpuUsage]);
        assert_eq!(
            kinds(Wanted { cpi: true, pressure: true, ..Wanted::default() }),
            [
                Kind::HostApplicationCpuUsage,
                Kind::ContainerCpi(CpiResource::Cycle),
                Kind::PodPsiCpuFullSupported
            ]
        );
    }
}
