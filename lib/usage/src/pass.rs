//! What one tick gave.

use crate::kind::Kind;
use crate::object::Object;
use crate::time::Tick;

/// One number.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// What it is about.
    pub object: Object,
    /// What was measured.
    pub kind: Kind,
    /// The figure, in the unit of the kind.
    pub value: f64,
}

/// Kind and object do not belong together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} is not measured for {object}", kind = kind.as_str())]
pub struct SampleError {
    /// The object.
    pub object: Object,
    /// The kind.
    pub kind: Kind,
}

impl Sample {
    /// A sample.
    ///
    /// # Errors
    /// The kind is not measured for such an object.
    pub fn new(object: Object, kind: Kind, value: f64) -> Result<Sample, SampleError> {
        if kind.suits(&object) {
            Ok(Sample { object, kind, value })
        } else {
            Err(SampleError { object, kind })
        }
    }
}

/// All samples of one tick. They become visible together or not at all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pass {
    /// The moment, which is the time of every sample, whenever within the pass its file was read.
    pub tick: Tick,
    /// The samples; those of one object lie side by side where possible.
    pub samples: Vec<Sample>,
}

impl Pass {
    /// A pass without samples.
    pub const fn new(tick: Tick) -> Pass {
        Pass { tick, samples: Vec::new() }
    }

    /// Adds a sample, whose kind suits its object.
    pub fn push(&mut self, object: Object, kind: Kind, value: f64) {
        debug_assert!(kind.suits(&object), "{kind} is not measured for {object}", kind = kind.as_str());
        self.samples.push(Sample { object, kind, value });
    }

    /// The first value of `kind` for `object`.
    pub fn value(&self, object: &Object, kind: Kind) -> Option<f64> {
        self.samples
            .iter()
            .find(|sample| sample.kind == kind && sample.object.is_same(object))
            .map(|sample| sample.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_measured_for_their_objects_only() {
        let sample = Sample::new(Object::Node, Kind::NodeCpuUsage, 1.5).expect("they suit");
        assert_eq!(sample, Sample { object: Object::Node, kind: Kind::NodeCpuUsage, value: 1.5 });
        let error = Sample::new(Object::Pod("0f".into()), Kind::NodeCpuUsage, 1.5).expect_err("they do not");
        assert_eq!(error.to_string(), "node_cpu_usage is not measured for pod/0f");
    }

    #[test]
    fn the_first_value_is_found() {
        let mut pass = Pass::new(Tick(1_000));
        pass.push(Object::Pod("a".into()), Kind::PodCpuUsage, 1.0);
        pass.push(Object::Pod("b".into()), Kind::PodCpuUsage, 2.0);
        pass.push(Object::Pod("b".into()), Kind::PodCpuUsage, 3.0);
        assert_eq!(pass.value(&Object::Pod("b".into()), Kind::PodCpuUsage), Some(2.0));
        assert_eq!(pass.value(&Object::Pod("b".into()), Kind::PodMemoryUsage), None);
    }
}
