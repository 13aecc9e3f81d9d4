//! Gives the freed memory of all streams back to the pool of the device.

use super::{Command, DeviceStream, Driver, PageUpdate};

impl<D: Driver> Command<'_, D> {
    pub(super) fn give_back(&mut self) {
        if self.streams.current().capturing().page_update() == PageUpdate::Allow {
            let (streams, failures) = self.streams.all_and_failures();
            streams.for_each(|stream| stream.device_memory().give_back(failures));
        }
    }
}
