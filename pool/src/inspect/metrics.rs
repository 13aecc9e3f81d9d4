//! A pool's counters as metrics.

use std::sync::Once;

use binpool_allocators::Backend;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use crate::{MemoryPool, PoolStatistics};

/// A gauge, or a counter that only grows.
struct Figure {
    name: &'static str,
    unit: Unit,
    description: &'static str,
    of: fn(&PoolStatistics) -> u64,
}

const GAUGES: [Figure; 9] = [
    Figure {
        name: "binpool_active_blocks",
        unit: Unit::Count,
        description: "Blocks in use by the program.",
        of: |it| it.active_blocks,
    },
    Figure {
        name: "binpool_active_bytes",
        unit: Unit::Bytes,
        description: "Bytes in use by the program, as requested.",
        of: |it| it.active_bytes,
    },
    Figure {
        name: "binpool_peak_active_bytes",
        unit: Unit::Bytes,
        description: "Peak of the active bytes.",
        of: |it| it.peak_active_bytes,
    },
    Figure {
        name: "binpool_viewed_bytes",
        unit: Unit::Bytes,
        description: "Bytes that the program has released but still has views of.",
        of: |it| it.viewed_bytes,
    },
    Figure {
        name: "binpool_held_blocks",
        unit: Unit::Count,
        description: "Free blocks in the pool: cached, not leaked.",
        of: |it| it.held_blocks,
    },
    Figure {
        name: "binpool_held_bytes",
        unit: Unit::Bytes,
        description: "Free bytes in the pool: cached, not leaked.",
        of: |it| it.held_bytes,
    },
    Figure {
        name: "binpool_pending_bytes",
        unit: Unit::Bytes,
        description: "The part of the held bytes that commands may still use.",
        of: |it| it.pending_bytes,
    },
    Figure {
        name: "binpool_managed_bytes",
        unit: Unit::Bytes,
        description: "Bytes that the pool has from its allocator.",
        of: |it| it.managed_bytes,
    },
    Figure {
        name: "binpool_peak_managed_bytes",
        unit: Unit::Bytes,
        description: "Peak of the managed bytes.",
        of: |it| it.peak_managed_bytes,
    },
];

const COUNTERS: [Figure; 8] = [
    Figure {
        name: "binpool_hits_total",
        unit: Unit::Count,
        description: "Allocations served from the pool's memory.",
        of: |it| it.hits,
    },
    Figure {
        name: "binpool_ended_hits_total",
        unit: Unit::Count,
        description: "Hits across queues with blocks whose commands had ended.",
        of: |it| it.ended_hits,
    },
    Figure {
        name: "binpool_device_wait_hits_total",
        unit: Unit::Count,
        description: "Hits for which a queue was made to wait on the device.",
        of: |it| it.device_wait_hits,
    },
    Figure {
        name: "binpool_host_wait_hits_total",
        unit: Unit::Count,
        description: "Hits for which the host waited.",
        of: |it| it.host_wait_hits,
    },
    Figure {
        name: "binpool_carved_hits_total",
        unit: Unit::Count,
        description: "Hits with blocks carved from a segment.",
        of: |it| it.carved_hits,
    },
    Figure {
        name: "binpool_misses_total",
        unit: Unit::Count,
        description: "Allocations that went to the allocator.",
        of: |it| it.misses,
    },
    Figure {
        name: "binpool_out_of_memory_total",
        unit: Unit::Count,
        description: "Allocations that failed for lack of memory.",
        of: |it| it.out_of_memory,
    },
    Figure {
        name: "binpool_released_blocks_total",
        unit: Unit::Count,
        description: "Blocks or segments released to the allocator.",
        of: |it| it.released_blocks,
    },
];

/// # Metrics
impl<B: Backend> MemoryPool<B> {
    /// Reports the pool's counters to the program's [`metrics`] recorder, under the label `pool` with this name. Call
    /// it whenever metrics are collected, or every few seconds.
    ///
    /// The names do not change between minor versions. Gauges: `binpool_active_blocks`, `binpool_active_bytes`,
    /// `binpool_peak_active_bytes`, `binpool_viewed_bytes`, `binpool_held_blocks`, `binpool_held_bytes`,
    /// `binpool_pending_bytes`, `binpool_managed_bytes` and `binpool_peak_managed_bytes`. Counters:
    /// `binpool_hits_total`, `binpool_ended_hits_total`, `binpool_device_wait_hits_total`,
    /// `binpool_host_wait_hits_total`, `binpool_carved_hits_total`, `binpool_misses_total`,
    /// `binpool_out_of_memory_total` and `binpool_released_blocks_total`. [`PoolStatistics`] explains them.
    ///
    /// The example `prometheus` serves them to Prometheus. Without a recorder this does nothing.
    ///
    /// ```
    /// # use binpool::{Backend, ImmediateAllocator, MemoryPool, QueueOrder};
    /// # use binpool_mock::MockDevice;
    /// use metrics_exporter_prometheus::PrometheusBuilder;
    ///
    /// # let backend = MockDevice::new().backend();
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let pool = MemoryPool::new(ImmediateAllocator::new(&backend)?, &queue)?;
    /// let recorder = PrometheusBuilder::new().build_recorder();
    /// let block = pool.allocate(3 << 20)?;
    /// // A program installs its recorder once, and calls `publish_metrics` alone.
    /// metrics::with_local_recorder(&recorder, || pool.publish_metrics("arrays"));
    /// let page = recorder.handle().render();
    /// assert!(page.contains("binpool_active_bytes{pool=\"arrays\"} 3145728"));
    /// assert!(page.contains("binpool_misses_total{pool=\"arrays\"} 1"));
    /// # Ok::<(), binpool::PoolError>(())
    /// ```
    pub fn publish_metrics(&self, name: &str) {
        static DESCRIBED: Once = Once::new();
        DESCRIBED.call_once(describe);
        let statistics = self.statistics();
        for figure in &GAUGES {
            #[expect(clippy::cast_precision_loss, reason = "exact up to 8 PiB")]
            gauge!(figure.name, "pool" => name.to_owned()).set((figure.of)(&statistics) as f64);
        }
        for figure in &COUNTERS {
            let counter = counter!(figure.name, "pool" => name.to_owned());
            counter.absolute((figure.of)(&statistics));
        }
    }
}

fn describe() {
    for figure in GAUGES {
        describe_gauge!(figure.name, figure.unit, figure.description);
    }
    for figure in COUNTERS {
        describe_counter!(figure.name, figure.unit, figure.description);
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::mock_pool::MockPool;

    #[test]
    fn every_figure_is_published_with_its_description() {
        let mock = MockPool::of_blocks();
        drop(mock.pool.allocate(3000).unwrap());
        let block = mock.pool.allocate(3000).unwrap();
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || mock.pool.publish_metrics("arrays"));
        let page = recorder.handle().render();
        let statistics = mock.pool.statistics();
        for figure in GAUGES.iter().chain(&COUNTERS) {
            let Figure {
                name,
                description,
                of,
                ..
            } = figure;
            let value = of(&statistics);
            let line = format!("{name}{{pool=\"arrays\"}} {value}\n");
            assert!(page.contains(&line), "{line} is not in {page}");
            let help = format!("# HELP {name} {description}\n");
            assert!(page.contains(&help), "{help} is not in {page}");
        }
        assert!(
            page.contains("binpool_active_bytes{pool=\"arrays\"} 3000\n"),
            "{page}"
        );
        assert!(
            page.contains("binpool_hits_total{pool=\"arrays\"} 1\n"),
            "{page}"
        );
        drop(block);
    }
}
