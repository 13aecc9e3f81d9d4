//! Which calls of the program the pools serve, and what of the driver's answers they correct.

use std::ffi::c_int;

use super::{
    arguments::{Arguments, DriverPool},
    function::{Allocates, Effect, Function, OUT_OF_MEMORY, SUCCESS, Space, Way},
    own_calls::own,
    pooling::{Pooling, Served},
    tracker::Tracker,
};
use crate::{framework, pool_figures::count_request, recording::contained};

/// `CU_POINTER_ATTRIBUTE_RANGE_START_ADDR`.
const RANGE_START: usize = 11;
/// `CU_POINTER_ATTRIBUTE_RANGE_SIZE`.
const RANGE_BYTES: usize = 12;

impl Pooling {
    /// Serves a call of the program: from the pools, or by the driver's own function.
    pub(super) fn serve(
        &self,
        function: &Function,
        arguments: Arguments,
        tracker: Option<&Tracker>,
        real: impl Fn() -> c_int,
    ) -> c_int {
        match function.effect {
            Effect::Allocates(allocates) => {
                self.serve_allocation(function, allocates, arguments, tracker, real)
            }
            Effect::Frees {
                space: Space::Memory,
                block,
                ..
            } => {
                let freed = own(|| self.free(arguments.word(block), arguments.stream(function)));
                freed.unwrap_or_else(|| self.counted(function.effect, arguments, real))
            }
            Effect::AsksForMemory
            | Effect::AsksForRange
            | Effect::AsksForAttribute
            | Effect::AsksForAttributes => self.answer(function.effect, arguments, real),
            effect => self.counted(effect, arguments, || {
                self.notice(function, arguments, &real)
            }),
        }
    }

    fn serve_allocation(
        &self,
        function: &Function,
        allocates: Allocates,
        arguments: Arguments,
        tracker: Option<&Tracker>,
        real: impl Fn() -> c_int,
    ) -> c_int {
        let bytes = arguments.bytes(allocates.bytes, false);
        let has_place = arguments.word(0) != 0 && bytes > 0;
        let pool = (allocates.way == Way::FromPool).then(|| arguments.word(2));
        let served = own(|| {
            Some(match (allocates.way, arguments.stream(function)) {
                (Way::Plain, _) if has_place => self.allocate_plain(bytes),
                (Way::Ordered | Way::FromPool, Some(stream)) if has_place => {
                    self.allocate_ordered(bytes, stream, pool)
                }
                _ => Served::Passed(function.name),
            })
        });
        // The pool of a framework has its memory from here: what is served are its blocks.
        let is_of_pool = framework::is_pooled() && allocates.space == Space::Pages;
        if has_place && !is_of_pool {
            count_request(matches!(served, Some(Served::Block(_))));
        }
        let why = match served.unwrap_or(Served::Passed("the pool failed")) {
            Served::Block(address) => {
                arguments.put(0, address);
                return SUCCESS;
            }
            Served::Refused => return OUT_OF_MEMORY,
            Served::Passed(why) => why,
        };
        // The host may have managed memory.
        let made = pool.and_then(|pool| self.driver_pool(pool));
        let is_of_host = made == Some(DriverPool::OfHost);
        let counts = !matches!(allocates.kind, "pinned" | "managed") && !is_of_host;
        if counts && !self.unpooled.reserve(bytes) {
            own(|| self.release_kept());
            if !self.unpooled.reserve(bytes) {
                own(|| self.unpooled.note_refusal(bytes));
                return OUT_OF_MEMORY;
            }
        }
        let mut code = real();
        if code == OUT_OF_MEMORY && own(|| self.release_kept()) > 0 {
            code = real();
        }
        if counts && (code != SUCCESS || bytes == 0) {
            self.unpooled.give_up(bytes);
        }
        if code == SUCCESS && bytes > 0 {
            let handle = arguments.result(allocates.result);
            if allocates.space == Space::Memory {
                self.given_by_driver(handle);
            }
            if counts {
                let context = own(|| self.driver.current());
                self.unpooled.keep(allocates.space, handle, context, bytes);
            }
            if let Some(tracker) = tracker.filter(|_| !is_of_pool) {
                contained(|| tracker.passed(bytes, why));
            }
        }
        code
    }

    /// Makes a call, and subtracts what it has ended from what the limit counts.
    fn counted(&self, effect: Effect, arguments: Arguments, call: impl Fn() -> c_int) -> c_int {
        let mut taken = self.unpooled.take(effect, arguments);
        let code = call();
        let has_succeeded = code == SUCCESS;
        if has_succeeded && effect == Effect::ReleasesPrimary {
            let device = arguments.number(0);
            if own(|| self.driver.has_primary(device)) == Some(false) {
                taken = self.unpooled.take_primary(device);
            }
        }
        self.unpooled.after(effect, arguments, taken, has_succeeded);
        code
    }

    /// Answers a question about memory.
    fn answer(&self, effect: Effect, arguments: Arguments, real: impl Fn() -> c_int) -> c_int {
        match effect {
            Effect::AsksForMemory => {
                let code = real();
                let got = || (arguments.got(0), arguments.got(1));
                if code == SUCCESS
                    && let Some((free, total)) = own(|| Some(self.memory(got())))
                {
                    arguments.put(0, free);
                    arguments.put(1, total);
                }
                code
            }
            Effect::AsksForRange => match self.range(arguments.word(2)) {
                Some((start, bytes)) => {
                    arguments.put(0, start);
                    arguments.put(1, bytes);
                    SUCCESS
                }
                None => real(),
            },
            Effect::AsksForAttribute => {
                let range = self.range(arguments.word(2));
                match range.and_then(|range| attribute_of(range, arguments.number(1))) {
                    Some(value) => {
                        arguments.put(0, value);
                        SUCCESS
                    }
                    None => real(),
                }
            }
            _ => {
                let code = real();
                if code == SUCCESS
                    && let Some(range) = self.range(arguments.word(3))
                {
                    arguments.correct_attributes(|attribute| attribute_of(range, attribute));
                }
                code
            }
        }
    }

    /// Lets the driver do something that the pools have to know of.
    fn notice(&self, function: &Function, arguments: Arguments, real: impl Fn() -> c_int) -> c_int {
        match function.effect {
            Effect::DestroysStream => {
                let stream = arguments.word(0);
                // A capture ends with its stream, also where that lives on.
                if own(|| self.is_captured(stream)) {
                    own(|| self.driver.abandon_capture(stream));
                    self.end_capture();
                }
                let lives_on = own(|| self.end_stream(stream));
                return if lives_on { SUCCESS } else { real() };
            }
            Effect::EndsCapture => {
                let stream = function.stream_of(arguments.word(0));
                let is_captured = own(|| self.is_captured(stream));
                let code = real();
                if is_captured {
                    self.end_capture();
                }
                return code;
            }
            Effect::DestroysContext => {
                own(|| drop(self.forget(arguments.word(0))));
            }
            Effect::ReleasesPrimary => {
                own(|| self.release(arguments.number(0)));
            }
            Effect::ResetsPrimary => {
                own(|| self.close(arguments.number(0)));
            }
            Effect::EnablesPeers => self.enable_peers(),
            Effect::ChangesPools | Effect::SharesPool => self.change_pools(),
            _ => {}
        }
        let code = real();
        if code == SUCCESS {
            match function.effect {
                Effect::RetainsPrimary => self.retain(arguments.number(1)),
                Effect::BeginsCapture => self.begin_capture(),
                Effect::MakesPool => self.note_pool(arguments.got(0), arguments.made_pool()),
                Effect::DestroysPool => {
                    own(|| self.release_in_place_of(arguments.word(0)));
                    self.forget_pool(arguments.word(0));
                }
                Effect::TrimsPool if arguments.word(1) == 0 => {
                    own(|| self.release_in_place_of(arguments.word(0)));
                }
                Effect::SharesPool => {
                    let [pool, access, count] = [0, 1, 2].map(|number| arguments.word(number));
                    own(|| self.share(pool, access, count));
                }
                _ => {}
            }
        }
        code
    }
}

/// The attribute of an address in a block, if it is one that the block's pool would spoil.
fn attribute_of((start, bytes): (usize, usize), attribute: usize) -> Option<usize> {
    match attribute {
        RANGE_START => Some(start),
        RANGE_BYTES => Some(bytes),
        _ => None,
    }
}
