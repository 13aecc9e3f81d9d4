//! Calls of OpenCL that make events, query them and wait for them.

use cl3::{error_codes::CL_INVALID_VALUE, info_type::InfoType};

use super::{ClError, ClResult, ContextHandle, EventHandle};

/// A guard for a command that works on the caller's memory. If a panic leaves the caller before the command was waited for,
/// or before its event owns that memory, it waits for the command.
pub(crate) struct EndedOnPanic<'a>(&'a EventHandle);

impl<'a> EndedOnPanic<'a> {
    pub(crate) const fn new(event: &'a EventHandle) -> Self {
        Self(event)
    }

    /// Ends the guard without a wait.
    pub(crate) fn disarm(self) {
        std::mem::forget(self);
    }

    /// Waits until the command has ended.
    pub(crate) fn wait(self) -> ClResult<()> {
        let ended = wait_until_ended(self.0);
        self.disarm();
        ended
    }
}

impl Drop for EndedOnPanic<'_> {
    fn drop(&mut self) {
        let _panicking = wait_until_ended(self.0);
    }
}

/// An event that the host resolves.
pub(crate) fn create_user_event(context: &ContextHandle) -> ClResult<EventHandle> {
    let created = cl3::event::create_user_event(context.raw());
    // SAFETY: The call above has just returned this reference, and nothing else takes it.
    unsafe { EventHandle::own(created, "clCreateUserEvent") }
}

/// Resolves a user event with 0 or a negative code.
pub(crate) fn set_user_event_status(event: &EventHandle, status: i32) -> ClResult<()> {
    cl3::event::set_user_event_status(event.raw(), status)
        .map_err(|code| ClError::new("clSetUserEventStatus", code))
}

/// Returns the status of the command: positive while it is pending, 0 if it has completed, negative if it has failed.
pub(crate) fn execution_status(event: &EventHandle) -> ClResult<i32> {
    const CALL: &str = "clGetEventInfo";
    match cl3::event::get_event_info(event.raw(), cl3::event::CL_EVENT_COMMAND_EXECUTION_STATUS) {
        Ok(InfoType::Int(status)) => Ok(status),
        Ok(_) => Err(ClError::new(CALL, CL_INVALID_VALUE)),
        Err(code) => Err(ClError::new(CALL, code)),
    }
}

/// The state of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Pending,
    Complete,
    /// It has failed with this negative code.
    Failed(i32),
}

/// Returns the state of the command.
///
/// On Intel's runtime a command that failed because of its wait list has the status of one that completed. Only a wait
/// tells the difference, and it returns at once here.
pub(crate) fn look(event: &EventHandle) -> ClResult<Progress> {
    Ok(match execution_status(event)? {
        1.. => Progress::Pending,
        0 => match wait_for_event(event) {
            Ok(()) => Progress::Complete,
            Err(error) => Progress::Failed(error.code),
        },
        code => Progress::Failed(code),
    })
}

/// Waits until the command has ended.
pub(crate) fn wait_for_event(event: &EventHandle) -> ClResult<()> {
    cl3::event::wait_for_events(&[event.raw()])
        .map_err(|code| ClError::new("clWaitForEvents", code))
}

/// Waits until the command has ended, even if a wait fails before.
///
/// A wait may fail while the command still runs, and host bytes that the command works on must stay until it has ended.
/// If the runtime no longer knows the event, the command counts as ended.
pub(crate) fn wait_until_ended(event: &EventHandle) -> ClResult<()> {
    let waited = wait_for_event(event);
    if waited.is_err() {
        while matches!(execution_status(event), Ok(status) if status > 0) {
            std::thread::yield_now();
        }
    }
    waited
}
