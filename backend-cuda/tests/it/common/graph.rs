//! Captures of streams, and the graphs that come of them, as a program makes them with the driver.

use std::ffi::c_void;

use binpool_cuda::{CudaBackend, CudaQueue};

use super::{Device, stand_in};

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, which forbids all threads something.
const GLOBAL: u32 = 0;

type Instantiate = extern "system" fn(*mut usize, usize, u64) -> i32;
type OfStream = extern "system" fn(*mut c_void, *mut usize) -> i32;

macro_rules! call {
    ($name:literal: $signature:ty) => {{
        // SAFETY: The signature is right.
        let call = unsafe { stand_in().controls.get::<$signature>($name) };
        *call.unwrap()
    }};
}

/// A graph that can be launched.
pub(crate) struct Graph {
    /// Keeps its context, which `capture` has made current.
    _backend: CudaBackend,
    executable: usize,
}

impl Device {
    /// Captures what `work` enqueues on a queue, in the mode that forbids most.
    pub(crate) fn capture<T>(
        &self,
        queue: &CudaQueue,
        work: impl FnOnce() -> T,
    ) -> (T, Result<Graph, i32>) {
        self.begin_capture(queue);
        let result = work();
        (result, self.end_capture(queue))
    }

    /// Sets the mode of the calling thread, and returns that before.
    pub(crate) fn exchange_capture_mode(&self, mut mode: u32) -> u32 {
        self.make_current();
        let exchange =
            call!(b"cuThreadExchangeStreamCaptureMode": extern "system" fn(*mut u32) -> i32);
        assert_eq!(exchange(&raw mut mode), 0);
        mode
    }

    pub(crate) fn begin_capture(&self, queue: &CudaQueue) {
        self.make_current();
        let begin = call!(b"cuStreamBeginCapture_v2": extern "system" fn(*mut c_void, u32) -> i32);
        assert_eq!(begin(queue.raw(), GLOBAL), 0);
    }

    pub(crate) fn end_capture(&self, queue: &CudaQueue) -> Result<Graph, i32> {
        let (mut graph, mut executable) = (0, 0);
        match call!(b"cuStreamEndCapture": OfStream)(queue.raw(), &raw mut graph) {
            0 => {}
            code => return Err(code),
        }
        let instantiate = call!(b"cuGraphInstantiateWithFlags": Instantiate);
        assert_eq!(instantiate(&raw mut executable, graph, 0), 0);
        assert_eq!(
            call!(b"cuGraphDestroy": extern "system" fn(usize) -> i32)(graph),
            0
        );
        Ok(Graph {
            _backend: self.backend(),
            executable,
        })
    }
}

impl Graph {
    pub(crate) fn launch(&self, queue: &CudaQueue) {
        let launch = call!(b"cuGraphLaunch": extern "system" fn(usize, *mut c_void) -> i32);
        assert_eq!(launch(self.executable, queue.raw()), 0);
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let destroy = call!(b"cuGraphExecDestroy": extern "system" fn(usize) -> i32);
        destroy(self.executable);
    }
}
