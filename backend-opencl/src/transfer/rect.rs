//! Copies of rectangles and boxes between buffers and the host.

use binpool_allocators::{
    AsMemory, Error, InvalidRequest, Memory, On, Region, Result, runtime::Access,
};
use cl3::error_codes::CL_MEM_COPY_OVERLAP;

use super::{
    copy,
    host::{HostPart, HostTransfer, TransferPart},
    parts,
};
use crate::{
    backend::OpenClBackend,
    event::{ClEvent, ClOn},
    memory::cl_memory::ClMemory,
    queue::ClQueue,
    sys::{
        ClResult, EventHandle, MemHandle, Purpose, WaitList,
        transfer::{self, Corner, DeviceSide, HostRect},
    },
};

/// The position of a rectangle on one side of a transfer: its origin, and the distances of rows and slices.
///
/// The *region* of a transfer, which both sides have in common, is `[bytes, rows, slices]`: the bytes of a row, the number
/// of rows, and the number of slices. Origins are counted in the same way. This is as in OpenCL 3.0, section 5.2.2, and in
/// `PyOpenCL`'s `enqueue_copy`.
///
/// ```
/// use binpool_opencl::{Rect, RectPart};
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
///
/// // 2 slices of 3 rows of 4 bytes: 0 to 23.
/// let volume: Vec<u8> = (0..24).collect();
/// let volume = backend.create_buffer_from(&volume, MemoryFlags::empty())?;
///
/// // Bytes 1 and 2 of rows 1 and 2, of both slices.
/// let inner = Rect { origin: [1, 1, 0], row_pitch: 4, slice_pitch: 12 };
/// let mut seen = [0_u8; 8];
/// backend.read_part(&queue, RectPart::new((&volume, inner), Rect::default(), [2, 2, 2]), &mut seen)?;
/// assert_eq!(seen, [5, 6, 9, 10, 17, 18, 21, 22]);
///
/// // The second slice alone: a flat rectangle starts 3 rows further down.
/// let second = Rect::in_rows([1, 3 + 1, 0], 4);
/// backend.read_part(&queue, RectPart::new((&volume, second), Rect::default(), [2, 2, 1]), &mut seen[..4])?;
/// assert_eq!(seen[..4], [17, 18, 21, 22]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rect {
    /// The start of the rectangle: the byte in its row, the row in its slice, and the slice.
    pub origin: [usize; 3],
    /// The distance from one row to the next, in bytes; 0 for rows without gaps.
    pub row_pitch: usize,
    /// The distance from one slice to the next, in bytes, a multiple of the row pitch; 0 for slices without gaps.
    pub slice_pitch: usize,
}

impl Rect {
    /// Returns a rectangle at `origin` in memory whose rows are `row_pitch` bytes apart, and whose slices have no gaps.
    pub const fn in_rows(origin: [usize; 3], row_pitch: usize) -> Self {
        Self {
            origin,
            row_pitch,
            slice_pitch: 0,
        }
    }

    /// Returns the span of a rectangle of this `region` from its first to its last byte, and its corner, with the pitches that 0 stands
    /// for.
    fn span(self, region: [usize; 3], size: usize) -> Result<(Region, Corner)> {
        let [bytes, rows, slices] = region;
        if region.contains(&0) {
            return Err(InvalidRequest::ZeroSize.into());
        }
        let row_pitch = match self.row_pitch {
            0 => bytes,
            pitch => pitch,
        };
        check_pitch(row_pitch, bytes, 1)?;
        let beyond = || InvalidRequest::OutOfBounds {
            offset: self.origin[0],
            bytes: usize::MAX,
            size,
        };
        let slice = rows.checked_mul(row_pitch).ok_or_else(beyond)?;
        let slice_pitch = match self.slice_pitch {
            0 => slice,
            pitch => pitch,
        };
        check_pitch(slice_pitch, slice, row_pitch)?;
        let offset_of = |[byte, row, slice]: [usize; 3]| {
            let row = row.checked_mul(row_pitch)?;
            let slice = slice.checked_mul(slice_pitch)?;
            byte.checked_add(row)?.checked_add(slice)
        };
        let offset = offset_of(self.origin).ok_or_else(beyond)?;
        let last = offset_of([bytes, rows - 1, slices - 1]).ok_or_else(beyond)?;
        let span = Region::new(offset, last);
        span.check_within(size)?;
        // The pitch of a single row or slice is ignored.
        let (row_pitch, slice_pitch) = match (rows, slices) {
            (1, 1) => (bytes, bytes),
            (_, 1) => (row_pitch, slice),
            _ => (row_pitch, slice_pitch),
        };
        let corner = Corner {
            offset,
            row_pitch,
            slice_pitch,
        };
        Ok((span, corner))
    }
}

fn check_pitch(pitch: usize, least: usize, multiple_of: usize) -> Result<()> {
    if pitch < least || !pitch.is_multiple_of(multiple_of) {
        return Err(InvalidRequest::Pitch {
            pitch,
            least,
            multiple_of,
        }
        .into());
    }
    Ok(())
}

/// Returns whether two rectangles of one object share a byte.
fn overlap(from: Corner, to: Corner, [bytes, rows, slices]: [usize; 3]) -> bool {
    if !have_same_pitches(from, to) {
        return rows_overlap(from, to, [bytes, rows, slices]);
    }
    let distance = from.offset.abs_diff(to.offset);
    // Looks for a slice of the later rectangle that starts less than a row's length before or after a row of the earlier
    // one.
    (0..slices).any(|slice| {
        let beyond = distance.abs_diff(slice.saturating_mul(from.slice_pitch));
        let row = beyond / from.row_pitch;
        let rest = beyond % from.row_pitch;
        let near = row < rows && rest < bytes;
        near || (row + 1 < rows && from.row_pitch - rest < bytes)
    })
}

fn have_same_pitches(from: Corner, to: Corner) -> bool {
    (from.row_pitch, from.slice_pitch) == (to.row_pitch, to.slice_pitch)
}

/// Returns whether any rows of two rectangles of one object share a byte, whatever their pitches.
fn rows_overlap(from: Corner, to: Corner, [bytes, rows, slices]: [usize; 3]) -> bool {
    // Ascending.
    let starts_of = |corner: Corner| {
        let slices = (0..slices).map(move |slice| corner.offset + slice * corner.slice_pitch);
        slices.flat_map(move |slice| (0..rows).map(move |row| slice + row * corner.row_pitch))
    };
    let (mut froms, mut tos) = (starts_of(from), starts_of(to));
    let mut next = (froms.next(), tos.next());
    while let (Some(from), Some(to)) = next {
        if from.abs_diff(to) < bytes {
            return true;
        }
        if from < to {
            next.0 = froms.next();
        } else {
            next.1 = tos.next();
        }
    }
    false
}

/// Enqueues a copy of a rectangle to another one that shares no byte with it, between two buffers or within one. OpenCL refuses
/// a copy within one buffer whose pitches differ, but all blocks of a pool may lie in one buffer. Such a copy goes through a
/// further buffer, as does one that the runtime takes for overlapping: `PoCL` does so where rows touch.
fn copy_between(
    queue: &ClQueue,
    (source, from): (&MemHandle, Corner),
    (destination, to): (&MemHandle, Corner),
    region: [usize; 3],
    wait: &WaitList<'_>,
) -> ClResult<EventHandle> {
    let copy =
        |source: (&MemHandle, Corner), destination: (&MemHandle, Corner), wait: &WaitList<'_>| {
            transfer::enqueue_copy_rect(queue.handle(), source, destination, region, wait)
        };
    if source.raw() != destination.raw() || have_same_pitches(from, to) {
        match copy((source, from), (destination, to), wait) {
            Err(error) if error.code == CL_MEM_COPY_OVERLAP => {}
            copied => return copied,
        }
    }
    let [bytes, rows, slices] = region;
    let tight = Corner {
        offset: 0,
        row_pitch: bytes,
        slice_pitch: bytes.saturating_mul(rows),
    };
    let size = tight.slice_pitch.saturating_mul(slices);
    parts::enqueue_through_buffer(
        queue,
        size,
        wait,
        |between, wait| copy((source, from), (between, tight), wait),
        |between, wait| copy((between, tight), (destination, to), wait),
    )
}

/// Copies of rectangles, of buffers and shared virtual memory, bare or pooled: `PyOpenCL`'s `enqueue_copy` with origins, a region and
/// pitches.
///
/// # Errors
///
/// All of them: [`ZeroSize`](InvalidRequest::ZeroSize) for a region with a 0 in it, [`Pitch`](InvalidRequest::Pitch),
/// [`OutOfBounds`](InvalidRequest::OutOfBounds) for a rectangle that reaches beyond either side,
/// [`ForeignObject`](InvalidRequest::ForeignObject), [`HostAccess`](InvalidRequest::HostAccess),
/// [`Mapped`](InvalidRequest::Mapped), and the failures of the runtime.
impl OpenClBackend {
    /// Enqueues a copy of a rectangle from one block of memory to another one, or within one block.
    ///
    /// ```
    /// use binpool_allocators::{Error, InvalidRequest};
    /// use binpool_opencl::Rect;
    /// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
    /// # use binpool_opencl::OpenClBackend;
    /// # let backend = OpenClBackend::open(&"any".parse()?)?;
    /// # let queue = backend.create_queue(QueueOrder::InOrder)?;
    ///
    /// // The left column of a matrix of 3 × 3 over its right one.
    /// let matrix = backend.create_buffer_from(&[1_u8, 2, 3, 4, 5, 6, 7, 8, 9], MemoryFlags::empty())?;
    /// let column = |index| (&matrix, Rect::in_rows([index, 0, 0], 3));
    /// backend.enqueue_copy_rect(&queue, column(0), column(2), [1, 3, 1])?;
    /// let mut seen = [0_u8; 9];
    /// backend.read(&queue, &matrix, 0, &mut seen)?;
    /// assert_eq!(seen, [1, 2, 1, 4, 5, 4, 7, 8, 7]);
    ///
    /// let wide = backend.enqueue_copy_rect(&queue, column(0), column(1), [2, 3, 1]);
    /// assert!(matches!(
    ///     wide,
    ///     Err(Error::InvalidRequest(InvalidRequest::OverlappingCopy { from: 0, to: 1, .. }))
    /// ));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors); [`OverlappingCopy`](InvalidRequest::OverlappingCopy) if the two share a byte.
    pub fn enqueue_copy_rect<'q>(
        &self,
        on: impl Into<ClOn<'q>>,
        (source, from): (&(impl AsMemory<Self> + ?Sized), Rect),
        (destination, to): (&(impl AsMemory<Self> + ?Sized), Rect),
        region: [usize; 3],
    ) -> Result<ClEvent> {
        let On { queue, wait_for } = on.into();
        let (source, from_span, from) = self.corner(queue, (source, from), region)?;
        let (destination, to_span, to) = self.corner(queue, (destination, to), region)?;
        let uses = [
            source.used(from_span, Access::Read),
            destination.used(to_span, Access::Write),
        ];
        let purpose = Purpose::Memory(to_span.bytes);
        if uses[0].shares_bytes_with(&uses[1]) {
            let [from, to] = [(from, &uses[0]), (to, &uses[1])]
                .map(|(corner, used)| corner.at(used.region.offset));
            if overlap(from, to, region) {
                return Err(copy::overlap(from_span, to_span).into());
            }
        }
        let source = source.device_bytes(from_span);
        let destination = destination.device_bytes(to_span);
        // OpenCL has no such calls for shared virtual memory.
        self.submit(queue, purpose, &uses, wait_for, |wait| {
            source.on_buffer(|source, offset| {
                let source = (source, from.at(offset));
                destination.on_buffer(|destination, offset| {
                    let destination = (destination, to.at(offset));
                    copy_between(queue, source, destination, region, wait)
                })
            })
        })
    }

    /// Returns the memory for commands on `queue`, the bytes that the rectangle spans, and its corner there. Checks all of
    /// them.
    fn corner<'m>(
        &self,
        queue: &ClQueue,
        (memory, rect): (&'m (impl AsMemory<Self> + ?Sized), Rect),
        region: [usize; 3],
    ) -> Result<(&'m ClMemory, Region, Corner)> {
        let (logical, corner) = rect.span(region, memory.size())?;
        let found = self.bytes_on(queue, memory, logical)?;
        let (memory, span) = found.ok_or(InvalidRequest::ZeroSize)?;
        self.check_pitches(memory, corner, region[2])?;
        Ok((memory, span, corner))
    }

    /// Checks, for NVIDIA's driver, that the slices of a rectangle would fit into the memory with all of their pitches.
    fn check_pitches(&self, memory: &ClMemory, corner: Corner, slices: usize) -> Result<()> {
        let needed = slices.saturating_mul(corner.slice_pitch);
        if !self.context().quirks.rectangles_need_whole_slices || needed <= memory.bytes() {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "rectangles that end before the pitch of their last row or slice, in memory of {} bytes on {}: take memory of \
             {needed} bytes",
            memory.bytes(),
            self.device_limits().device_name
        )))
    }
}

/// A rectangle in memory and one in the host's bytes, for the [transfers of parts](OpenClBackend::write_part).
///
/// The memory is a buffer or shared virtual memory, bare or pooled.
///
/// # Errors
///
/// Transfers of it: [`ZeroSize`](InvalidRequest::ZeroSize) for a region with a 0 in it, [`Pitch`](InvalidRequest::Pitch), and
/// [`OutOfBounds`](InvalidRequest::OutOfBounds) for a rectangle that reaches beyond either side.
///
/// ```
/// use binpool_allocators::{Error, InvalidRequest};
/// use binpool_opencl::{Rect, RectPart};
/// # use binpool_allocators::{Backend, MemoryFlags, QueueOrder};
/// # use binpool_opencl::OpenClBackend;
/// # let backend = OpenClBackend::open(&"any".parse()?)?;
/// # let queue = backend.create_queue(QueueOrder::InOrder)?;
///
/// let matrix = backend.create_buffer_from(&[1_u8, 2, 3, 4, 5, 6, 7, 8, 9], MemoryFlags::empty())?;
/// let mut column = [0_u8; 3];
/// let middle = (&matrix, Rect::in_rows([1, 0, 0], 3));
/// backend.read_part(&queue, RectPart::new(middle, Rect::default(), [1, 3, 1]), &mut column)?;
/// assert_eq!(column, [2, 5, 8]);
///
/// let beyond = backend.read_part(&queue, RectPart::new(middle, Rect::default(), [1, 4, 1]), &mut [0_u8; 4]);
/// let expected = InvalidRequest::OutOfBounds { offset: 1, bytes: 10, size: 9 };
/// assert!(matches!(beyond, Err(Error::InvalidRequest(request)) if request == expected));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RectPart<'a, M: ?Sized> {
    memory: (&'a M, Rect),
    host: Rect,
    region: [usize; 3],
}

impl<'a, M: ?Sized> RectPart<'a, M> {
    /// Returns the part of `region` bytes, rows and slices that lies as these rectangles in the memory and in the host's bytes.
    pub const fn new(memory: (&'a M, Rect), host: Rect, region: [usize; 3]) -> Self {
        Self {
            memory,
            host,
            region,
        }
    }
}

impl<M: AsMemory<OpenClBackend> + ?Sized> TransferPart for RectPart<'_, M> {
    type Error = Error;

    #[expect(private_interfaces, reason = "no program implements it")]
    fn checked(
        &self,
        backend: &OpenClBackend,
        queue: &ClQueue,
        host_part: HostPart,
    ) -> Result<Option<HostTransfer<'_>>> {
        let region = self.region;
        // What overflows is refused below, since it lies in no memory.
        let all = || region.into_iter().fold(1, usize::saturating_mul);
        let host_bytes = host_part.bytes.unwrap_or_else(all);
        let (_, host) = self.host.span(region, host_bytes)?;
        let (memory, span, device) = backend.corner(queue, self.memory, region)?;
        memory.flags().check_host(host_part.host_use())?;
        Ok(Some(HostTransfer {
            device: DeviceSide::Rect(HostRect {
                bytes: memory.device_bytes(span),
                device,
                host,
                region,
            }),
            used: memory.used(span, host_part.access),
            host_bytes,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(rect: Rect, region: [usize; 3], size: usize) -> Result<Region, String> {
        let span = rect.span(region, size);
        span.map(|(span, _)| span)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_rectangle_spans_from_its_first_byte_to_its_last() {
        let tight = Rect::default();
        assert_eq!(span(tight, [4, 1, 1], 4), Ok(Region::new(0, 4)));
        assert_eq!(span(tight, [4, 3, 2], 24), Ok(Region::new(0, 24)));
        let inner = Rect::in_rows([2, 1, 0], 10);
        assert_eq!(span(inner, [3, 4, 1], 100), Ok(Region::new(12, 33)));
        let deep = Rect {
            origin: [1, 1, 1],
            row_pitch: 10,
            slice_pitch: 50,
        };
        assert_eq!(span(deep, [2, 2, 2], 150), Ok(Region::new(61, 62)));
    }

    #[test]
    fn the_pitch_of_a_single_row_or_slice_counts_for_nothing() {
        let rect = Rect {
            row_pitch: 10,
            slice_pitch: 50,
            ..Rect::default()
        };
        for (region, pitches) in [
            ([4, 1, 1], (4, 4)),
            ([4, 2, 1], (10, 20)),
            ([4, 1, 2], (10, 50)),
            ([4, 2, 2], (10, 50)),
        ] {
            let (_, corner) = rect.span(region, 100).unwrap();
            assert_eq!(
                (corner.row_pitch, corner.slice_pitch),
                pitches,
                "{region:?}"
            );
        }
    }

    #[test]
    fn rectangles_of_one_object_overlap_where_they_share_a_byte() {
        let region = [3, 2, 2];
        let corner = |offset, [row_pitch, slice_pitch]: [usize; 2]| Corner {
            offset,
            row_pitch,
            slice_pitch,
        };
        let bytes_of = |corner: Corner| -> Vec<usize> {
            let Corner {
                offset,
                row_pitch,
                slice_pitch,
            } = corner;
            let places = [0, row_pitch, slice_pitch, slice_pitch + row_pitch];
            let places = places.map(|place| offset + place);
            places.into_iter().flat_map(|at| at..at + 3).collect()
        };
        let one = corner(40, [7, 21]);
        for pitches in [[7, 21], [7, 28], [3, 21], [6, 12]] {
            for offset in 0..120 {
                let two = corner(offset, pitches);
                let shared = bytes_of(one)
                    .iter()
                    .any(|byte| bytes_of(two).contains(byte));
                assert_eq!(overlap(one, two, region), shared, "{two:?}");
                assert_eq!(overlap(two, one, region), shared, "{two:?}");
            }
        }
    }

    #[test]
    fn pitches_that_hold_no_row_or_slice_are_refused() {
        let narrow = Rect::in_rows([0; 3], 3);
        assert!(
            span(narrow, [4, 2, 1], 100)
                .unwrap_err()
                .contains("3 bytes: at least 4")
        );
        let flat = Rect {
            slice_pitch: 10,
            row_pitch: 10,
            ..Rect::default()
        };
        assert!(
            span(flat, [4, 2, 2], 100)
                .unwrap_err()
                .contains("10 bytes: at least 20")
        );
        let askew = Rect {
            slice_pitch: 25,
            row_pitch: 10,
            ..Rect::default()
        };
        assert!(
            span(askew, [4, 2, 2], 100)
                .unwrap_err()
                .contains("a multiple of 10")
        );
    }

    #[test]
    fn what_overflows_is_out_of_bounds() {
        for rect in [
            Rect::in_rows([usize::MAX, 0, 0], 0),
            Rect::in_rows([0, usize::MAX, 0], 2),
            Rect {
                slice_pitch: usize::MAX - 1,
                row_pitch: 2,
                origin: [0, 0, 2],
            },
            Rect::in_rows([0; 3], usize::MAX),
        ] {
            let error = span(rect, [2, 3, 2], 100).unwrap_err();
            assert!(
                error.contains("bytes") && error.contains("100"),
                "{rect:?}: {error}"
            );
        }
        assert!(span(Rect::default(), [usize::MAX, 2, 2], 100).is_err());
        assert!(span(Rect::default(), [4, 0, 1], 100).is_err());
    }
}
