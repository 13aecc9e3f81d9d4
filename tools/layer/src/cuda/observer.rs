//! Calls of the driver as the recording sees them: before and after.

use std::{ffi::c_int, time::Instant};

use super::{
    arguments::Arguments,
    driver::driver,
    function::{Effect, Function, OUT_OF_MEMORY, SUCCESS},
    live::Taken,
    tracker::{Block, Request, Tracker},
};

/// A call that has begun.
#[derive(Debug)]
pub(super) struct Begun {
    time: Instant,
    /// What it is to end.
    taken: Taken<Block>,
}

impl Begun {
    /// Notes a call that is about to be made.
    pub(super) fn before(tracker: &Tracker, function: &Function, arguments: Arguments) -> Self {
        let taken = tracker.take(function.effect, arguments);
        if function.effect == Effect::DestroysStream {
            tracker.end_stream(arguments.word(0));
        }
        Self {
            time: Instant::now(),
            taken,
        }
    }

    /// Notes what the call has done in a context.
    pub(super) fn after(
        self,
        tracker: &Tracker,
        function: &'static Function,
        arguments: Arguments,
        context: usize,
        code: c_int,
    ) {
        let nanoseconds = self.time.elapsed().as_nanos();
        function
            .call
            .add(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        if let Effect::Allocates(allocates) = function.effect {
            let has_succeeded = code == SUCCESS;
            let request = Request {
                kind: allocates.kind,
                bytes: arguments.bytes(allocates.bytes, has_succeeded),
                context,
                stream: arguments.stream(function),
            };
            match code {
                SUCCESS => {
                    let handle = arguments.result(allocates.result);
                    // A block of 0 bytes has no address.
                    if handle != 0 {
                        tracker.allocated(allocates.space, handle, request);
                    }
                }
                OUT_OF_MEMORY => tracker.refused(request),
                _ => {}
            }
            return;
        }
        if code != SUCCESS {
            return tracker.put_back(self.taken);
        }
        let mut taken = self.taken;
        match function.effect {
            Effect::DestroysContext => tracker.end_context(arguments.word(0)),
            Effect::ResetsPrimary => tracker.end_primary(arguments.number(0)),
            Effect::ReleasesPrimary if driver().has_primary(arguments.number(0)) == Some(false) => {
                taken = tracker.take_primary(arguments.number(0));
                tracker.end_primary(arguments.number(0));
            }
            _ => {}
        }
        tracker.after(function, arguments, taken, context);
    }
}
