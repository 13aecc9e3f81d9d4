//! No adaptor holds a lock while it calls the allocator inside: using the adaptor from there would hang.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use binpool_allocators::{
    Allocator, Result,
    adaptors::{Fallback, Limit, Statistics},
};
use binpool_conformance::Failing;

use crate::adaptors::{deferred, device, odd::Odd};

/// Allocates and releases through the adaptor that `wrap` puts around an allocator, while that allocator's calls
/// allocate and release through the adaptor, too.
fn re_enter<A: Allocator + Clone + 'static>(wrap: impl FnOnce(Odd) -> A + Send + 'static) {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        let inside: Arc<OnceLock<A>> = Arc::default();
        let (entered, calls) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let hook = || {
            let (inside, entered) = (Arc::clone(&inside), Arc::clone(&entered));
            let calls: Arc<AtomicUsize> = Arc::clone(&calls);
            move |_| -> Result<()> {
                // Not endlessly.
                if !entered.swap(true, Ordering::Relaxed) {
                    let adaptor = inside.get().unwrap();
                    let block = adaptor.allocate(10)?;
                    adaptor.release(block, &[])?;
                    calls.fetch_add(1, Ordering::Relaxed);
                    entered.store(false, Ordering::Relaxed);
                }
                Ok(())
            }
        };
        let adaptor = wrap(Odd::new(&device()).on_allocate(hook()).on_release(hook()));
        assert!(inside.set(adaptor.clone()).is_ok());
        let block = adaptor.allocate(100).unwrap();
        adaptor.release(block, &[]).unwrap();
        done.send(calls.load(Ordering::Relaxed)).unwrap();
    });
    assert_eq!(ended.recv_timeout(Duration::from_secs(20)), Ok(2));
}

#[test]
fn adaptors_can_be_used_from_the_calls_that_they_make() {
    re_enter(|odd| Limit::new(odd, 1000));
    re_enter(Statistics::new);
    re_enter(Failing::new);
    re_enter(|odd| Fallback::new(odd, deferred(&device())));
    // As the second.
    re_enter(|odd| Fallback::new(Limit::new(deferred(&device()), 0), odd));
}
