//! The graph that a stream is captured into, and what it keeps: an object of the driver, which it drops with the graph, its copies and its
//! executables.

use std::{ffi::c_void, sync::Arc};

use super::{
    context::Context,
    driver::{Driver, Handle},
    kept::{Kept, OfEndedGraphs},
    status::CudaResult,
    stream::{LEGACY, Stream},
};

/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`: a capture that has not been invalidated.
const ACTIVE: i32 = 1;
/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, which has to be set.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: the graph gets the caller's reference.
const MOVE: u32 = 1;

/// What an object of the driver points to.
struct Object {
    value: Kept,
    ended: Arc<OfEndedGraphs>,
}

/// Called by the driver once the graph and what was made of it are gone: on a thread of its own, or on the one that destroys the graph.
///
/// # Safety
///
/// `object` was made by [`Stream::keep`], and this is called once.
unsafe extern "C" fn ended(object: *mut c_void) {
    // SAFETY: It is a box that `keep` has made, which nothing else takes, as the caller promises.
    let Object { value, ended } = *unsafe { Box::from_raw(object.cast::<Object>()) };
    ended.put(value);
}

/// A capture that a stream is part of.
struct Capture {
    number: u64,
    graph: Handle,
}

impl Stream {
    /// Returns the number of the capture that the stream is part of; `None` if its commands run, or the capture has been invalidated.
    pub(crate) fn capture_number(&self) -> CudaResult<Option<u64>> {
        Ok(self.capture()?.map(|capture| capture.number))
    }

    fn capture(&self) -> CudaResult<Option<Capture>> {
        // It cannot be captured, and the driver refuses the question while a stream that waits for it is.
        if self.raw() == LEGACY {
            return Ok(None);
        }
        let (mut status, mut number, mut graph) = (0, 0, 0);
        let (status_at, number_at, graph_at) = (&raw mut status, &raw mut number, &raw mut graph);
        self.context().enqueue(|driver| {
            // SAFETY: The first three are places for the results, and the others may be null; the stream lives.
            unsafe { driver.stream_capture(self.raw(), status_at, number_at, graph_at, 0, 0) }
        })?;
        Ok((status == ACTIVE).then_some(Capture { number, graph }))
    }

    /// Gives a value to the graph that the stream is captured into. Returns whether there is one.
    pub(crate) fn keep(&self, value: Kept) -> CudaResult<bool> {
        let Some(capture) = self.capture()? else {
            return Ok(false);
        };
        let context: &Context = self.context();
        let driver = context.enter_relaxed()?;
        let ended_graphs = Arc::clone(&driver.of_ended_graphs);
        let object = Box::into_raw(Box::new(Object {
            value,
            ended: ended_graphs,
        }));
        let kept = retain(&driver, capture.graph, object);
        context.seen(kept).map(|()| true)
    }
}

/// Makes an object of the driver, and gives it to the graph.
fn retain(driver: &Driver, graph: Handle, object: *mut Object) -> CudaResult<()> {
    let mut raw = 0;
    let at = object.cast::<c_void>();
    // SAFETY: `raw` is a place for the result; `object` is what `ended` takes.
    let made = unsafe { driver.object_create(&raw mut raw, at, ended, 1, NO_DESTRUCTOR_SYNC) };
    made.inspect_err(|_| {
        // SAFETY: It is a box, which the driver has not taken.
        drop(unsafe { Box::from_raw(object) });
    })?;
    // SAFETY: It takes no pointers; the reference is ours.
    let retained = unsafe { driver.graph_retain(graph, raw, 1, MOVE) };
    retained.inspect_err(|_| {
        // SAFETY: As above. The driver drops the value.
        let released = unsafe { driver.object_release(raw, 1) };
        if let Err(error) = released {
            tracing::error!(%error, "values kept for a graph stay until the process ends");
        }
    })
}
