//! What has to end before a block of shared virtual memory is freed, or a view is released.

use binpool_allocators::Region;

use crate::{
    order::access_log::{AccessLog, dependencies},
    sys::{ClResult, PendingUses},
};

impl AccessLog {
    /// Returns what has to end before no command uses `region` any more.
    pub(crate) fn pending_uses(&self, region: Region) -> ClResult<PendingUses> {
        let commands = self.commands_on(region);
        let mut uses = PendingUses::default();
        uses.after_commands(move || Ok(dependencies(None, commands.clone())?.events))?;
        Ok(uses)
    }
}
