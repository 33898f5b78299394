//! Block I/O of one device.

use koord_extension::annotation::IoConfig;

/// Block I/O of one device, with the defaults of what is unset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoSettings {
    /// Reads per second; 0 is no limit.
    pub read_iops: i64,
    /// Writes per second; 0 is no limit.
    pub write_iops: i64,
    /// Bytes read per second; 0 is no limit.
    pub read_bps: i64,
    /// Bytes written per second; 0 is no limit.
    pub write_bps: i64,
    /// Weight in percent, 1..100.
    pub io_weight_percent: i64,
    /// Wished latency of reads, microseconds.
    pub read_latency: i64,
    /// Wished latency of writes, microseconds.
    pub write_latency: i64,
    /// Percentile at which the reads' latency is looked at.
    pub read_latency_percent: i64,
    /// Percentile at which the writes' latency is looked at.
    pub write_latency_percent: i64,
    /// Whether the numbers below are used.
    pub enable_user_model: bool,
    /// Bytes the device reads per second.
    pub model_read_bps: i64,
    /// Bytes the device writes per second.
    pub model_write_bps: i64,
    /// Sequential reads per second.
    pub model_read_seq_iops: i64,
    /// Sequential writes per second.
    pub model_write_seq_iops: i64,
    /// Random reads per second.
    pub model_read_rand_iops: i64,
    /// Random writes per second.
    pub model_write_rand_iops: i64,
}

impl From<&IoConfig> for IoSettings {
    fn from(config: &IoConfig) -> IoSettings {
        IoSettings {
            read_iops: config.read_iops.unwrap_or(0),
            write_iops: config.write_iops.unwrap_or(0),
            read_bps: config.read_bps.unwrap_or(0),
            write_bps: config.write_bps.unwrap_or(0),
            io_weight_percent: config.io_weight_percent.unwrap_or(100),
            read_latency: config.read_latency.unwrap_or(3000),
            write_latency: config.write_latency.unwrap_or(3000),
            read_latency_percent: config.read_latency_percent.unwrap_or(95),
            write_latency_percent: config.write_latency_percent.unwrap_or(95),
            enable_user_model: config.enable_user_model.unwrap_or(false),
            model_read_bps: config.model_read_bps.unwrap_or(1),
            model_write_bps: config.model_write_bps.unwrap_or(1),
            model_read_seq_iops: config.model_read_seq_iops.unwrap_or(1),
            model_write_seq_iops: config.model_write_seq_iops.unwrap_or(1),
            model_read_rand_iops: config.model_read_rand_iops.unwrap_or(1),
            model_write_rand_iops: config.model_write_rand_iops.unwrap_or(1),
        }
    }
}
