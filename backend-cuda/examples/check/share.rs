//! Two processes that share a block of a pool: one exports it, and another, which it starts, imports it.

use std::{
    io::{IoSlice, IoSliceMut, Read, Write, stdin},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::Command,
};

use binpool::{MemoryPool, VirtualMemoryAllocator};
use binpool_allocators::{Backend, Memory, Queue, QueueOrder, VirtualMemory};
use binpool_cuda::{CudaBackend, ExportedMemory};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The most descriptors that one message takes.
const MOST: usize = 253;

/// Sends how many numbers there are with the descriptors, and then the numbers.
fn send(mut socket: &UnixStream, exported: &ExportedMemory) {
    let descriptors: Vec<_> = exported.descriptors().collect();
    let layout = exported.layout();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let count = (layout.len() as u64).to_ne_bytes();
    let data = [IoSlice::new(&count)];
    let sent = sendmsg(socket, &data, &mut control, SendFlags::empty());
    assert_eq!(sent.unwrap(), count.len());
    for number in layout {
        socket.write_all(&number.to_ne_bytes()).unwrap();
    }
}

fn receive(mut socket: &UnixStream) -> ExportedMemory {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut number = [0; 8];
    let mut data = [IoSliceMut::new(&mut number)];
    let received = recvmsg(socket, &mut data, &mut control, RecvFlags::CMSG_CLOEXEC);
    assert_eq!(received.unwrap().bytes, 8);
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            descriptors.extend(sent);
        }
    }
    let mut layout = Vec::new();
    for _ in 0..u64::from_ne_bytes(number) {
        socket.read_exact(&mut number).unwrap();
        layout.push(u64::from_ne_bytes(number));
    }
    ExportedMemory::from_parts(descriptors, &layout).unwrap()
}

/// Shares a block with a process that calls [`import`].
pub(crate) fn export(backend: &CudaBackend, mut other: Command) {
    let (mut here, there) = UnixStream::pair().unwrap();
    let mut other = other.stdin(OwnedFd::from(there)).spawn().unwrap();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let pool = MemoryPool::new(VirtualMemoryAllocator::new(backend), &queue).unwrap();
    let page = backend.page_bytes();
    // The block begins and ends inside of pages.
    let neighbour = pool.allocate(page + 4096).unwrap();
    neighbour.enqueue_fill(&queue, .., &[1_u8]).unwrap();
    let block = pool.allocate(3 * page + 4096).unwrap();
    block.enqueue_fill(&queue, .., &[7_u8]).unwrap();
    queue.finish().unwrap();
    send(&here, &backend.export(&queue, &block).unwrap());
    let mut done = [0];
    here.read_exact(&mut done).unwrap();
    for (block, byte) in [(&block, 9_u8), (&neighbour, 1)] {
        let mut bytes = vec![0_u8; block.size()];
        block.read(&queue, 0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|seen| *seen == byte));
    }
    drop((block, neighbour));
    drop(pool);
    here.write_all(&done).unwrap();
    assert!(other.wait().unwrap().success());
}

/// Reads and writes the block of the process that has started this one, and keeps it after that has freed it.
pub(crate) fn import(backend: &CudaBackend) {
    let mut socket = UnixStream::from(stdin().as_fd().try_clone_to_owned().unwrap());
    let memory = backend.import(&receive(&socket)).unwrap();
    let queue = backend.create_queue(QueueOrder::InOrder).unwrap();
    let check = |byte: u8| {
        let mut bytes = vec![0_u8; memory.bytes()];
        backend.read(&queue, &memory, 0, &mut bytes).unwrap();
        assert!(bytes[..3 << 20].iter().all(|seen| *seen == byte));
    };
    check(7);
    backend.enqueue_fill(&queue, &memory, .., &[9_u8]).unwrap();
    queue.finish().unwrap();
    socket.write_all(&[1]).unwrap();
    socket.read_exact(&mut [0]).unwrap();
    check(9);
}
