//! A pool's counters as metrics.

use std::sync::Once;

use binpool_allocators::Backend;
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use crate::{MemoryPool, PoolStatistics, statistics::for_each_counter};

/// A gauge, or a counter that only grows.
struct Figure {
    name: &'static str,
    unit: Unit,
    description: &'static str,
    value: u64,
}

/// Makes `gauges` and `counters`, which together have each field of [`PoolStatistics`].
macro_rules! figures {
    (gauges: { $($gauge:ident: $unit:ident, $gauge_text:literal;)* } counters: { $($counter:ident, $counter_text:literal;)* }) => {
        fn gauges(statistics: &PoolStatistics) -> impl Iterator<Item = Figure> {
            [$(Figure {
                name: concat!("binpool_", stringify!($gauge)),
                unit: Unit::$unit,
                description: $gauge_text,
                value: statistics.$gauge,
            }),*].into_iter()
        }

        fn counters(statistics: &PoolStatistics) -> impl Iterator<Item = Figure> {
            [$(Figure {
                name: concat!("binpool_", stringify!($counter), "_total"),
                unit: Unit::Count,
                description: $counter_text,
                value: statistics.$counter,
            }),*].into_iter()
        }
    };
}

for_each_counter!(figures);

/// # Metrics
impl<B: Backend> MemoryPool<B> {
    /// Reports the pool's counters to the program's [`metrics`] recorder, under the label `pool` with this name. Call
    /// it whenever metrics are collected, or every few seconds.
    ///
    /// Each field of [`PoolStatistics`] is one of them: counts of events as counters such as `binpool_misses_total`, and all others as gauges
    /// such as `binpool_active_bytes`. The names do not change between minor versions.
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
        for figure in gauges(&statistics) {
            #[expect(clippy::cast_precision_loss, reason = "exact up to 8 PiB")]
            gauge!(figure.name, "pool" => name.to_owned()).set(figure.value as f64);
        }
        for figure in counters(&statistics) {
            counter!(figure.name, "pool" => name.to_owned()).absolute(figure.value);
        }
    }
}

fn describe() {
    let none = PoolStatistics::default();
    for figure in gauges(&none) {
        describe_gauge!(figure.name, figure.unit, figure.description);
    }
    for figure in counters(&none) {
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
        for figure in gauges(&statistics).chain(counters(&statistics)) {
            let Figure {
                name,
                description,
                value,
                ..
            } = figure;
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
