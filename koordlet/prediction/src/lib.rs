//! Peak prediction: how much CPU and memory pods, priority classes and the node need at their peak, and how
//! much of what production pods request stays unused even then.
//!
//! The [`Predictor`] is trained once a minute with what was used in that minute, and keeps one [model]
//! per pod, per priority class, for the node and for the system: histograms in which old samples fade.
//! [`prod`](Predictor::prod) turns them into the two figures of a NodeMetric, `prodReclaimableMetric` and
//! `prodPeakMetric`.
//!
//! Everything is a function of its arguments, but for [`checkpoint_files`], which reads and writes the
//! models' checkpoints. Rules and numbers are those of Koordinator's development branch of July 2026, unless
//! a comment says otherwise.
//!
//! [`pod::Pod`] is the node agent's view of a pod, read from what the kubelet answers; every part of the
//! agent shares it as `Arc<Pod>`.

pub mod checkpoint;
pub mod checkpoint_files;
pub mod histogram;
pub mod model;
pub mod pod;
pub mod predictor;
pub mod prod;
pub mod resources;
pub mod wall_time;

pub use model::{Item, ModelName};
pub use predictor::{Predictor, PredictorOptions};
pub use resources::Resources;
pub use wall_time::WallTime;
