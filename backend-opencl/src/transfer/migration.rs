//! Migrations.

use binpool_allocators::{AsMemory, Error, Memory, Region, Result};
use bitflags::bitflags;
use cl3::memory::{CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, CL_MIGRATE_MEM_OBJECT_HOST};

use crate::{
    backend::OpenClBackend,
    cl_error::Purpose,
    event::ClEvent,
    image::ClImage,
    memory::cl_memory::ClMemory,
    order::access::{Access, Use},
    queue::ClQueue,
    sys::{self, MemHandle, Place, SvmRange},
};

bitflags! {
    /// Where memory migrates to, and whether its contents go along. None: to the queue's device, with its contents.
    ///
    /// ```
    /// use binpool_allocators::Event;
    /// use binpool_opencl::MigrationFlags;
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    ///
    /// let results = backend.create_buffer_from(&[7_u8; 4096], MemoryFlags::empty())?;
    /// // To where the host will read them.
    /// backend.enqueue_migrate(&queue, &[&results], MigrationFlags::HOST, &[])?;
    /// let mut seen = [0; 4096];
    /// backend.read(&queue, &results, 0, &mut seen, &[])?;
    /// assert_eq!(seen, [7; 4096]);
    /// // Back to the device, where kernels will write all of it: what it holds need not go along.
    /// let room = MigrationFlags::CONTENT_UNDEFINED;
    /// backend.enqueue_migrate(&queue, &[&results], room, &[])?.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MigrationFlags: u64 {
        /// To the host, and not to the queue's device.
        const HOST = CL_MIGRATE_MEM_OBJECT_HOST;
        /// What it holds afterwards is unspecified.
        const CONTENT_UNDEFINED = CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
    }
}

impl OpenClBackend {
    /// Enqueues a migration of blocks of memory, of buffers and of shared virtual memory in any mixture, bare or pooled:
    /// `PyOpenCL`'s `enqueue_migrate_mem_objects` and `enqueue_svm_migratemem`; OpenCL 3.0, sections 5.5.1 and 5.6.1.
    /// The event ends when all of them are there. Without any memory it is that of a marker.
    ///
    /// Of shared virtual memory, whole blocks migrate. A migration is a hint: on NVIDIA's platform, whose driver crashes
    /// over it, views of buffers stay where they are when they are to migrate to the host.
    ///
    /// # Errors
    ///
    /// [`Unsupported`](Error::Unsupported) for shared virtual memory on a device before OpenCL 2.1;
    /// [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject);
    /// [`Mapped`](binpool_allocators::InvalidRequest::Mapped); the failures of the runtime, lack of memory among them.
    ///
    /// ```
    /// # use binpool_allocators::Event;
    /// use binpool_opencl::{MigrationFlags, OpenClBackend};
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    ///
    /// let weights = backend.create_buffer(1 << 20, MemoryFlags::empty())?;
    /// let results = backend.create_buffer(1 << 20, MemoryFlags::empty())?;
    /// // Both are on the device before the first kernel; what `results` holds need not go along.
    /// backend.enqueue_migrate(&queue, &[&weights], MigrationFlags::empty(), &[])?;
    /// backend.enqueue_migrate(&queue, &[&results], MigrationFlags::CONTENT_UNDEFINED, &[])?.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enqueue_migrate(
        &self,
        queue: &ClQueue,
        memory: &[&dyn AsMemory<Self>],
        flags: MigrationFlags,
        wait_for: &[ClEvent],
    ) -> Result<ClEvent> {
        self.check_own_queue(queue)?;
        let memory = memory.iter().filter_map(|memory| memory.memory_on(queue));
        let memory: Vec<&ClMemory> = memory.collect();
        for memory in &memory {
            self.check_own_memory(memory)?;
        }
        let (shared, buffers): (Vec<&ClMemory>, Vec<&ClMemory>) = memory
            .into_iter()
            .partition(|memory| memory.svm().is_some());
        let to_host = flags.contains(MigrationFlags::HOST);
        let stays = |memory: &ClMemory| to_host && self.context().views_stay && memory.is_view();
        let moving = buffers.iter().filter(|memory| !stays(memory));
        let handles: Vec<_> = moving.filter_map(|memory| memory.buffer()).collect();
        let uses: Vec<_> = buffers.iter().map(|memory| whole(memory)).collect();
        if shared.is_empty() {
            return self.migrate_objects(queue, &handles, &uses, flags, wait_for);
        }
        self.check_svm_migration()?;
        if buffers.is_empty() {
            return self.migrate_shared(queue, &shared, flags, wait_for);
        }
        let first = self.migrate_objects(queue, &handles, &uses, flags, wait_for)?;
        let both = [wait_for, &[first]].concat();
        self.migrate_shared(queue, &shared, flags, &both)
    }

    /// Enqueues a migration of images: `PyOpenCL`'s `enqueue_migrate_mem_objects`.
    ///
    /// ```
    /// # use binpool_allocators::Event;
    /// use binpool_opencl::MigrationFlags;
    /// # use binpool_opencl::{ChannelOrder, ChannelType, ImageColor, ImageFormat, ImageRegion, ImageShape};
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    /// # let format = ImageFormat::new(ChannelOrder::Rgba, ChannelType::Float);
    /// # let shape = ImageShape::D2 { width: 64, height: 64 };
    ///
    /// let drawn = backend.create_image(MemoryFlags::empty(), format, shape)?;
    /// let white = ImageColor::Float([1.0; 4]);
    /// backend.enqueue_fill_image(&queue, &drawn, ImageRegion::all(shape), white, &[])?;
    /// // Behind the fill. When the host looks, the image is there already.
    /// let moved = backend.enqueue_migrate_images(&queue, &[&drawn], MigrationFlags::HOST, &[])?;
    /// moved.wait()?;
    /// let map = backend.map_image::<f32>(&queue, &drawn, ImageRegion::all(shape), &[])?;
    /// assert_eq!(map.row(63, 0), Some(&[1.0; 256][..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ForeignObject`](binpool_allocators::InvalidRequest::ForeignObject);
    /// [`Mapped`](binpool_allocators::InvalidRequest::Mapped); the failures of the runtime.
    pub fn enqueue_migrate_images(
        &self,
        queue: &ClQueue,
        images: &[&ClImage],
        flags: MigrationFlags,
        wait_for: &[ClEvent],
    ) -> Result<ClEvent> {
        self.check_own_queue(queue)?;
        for image in images {
            self.check_own_image(image)?;
        }
        let handles: Vec<_> = images.iter().map(|image| image.handle()).collect();
        let uses = images.iter().map(|image| image.used(Access::Write));
        self.migrate_objects(queue, &handles, &uses.collect::<Vec<_>>(), flags, wait_for)
    }

    fn check_svm_migration(&self) -> Result<()> {
        let (major, minor) = self.version();
        if (major, minor) < (2, 1) {
            return Err(Error::unsupported(format!(
                "migration of shared virtual memory on {}, which has OpenCL {major}.{minor} and not 2.1: leave it out, \
                 the memory moves when it is used",
                self.device_limits().device_name
            )));
        }
        Ok(())
    }

    /// Enqueues a migration of buffers and images.
    pub(crate) fn migrate_objects(
        &self,
        queue: &ClQueue,
        objects: &[&MemHandle],
        uses: &[Use<'_>],
        flags: MigrationFlags,
        wait_for: &[ClEvent],
    ) -> Result<ClEvent> {
        if objects.is_empty() {
            return self.submit(queue, Purpose::Control, uses, wait_for, |wait| {
                sys::enqueue_marker(queue.handle(), wait)
            });
        }
        self.submit(queue, purpose(uses), uses, wait_for, |wait| {
            sys::migrate::enqueue_migrate(queue.handle(), objects, flags.bits(), wait)
        })
    }

    fn migrate_shared(
        &self,
        queue: &ClQueue,
        shared: &[&ClMemory],
        flags: MigrationFlags,
        wait_for: &[ClEvent],
    ) -> Result<ClEvent> {
        let uses: Vec<_> = shared.iter().map(|memory| whole(memory)).collect();
        let all =
            shared
                .iter()
                .filter_map(|memory| match memory.place(Region::first(memory.bytes())) {
                    Some(Place::Svm(range)) => Some(range),
                    Some(Place::Buffer(..)) | None => None,
                });
        // The host's own memory stays where it is.
        let blocks: Vec<SvmRange<'_>> = all.filter(|range| !range.is_of_the_host()).collect();
        if blocks.is_empty() {
            return self.submit(queue, purpose(&uses), &uses, wait_for, |wait| {
                sys::enqueue_marker(queue.handle(), wait)
            });
        }
        self.submit(queue, purpose(&uses), &uses, wait_for, |wait| {
            sys::migrate::enqueue_svm_migrate(queue.handle(), &blocks, flags.bits(), wait)
        })
    }
}

/// As a write: contents may get lost, and others are not to look while they move.
fn whole(memory: &ClMemory) -> Use<'_> {
    memory.used(Region::first(memory.bytes()), Access::Write)
}

fn purpose(uses: &[Use<'_>]) -> Purpose {
    let bytes = uses.iter().map(|used| used.region.bytes);
    Purpose::Memory(bytes.fold(0, usize::saturating_add))
}
