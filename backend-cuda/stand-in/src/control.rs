//! What a test says to the stand-in.

use std::{
    ffi::{CStr, c_char},
    sync::atomic::Ordering,
};

use crate::{Code, context::context, cupti, device::device};

fn name(call: *const c_char) -> String {
    // SAFETY: The test passes a string that ends with a zero.
    let call = unsafe { CStr::from_ptr(call) };
    call.to_string_lossy().into_owned()
}

macro_rules! controls {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block)*) => {
        $(
            $(#[$doc])*
            // SAFETY: Nothing else has a name that begins like this.
            #[unsafe(no_mangle)]
            extern "system" fn $name($($argument: $type),*) -> $result $body
        )*
    };
}

controls! {
    /// Sets the bytes of a device.
    fn stand_in_capacity(ordinal: i32, bytes: usize) -> () {
        if let Ok(device) = device(ordinal) {
            device.capacity.store(bytes, Ordering::SeqCst);
        }
    }

    /// Makes calls fail: this many, after this many others.
    fn stand_in_fail(ordinal: i32, call: *const c_char, before: u64, times: u64, code: Code) -> () {
        if let Ok(device) = device(ordinal) {
            device.faults.lock().plan(name(call), before, times, code);
        }
    }

    /// Returns how often a call was made.
    fn stand_in_calls(ordinal: i32, call: *const c_char) -> u64 {
        device(ordinal).map_or(0, |device| device.faults.lock().count(&name(call)))
    }

    /// Returns whether a function was called, by its whole name.
    fn stand_in_was_called(call: *const c_char) -> bool { cupti::was_called(&name(call)) }

    /// Returns the bytes that are allocated.
    fn stand_in_used(ordinal: i32) -> usize {
        device(ordinal).map_or(0, |device| device.memory.lock().used())
    }

    /// Lets a block get the address of the one before that was freed, if it has as many bytes.
    fn stand_in_reuse_addresses(ordinal: i32) -> () {
        if let Ok(device) = device(ordinal) {
            device.memory.lock().reuse_addresses();
        }
    }

    /// Sets whether a device and others may use each other's memory.
    fn stand_in_can_peer(ordinal: i32, can: bool) -> () {
        if let Ok(device) = device(ordinal) {
            device.can_peer.store(can, Ordering::SeqCst);
        }
    }

    /// Returns whether a kernel of a device may use a byte of memory, of whatever device.
    fn stand_in_can_use(ordinal: i32, address: u64) -> bool {
        device(ordinal).is_ok_and(|device| device.visit(address, 1, |_| {}).is_ok())
    }

    /// Returns the number of objects that were made and not destroyed.
    fn stand_in_objects(ordinal: i32) -> usize {
        context(ordinal).map_or(0, |context| context.objects())
    }
}
