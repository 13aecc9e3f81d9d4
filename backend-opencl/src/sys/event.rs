//! Events.

use cl3::{error_codes::CL_INVALID_VALUE, info_type::InfoType};

use super::{ContextHandle, EventHandle};
use crate::cl_error::{ClError, ClResult};

/// An event that the host resolves.
pub(crate) fn create_user_event(context: &ContextHandle) -> ClResult<EventHandle> {
    const CALL: &str = "clCreateUserEvent";
    let raw =
        cl3::event::create_user_event(context.raw()).map_err(|code| ClError::new(CALL, code))?;
    // SAFETY: The call has just returned this reference to us.
    unsafe { EventHandle::own(raw, CALL) }
}

/// Resolves a user event with 0 or a negative code.
pub(crate) fn set_user_event_status(event: &EventHandle, status: i32) -> ClResult<()> {
    cl3::event::set_user_event_status(event.raw(), status)
        .map_err(|code| ClError::new("clSetUserEventStatus", code))
}

/// How far the command is: positive while it has not ended, 0 once it has, negative once it has failed.
pub(crate) fn execution_status(event: &EventHandle) -> ClResult<i32> {
    const CALL: &str = "clGetEventInfo";
    match cl3::event::get_event_info(event.raw(), cl3::event::CL_EVENT_COMMAND_EXECUTION_STATUS) {
        Ok(InfoType::Int(status)) => Ok(status),
        Ok(_) => Err(ClError::new(CALL, CL_INVALID_VALUE)),
        Err(code) => Err(ClError::new(CALL, code)),
    }
}

/// Waits until the command has ended.
pub(crate) fn wait_for_event(event: &EventHandle) -> ClResult<()> {
    cl3::event::wait_for_events(&[event.raw()])
        .map_err(|code| ClError::new("clWaitForEvents", code))
}

/// Waits until the command has ended, and does not come back before, whatever a wait answers.
///
/// A wait may fail for a reason of its own, with the command still running; host bytes that the command works
/// on must stay until it has ended. Only where the runtime does not know the event any more is it taken for
/// ended.
pub(crate) fn wait_until_ended(event: &EventHandle) -> ClResult<()> {
    let waited = wait_for_event(event);
    if waited.is_err() {
        while matches!(execution_status(event), Ok(status) if status > 0) {
            std::thread::yield_now();
        }
    }
    waited
}
